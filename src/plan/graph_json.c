/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes graphs as JSON (harpe-graph(5)). Only the form of the text is checked here:
 * kinds of values, missing members and unknown members. graph.c checks numbers and names. */
#include "plan/graphs.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"

#define GRAPH_LIMIT_BYTES ((size_t)256 << 20)

/* What an error names: an activity or a resource, and perhaps one of its options or waits. */
typedef struct place {
    const char *kind;
    size_t index;
    const char *name; /* NULL: not known */
    const char *part; /* "option", or "entry" of "after"; NULL: the whole */
    size_t part_index;
} place;

typedef struct reader {
    const char *file;
    harpe_arena arena; /* arrays for harpe_graph_new; texts stay in the JSON tree */
    harpe_error *error;
} reader;

/* ---- Reading members ------------------------------------------------------------------------- */

static harpe_status fail_at(const reader *r, const place *at, const char *what, const char *key) {
    char name[HARPE_GRAPH_NAME_MAX + 8] = "", number[32] = "", part[48] = "", clean_key[64] = "";
    if (at->name) {
        char clean[HARPE_GRAPH_NAME_MAX];
        (void)snprintf(name, sizeof name, " '%s'", harpe_clean_text(clean, sizeof clean, at->name));
    } else {
        (void)snprintf(number, sizeof number, " %zu (the first is 0)", at->index);
    }
    if (at->part) {
        (void)snprintf(part, sizeof part, ", %s %zu%s", at->part, at->part_index,
                       strcmp(at->part, "entry") == 0 ? " of \"after\"" : "");
    }
    if (key) harpe_clean_text(clean_key, sizeof clean_key, key);
    return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s: %s%s%s%s: %s%s%s%s", r->file, at->kind,
                      name, number, part, key ? "\"" : "", clean_key, key ? "\" " : "", what);
}

/* Returns a member, or NULL if it is missing or null. */
static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* Fails if `object` is not an object, or has a member that is not in the NULL-terminated list. */
static harpe_status check_members(const reader *r, const json_t *object, const char *const *known,
                                  const place *at) {
    if (!json_is_object(object)) return fail_at(r, at, "must be an object, {...}", NULL);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0)
            k++;
        if (!*k) return fail_at(r, at, "is not a known member (see harpe-graph(5))", key);
    }
    return HARPE_OK;
}

/* Reads a text. An optional text that is missing is NULL. */
static harpe_status read_text(const reader *r, const json_t *object, const char *key,
                              bool is_required, const place *at, const char **out) {
    const json_t *value = member(object, key);
    *out = json_string_value(value);
    if (*out && strlen(*out) != json_string_length(value))
        return fail_at(r, at, "must not contain the character 0", key);
    if (*out || (!value && !is_required)) return HARPE_OK;
    return fail_at(r, at, value ? "must be a text" : "is missing", key);
}

/* Reads a number. A missing number is `absent`; if that is NaN, it is an error. */
static harpe_status read_number(const reader *r, const json_t *object, const char *key,
                                double absent, const place *at, double *out) {
    const json_t *value = member(object, key);
    *out = value ? json_number_value(value) : absent;
    if (value && !json_is_number(value)) return fail_at(r, at, "must be a number", key);
    return isnan(*out) ? fail_at(r, at, "is missing", key) : HARPE_OK;
}

/* Returns a list, or fails. `*out` is NULL if the list is missing. */
static harpe_status read_list(const reader *r, const json_t *object, const char *key,
                              const place *at, const json_t **out) {
    *out = member(object, key);
    if (!*out || json_is_array(*out)) return HARPE_OK;
    return fail_at(r, at, "must be a list, [...]", key);
}

/* ---- Reading a graph ------------------------------------------------------------------------- */

static harpe_status read_resource(const reader *r, const json_t *object, size_t index,
                                  harpe_graph_resource *out) {
    static const char *const known[] = {"name", "blocking_power", NULL};
    place at = {.kind = "resource", .index = index};
    if (!json_is_object(object)) return fail_at(r, &at, "must be an object, {...}", NULL);
    harpe_status status = read_text(r, object, "name", true, &at, &out->name);
    at.name = out->name;
    if (status == HARPE_OK) status = check_members(r, object, known, &at);
    if (status == HARPE_OK)
        status = read_number(r, object, "blocking_power", 0, &at, &out->blocking_power_w);
    return status;
}

static harpe_status read_options(reader *r, const json_t *list, place at,
                                 harpe_graph_activity *out) {
    static const char *const known[] = {"time", "energy", "frequency", NULL};
    size_t count = json_array_size(list);
    if (count == 0) return fail_at(r, &at, "must have at least one option", "options");
    harpe_graph_option *options = harpe_arena_alloc(&r->arena, count, sizeof *options);
    if (!options) return harpe_fail_memory(r->error);
    at.part = "option";
    for (size_t k = 0; k < count; k++) {
        const json_t *object = json_array_get(list, k);
        at.part_index = k;
        harpe_status status = check_members(r, object, known, &at);
        if (status == HARPE_OK)
            status = read_number(r, object, "time", NAN, &at, &options[k].time_s);
        if (status == HARPE_OK)
            status = read_number(r, object, "energy", NAN, &at, &options[k].energy_j);
        if (status == HARPE_OK)
            status = read_number(r, object, "frequency", 0, &at, &options[k].frequency_mhz);
        if (status != HARPE_OK) return status;
    }
    out->options = options;
    out->option_count = count;
    return HARPE_OK;
}

static harpe_status read_waits(reader *r, const json_t *list, place at, harpe_graph_activity *out) {
    static const char *const known[] = {"name", "lag", NULL};
    size_t count = json_array_size(list);
    harpe_graph_wait *waits = harpe_arena_alloc(&r->arena, count, sizeof *waits);
    if (!waits) return harpe_fail_memory(r->error);
    at.part = "entry";
    for (size_t k = 0; k < count; k++) {
        const json_t *entry = json_array_get(list, k);
        at.part_index = k;
        waits[k].name = json_string_value(entry);
        if (waits[k].name && strlen(waits[k].name) == json_string_length(entry)) continue;
        if (!json_is_object(entry))
            return fail_at(r, &at, "must be a name, or {\"name\": ..., \"lag\": ...}", NULL);
        harpe_status status = check_members(r, entry, known, &at);
        if (status == HARPE_OK) status = read_text(r, entry, "name", true, &at, &waits[k].name);
        if (status == HARPE_OK) status = read_number(r, entry, "lag", 0, &at, &waits[k].lag_s);
        if (status != HARPE_OK) return status;
    }
    out->waits = waits;
    out->wait_count = count;
    return HARPE_OK;
}

/* Reads either the options or the fixed time. */
static harpe_status read_work(reader *r, const json_t *object, const place *at,
                              harpe_graph_activity *out) {
    const json_t *options = NULL;
    harpe_status status = read_list(r, object, "options", at, &options);
    if (status != HARPE_OK) return status;
    bool has_time = member(object, "time"), has_energy = member(object, "energy");
    if (options && (has_time || has_energy)) {
        return fail_at(r, at, "must not stand beside \"options\": each option has its own",
                       has_time ? "time" : "energy");
    }
    if (options) return read_options(r, options, *at, out);
    if (!has_time) return fail_at(r, at, "has neither \"options\" nor a \"time\"", NULL);
    status = read_number(r, object, "time", NAN, at, &out->time_s);
    if (status == HARPE_OK) status = read_number(r, object, "energy", -1, at, &out->energy_j);
    if (status == HARPE_OK && has_energy && out->energy_j < 0)
        return fail_at(r, at, "must not be negative", "energy");
    return status;
}

static harpe_status read_activity(reader *r, const json_t *object, size_t index,
                                  harpe_graph_activity *out) {
    static const char *const known[] = {"name",   "resource", "after",    "options", "time",
                                        "energy", "release",  "deadline", NULL};
    place at = {.kind = "activity", .index = index};
    const json_t *after = NULL;
    if (!json_is_object(object)) return fail_at(r, &at, "must be an object, {...}", NULL);
    harpe_status status = read_text(r, object, "name", true, &at, &out->name);
    if (status != HARPE_OK) return status;
    at.name = out->name;
    status = check_members(r, object, known, &at);
    if (status == HARPE_OK) status = read_text(r, object, "resource", false, &at, &out->resource);
    if (status == HARPE_OK) status = read_work(r, object, &at, out);
    if (status == HARPE_OK) status = read_list(r, object, "after", &at, &after);
    if (status == HARPE_OK) status = read_waits(r, after, at, out);
    if (status == HARPE_OK) status = read_number(r, object, "release", 0, &at, &out->release_s);
    if (status == HARPE_OK) status = read_number(r, object, "deadline", 0, &at, &out->deadline_s);
    if (status == HARPE_OK && member(object, "deadline") && !(out->deadline_s > 0))
        return fail_at(r, &at, "must be above 0", "deadline");
    return status;
}

static harpe_status read_graph(reader *r, const json_t *root, harpe_graph **out) {
    static const char *const known[] = {"resources", "activities", NULL};
    const json_t *resource_list = json_object_get(root, "resources");
    const json_t *activity_list = json_object_get(root, "activities");
    const char *key;
    json_t *value;
    if (!json_is_array(activity_list) || (resource_list && !json_is_array(resource_list))) {
        return harpe_fail(r->error, HARPE_INVALID_INPUT,
                          "%s: a graph must be an object with a list \"activities\", and perhaps a "
                          "list \"resources\"",
                          r->file);
    }
    json_object_foreach((json_t *)root, key, value) {
        (void)value;
        if (strcmp(key, known[0]) == 0 || strcmp(key, known[1]) == 0) continue;
        char clean[64];
        return harpe_fail(r->error, HARPE_INVALID_INPUT,
                          "%s: the graph has the member \"%s\": only \"%s\" and \"%s\" are known",
                          r->file, harpe_clean_text(clean, sizeof clean, key), known[0], known[1]);
    }
    size_t resources = json_array_size(resource_list), count = json_array_size(activity_list);
    harpe_graph_resource *resource = harpe_arena_alloc(&r->arena, resources, sizeof *resource);
    harpe_graph_activity *activity = harpe_arena_alloc(&r->arena, count, sizeof *activity);
    if (!resource || !activity) return harpe_fail_memory(r->error);
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < resources && status == HARPE_OK; i++)
        status = read_resource(r, json_array_get(resource_list, i), i, &resource[i]);
    for (size_t i = 0; i < count && status == HARPE_OK; i++)
        status = read_activity(r, json_array_get(activity_list, i), i, &activity[i]);
    if (status != HARPE_OK) return status;
    harpe_error reason;
    status = harpe_graph_new(resource, resources, activity, count, out, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    return harpe_fail(r->error, status, "%s: %s", r->file, reason.message);
}

harpe_status harpe_graph_parse_json(const char *text, size_t length, const char *name,
                                    harpe_graph **out, harpe_error *error) {
    json_error_t reason;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &reason);
    if (!root) {
        char clean[JSON_ERROR_TEXT_LENGTH];
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d:%d: not JSON: %s", name, reason.line,
                          reason.column, harpe_clean_text(clean, sizeof clean, reason.text));
    }
    harpe_graph *graph = NULL;
    reader r = {.file = name, .error = error};
    harpe_status status = read_graph(&r, root, &graph);
    harpe_arena_free(&r.arena);
    json_decref(root);
    if (status == HARPE_OK) *out = graph;
    return status;
}

harpe_status harpe_graph_read_json(const char *path, harpe_graph **out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, GRAPH_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = harpe_graph_parse_json(text, length, path, out, error);
    free(text);
    return status;
}

/* ---- Writing --------------------------------------------------------------------------------- */

void harpe_graph_json_name(harpe_text *text, const char *name) {
    harpe_text_append(text, "\"", 1);
    for (; *name; name++) {
        if (*name == '"' || *name == '\\') harpe_text_append(text, "\\", 1);
        harpe_text_append(text, name, 1);
    }
    harpe_text_append(text, "\"", 1);
}

static void put_number(harpe_text *text, const char *key, double value) {
    harpe_text_printf(text, ", \"%s\": ", key);
    harpe_text_number(text, value + 0.0); /* -0 would be read as the integer 0 */
}

static void put_waits(harpe_text *text, const harpe_graph_activity *activity) {
    for (size_t k = 0; k < activity->wait_count; k++) {
        const harpe_graph_wait *wait = &activity->waits[k];
        harpe_text_printf(text, k == 0 ? ", \"after\": [" : ", ");
        if (wait->lag_s > 0) harpe_text_printf(text, "{\"name\": ");
        harpe_graph_json_name(text, wait->name);
        if (wait->lag_s > 0) {
            put_number(text, "lag", wait->lag_s);
            harpe_text_printf(text, "}");
        }
    }
    if (activity->wait_count > 0) harpe_text_printf(text, "]");
}

static void put_options(harpe_text *text, const harpe_graph_activity *activity) {
    harpe_text_printf(text, ", \"options\": [");
    for (size_t k = 0; k < activity->option_count; k++) {
        const harpe_graph_option *option = &activity->options[k];
        harpe_text_printf(text, "%s{\"time\": ", k > 0 ? ", " : "");
        harpe_text_number(text, option->time_s);
        put_number(text, "energy", option->energy_j);
        if (option->frequency_mhz > 0) put_number(text, "frequency", option->frequency_mhz);
        harpe_text_printf(text, "}");
    }
    harpe_text_printf(text, "]");
}

static void put_activity(harpe_text *text, const harpe_graph_activity *activity) {
    harpe_text_printf(text, "{\"name\": ");
    harpe_graph_json_name(text, activity->name);
    if (activity->resource) {
        harpe_text_printf(text, ", \"resource\": ");
        harpe_graph_json_name(text, activity->resource);
    }
    put_waits(text, activity);
    if (activity->release_s > 0) put_number(text, "release", activity->release_s);
    if (activity->deadline_s > 0) put_number(text, "deadline", activity->deadline_s);
    if (activity->option_count > 0) {
        put_options(text, activity);
    } else {
        put_number(text, "time", activity->time_s);
        if (activity->energy_j >= 0) put_number(text, "energy", activity->energy_j);
    }
    harpe_text_printf(text, "}");
}

void harpe_graph_json_format(harpe_text *text, const harpe_graph *graph) {
    harpe_text_printf(text, "{\"resources\": [");
    for (size_t i = 0; i < harpe_graph_resource_count(graph); i++) {
        const harpe_graph_resource *resource = harpe_graph_resource_at(graph, i);
        harpe_text_printf(text, "%s\n  {\"name\": ", i > 0 ? "," : "");
        harpe_graph_json_name(text, resource->name);
        put_number(text, "blocking_power", resource->blocking_power_w);
        harpe_text_printf(text, "}");
    }
    harpe_text_printf(text, "],\n \"activities\": [");
    for (size_t i = 0; i < harpe_graph_activity_count(graph); i++) {
        harpe_text_printf(text, "%s\n  ", i > 0 ? "," : "");
        put_activity(text, harpe_graph_activity_at(graph, i));
    }
    harpe_text_printf(text, "]}\n");
}

harpe_status harpe_graph_write_json(const harpe_graph *graph, const char *path,
                                    harpe_error *error) {
    harpe_text text = {0};
    harpe_graph_json_format(&text, graph);
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_file_write(path, text.data, text.length, error);
    harpe_text_free(&text);
    return status;
}
