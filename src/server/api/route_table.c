/* SPDX-License-Identifier: Apache-2.0 */
/* Every route of the server, and the OpenAPI document of the routes. To add a route, add a row
 * here, and a case in routes.c for a page or in the engine for a call. */
#include "server/api/api_internal.h"

#include <stdio.h>
#include <string.h>

#include <harpe/version.h>

/* Limits for bodies that the loop's thread decodes, and for bodies that are always small. A job has
 * at most 65,536 bytes of metadata, and JSON may use six bytes for each. */
enum { JOB_BYTES = 512 << 10, SMALL_BYTES = 64 << 10, PRICES_BYTES = 1 << 20 };

const harpe_route harpe_route_table[] = {
    /* The published protocol. */
    {"POST", "/register_job", HARPE_PAGE_NONE, HARPE_CALL_REGISTER_JOB, -1, false, false, "JobInfo",
     "JobId", "Register a job (rank 0); answers its id", JOB_BYTES},
    {"POST", "/register_rank/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_REGISTER_RANK, 1, false, false,
     "RankInfo", "Null", "Register one rank of a job", 0},
    {"GET", "/schedule/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_SCHEDULE, 1, true, true, NULL,
     "FrequencySchedule", "A rank's schedule of the next round; held until every rank has asked",
     0},
    {"POST", "/result/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_RESULT, 1, false, true,
     "ProfilingResult", "Null", "Report the measurements of a rank for the round", 0},
    {"GET", "/info", HARPE_PAGE_INFO, 0, -1, false, false, NULL, NULL,
     "Version and settings of the server", 0},
    /* Job requests for online schedulers. */
    {"POST", "/straggler/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_STRAGGLER, 1, false, false,
     "Straggler", "Null",
     "Report a straggler: iterations take this long anyway, so the job can slow down to save "
     "energy",
     SMALL_BYTES},
    {"POST", "/power_cap/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_POWER_CAP, 1, false, false,
     "PowerCap", "Null", "Limit the average power of the whole job", SMALL_BYTES},
    {"POST", "/plan/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_PLAN, 1, false, false, "Plan", "Null",
     "Run the plan of this iteration time", SMALL_BYTES},
    {"POST", "/end/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_END, 1, false, false, "End", "Null",
     "Report that the training of a rank has ended; the job ends with its last rank", SMALL_BYTES},
    /* Reading the state of jobs. */
    {"GET", "/jobs", HARPE_PAGE_NONE, HARPE_CALL_LIST, -1, false, false, NULL, NULL,
     "All jobs, newest first: at most limit jobs, after the place given as next in an earlier "
     "answer",
     0},
    {"GET", "/jobs/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_SHOW, 1, false, false, NULL, NULL,
     "All data of one job", 0},
    {"DELETE", "/jobs/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_EVICT, 1, false, false, NULL, "Null",
     "Evict a job", 0},
    {"GET", "/jobs/{job_id}/frontier", HARPE_PAGE_NONE, HARPE_CALL_FRONTIER, 1, false, false, NULL,
     NULL, "The frontier that a job runs on", 0},
    {"GET", "/jobs/{job_id}/pipeline", HARPE_PAGE_NONE, HARPE_CALL_PIPELINE, 1, false, false, NULL,
     NULL,
     "A plan of the job, instruction by instruction (plan: its number; default: the running plan)",
     0},
    {"GET", "/finished", HARPE_PAGE_NONE, HARPE_CALL_FINISHED, -1, false, false, NULL, NULL,
     "Final reports of evicted jobs, newest first: at most limit reports (100), after the first "
     "offset reports",
     0},
    {"GET", "/finished/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_FINISHED, 1, false, false, NULL, NULL,
     "The final report of an evicted job", 0},
    /* Many jobs under one power budget. */
    {"GET", "/fleet", HARPE_PAGE_NONE, HARPE_CALL_FLEET_SHOW, -1, false, false, NULL, "Fleet",
     "The power of all jobs, budgets, events, prices and energy", 0},
    {"GET", "/fleet/history", HARPE_PAGE_NONE, HARPE_CALL_FLEET_HISTORY, -1, false, false, NULL,
     "FleetHistory", "Power and limit of the last day: at most points points, between from and to",
     0},
    {"PUT", "/fleet/budget", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_BUDGET, -1, false, false,
     "FleetBudget", "FleetMissing",
     "Set the power budget of a group, or of the whole fleet; answers what is missing for it",
     SMALL_BYTES},
    {"DELETE", "/fleet/budget", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_BUDGET, -1, false, false,
     NULL, "Null", "Remove the power budget of a group", 0},
    {"PUT", "/fleet/groups/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_GROUP, 2, false, false,
     "FleetGroup", "Null", "Make a group, or move it into another group", SMALL_BYTES},
    {"DELETE", "/fleet/groups/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_GROUP, 2, false,
     false, NULL, "Null", "Remove a group that is not used", 0},
    {"PUT", "/fleet/jobs/{job_id}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_JOB, 2, false, false,
     "FleetTerms", "Null",
     "Set group, weight, largest slowdown and priority of a job; goes before what the job says",
     SMALL_BYTES},
    {"PUT", "/fleet/loads/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_LOAD, 2, false, false,
     "FleetLoad", "Null", "Declare a load that cannot be steered", SMALL_BYTES},
    {"DELETE", "/fleet/loads/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_LOAD, 2, false,
     false, NULL, "Null", "Remove a load", 0},
    {"PUT", "/fleet/members/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_MEMBER, 2, false, false,
     "FleetMember", "Null",
     "Declare a job that is not registered here, with its plans; it asks for its plan by reports",
     SMALL_BYTES},
    {"DELETE", "/fleet/members/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_MEMBER, 2, false,
     false, NULL, "Null", "Remove a declared job", 0},
    {"POST", "/fleet/members/{name}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_REPORT, 2, false, false,
     "FleetReport", "FleetPlan",
     "Report the plan and the measured power of a declared job; answers the plan that it must run",
     SMALL_BYTES},
    {"POST", "/fleet/events", HARPE_PAGE_NONE, HARPE_CALL_FLEET_POST_EVENT, -1, false, false,
     "FleetEvent", "FleetPromise",
     "Announce a time with less power; answers what is promised and what is missing", SMALL_BYTES},
    {"DELETE", "/fleet/events/{id}", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_EVENT, 2, false,
     false, NULL, "Null", "Cancel an event; if it runs, its ramp begins", 0},
    {"PUT", "/fleet/prices", HARPE_PAGE_NONE, HARPE_CALL_FLEET_PUT_PRICES, -1, false, false,
     "FleetPrices", "Null", "Set the prices of energy over time", PRICES_BYTES},
    {"DELETE", "/fleet/prices", HARPE_PAGE_NONE, HARPE_CALL_FLEET_DELETE_PRICES, -1, false, false,
     NULL, "Null", "Remove the prices", 0},
    {"GET", "/events", HARPE_PAGE_EVENTS, 0, -1, false, false, NULL, NULL,
     "Changes of all jobs as they happen (server-sent events)", 0},
    {"GET", "/jobs/{job_id}/events", HARPE_PAGE_EVENTS, 0, 1, false, false, NULL, NULL,
     "Changes of one job as they happen (server-sent events)", 0},
    {"GET", "/healthz", HARPE_PAGE_HEALTH, 0, -1, false, false, NULL, NULL,
     "Checks whether the server can serve. 503: it cannot now. Needs no token", 0},
    {"GET", "/metrics", HARPE_PAGE_METRICS, 0, -1, false, false, NULL, NULL,
     "Counters and latencies in Prometheus' text format", 0},
    {"GET", "/openapi.json", HARPE_PAGE_OPENAPI, 0, -1, false, false, NULL, NULL,
     "This description", 0},
    {"GET", "/fleet/audit", HARPE_PAGE_AUDIT, 0, -1, false, false, NULL, NULL,
     "Who has asked for a change and what came of it, newest first: at most limit records", 0},
    {0},
};

/* Returns the right of a page. */
static harpe_right right_of_page(harpe_page page) {
    switch (page) {
    case HARPE_PAGE_INFO: /* training clients ask for it first */
    case HARPE_PAGE_OPENAPI: return HARPE_RIGHT_ENTER;
    case HARPE_PAGE_AUDIT: return HARPE_RIGHT_OVERSEE;
    default: return HARPE_RIGHT_READ;
    }
}

harpe_right harpe_route_right(const harpe_route *route) {
    if (route->page) return right_of_page(route->page);
    switch (route->call) {
    case HARPE_CALL_REGISTER_JOB:
    case HARPE_CALL_REGISTER_RANK:
    case HARPE_CALL_SCHEDULE:
    case HARPE_CALL_RESULT:
    case HARPE_CALL_END:
    case HARPE_CALL_FLEET_PUT_MEMBER: /* a training client declares itself, reports and leaves */
    case HARPE_CALL_FLEET_DELETE_MEMBER:
    case HARPE_CALL_FLEET_REPORT: return HARPE_RIGHT_TRAIN;
    default: return strcmp(route->method, "GET") == 0 ? HARPE_RIGHT_READ : HARPE_RIGHT_STEER;
    }
}

bool harpe_route_is_audited(const harpe_route *route) {
    if (harpe_route_right(route) == HARPE_RIGHT_STEER) return true;
    return !route->page &&
           (route->call == HARPE_CALL_END || route->call == HARPE_CALL_FLEET_PUT_MEMBER ||
            route->call == HARPE_CALL_FLEET_DELETE_MEMBER);
}

_Static_assert(sizeof harpe_route_table / sizeof *harpe_route_table <= HARPE_ROUTES_MAX,
               "metrics.c has too few places");

/* ---- The OpenAPI document -------------------------------------------------------------------- */

/* Makes /openapi.json from the table of routes. Only the schemas of the models are written here. */

/* Schemas of bodies and answers, with the names that the table uses. */
static const char SCHEMAS[] =
    "{\"Null\":{\"type\":\"null\"},"
    "\"JobId\":{\"type\":\"string\"},"
    "\"JobInfo\":{\"type\":\"object\","
    "\"required\":[\"pp_degree\",\"dp_degree\",\"tp_degree\",\"world_size\"],\"properties\":{"
    "\"job_id\":{\"type\":\"string\",\"default\":\"\",\"maxLength\":0},"
    "\"pp_degree\":{\"type\":\"integer\",\"minimum\":1},"
    "\"dp_degree\":{\"type\":\"integer\",\"minimum\":1},"
    "\"tp_degree\":{\"type\":\"integer\",\"minimum\":1},"
    "\"world_size\":{\"type\":\"integer\",\"minimum\":1},"
    "\"job_metadata\":{\"type\":[\"string\",\"null\"]},"
    "\"job_key\":{\"type\":[\"string\",\"null\"],\"minLength\":1,\"maxLength\":256}}},"
    "\"RankInfo\":{\"type\":\"object\",\"required\":[\"rank\",\"dp_rank\",\"pp_rank\",\"tp_rank\","
    "\"available_frequencies\"],\"properties\":{"
    "\"rank\":{\"type\":\"integer\",\"minimum\":0},"
    "\"dp_rank\":{\"type\":\"integer\",\"minimum\":0},"
    "\"pp_rank\":{\"type\":\"integer\",\"minimum\":0},"
    "\"tp_rank\":{\"type\":\"integer\",\"minimum\":0},"
    "\"available_frequencies\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}},"
    "\"FrequencySchedule\":{\"type\":\"object\",\"required\":[\"rank\",\"frequencies\"],"
    "\"properties\":{\"rank\":{\"type\":\"integer\",\"minimum\":0},"
    "\"frequencies\":{\"type\":\"array\",\"items\":{\"type\":\"array\",\"minItems\":2,"
    "\"maxItems\":2,\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}}}},"
    "\"ProfilingResult\":{\"type\":\"object\",\"required\":[\"rank\",\"iter_time\","
    "\"iter_energy\"],\"properties\":{\"rank\":{\"type\":\"integer\",\"minimum\":0},"
    "\"iter_time\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}},"
    "\"iter_energy\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}},"
    "\"time_breakdown\":{\"$ref\":\"#/components/schemas/Breakdown\"},"
    "\"energy_breakdown\":{\"$ref\":\"#/components/schemas/Breakdown\"},"
    "\"conduct\":{\"$ref\":\"#/components/schemas/Conduct\"},"
    "\"clocks\":{\"$ref\":\"#/components/schemas/Clocks\"}}},"
    "\"Clocks\":{\"type\":\"object\",\"description\":\"Optional: how long changes of the clock "
    "take, and the clocks at which the instructions really ran. Wrong clocks are ignored.\","
    "\"required\":[\"latencies\",\"runs\"],\"properties\":{"
    "\"latencies\":{\"type\":\"array\",\"description\":\"MHz, median and 95th percentile in s\","
    "\"items\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}},"
    "\"runs\":{\"type\":\"array\",\"description\":\"For each instruction of the schedule: null "
    "(not known), or clocks in MHz, each followed by its share of the time; empty: the clock of "
    "the schedule\",\"items\":{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"number\"}}}}},"
    "\"Conduct\":{\"type\":\"object\",\"description\":\"Optional: how the steps since the previous "
    "result ran. A wrong conduct is ignored.\",\"properties\":{"
    "\"steps\":{\"type\":\"integer\",\"minimum\":0},"
    "\"as_planned\":{\"type\":\"integer\",\"minimum\":0},"
    "\"misfits\":{\"type\":\"integer\",\"minimum\":0},"
    "\"misfits_measured\":{\"type\":\"integer\",\"minimum\":0},"
    "\"disobeyed\":{\"type\":\"integer\",\"minimum\":0},"
    "\"lost\":{\"type\":\"integer\",\"minimum\":0},"
    "\"impossible\":{\"type\":\"integer\",\"minimum\":0},"
    "\"left_out\":{\"type\":\"integer\",\"minimum\":0},"
    "\"wanted_mhz\":{\"type\":\"integer\",\"minimum\":0},"
    "\"held_mhz\":{\"type\":\"integer\",\"minimum\":0},"
    "\"tokens_per_step\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":1000000000},"
    "\"counter_energy\":{\"type\":\"number\",\"minimum\":0},"
    "\"power_energy\":{\"type\":\"number\",\"minimum\":0},"
    "\"energy_uncertainty\":{\"type\":\"number\",\"minimum\":0},"
    "\"late_energy\":{\"type\":\"number\",\"minimum\":0}}},"
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

static json_t *all_schemas(void) {
    json_t *schemas = json_loads(SCHEMAS, 0, NULL);
    json_t *fleet = json_loads(FLEET_SCHEMAS, 0, NULL);
    json_object_update(schemas, fleet);
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
