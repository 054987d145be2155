/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the sweep. When the energy of an instruction has risen at several lower clocks in a
 * row, even lower clocks save nothing. The instruction then runs at its highest clock until the end
 * of the sweep, so that the sweep slows training as little as possible. */
#include "server/scheduler/perseus/sweep.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "server/scheduler/perseus/savings.h"
#include "server/scheduler/perseus/switch_latencies.h"
#include "server/scheduler/stages.h"
#include "server/scheduler/stored.h"

enum { MISSES_MAX = 3 };

/* GPUs must wait for at least this share of the time. Otherwise their blocking power cannot be
 * computed. */
#define WAITING_SHARE_MIN 0.001
/* Of a profile. */
#define BLOCKING_POWER_MAX_W 1e5

/* ---- Frequencies ----------------------------------------------------------------------------- */

/* Returns true if all ranks of a pipeline rank have the frequency. */
static bool all_have_frequency(const harpe_rank_info *ranks, int rank_count, int pipeline_rank,
                               int frequency_mhz) {
    for (int r = 0; r < rank_count; r++)
        if (ranks[r].pp_rank == pipeline_rank &&
            !harpe_rank_has_frequency(&ranks[r], frequency_mhz))
            return false;
    return true;
}

static const harpe_rank_info *first_of(const harpe_rank_info *ranks, int rank_count,
                                       int pipeline_rank) {
    for (int r = 0; r < rank_count; r++)
        if (ranks[r].pp_rank == pipeline_rank) return &ranks[r];
    return NULL;
}

static int compare_falling(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x < y) - (x > y);
}

static harpe_status find_clocks(harpe_sweep *sweep, const harpe_rank_info *ranks, int stride,
                                int pipeline_rank, harpe_error *error) {
    const harpe_rank_info *first = first_of(ranks, sweep->rank_count, pipeline_rank);
    size_t available = first ? first->available_frequency_count : 0;
    int *common = harpe_calloc(available, sizeof *common);
    if (!common) return harpe_fail_memory(error);
    sweep->clocks[pipeline_rank].mhz = common;
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < available; i++) {
        int mhz = first->available_frequencies_mhz[i];
        if (mhz > 0 && mhz <= HARPE_FREQUENCY_MAX_MHZ &&
            all_have_frequency(ranks, sweep->rank_count, pipeline_rank, mhz))
            common[count++] = mhz;
    }
    if (count == 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "the ranks of pipeline rank %d have no available frequency in common: a "
                          "sweep needs GPUs of one model in each stage",
                          pipeline_rank);
    qsort(common, count, sizeof *common, compare_falling);
    int last = 0;
    for (size_t i = 0, distinct = 0; i < count; i++) {
        if (common[i] == last) continue;
        last = common[i];
        if (distinct++ % (size_t)stride == 0) common[kept++] = last;
    }
    sweep->clocks[pipeline_rank].count = kept;
    if (kept > sweep->frequency_count) sweep->frequency_count = kept;
    return HARPE_OK;
}

static harpe_status find_frequencies(harpe_sweep *sweep, const harpe_rank_info *ranks, int stride,
                                     harpe_error *error) {
    size_t pipeline_ranks = (size_t)sweep->pipeline->rank_count;
    sweep->clocks = harpe_calloc(pipeline_ranks, sizeof *sweep->clocks);
    sweep->waiting = harpe_calloc(pipeline_ranks, sizeof *sweep->waiting);
    if (!sweep->clocks || !sweep->waiting) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (int p = 0; p < sweep->pipeline->rank_count && status == HARPE_OK; p++)
        status = find_clocks(sweep, ranks, stride, p, error);
    return status;
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

static void free_members(harpe_sweep *sweep) {
    for (size_t e = 0; sweep->lists && e < sweep->pipeline->entry_count; e++)
        free(sweep->lists[e].points);
    for (int p = 0; sweep->clocks && p < sweep->pipeline->rank_count; p++)
        free(sweep->clocks[p].mhz);
    free(sweep->lists);
    free(sweep->clocks);
    free(sweep->waiting);
}

void harpe_sweep_free(harpe_sweep *sweep) {
    if (!sweep) return;
    free_members(sweep);
    free(sweep);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static const harpe_sweep_clocks *clocks_of(const harpe_sweep *sweep, int entry) {
    return &sweep->clocks[sweep->pipeline->entries[entry].pipeline_rank];
}

bool harpe_sweep_is_over(const harpe_sweep *sweep) {
    return sweep->position >= sweep->frequency_count;
}

int harpe_sweep_frequency_mhz(const harpe_sweep *sweep, int entry) {
    bool runs_at_highest = harpe_sweep_is_over(sweep) || sweep->lists[entry].has_stopped;
    return clocks_of(sweep, entry)->mhz[runs_at_highest ? 0 : sweep->position];
}

int harpe_sweep_highest_mhz(const harpe_sweep *sweep, int pipeline_rank) {
    return sweep->clocks[pipeline_rank].mhz[0];
}

bool harpe_sweep_are_highest(const harpe_sweep *sweep, const int *frequency_mhz) {
    for (size_t i = 0; i < sweep->pipeline->instruction_count; i++)
        if (frequency_mhz[i] != clocks_of(sweep, sweep->pipeline->entry_of[i])->mhz[0])
            return false;
    return true;
}

int harpe_sweep_common_mhz(const harpe_sweep *sweep) {
    int common_mhz = 0;
    if (harpe_sweep_is_over(sweep)) return 0;
    for (int p = 0; p < sweep->pipeline->rank_count; p++) {
        const harpe_sweep_clocks *clocks = &sweep->clocks[p];
        int mhz = sweep->position < clocks->count ? clocks->mhz[sweep->position] : 0;
        if (mhz == 0 || (p > 0 && mhz != common_mhz)) return 0;
        common_mhz = mhz;
    }
    return common_mhz;
}

static void add_waiting(harpe_sweep_waiting *to, const harpe_sweep_waiting *from) {
    to->time_s += from->time_s;
    to->energy_j += from->energy_j;
    to->watched_s += from->watched_s;
}

static void count_waiting(harpe_sweep *sweep, const harpe_online_round *round) {
    int gpus = sweep->rank_count / sweep->pipeline->rank_count; /* of a stage */
    if (!round->tells_waiting) return;
    for (int p = 0; p < sweep->pipeline->rank_count; p++) {
        harpe_sweep_waiting own = {round->waiting[p].time_s, round->waiting[p].energy_j,
                                   round->iteration_time_s * gpus};
        add_waiting(&sweep->waiting[p], &own);
        add_waiting(&sweep->cost.waiting, &own);
    }
}

void harpe_sweep_count(harpe_sweep *sweep, const harpe_online_round *round) {
    harpe_sweep_cost *cost = &sweep->cost;
    double iterations = (double)round->iterations;
    bool is_first = !round->has_probe || !(cost->first_time_s > 0) ||
                    harpe_savings_is_warm_up(cost->first_time_s, round->iteration_time_s) ||
                    harpe_savings_is_warm_up(cost->first_energy_j, round->iteration_energy_j);
    if (sweep->position == 0 && is_first) {
        cost->first_time_s = round->iteration_time_s;
        cost->first_energy_j = round->iteration_energy_j;
    }
    cost->rounds++;
    cost->iterations += round->iterations;
    cost->time_s += iterations * round->iteration_time_s;
    cost->energy_j += iterations * round->iteration_energy_j;
    if (round->iteration_time_s > 0) cost->timed_iterations += round->iterations;
    if (round->iteration_energy_j > 0) cost->metered_iterations += round->iterations;
    count_waiting(sweep, round);
}

static bool measured_all(const harpe_sweep *sweep, const harpe_online_round *round) {
    for (size_t e = 0; e < sweep->pipeline->entry_count; e++)
        if (!sweep->lists[e].has_stopped && !(round->entries[e].time_s > 0)) return false;
    return true;
}

harpe_status harpe_sweep_miss(harpe_sweep *sweep, const harpe_online_round *round,
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
    const harpe_sweep_clocks *clocks = clocks_of(sweep, (int)entry);
    if (list->has_stopped) return false;
    bool rises = list->count > 0 && mean->energy_j > list->points[list->count - 1].energy_j;
    list->points[list->count++] =
        (harpe_profile_point){clocks->mhz[sweep->position], mean->time_s, mean->energy_j};
    list->rises = rises ? list->rises + 1 : 0;
    list->has_stopped = list->rises >= sweep->rises_to_stop || list->count == clocks->count;
    return !list->has_stopped;
}

harpe_status harpe_sweep_observe(harpe_sweep *sweep, const harpe_online_round *round,
                                 harpe_error *error) {
    if (harpe_sweep_is_over(sweep)) return HARPE_OK;
    harpe_sweep_count(sweep, round);
    if (!measured_all(sweep, round)) return harpe_sweep_miss(sweep, round, error);
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

static bool have_same_clocks(const harpe_sweep_clocks *a, const harpe_sweep_clocks *b) {
    return a->count == b->count && memcmp(a->mhz, b->mhz, a->count * sizeof *a->mhz) == 0;
}

static double power_of(const harpe_sweep_waiting *waiting) {
    if (!(waiting->time_s > WAITING_SHARE_MIN * waiting->watched_s)) return 0;
    double power_w = waiting->energy_j / waiting->time_s;
    return power_w > 0 ? power_w : 0;
}

double harpe_sweep_blocking_power_w(const harpe_sweep *sweep, int pipeline_rank) {
    harpe_sweep_waiting same = {0};
    for (int p = 0; p < sweep->pipeline->rank_count; p++)
        if (have_same_clocks(&sweep->clocks[p], &sweep->clocks[pipeline_rank]))
            add_waiting(&same, &sweep->waiting[p]);
    double power_w = power_of(&same);
    return power_w > 0 ? power_w : power_of(&sweep->cost.waiting);
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

static bool are_possible(const double *blocking_power_w, int count) {
    for (int p = 0; p < count; p++)
        if (!(blocking_power_w[p] > 0 && blocking_power_w[p] <= BLOCKING_POWER_MAX_W)) return false;
    return true;
}

harpe_status harpe_sweep_profile(const harpe_sweep *sweep, const double *blocking_power_w,
                                 const harpe_online_latencies *latencies, harpe_profile **out,
                                 harpe_error *error) {
    bool has_power = are_possible(blocking_power_w, sweep->pipeline->rank_count);
    size_t entries = sweep->pipeline->entry_count, count = 0;
    int gpus = sweep->rank_count / sweep->pipeline->rank_count; /* of a stage */
    harpe_measurement *rows = harpe_calloc(entries * sweep->frequency_count, sizeof *rows);
    if (!rows) return harpe_fail_memory(error);
    for (size_t e = 0; e < entries; e++) {
        const harpe_online_entry *entry = &sweep->pipeline->entries[e];
        const harpe_sweep_list *list = &sweep->lists[e];
        for (size_t i = 0; i < list->count; i++) {
            harpe_profile_point point = corrected(list, i);
            rows[count++] = (harpe_measurement){
                .stage = entry->stage,
                .rank = -1,
                .instruction = entry->instruction,
                .frequency_mhz = point.frequency_mhz,
                .time_s = point.time_s,
                .energy_j = point.energy_j,
                .gpu_count = gpus,
                .switch_latency_s = harpe_online_latencies_planned_s(
                    latencies, entry->pipeline_rank, point.frequency_mhz),
                .blocking_power_w = has_power ? blocking_power_w[entry->pipeline_rank] : 0};
        }
    }
    harpe_status status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

/* ---- The stored state ------------------------------------------------------------------------ */

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED(harpe_sweep, position, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_sweep, misses, 0, 1000),
    HARPE_STORED(harpe_sweep, cost.rounds, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_sweep, cost.iterations, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_sweep, cost.timed_iterations, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_sweep, cost.metered_iterations, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_sweep, cost.time_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_sweep, cost.energy_j, HARPE_STORED_ANY),
    HARPE_STORED(harpe_sweep, cost.first_time_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_sweep, cost.first_energy_j, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_sweep, cost.waiting, HARPE_STORED_ANY),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(harpe_sweep, MEMBERS);

static const harpe_stored_member WAITING_MEMBERS[] = {
    HARPE_STORED(harpe_sweep_waiting, time_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_sweep_waiting, energy_j, HARPE_STORED_ANY),
    HARPE_STORED(harpe_sweep_waiting, watched_s, HARPE_STORED_ANY),
};
static const harpe_stored WAITING = HARPE_STORED_TABLE(harpe_sweep_waiting, WAITING_MEMBERS);

static const harpe_stored_member LIST_MEMBERS[] = {
    HARPE_STORED(harpe_sweep_list, rises, 0, 1e9),
    HARPE_STORED(harpe_sweep_list, has_stopped, 0, 1),
    HARPE_STORED(harpe_sweep_list, time_ratio, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_sweep_list, energy_ratio, HARPE_STORED_COUNT),
};
static const harpe_stored LIST = HARPE_STORED_TABLE(harpe_sweep_list, LIST_MEMBERS);

static const harpe_stored_member POINT_MEMBERS[] = {
    HARPE_STORED(harpe_profile_point, frequency_mhz, 1, HARPE_FREQUENCY_MAX_MHZ),
    HARPE_STORED(harpe_profile_point, time_s, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_profile_point, energy_j, HARPE_STORED_COUNT),
};
static const harpe_stored POINT = HARPE_STORED_TABLE(harpe_profile_point, POINT_MEMBERS);

json_t *harpe_sweep_save(const harpe_sweep *sweep) {
    size_t entries = sweep->pipeline->entry_count, ranks = (size_t)sweep->pipeline->rank_count;
    json_t *json = harpe_stored_save(&TABLE, sweep);
    json_t *clocks = json_array(), *points = json_array();
    for (size_t p = 0; p < ranks; p++)
        harpe_stored_append(&clocks,
                            harpe_stored_save_clocks(sweep->clocks[p].mhz, sweep->clocks[p].count));
    for (size_t e = 0; e < entries; e++)
        harpe_stored_append(
            &points, harpe_stored_save_rows(&POINT, sweep->lists[e].points, sweep->lists[e].count));
    harpe_stored_add(&json, "clocks", clocks);
    harpe_stored_add(&json, "waiting", harpe_stored_save_rows(&WAITING, sweep->waiting, ranks));
    harpe_stored_add(&json, "lists", harpe_stored_save_rows(&LIST, sweep->lists, entries));
    harpe_stored_add(&json, "points", points);
    return json;
}

static bool load_clocks(harpe_sweep *into, const json_t *saved) {
    if (json_array_size(saved) != (size_t)into->pipeline->rank_count) return false;
    for (int p = 0; p < into->pipeline->rank_count; p++) {
        harpe_sweep_clocks *clocks = &into->clocks[p];
        const json_t *list = json_array_get(saved, (size_t)p);
        size_t count = json_array_size(list);
        clocks->mhz = harpe_calloc(count, sizeof *clocks->mhz);
        clocks->count = count;
        if (count == 0 || !clocks->mhz || !harpe_stored_load_clocks(clocks->mhz, count, list))
            return false;
        for (size_t i = 0; i < count; i++)
            if (clocks->mhz[i] >= (i > 0 ? clocks->mhz[i - 1] : HARPE_FREQUENCY_MAX_MHZ + 1))
                return false;
        if (count > into->frequency_count) into->frequency_count = count;
    }
    return true;
}

static bool has_clock(const harpe_sweep_clocks *clocks, int mhz) {
    for (size_t i = 0; i < clocks->count; i++)
        if (clocks->mhz[i] == mhz) return true;
    return false;
}

static bool load_points(const harpe_sweep *into, size_t entry, const json_t *saved) {
    const harpe_sweep_clocks *clocks = clocks_of(into, (int)entry);
    harpe_sweep_list *list = &into->lists[entry];
    list->count = json_array_size(saved);
    if (!(list->time_ratio > 0 && list->energy_ratio > 0) || list->count > clocks->count ||
        !harpe_stored_load_rows(&POINT, list->points, list->count, saved))
        return false;
    int above_mhz = INT_MAX;
    for (size_t i = 0; i < list->count; i++) {
        const harpe_profile_point *point = &list->points[i];
        if (!(point->time_s > 0 && point->energy_j > 0) || point->frequency_mhz >= above_mhz ||
            !has_clock(clocks, point->frequency_mhz))
            return false;
        above_mhz = point->frequency_mhz;
    }
    if (list->count == 0 && into->position > 0) return false;
    if (list->count == clocks->count) list->has_stopped = true;
    if (list->has_stopped || into->position == into->frequency_count) return true;
    return list->count == into->position; /* each frequency that has run so far has a point */
}

static bool load(harpe_sweep *into, const json_t *saved) {
    size_t entries = into->pipeline->entry_count, ranks = (size_t)into->pipeline->rank_count;
    const json_t *points = json_object_get(saved, "points");
    harpe_error no_memory;
    into->clocks = harpe_calloc(ranks, sizeof *into->clocks);
    into->waiting = harpe_calloc(ranks, sizeof *into->waiting);
    bool is_good =
        into->clocks && into->waiting && load_clocks(into, json_object_get(saved, "clocks")) &&
        harpe_stored_load(&TABLE, into, saved) && into->position <= into->frequency_count &&
        harpe_stored_load_rows(&WAITING, into->waiting, ranks, json_object_get(saved, "waiting")) &&
        make_lists(into->pipeline, into->frequency_count, &into->lists, &no_memory) == HARPE_OK &&
        harpe_stored_load_rows(&LIST, into->lists, entries, json_object_get(saved, "lists")) &&
        json_array_size(points) == entries;
    for (size_t e = 0; e < entries && is_good; e++)
        is_good = load_points(into, e, json_array_get(points, e));
    return is_good;
}

bool harpe_sweep_load(harpe_sweep *sweep, const json_t *saved) {
    harpe_sweep loaded = {.pipeline = sweep->pipeline,
                          .rank_count = sweep->rank_count,
                          .rises_to_stop = sweep->rises_to_stop};
    bool is_good = load(&loaded, saved);
    if (!is_good) {
        free_members(&loaded);
        return false;
    }
    free_members(sweep);
    *sweep = loaded;
    return true;
}
