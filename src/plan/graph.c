/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a graph from arrays: checks every number and name, looks the names up, orders the
 * activities, and checks that each resource runs one activity at a time. graph_json.c reads files,
 * and graph_problem.c makes problems. */
#include "plan/graphs.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

#define SHORTEST_OPTION_S 1e-9
#define TIME_MAX_S 1e6
#define ENERGY_MAX_J 1e9
#define BLOCKING_POWER_MAX_W 1e9
#define COUNT_MAX (INT32_MAX / 64) /* of activities, waits and options */
#define CYCLE_NAMES_MAX 4          /* activities of a cycle that an error names */

/* ---- Checks of single values ----------------------------------------------------------------- */

static bool is_name(const char *name) {
    size_t size = strlen(name);
    if (size == 0 || size > HARPE_GRAPH_NAME_MAX) return false;
    size_t length = 0;
    for (; *name; name += length)
        if (!harpe_character_is_safe(harpe_character(name, &length))) return false;
    return true;
}

static harpe_status check_name(const char *kind, size_t index, const char *name,
                               harpe_error *error) {
    if (name && is_name(name)) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s %zu (the first is 0): its name must be a text of 1 to %d bytes without "
                      "control characters",
                      kind, index, HARPE_GRAPH_NAME_MAX);
}

/* Checks a number of an activity. `option` is -1 for a number of the activity itself. */
static harpe_status check_number(const harpe_graph_activity *activity, int option, const char *what,
                                 double value, double lowest, double highest, harpe_error *error) {
    if (isfinite(value) && value >= lowest && value <= highest) return HARPE_OK;
    char where[32] = "";
    if (option >= 0) (void)snprintf(where, sizeof where, ", option %d", option);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "activity '%s'%s: its %s is %g, which is not between %g and %g",
                      activity->name, where, what, value, lowest, highest);
}

static harpe_status check_options(const harpe_graph_activity *activity, harpe_error *error) {
    for (size_t k = 0; k < activity->option_count; k++) {
        const harpe_graph_option *option = &activity->options[k];
        int index = (int)k;
        harpe_status status = check_number(activity, index, "time", option->time_s,
                                           SHORTEST_OPTION_S, TIME_MAX_S, error);
        if (status == HARPE_OK) {
            status =
                check_number(activity, index, "energy", option->energy_j, 0, ENERGY_MAX_J, error);
        }
        if (status == HARPE_OK) {
            status = check_number(activity, index, "frequency", option->frequency_mhz, 0,
                                  HARPE_FREQUENCY_MAX_MHZ, error);
        }
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status check_activity(const harpe_graph_activity *activity, harpe_error *error) {
    harpe_status status = check_options(activity, error);
    if (status == HARPE_OK && activity->option_count == 0) {
        status = check_number(activity, -1, "time", activity->time_s, 0, TIME_MAX_S, error);
        if (status == HARPE_OK && !(activity->energy_j < 0)) {
            status =
                check_number(activity, -1, "energy", activity->energy_j, 0, ENERGY_MAX_J, error);
        }
    }
    if (status == HARPE_OK)
        status = check_number(activity, -1, "release", activity->release_s, 0, TIME_MAX_S, error);
    for (size_t k = 0; k < activity->wait_count && status == HARPE_OK; k++)
        status = check_number(activity, -1, "lag", activity->waits[k].lag_s, 0, TIME_MAX_S, error);
    if (status != HARPE_OK) return status;
    return check_number(activity, -1, "deadline", activity->deadline_s, 0, TIME_MAX_S, error);
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* Names in alphabetical order, with the indices of their owners. */
typedef struct name_entry {
    const char *name;
    int32_t index;
} name_entry;

static int compare_entries(const void *left, const void *right) {
    const name_entry *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

static int compare_name(const void *name, const void *entry) {
    return strcmp(name, ((const name_entry *)entry)->name);
}

/* Sorts the names. Fails if two are equal. */
static harpe_status sort_names(name_entry *entries, size_t count, const char *kind,
                               harpe_error *error) {
    qsort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(entries[i - 1].name, entries[i].name) != 0) continue;
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "two %s have the name '%s': numbers %d and %d (the first is 0)", kind,
                          entries[i].name, (int)entries[i - 1].index, (int)entries[i].index);
    }
    return HARPE_OK;
}

/* Returns the index of a name, or -1. */
static int32_t find_name(const name_entry *entries, size_t count, const char *name) {
    const name_entry *found = bsearch(name, entries, count, sizeof *entries, compare_name);
    return found ? found->index : -1;
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static const char *copy_text(harpe_graph *graph, const char *text) {
    return harpe_arena_strdup(&graph->arena, text, strlen(text));
}

static harpe_status copy_resources(harpe_graph *graph, const harpe_graph_resource *resources,
                                   harpe_error *error) {
    for (size_t i = 0; i < graph->resource_count; i++) {
        harpe_status status = check_name("resource", i, resources[i].name, error);
        if (status != HARPE_OK) return status;
        double watts = resources[i].blocking_power_w;
        if (!(watts >= 0 && watts <= BLOCKING_POWER_MAX_W)) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "resource '%s': its blocking power is %g W, which is not between 0 "
                              "and %g W",
                              resources[i].name, watts, BLOCKING_POWER_MAX_W);
        }
        graph->resources[i].blocking_power_w = watts;
        graph->resources[i].name = copy_text(graph, resources[i].name);
        if (!graph->resources[i].name) return harpe_fail_memory(error);
    }
    return HARPE_OK;
}

static harpe_status copy_activity(harpe_graph *graph, const harpe_graph_activity *activity,
                                  harpe_graph_activity *out, harpe_error *error) {
    harpe_graph_option *options =
        harpe_arena_alloc(&graph->arena, activity->option_count, sizeof *options);
    harpe_graph_wait *waits = harpe_arena_alloc(&graph->arena, activity->wait_count, sizeof *waits);
    *out = *activity;
    out->name = copy_text(graph, activity->name);
    if (graph->arena.has_failed) return harpe_fail_memory(error);
    if (activity->option_count > 0)
        memcpy(options, activity->options, activity->option_count * sizeof *options);
    for (size_t k = 0; k < activity->wait_count; k++)
        waits[k].lag_s = activity->waits[k].lag_s; /* the names are looked up later */
    out->options = options;
    out->waits = waits;
    return HARPE_OK;
}

/* Checks the number of all things together, because indices have 32 bits. */
static harpe_status check_counts(const harpe_graph_activity *activities, size_t resource_count,
                                 size_t activity_count, size_t *wait_count, harpe_error *error) {
    size_t waits = 0, options = 0;
    bool is_small = activity_count <= COUNT_MAX && resource_count <= COUNT_MAX;
    for (size_t i = 0; i < activity_count && is_small; i++) {
        is_small = activities[i].wait_count <= COUNT_MAX && activities[i].option_count <= COUNT_MAX;
        waits += activities[i].wait_count;
        options += activities[i].option_count;
        is_small = is_small && waits <= COUNT_MAX && options <= COUNT_MAX;
    }
    *wait_count = waits;
    if (is_small) return HARPE_OK;
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "a graph has at most %d resources, activities, options and waits each",
                      COUNT_MAX);
}

static harpe_status allocate(harpe_graph *graph, size_t wait_count, harpe_error *error) {
    harpe_arena *arena = &graph->arena;
    size_t count = graph->activity_count;
    graph->resources = harpe_arena_alloc(arena, graph->resource_count, sizeof *graph->resources);
    graph->activities = harpe_arena_alloc(arena, count, sizeof *graph->activities);
    graph->resource_of = harpe_arena_alloc(arena, count, sizeof *graph->resource_of);
    graph->first_wait = harpe_arena_alloc(arena, count + 1, sizeof *graph->first_wait);
    graph->wait_for = harpe_arena_alloc(arena, wait_count, sizeof *graph->wait_for);
    graph->topological_order = harpe_arena_alloc(arena, count, sizeof *graph->topological_order);
    return arena->has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* ---- Looking up names ------------------------------------------------------------------------ */

static harpe_status find_resources(harpe_graph *graph, const harpe_graph_activity *activities,
                                   name_entry *entries, harpe_error *error) {
    for (size_t r = 0; r < graph->resource_count; r++)
        entries[r] = (name_entry){graph->resources[r].name, (int32_t)r};
    harpe_status status = sort_names(entries, graph->resource_count, "resources", error);
    for (size_t i = 0; i < graph->activity_count && status == HARPE_OK; i++) {
        graph->resource_of[i] = -1;
        const char *name = activities[i].resource;
        graph->activities[i].resource = NULL;
        if (!name) continue;
        int32_t found = find_name(entries, graph->resource_count, name);
        if (found < 0) {
            char clean[HARPE_GRAPH_NAME_MAX];
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "activity '%s' is on the resource '%s', which does not exist",
                              activities[i].name, harpe_clean_text(clean, sizeof clean, name));
        }
        graph->resource_of[i] = found;
        graph->activities[i].resource = graph->resources[found].name;
    }
    return status;
}

static harpe_status find_waits_of(harpe_graph *graph, const harpe_graph_activity *activity,
                                  int32_t index, const name_entry *entries, int32_t *last_waiter,
                                  harpe_error *error) {
    harpe_graph_wait *waits = (harpe_graph_wait *)graph->activities[index].waits;
    int32_t next = graph->first_wait[index];
    for (size_t k = 0; k < activity->wait_count; k++) {
        const char *name = activity->waits[k].name;
        int32_t found = name ? find_name(entries, graph->activity_count, name) : -1;
        if (found < 0) {
            char clean[HARPE_GRAPH_NAME_MAX];
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "activity '%s' waits for '%s', which does not exist", activity->name,
                              harpe_clean_text(clean, sizeof clean, name));
        }
        if (last_waiter[found] == index + 1) {
            return harpe_fail(error, HARPE_INVALID_INPUT, "activity '%s' waits twice for '%s'",
                              activity->name, name);
        }
        last_waiter[found] = index + 1;
        waits[k].name = graph->activities[found].name;
        graph->wait_for[next++] = found;
    }
    graph->first_wait[index + 1] = next;
    return HARPE_OK;
}

static harpe_status find_waits(harpe_graph *graph, const harpe_graph_activity *activities,
                               name_entry *entries, harpe_error *error) {
    size_t count = graph->activity_count;
    for (size_t i = 0; i < count; i++)
        entries[i] = (name_entry){graph->activities[i].name, (int32_t)i};
    harpe_status status = sort_names(entries, count, "activities", error);
    if (status != HARPE_OK) return status;
    int32_t *last_waiter = harpe_calloc(count, sizeof *last_waiter); /* index + 1 */
    if (!last_waiter) return harpe_fail_memory(error);
    for (size_t i = 0; i < count && status == HARPE_OK; i++)
        status = find_waits_of(graph, &activities[i], (int32_t)i, entries, last_waiter, error);
    free(last_waiter);
    return status;
}

static harpe_status find_names(harpe_graph *graph, const harpe_graph_activity *activities,
                               harpe_error *error) {
    size_t most = graph->activity_count > graph->resource_count ? graph->activity_count
                                                                : graph->resource_count;
    name_entry *entries = harpe_calloc(most, sizeof *entries);
    if (!entries) return harpe_fail_memory(error);
    harpe_status status = find_resources(graph, activities, entries, error);
    if (status == HARPE_OK) status = find_waits(graph, activities, entries, error);
    free(entries);
    return status;
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Returns an activity for which `activity` waits and which the order has not reached. */
static int32_t unreached_before(const harpe_graph *graph, const int32_t *waiting,
                                int32_t activity) {
    int32_t k = graph->first_wait[activity];
    while (waiting[graph->wait_for[k]] == 0)
        k++;
    return graph->wait_for[k];
}

/* Fails with the names of a cycle. `waiting` is above 0 for the activities that the order has not
 * reached. Each of them waits for another one, so a walk along the waits comes to a cycle. */
static harpe_status fail_cycle(const harpe_graph *graph, const int32_t *waiting,
                               harpe_error *error) {
    int32_t at = 0;
    while (waiting[at] == 0)
        at++;
    for (size_t step = 0; step < graph->activity_count; step++)
        at = unreached_before(graph, waiting, at);
    int32_t start = at;
    harpe_text text = {0};
    harpe_text_printf(&text, "activity '%s' can never start: it waits for ",
                      graph->activities[start].name);
    for (int named = 0; named < CYCLE_NAMES_MAX && (named == 0 || at != start); named++) {
        at = unreached_before(graph, waiting, at);
        harpe_text_printf(&text, "%s'%s'", named > 0 ? ", which waits for " : "",
                          graph->activities[at].name);
    }
    harpe_status status = text.failed ? harpe_fail_memory(error)
                                      : harpe_fail(error, HARPE_INVALID_INPUT, "%s%s", text.data,
                                                   at != start ? ", and so on in a cycle" : "");
    harpe_text_free(&text);
    return status;
}

/* Orders the activities with Kahn's algorithm. */
static harpe_status order_activities(harpe_graph *graph, harpe_error *error) {
    size_t count = graph->activity_count, wait_count = (size_t)graph->first_wait[count];
    int32_t *waiting = harpe_calloc(count, sizeof *waiting);
    int32_t *first_after = harpe_calloc(count + 2, sizeof *first_after);
    int32_t *after = harpe_calloc(wait_count, sizeof *after);
    harpe_status status = waiting && first_after && after ? HARPE_OK : harpe_fail_memory(error);
    if (status != HARPE_OK) goto done;
    for (size_t k = 0; k < wait_count; k++)
        first_after[graph->wait_for[k] + 2]++;
    for (size_t i = 1; i < count; i++)
        first_after[i + 1] += first_after[i];
    int32_t *order = graph->topological_order, found = 0;
    for (size_t i = 0; i < count; i++) {
        waiting[i] = graph->first_wait[i + 1] - graph->first_wait[i];
        if (waiting[i] == 0) order[found++] = (int32_t)i;
        for (int32_t k = graph->first_wait[i]; k < graph->first_wait[i + 1]; k++)
            after[first_after[graph->wait_for[k] + 1]++] = (int32_t)i;
    }
    for (int32_t done = 0; done < found; done++) {
        int32_t from = order[done];
        for (int32_t k = first_after[from]; k < first_after[from + 1]; k++)
            if (--waiting[after[k]] == 0) order[found++] = after[k];
    }
    if ((size_t)found < count) status = fail_cycle(graph, waiting, error);
done:
    free(waiting);
    free(first_after);
    free(after);
    return status;
}

/* ---- One activity at a time ------------------------------------------------------------------ */

static bool waits_directly(const harpe_graph *graph, int32_t activity, int32_t other) {
    for (int32_t k = graph->first_wait[activity]; k < graph->first_wait[activity + 1]; k++)
        if (graph->wait_for[k] == other) return true;
    return false;
}

/* Checks that every activity of a resource waits for the activity before it in the topological
 * order. `before[i]` becomes the number of this resource's activities for which i waits and to
 * which i belongs: in a definite order it grows by one from each activity to the next. */
static harpe_status check_resource(const harpe_graph *graph, int32_t resource, int32_t *before,
                                   harpe_error *error) {
    int32_t last = -1;
    for (size_t p = 0; p < graph->activity_count; p++) {
        int32_t i = graph->topological_order[p];
        before[i] = 0;
        for (int32_t k = graph->first_wait[i]; k < graph->first_wait[i + 1]; k++) {
            int32_t other = graph->wait_for[k];
            if (before[other] > before[i]) before[i] = before[other];
        }
        if (graph->resource_of[i] != resource) continue;
        if (last >= 0 && before[i] < before[last]) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "activities '%s' and '%s' could run on the resource '%s' at the same "
                              "time: let one of them wait for the other",
                              graph->activities[last].name, graph->activities[i].name,
                              graph->resources[resource].name);
        }
        before[i]++;
        last = i;
    }
    return HARPE_OK;
}

/* Marks the resources with neighbours in the topological order that do not wait for each other
 * directly. Only these need the longer check. */
static void mark_doubtful(const harpe_graph *graph, int32_t *last, bool *is_doubtful) {
    for (size_t p = 0; p < graph->activity_count; p++) {
        int32_t i = graph->topological_order[p], resource = graph->resource_of[i];
        if (resource < 0) continue;
        if (last[resource] > 0 && !waits_directly(graph, i, last[resource] - 1))
            is_doubtful[resource] = true;
        last[resource] = i + 1;
    }
}

static harpe_status check_resources(const harpe_graph *graph, harpe_error *error) {
    int32_t *before = harpe_calloc(graph->activity_count, sizeof *before);
    int32_t *last = harpe_calloc(graph->resource_count, sizeof *last);
    bool *is_doubtful = harpe_calloc(graph->resource_count, sizeof *is_doubtful);
    harpe_status status = before && last && is_doubtful ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) mark_doubtful(graph, last, is_doubtful);
    for (size_t r = 0; r < graph->resource_count && status == HARPE_OK; r++)
        if (is_doubtful[r]) status = check_resource(graph, (int32_t)r, before, error);
    free(before);
    free(last);
    free(is_doubtful);
    return status;
}

/* ---- Deadlines ------------------------------------------------------------------------------- */

static double fastest_s(const harpe_graph_activity *activity) {
    double least_s = activity->option_count > 0 ? INFINITY : activity->time_s;
    for (size_t k = 0; k < activity->option_count; k++)
        least_s = fmin(least_s, activity->options[k].time_s);
    return least_s;
}

/* Checks that every deadline can be met with everything at its fastest. */
static harpe_status check_deadlines(const harpe_graph *graph, harpe_error *error) {
    double *end_s = harpe_calloc(graph->activity_count, sizeof *end_s);
    if (!end_s) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t p = 0; p < graph->activity_count && status == HARPE_OK; p++) {
        int32_t i = graph->topological_order[p];
        const harpe_graph_activity *activity = &graph->activities[i];
        double start_s = activity->release_s;
        for (size_t k = 0; k < activity->wait_count; k++) {
            int32_t from = graph->wait_for[graph->first_wait[i] + (int32_t)k];
            start_s = fmax(start_s, end_s[from] + activity->waits[k].lag_s);
        }
        end_s[i] = start_s + fastest_s(activity);
        if (activity->deadline_s == 0 || end_s[i] <= activity->deadline_s) continue;
        status = harpe_fail(error, HARPE_INFEASIBLE,
                            "activity '%s' cannot end at its deadline, %s s: with the fastest "
                            "options it ends at %s s",
                            activity->name, HARPE_DIGITS(activity->deadline_s, 9),
                            HARPE_DIGITS(end_s[i], 9));
    }
    free(end_s);
    return status;
}

static harpe_status check_takes_time(const harpe_graph *graph, harpe_error *error) {
    for (size_t i = 0; i < graph->activity_count; i++) {
        const harpe_graph_activity *activity = &graph->activities[i];
        if (activity->option_count > 0 || activity->time_s >= SHORTEST_OPTION_S) return HARPE_OK;
    }
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "the graph has no activity that takes at least %g s", SHORTEST_OPTION_S);
}

/* ---- Interface ------------------------------------------------------------------------------- */

static harpe_status fill_graph(harpe_graph *graph, const harpe_graph_resource *resources,
                               const harpe_graph_activity *activities, harpe_error *error) {
    size_t wait_count = 0;
    harpe_status status =
        check_counts(activities, graph->resource_count, graph->activity_count, &wait_count, error);
    if (status == HARPE_OK) status = allocate(graph, wait_count, error);
    if (status == HARPE_OK) status = copy_resources(graph, resources, error);
    for (size_t i = 0; i < graph->activity_count && status == HARPE_OK; i++) {
        status = check_name("activity", i, activities[i].name, error);
        if (status == HARPE_OK) status = check_activity(&activities[i], error);
        if (status == HARPE_OK)
            status = copy_activity(graph, &activities[i], &graph->activities[i], error);
    }
    if (status == HARPE_OK) status = find_names(graph, activities, error);
    if (status == HARPE_OK) status = order_activities(graph, error);
    if (status == HARPE_OK) status = check_resources(graph, error);
    if (status == HARPE_OK) status = check_deadlines(graph, error);
    return status == HARPE_OK ? check_takes_time(graph, error) : status;
}

harpe_status harpe_graph_new(const harpe_graph_resource *resources, size_t resource_count,
                             const harpe_graph_activity *activities, size_t activity_count,
                             harpe_graph **out, harpe_error *error) {
    harpe_graph *graph = harpe_calloc(1, sizeof *graph);
    if (!graph) return harpe_fail_memory(error);
    graph->resource_count = resource_count;
    graph->activity_count = activity_count;
    harpe_status status = fill_graph(graph, resources, activities, error);
    if (status != HARPE_OK) {
        harpe_graph_free(graph);
        return status;
    }
    *out = graph;
    return HARPE_OK;
}

void harpe_graph_free(harpe_graph *graph) {
    if (!graph) return;
    harpe_arena_free(&graph->arena);
    free(graph);
}

size_t harpe_graph_resource_count(const harpe_graph *graph) { return graph->resource_count; }

const harpe_graph_resource *harpe_graph_resource_at(const harpe_graph *graph, size_t index) {
    return index < graph->resource_count ? &graph->resources[index] : NULL;
}

size_t harpe_graph_activity_count(const harpe_graph *graph) { return graph->activity_count; }

const harpe_graph_activity *harpe_graph_activity_at(const harpe_graph *graph, size_t index) {
    return index < graph->activity_count ? &graph->activities[index] : NULL;
}
