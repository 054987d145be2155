/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the sweep. When the energy of an instruction has risen at several lower clocks in a
 * row, even lower clocks save nothing. The instruction then runs at its highest clock until the end
 * of the sweep, so that the sweep slows training as little as possible. */
#include "server/scheduler/perseus/sweep.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

enum { MISSES_MAX = 3 };

/* GPUs must wait for at least this share of the time. Otherwise their blocking power cannot be
 * computed. */
#define WAITING_SHARE_MIN 0.001

/* ---- Frequencies ----------------------------------------------------------------------------- */

static bool has_frequency(const harpe_rank_info *rank, int frequency_mhz) {
    for (size_t i = 0; i < rank->available_frequency_count; i++)
        if (rank->available_frequencies_mhz[i] == frequency_mhz) return true;
    return false;
}

static bool all_have_frequency(const harpe_rank_info *ranks, int rank_count, int frequency_mhz) {
    for (int r = 1; r < rank_count; r++)
        if (!has_frequency(&ranks[r], frequency_mhz)) return false;
    return true;
}

static int compare_falling(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x < y) - (x > y);
}

static harpe_status find_frequencies(harpe_sweep *sweep, const harpe_rank_info *ranks, int stride,
                                     harpe_error *error) {
    const harpe_rank_info *first = &ranks[0];
    int *common = harpe_calloc(first->available_frequency_count, sizeof *common);
    if (!common) return harpe_fail_memory(error);
    sweep->frequencies_mhz = common;
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < first->available_frequency_count; i++) {
        int mhz = first->available_frequencies_mhz[i];
        if (mhz > 0 && mhz <= HARPE_FREQUENCY_MAX_MHZ &&
            all_have_frequency(ranks, sweep->rank_count, mhz))
            common[count++] = mhz;
    }
    if (count == 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the ranks of this job have no available frequency in common: a sweep "
                          "needs GPUs of one model");
    qsort(common, count, sizeof *common, compare_falling);
    int last = 0;
    for (size_t i = 0, distinct = 0; i < count; i++) {
        if (common[i] == last) continue;
        last = common[i];
        if (distinct++ % (size_t)stride == 0) common[kept++] = last;
    }
    sweep->frequency_count = kept;
    return HARPE_OK;
}

/* ---- Making it ------------------------------------------------------------------------------- */

static harpe_status make_lists(const harpe_online_pipeline *pipeline, size_t point_count,
                               harpe_sweep_list **out, harpe_error *error) {
    harpe_sweep_list *lists = harpe_calloc(pipeline->entry_count, sizeof *lists);
    if (!lists) return harpe_fail_memory(error);
    *out = lists;
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        lists[e].time_ratio = lists[e].energy_ratio = 1;
        lists[e].points = harpe_calloc(point_count, sizeof *lists[e].points);
        if (!lists[e].points) return harpe_fail_memory(error);
    }
    return HARPE_OK;
}

static void free_lists(const harpe_online_pipeline *pipeline, harpe_sweep_list *lists) {
    for (size_t e = 0; lists && e < pipeline->entry_count; e++)
        free(lists[e].points);
    free(lists);
}

harpe_status harpe_sweep_new(const harpe_online_pipeline *pipeline, const harpe_rank_info *ranks,
                             int rank_count, int frequency_stride, int rises_to_stop,
                             harpe_sweep **out, harpe_error *error) {
    harpe_sweep *sweep = harpe_calloc(1, sizeof *sweep);
    if (!sweep) return harpe_fail_memory(error);
    sweep->pipeline = pipeline;
    sweep->rank_count = rank_count;
    sweep->rises_to_stop = rises_to_stop;
    harpe_status status = find_frequencies(sweep, ranks, frequency_stride, error);
    if (status == HARPE_OK)
        status = make_lists(pipeline, sweep->frequency_count, &sweep->lists, error);
    if (status != HARPE_OK) {
        harpe_sweep_free(sweep);
        return status;
    }
    *out = sweep;
    return HARPE_OK;
}

void harpe_sweep_free(harpe_sweep *sweep) {
    if (!sweep) return;
    free_lists(sweep->pipeline, sweep->lists);
    free(sweep->frequencies_mhz);
    free(sweep);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

bool harpe_sweep_is_over(const harpe_sweep *sweep) {
    return sweep->position >= sweep->frequency_count;
}

int harpe_sweep_frequency_mhz(const harpe_sweep *sweep, int entry) {
    bool runs_at_highest = harpe_sweep_is_over(sweep) || sweep->lists[entry].has_stopped;
    return sweep->frequencies_mhz[runs_at_highest ? 0 : sweep->position];
}

static void count_cost(harpe_sweep *sweep, const harpe_online_round *round) {
    harpe_sweep_cost *cost = &sweep->cost;
    double iterations = (double)round->iterations;
    if (sweep->position == 0) {
        cost->first_time_s = round->iteration_time_s;
        cost->first_energy_j = round->iteration_energy_j;
    }
    cost->rounds++;
    cost->iterations += round->iterations;
    cost->time_s += iterations * round->iteration_time_s;
    cost->energy_j += iterations * round->iteration_energy_j;
    if (round->iteration_time_s > 0) cost->timed_iterations += round->iterations;
    if (round->iteration_energy_j > 0) cost->metered_iterations += round->iterations;
    if (round->waiting_energy_j == 0) return;
    cost->waiting_time_s += round->waiting_time_s;
    cost->waiting_energy_j += round->waiting_energy_j;
    cost->watched_time_s += round->iteration_time_s * sweep->rank_count;
}

static bool measured_all(const harpe_sweep *sweep, const harpe_online_round *round) {
    for (size_t e = 0; e < sweep->pipeline->entry_count; e++)
        if (!sweep->lists[e].has_stopped && !(round->entries[e].time_s > 0)) return false;
    return true;
}

static harpe_status take_miss(harpe_sweep *sweep, const harpe_online_round *round,
                              harpe_error *error) {
    if (++sweep->misses < MISSES_MAX) return HARPE_OK;
    if (sweep->position > 0) {
        sweep->position = sweep->frequency_count;
        return HARPE_OK;
    }
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s, %d rounds in a row: online optimization needs time_breakdown and "
                      "energy_breakdown of every instruction of the schedule; turn on the "
                      "instruction profiler of the training side, or run PointSolution with a plan",
                      round->problem, sweep->misses);
}

/* Adds a point to the entry's list. Returns true if the entry needs more points. */
static bool take_point(harpe_sweep *sweep, size_t entry, const harpe_online_mean *mean) {
    harpe_sweep_list *list = &sweep->lists[entry];
    if (list->has_stopped) return false;
    bool rises = list->count > 0 && mean->energy_j > list->points[list->count - 1].energy_j;
    list->points[list->count++] = (harpe_profile_point){sweep->frequencies_mhz[sweep->position],
                                                        mean->time_s, mean->energy_j};
    list->rises = rises ? list->rises + 1 : 0;
    list->has_stopped = list->rises >= sweep->rises_to_stop;
    return !list->has_stopped;
}

harpe_status harpe_sweep_observe(harpe_sweep *sweep, const harpe_online_round *round,
                                 harpe_error *error) {
    if (harpe_sweep_is_over(sweep)) return HARPE_OK;
    count_cost(sweep, round);
    if (!measured_all(sweep, round)) return take_miss(sweep, round, error);
    sweep->misses = 0;
    bool has_more = false;
    for (size_t e = 0; e < sweep->pipeline->entry_count; e++)
        has_more = take_point(sweep, e, &round->entries[e]) || has_more;
    sweep->position = has_more ? sweep->position + 1 : sweep->frequency_count;
    return HARPE_OK;
}

/* ---- What it says ---------------------------------------------------------------------------- */

double harpe_sweep_extra_time_s(const harpe_sweep *sweep) {
    const harpe_sweep_cost *cost = &sweep->cost;
    if (!(cost->first_time_s > 0)) return 0;
    return cost->time_s - (double)cost->timed_iterations * cost->first_time_s;
}

double harpe_sweep_extra_energy_j(const harpe_sweep *sweep) {
    const harpe_sweep_cost *cost = &sweep->cost;
    if (!(cost->first_energy_j > 0)) return 0;
    return cost->energy_j - (double)cost->metered_iterations * cost->first_energy_j;
}

double harpe_sweep_blocking_power_w(const harpe_sweep *sweep) {
    const harpe_sweep_cost *cost = &sweep->cost;
    if (!(cost->waiting_time_s > WAITING_SHARE_MIN * cost->watched_time_s)) return 0;
    double power_w = cost->waiting_energy_j / cost->waiting_time_s;
    return power_w > 0 ? power_w : 0;
}

static harpe_profile_point corrected(const harpe_sweep_list *list, size_t i) {
    const harpe_profile_point *swept = &list->points[i];
    return (harpe_profile_point){swept->frequency_mhz, swept->time_s * list->time_ratio,
                                 swept->energy_j * list->energy_ratio};
}

bool harpe_sweep_point(const harpe_sweep *sweep, int entry, int frequency_mhz,
                       harpe_profile_point *out) {
    const harpe_sweep_list *list = &sweep->lists[entry];
    for (size_t i = 0; i < list->count; i++) {
        if (list->points[i].frequency_mhz != frequency_mhz) continue;
        *out = corrected(list, i);
        return true;
    }
    return false;
}

harpe_status harpe_sweep_profile(const harpe_sweep *sweep, harpe_profile **out,
                                 harpe_error *error) {
    size_t entries = sweep->pipeline->entry_count, count = 0;
    int gpus = sweep->rank_count / sweep->pipeline->rank_count; /* of a stage */
    harpe_measurement *rows = harpe_calloc(entries * sweep->frequency_count, sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    for (size_t e = 0; e < entries; e++) {
        const harpe_online_entry *entry = &sweep->pipeline->entries[e];
        const harpe_sweep_list *list = &sweep->lists[e];
        for (size_t i = 0; i < list->count; i++) {
            harpe_profile_point point = corrected(list, i);
            rows[count++] = (harpe_measurement){.stage = entry->stage,
                                                .rank = -1,
                                                .instruction = entry->instruction,
                                                .frequency_mhz = point.frequency_mhz,
                                                .time_s = point.time_s,
                                                .energy_j = point.energy_j,
                                                .gpu_count = gpus};
        }
    }
    harpe_status status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}
