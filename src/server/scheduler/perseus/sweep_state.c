/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads a sweep as JSON. A server that was restarted during the sweep then continues
 * with the next frequency. The data is checked even though an earlier server wrote it. */
#include "server/scheduler/perseus/sweep_state.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/perseus/sweep.h"

/* ---- Saving ---------------------------------------------------------------------------------- */

/* Writes one list for each pipeline rank. */
static json_t *save_frequencies(const harpe_sweep *sweep) {
    json_t *lists = json_array();
    for (int p = 0; p < sweep->pipeline->rank_count; p++) {
        json_t *list = json_array();
        for (size_t i = 0; i < sweep->clocks[p].count; i++)
            json_array_append_new(list, json_integer(sweep->clocks[p].mhz[i]));
        json_array_append_new(lists, list);
    }
    return lists;
}

static json_t *save_waiting(const harpe_sweep *sweep) {
    json_t *list = json_array();
    for (int p = 0; p < sweep->pipeline->rank_count; p++)
        json_array_append_new(list,
                              json_pack("[f,f,f]", sweep->waiting[p].time_s,
                                        sweep->waiting[p].energy_j, sweep->waiting[p].watched_s));
    return list;
}

enum { LIST_HEAD = 4 }; /* items before the points */

/* The form is [rises, has_stopped, time ratio, energy ratio, [time, energy,
 * frequency], ...], the highest frequency first. Older states have no frequencies: their points are
 * those of the highest frequency, the next lower frequency, and so on. */
static json_t *save_list(const harpe_sweep_list *list) {
    json_t *saved = json_pack("[i,b,f,f]", list->rises, list->has_stopped, list->time_ratio,
                              list->energy_ratio);
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(saved,
                              json_pack("[f,f,i]", list->points[i].time_s, list->points[i].energy_j,
                                        list->points[i].frequency_mhz));
    return saved;
}

json_t *harpe_sweep_save(const harpe_sweep *sweep) {
    const harpe_sweep_cost *cost = &sweep->cost;
    json_t *lists = json_array();
    for (size_t e = 0; e < sweep->pipeline->entry_count; e++)
        json_array_append_new(lists, save_list(&sweep->lists[e]));
    return json_pack("{s:o,s:o,s:I,s:i,s:o,s:[I,I,I,I,f,f,f,f,f,f,f]}", "frequencies",
                     save_frequencies(sweep), "waiting", save_waiting(sweep), "position",
                     (json_int_t)sweep->position, "misses", sweep->misses, "lists", lists, "cost",
                     (json_int_t)cost->rounds, (json_int_t)cost->iterations,
                     (json_int_t)cost->timed_iterations, (json_int_t)cost->metered_iterations,
                     cost->time_s, cost->energy_j, cost->first_time_s, cost->first_energy_j,
                     cost->waiting.time_s, cost->waiting.energy_j, cost->waiting.watched_s);
}

/* ---- Loading --------------------------------------------------------------------------------- */

static bool load_clocks(harpe_sweep_clocks *into, const json_t *saved) {
    size_t count = json_array_size(saved);
    into->mhz = harpe_calloc(count, sizeof *into->mhz);
    into->count = count;
    if (count == 0 || !into->mhz) return false;
    for (size_t i = 0; i < count; i++) {
        json_int_t mhz = json_integer_value(json_array_get(saved, i));
        json_int_t above = i > 0 ? into->mhz[i - 1] : HARPE_FREQUENCY_MAX_MHZ + 1;
        if (mhz < 1 || mhz >= above) return false;
        into->mhz[i] = (int)mhz;
    }
    return true;
}

/* Older states have one list for all pipeline ranks. */
static bool load_frequencies(harpe_sweep *into, const json_t *saved) {
    size_t ranks = (size_t)into->pipeline->rank_count;
    bool is_one_list = json_is_integer(json_array_get(saved, 0));
    into->clocks = harpe_calloc(ranks, sizeof *into->clocks);
    if (!into->clocks || (!is_one_list && json_array_size(saved) != ranks)) return false;
    for (size_t p = 0; p < ranks; p++) {
        if (!load_clocks(&into->clocks[p], is_one_list ? saved : json_array_get(saved, p)))
            return false;
        if (into->clocks[p].count > into->frequency_count)
            into->frequency_count = into->clocks[p].count;
    }
    return true;
}

/* If there was one list for all pipeline ranks, they were also taken together here. */
static bool load_waiting(harpe_sweep *into, const json_t *saved) {
    size_t ranks = (size_t)into->pipeline->rank_count;
    into->waiting = harpe_calloc(ranks, sizeof *into->waiting);
    if (!into->waiting || (saved && json_array_size(saved) != ranks)) return false;
    if (!saved) into->waiting[0] = into->cost.waiting;
    for (size_t p = 0; saved && p < ranks; p++) {
        double numbers[3];
        for (size_t i = 0; i < 3; i++) {
            numbers[i] = json_number_value(json_array_get(json_array_get(saved, p), i));
            if (!isfinite(numbers[i]) || fabs(numbers[i]) > 1e300) return false;
        }
        into->waiting[p] = (harpe_sweep_waiting){numbers[0], numbers[1], numbers[2]};
    }
    return true;
}

static bool has_clock(const harpe_sweep_clocks *clocks, int mhz) {
    for (size_t i = 0; i < clocks->count; i++)
        if (clocks->mhz[i] == mhz) return true;
    return false;
}

static bool load_list(const harpe_sweep *into, const harpe_sweep_clocks *clocks,
                      harpe_sweep_list *list, const json_t *saved) {
    size_t size = json_array_size(saved);
    if (size < LIST_HEAD || size - LIST_HEAD > clocks->count) return false;
    list->rises = (int)json_integer_value(json_array_get(saved, 0));
    list->has_stopped = json_is_true(json_array_get(saved, 1));
    list->time_ratio = json_number_value(json_array_get(saved, 2));
    list->energy_ratio = json_number_value(json_array_get(saved, 3));
    if (!(list->time_ratio > 0 && list->energy_ratio > 0)) return false;
    for (size_t i = LIST_HEAD; i < size; i++) {
        const json_t *point = json_array_get(saved, i);
        double time_s = json_number_value(json_array_get(point, 0));
        double energy_j = json_number_value(json_array_get(point, 1));
        int mhz = clocks->mhz[i - LIST_HEAD];
        if (json_array_size(point) > 2) mhz = (int)json_integer_value(json_array_get(point, 2));
        int above = list->count > 0 ? list->points[list->count - 1].frequency_mhz : INT_MAX;
        if (!(time_s > 0 && energy_j > 0) || mhz >= above || !has_clock(clocks, mhz)) return false;
        list->points[list->count++] = (harpe_profile_point){mhz, time_s, energy_j};
    }
    if (list->count == clocks->count) list->has_stopped = true;
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
    *cost = (harpe_sweep_cost){
        (size_t)numbers[0], (size_t)numbers[1], (size_t)numbers[2],
        (size_t)numbers[3], numbers[4],         numbers[5],
        numbers[6],         numbers[7],         {numbers[8], numbers[9], numbers[10]}};
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
        const harpe_sweep_clocks *clocks = &into->clocks[into->pipeline->entries[e].pipeline_rank];
        into->lists[e].points = harpe_calloc(clocks->count, sizeof *into->lists[e].points);
        if (!into->lists[e].points ||
            !load_list(into, clocks, &into->lists[e], json_array_get(saved, e)))
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
                   load_waiting(loaded, json_object_get(saved, "waiting")) &&
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
