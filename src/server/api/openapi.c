/* SPDX-License-Identifier: Apache-2.0 */
/* Makes /openapi.json from the table of routes and the tables of the models. Only the other schemas
 * are written here. */
#include "server/api/openapi.h"

#include <harpe/version.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "pfo/models.h"
#include "pfo/result_scan.h"
#include "server/api/route_table.h"

/* Schemas of bodies and answers, with the names that the table uses. The empty ones come from the
 * models. */
static const char SCHEMAS[] =
    "{\"Null\":{\"type\":\"null\"},"
    "\"JobId\":{\"type\":\"string\"},"
    "\"JobInfo\":{},\"RankInfo\":{},\"FrequencySchedule\":{},\"ProfilingResult\":{},"
    "\"Clocks\":{\"type\":\"object\",\"description\":\"Optional: how long changes of the clock "
    "take, and the clocks at which the instructions really ran. Wrong clocks are ignored.\","
    "\"required\":[\"latencies\",\"runs\"],\"properties\":{"
    "\"latencies\":{\"type\":\"array\",\"description\":\"MHz, median and 95th percentile in s\","
    "\"items\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}},"
    "\"runs\":{\"type\":\"array\",\"description\":\"For each instruction of the schedule: null "
    "(not known), or clocks in MHz, each followed by its share of the time; empty: the clock of "
    "the schedule\",\"items\":{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"number\"}}}}},"
    "\"Conduct\":{},"
    "\"Breakdown\":{\"type\":\"object\",\"default\":{},\"additionalProperties\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}}},"
    "\"Straggler\":{\"type\":\"object\",\"properties\":{\"slowdown\":{\"type\":\"number\","
    "\"minimum\":1},\"iteration_time\":{\"type\":\"number\"}}},"
    "\"PowerCap\":{\"type\":\"object\",\"required\":[\"watts\"],\"properties\":{\"watts\":{"
    "\"type\":\"number\"}}},"
    "\"Plan\":{\"type\":\"object\",\"required\":[\"time\"],\"properties\":{\"time\":{\"type\":"
    "\"number\"}}},"
    "\"End\":{\"type\":\"object\",\"required\":[\"rank\"],\"properties\":{\"rank\":{\"type\":"
    "\"integer\",\"minimum\":0}}},"
    "\"Detail\":{\"type\":\"object\",\"properties\":{\"detail\":{}}}}";

/* The schemas of the fleet. */
static const char FLEET_SCHEMAS[] =
    "{"
    "\"Fleet\":{\"type\":\"object\",\"properties\":{"
    "\"at\":{\"type\":\"number\",\"minimum\":0},"
    "\"revision\":{\"type\":\"integer\"},"
    "\"state\":{\"enum\":[\"none\",\"within\",\"lowering\",\"over\",\"infeasible\"]},"
    "\"power\":{\"type\":[\"object\",\"null\"],\"properties\":{"
    "\"measured_w\":{\"type\":\"number\",\"description\":\"without jobs that have not measured "
    "their "
    "power yet\"},"
    "\"unmeasured\":{\"type\":\"integer\",\"minimum\":0,\"description\":\"how many of these there "
    "are\"}}},"
    "\"weighted_slowdown\":{\"type\":\"number\",\"minimum\":0},"
    "\"lower_bound\":{\"type\":[\"number\",\"null\"],\"description\":\"of objective\"},"
    "\"objective\":{\"type\":[\"number\",\"null\"],\"description\":\"what the split minimises: the "
    "weighted slowdown of the chosen plans, or with a price the cost, in the currency per s\"},"
    "\"budgets\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
    "\"groups\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
    "\"jobs_total\":{\"type\":\"integer\"},"
    "\"jobs\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
    "\"events\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},"
    "\"price\":{\"type\":[\"object\",\"null\"]},"
    "\"energy\":{\"type\":[\"object\",\"null\"],\"description\":\"used and saved since `since` "
    "while a budget, an event or a price was set; costs in currency; null: not known yet, after a "
    "restart\"}}},"
    "\"FleetHistory\":{\"type\":\"object\",\"properties\":{"
    "\"at\":{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"null\"]}},"
    "\"measured_w\":{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"null\"]}},"
    "\"counted_w\":{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"null\"]}},"
    "\"limit_w\":{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"null\"]}}}},"
    "\"FleetBudget\":{\"type\":\"object\",\"required\":[\"watts\"],\"properties\":{"
    "\"group\":{\"type\":[\"string\",\"null\"]},"
    "\"watts\":{\"type\":\"number\",\"minimum\":0},"
    "\"margin\":{\"type\":\"number\",\"minimum\":0,\"maximum\":0.99},"
    "\"overhead\":{\"type\":\"number\",\"minimum\":1,\"maximum\":10}}},"
    "\"FleetGroup\":{\"type\":\"object\",\"properties\":{"
    "\"parent\":{\"type\":[\"string\",\"null\"]}}},"
    "\"FleetTerms\":{\"type\":\"object\",\"properties\":{"
    "\"group\":{\"type\":[\"string\",\"null\"]},"
    "\"weight\":{\"type\":[\"number\",\"null\"]},"
    "\"max_slowdown\":{\"type\":[\"number\",\"null\"]},"
    "\"priority\":{\"type\":[\"number\",\"null\"]},"
    "\"most_w\":{\"type\":[\"number\",\"null\"]},"
    "\"highest_w\":{\"type\":[\"number\",\"null\"]}}},"
    "\"FleetLoad\":{\"type\":\"object\",\"required\":[\"watts\"],\"properties\":{"
    "\"watts\":{\"type\":\"number\",\"minimum\":0},"
    "\"group\":{\"type\":[\"string\",\"null\"]}}},"
    "\"FleetMember\":{\"type\":\"object\",\"required\":[\"plans\"],\"properties\":{"
    "\"plans\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":1000,\"items\":{\"type\":\"object\","
    "\"required\":[\"time\",\"power\"],\"properties\":{\"time\":{\"type\":\"number\"},\"power\":{"
    "\"type\":\"number\"}}}},"
    "\"name\":{\"type\":[\"string\",\"null\"]},"
    "\"group\":{\"type\":[\"string\",\"null\"]},"
    "\"weight\":{\"type\":[\"number\",\"null\"]},"
    "\"max_slowdown\":{\"type\":[\"number\",\"null\"]},"
    "\"priority\":{\"type\":[\"number\",\"null\"]},"
    "\"most_w\":{\"type\":[\"number\",\"null\"]}}},"
    "\"FleetReport\":{\"type\":\"object\",\"properties\":{"
    "\"plan\":{\"type\":[\"integer\",\"null\"]},"
    "\"power\":{\"type\":[\"number\",\"null\"]}}},"
    "\"FleetPlan\":{\"type\":\"object\",\"properties\":{"
    "\"plan\":{\"type\":\"integer\"},"
    "\"watts\":{\"type\":[\"number\",\"null\"]},"
    "\"time_s\":{\"type\":[\"number\",\"null\"]}}},"
    "\"FleetEvent\":{\"type\":\"object\",\"description\":\"watts or share, not "
    "both\",\"required\":[\"duration_s\"],\"properties\":{"
    "\"from\":{\"type\":[\"number\",\"null\"]},"
    "\"duration_s\":{\"type\":\"number\",\"minimum\":1},"
    "\"watts\":{\"type\":[\"number\",\"null\"]},"
    "\"share\":{\"type\":[\"number\",\"null\"]},"
    "\"group\":{\"type\":[\"string\",\"null\"]},"
    "\"notice_s\":{\"type\":[\"number\",\"null\"]},"
    "\"ramp_s\":{\"type\":[\"number\",\"null\"]},"
    "\"note\":{\"type\":[\"string\",\"null\"]},"
    "\"key\":{\"type\":[\"string\",\"null\"]},"
    "\"may_exceed_slowdown\":{\"type\":\"boolean\"}}},"
    "\"FleetPromise\":{\"type\":\"object\",\"properties\":{"
    "\"id\":{\"type\":\"integer\"},"
    "\"promised_w\":{\"type\":[\"number\",\"null\"]},"
    "\"missing_w\":{\"type\":\"number\",\"minimum\":0}}},"
    "\"FleetMissing\":{\"type\":\"object\",\"properties\":{"
    "\"missing_w\":{\"type\":\"number\",\"minimum\":0}}},"
    "\"FleetPrices\":{\"type\":\"object\",\"required\":[\"series\"],\"properties\":{"
    "\"currency\":{\"type\":[\"string\",\"null\"]},"
    "\"carbon_per_kg\":{\"type\":\"number\",\"minimum\":0},"
    "\"value_per_s\":{\"type\":[\"number\",\"null\"],\"minimum\":1e-9},"
    "\"series\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"at\",\"energy_"
    "per_kwh\"],\"properties\":{\"at\":{\"type\":\"number\"},\"energy_per_kwh\":{\"type\":"
    "\"number\"},\"carbon_g_per_kwh\":{\"type\":\"number\"}}}}}}}";

static json_t *content(const char *schema) {
    json_t *type =
        schema ? json_pack("{s:s+}", "$ref", "#/components/schemas/", schema) : json_object();
    return json_pack("{s:{s:o}}", "application/json", "schema", type);
}

static json_t *content_of(const harpe_route *route) {
    const char *text = route->page == HARPE_PAGE_EVENTS    ? "text/event-stream"
                       : route->page == HARPE_PAGE_METRICS ? "text/plain"
                                                           : NULL;
    if (!text) return content(route->answer_schema);
    return json_pack("{s:{s:{s:s}}}", text, "schema", "type", "string");
}

static json_t *parameter(const char *name, const char *where, bool is_required, const char *type) {
    return json_pack("{s:s, s:s, s:b, s:{s:s}}", "name", name, "in", where, "required",
                     (int)is_required, "schema", "type", type);
}

static json_t *parameters(const harpe_route *route) {
    json_t *list = json_array();
    if (route->job_segment >= 0) {
        const char *brace = strchr(route->path, '{');
        char name[32];
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(brace + 1, "}"), brace + 1);
        json_array_append_new(list, parameter(name, "path", true, "string"));
    }
    if (route->needs_rank) json_array_append_new(list, parameter("rank", "query", true, "integer"));
    if (route->takes_round)
        json_array_append_new(list, parameter("round", "query", false, "integer"));
    if (route->call == HARPE_CALL_PIPELINE)
        json_array_append_new(list, parameter("plan", "query", false, "integer"));
    if (route->call == HARPE_CALL_FLEET_DELETE_BUDGET)
        json_array_append_new(list, parameter("group", "query", false, "string"));
    if (route->call == HARPE_CALL_FLEET_HISTORY) {
        json_array_append_new(list, parameter("from", "query", false, "number"));
        json_array_append_new(list, parameter("to", "query", false, "number"));
        json_array_append_new(list, parameter("points", "query", false, "integer"));
    }
    if (route->page == HARPE_PAGE_AUDIT)
        json_array_append_new(list, parameter("limit", "query", false, "integer"));
    bool is_list = route->call == HARPE_CALL_LIST ||
                   (route->call == HARPE_CALL_FINISHED && route->job_segment < 0);
    if (is_list) {
        json_array_append_new(list, parameter("limit", "query", false, "integer"));
        json_array_append_new(list, parameter("offset", "query", false, "integer"));
    }
    static const char *const list_texts[] = {"after", "sort", "search"};
    for (size_t i = 0; i < 3 && route->call == HARPE_CALL_LIST; i++)
        json_array_append_new(list, parameter(list_texts[i], "query", false, "string"));
    return list;
}

static json_t *answers(const harpe_route *route) {
    json_t *list = json_object();
    json_object_set_new(
        list, "200", json_pack("{s:s, s:o}", "description", "done", "content", content_of(route)));
    static const struct {
        const char *status, *description;
    } errors[] = {{"404", "no such job"},
                  {"409", "contradicts earlier data of the job"},
                  {"410", "the job was evicted"},
                  {"422", "a list of all invalid fields"},
                  {"500", "the scheduler failed"}};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0] && !route->page; i++)
        json_object_set_new(list, errors[i].status,
                            json_pack("{s:s, s:o}", "description", errors[i].description, "content",
                                      content("Detail")));
    return list;
}

static json_t *operation(const harpe_route *route) {
    json_t *made = json_pack("{s:s, s:o, s:o}", "summary", route->summary, "parameters",
                             parameters(route), "responses", answers(route));
    if (route->body_schema)
        json_object_set_new(
            made, "requestBody",
            json_pack("{s:b, s:o}", "required", 1, "content", content(route->body_schema)));
    return made;
}

static void add_route(json_t *paths, const harpe_route *route) {
    json_t *path = json_object_get(paths, route->path);
    if (!path) {
        json_object_set_new(paths, route->path, json_object());
        path = json_object_get(paths, route->path);
    }
    char method[8] = "";
    for (size_t i = 0; route->method[i] && i + 1 < sizeof method; i++)
        method[i] = (char)(route->method[i] - 'A' + 'a');
    json_object_set_new(path, method, operation(route));
}

static void set_reference(json_t *properties, const char *name, const char *schema) {
    json_object_set_new(properties, name,
                        json_pack("{s:s+}", "$ref", "#/components/schemas/", schema));
}

static json_t *all_schemas(void) {
    json_t *schemas = json_loads(SCHEMAS, 0, NULL);
    json_t *models = harpe_model_schemas();
    json_t *fleet = json_loads(FLEET_SCHEMAS, 0, NULL);
    json_t *result = json_object_get(json_object_get(models, "ProfilingResult"), "properties");
    set_reference(result, "conduct", "Conduct");
    set_reference(result, "clocks", "Clocks");
    json_object_update(schemas, models);
    json_object_set_new(schemas, "Conduct", harpe_conduct_schema());
    json_object_update(schemas, fleet);
    json_decref(models);
    json_decref(fleet);
    return schemas;
}

json_t *harpe_openapi_members(const char *schema) {
    json_t *schemas = all_schemas();
    json_t *members = json_object_get(json_object_get(schemas, schema), "properties");
    json_incref(members);
    json_decref(schemas);
    return members;
}

char *harpe_routes_openapi(void) {
    json_t *paths = json_object();
    for (const harpe_route *route = harpe_route_table; route->method; route++)
        add_route(paths, route);
    json_t *document = json_pack(
        "{s:s, s:{s:s, s:s}, s:o, s:{s:o, s:{s:{s:s, s:s}}}, s:[{s:[]}, {}]}", "openapi", "3.1.0",
        "info", "title", "Harpe's pipeline frequency optimizer", "version", harpe_version(),
        "paths", paths, "components", "schemas", all_schemas(), "securitySchemes", "bearer", "type",
        "http", "scheme", "bearer", "security", "bearer");
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    return text;
}
