/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads a sweep as JSON. A server that was restarted during the sweep then continues
 * with the next frequency. The data is checked even though an earlier server wrote it. */
#include "server/scheduler/perseus/sweep_state.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/perseus/sweep.h"

/* ---- Saving ---------------------------------------------------------------------------------- */

static json_t *save_frequencies(const harpe_sweep *sweep) {
    json_t *list = json_array();
    for (size_t i = 0; i < sweep->frequency_count; i++)
        json_array_append_new(list, json_integer(sweep->frequencies_mhz[i]));
    return list;
}

enum { LIST_HEAD = 4 }; /* items before the points */

/* The form is [rises, has_stopped, time ratio, energy ratio, [time, energy], [time, energy], ...].
 * The points are those of the highest frequency, the next lower frequency, and so on. */
static json_t *save_list(const harpe_sweep_list *list) {
    json_t *saved = json_pack("[i,b,f,f]", list->rises, list->has_stopped, list->time_ratio,
                              list->energy_ratio);
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(saved,
                              json_pack("[f,f]", list->points[i].time_s, list->points[i].energy_j));
    return saved;
}

json_t *harpe_sweep_save(const harpe_sweep *sweep) {
    const harpe_sweep_cost *cost = &sweep->cost;
    json_t *lists = json_array();
    for (size_t e = 0; e < sweep->pipeline->entry_count; e++)
        json_array_append_new(lists, save_list(&sweep->lists[e]));
    return json_pack(
        "{s:o,s:I,s:i,s:o,s:[I,I,I,I,f,f,f,f,f,f,f]}", "frequencies", save_frequencies(sweep),
        "position", (json_int_t)sweep->position, "misses", sweep->misses, "lists", lists, "cost",
        (json_int_t)cost->rounds, (json_int_t)cost->iterations, (json_int_t)cost->timed_iterations,
        (json_int_t)cost->metered_iterations, cost->time_s, cost->energy_j, cost->first_time_s,
        cost->first_energy_j, cost->waiting_time_s, cost->waiting_energy_j, cost->watched_time_s);
}

/* ---- Loading --------------------------------------------------------------------------------- */

static bool load_frequencies(harpe_sweep *into, const json_t *saved) {
    size_t count = json_array_size(saved);
    into->frequencies_mhz = harpe_calloc(count, sizeof *into->frequencies_mhz);
    into->frequency_count = count;
    if (count == 0 || !into->frequencies_mhz) return false;
    for (size_t i = 0; i < count; i++) {
        json_int_t mhz = json_integer_value(json_array_get(saved, i));
        json_int_t above = i > 0 ? into->frequencies_mhz[i - 1] : HARPE_FREQUENCY_MAX_MHZ + 1;
        if (mhz < 1 || mhz >= above) return false;
        into->frequencies_mhz[i] = (int)mhz;
    }
    return true;
}

static bool load_list(const harpe_sweep *into, harpe_sweep_list *list, const json_t *saved) {
    size_t size = json_array_size(saved);
    if (size < LIST_HEAD || size - LIST_HEAD > into->frequency_count) return false;
    list->rises = (int)json_integer_value(json_array_get(saved, 0));
    list->has_stopped = json_is_true(json_array_get(saved, 1));
    list->time_ratio = json_number_value(json_array_get(saved, 2));
    list->energy_ratio = json_number_value(json_array_get(saved, 3));
    if (!(list->time_ratio > 0 && list->energy_ratio > 0)) return false;
    for (size_t i = LIST_HEAD; i < size; i++) {
        const json_t *point = json_array_get(saved, i);
        double time_s = json_number_value(json_array_get(point, 0));
        double energy_j = json_number_value(json_array_get(point, 1));
        if (!(time_s > 0 && energy_j > 0)) return false;
        list->points[list->count++] =
            (harpe_profile_point){into->frequencies_mhz[i - LIST_HEAD], time_s, energy_j};
    }
    if (list->has_stopped || into->position == into->frequency_count) return true;
    return list->count == into->position; /* each frequency that has run so far has a point */
}

static bool load_cost(harpe_sweep_cost *cost, const json_t *saved) {
    enum { COUNTS = 4, NUMBERS = 11 };
    double numbers[NUMBERS];
    if (json_array_size(saved) != NUMBERS) return false;
    for (size_t i = 0; i < NUMBERS; i++) {
        numbers[i] = json_number_value(json_array_get(saved, i));
        if (!isfinite(numbers[i]) || fabs(numbers[i]) > 1e300) return false;
    }
    for (size_t i = 0; i < COUNTS; i++)
        if (!(numbers[i] >= 0 && numbers[i] < 1e15)) return false;
    *cost = (harpe_sweep_cost){(size_t)numbers[0], (size_t)numbers[1], (size_t)numbers[2],
                               (size_t)numbers[3], numbers[4],         numbers[5],
                               numbers[6],         numbers[7],         numbers[8],
                               numbers[9],         numbers[10]};
    return true;
}

static bool load_numbers(harpe_sweep *into, const json_t *saved) {
    json_int_t position = json_integer_value(json_object_get(saved, "position"));
    json_int_t misses = json_integer_value(json_object_get(saved, "misses"));
    if (position < 0 || position > (json_int_t)into->frequency_count) return false;
    if (misses < 0 || misses > 1000) return false;
    into->position = (size_t)position;
    into->misses = (int)misses;
    return load_cost(&into->cost, json_object_get(saved, "cost"));
}

static bool load_lists(harpe_sweep *into, const json_t *saved) {
    size_t count = into->pipeline->entry_count;
    if (json_array_size(saved) != count) return false;
    into->lists = harpe_calloc(count, sizeof *into->lists);
    for (size_t e = 0; into->lists && e < count; e++) {
        into->lists[e].points = harpe_calloc(into->frequency_count, sizeof *into->lists[e].points);
        if (!into->lists[e].points || !load_list(into, &into->lists[e], json_array_get(saved, e)))
            return false;
        if (into->lists[e].count == 0 && into->position > 0) return false;
    }
    return into->lists != NULL;
}

harpe_status harpe_sweep_load(harpe_sweep *sweep, const json_t *saved, harpe_error *error) {
    harpe_sweep *loaded = harpe_calloc(1, sizeof *loaded);
    if (!loaded) return harpe_fail_memory(error);
    loaded->pipeline = sweep->pipeline;
    loaded->rank_count = sweep->rank_count;
    loaded->rises_to_stop = sweep->rises_to_stop;
    bool is_good = load_frequencies(loaded, json_object_get(saved, "frequencies")) &&
                   load_numbers(loaded, saved) &&
                   load_lists(loaded, json_object_get(saved, "lists"));
    if (is_good) {
        harpe_sweep old = *sweep;
        *sweep = *loaded;
        *loaded = old;
    }
    harpe_sweep_free(loaded);
    if (is_good) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "the stored state of the sweep does not fit this job's schedule: start the "
                      "server with the scheduler arguments that it had, or register the job anew");
}
