/* SPDX-License-Identifier: Apache-2.0 */
/* The 3D wrapper: shows each stage to a scheduler as one rank. All ranks of the stage get the
 * schedule that the scheduler makes for it. Their results are combined into one, element by
 * element, in an arena that lasts until the next round. */
#include "server/scheduler/builtin.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

struct harpe_stages {
    harpe_job_info job;
    harpe_rank_info *stages;
    const harpe_rank_info *ranks;
    int rank_count;
    harpe_arena fixed; /* frequencies */
    harpe_arena round; /* combined results */
};

/* ---- The job as stages ----------------------------------------------------------------------- */

bool harpe_rank_has_frequency(const harpe_rank_info *rank, int frequency_mhz) {
    for (size_t i = 0; i < rank->available_frequency_count; i++)
        if (rank->available_frequencies_mhz[i] == frequency_mhz) return true;
    return false;
}

/* Removes frequencies from the stage's list that `rank` does not have. */
static void keep_common(harpe_rank_info *stage, int *frequencies_mhz, const harpe_rank_info *rank) {
    size_t kept = 0;
    for (size_t i = 0; i < stage->available_frequency_count; i++)
        if (harpe_rank_has_frequency(rank, frequencies_mhz[i]))
            frequencies_mhz[kept++] = frequencies_mhz[i];
    stage->available_frequency_count = kept;
}

static bool same_frequencies(const harpe_rank_info *a, const harpe_rank_info *b) {
    return a->available_frequency_count == b->available_frequency_count &&
           (a->available_frequency_count == 0 ||
            memcmp(a->available_frequencies_mhz, b->available_frequencies_mhz,
                   a->available_frequency_count * sizeof *a->available_frequencies_mhz) == 0);
}

static harpe_status add_rank(harpe_stages *stages, bool *has_first, const harpe_rank_info *rank,
                             harpe_error *error) {
    harpe_rank_info *stage = &stages->stages[rank->pp_rank];
    size_t count = rank->available_frequency_count;
    if (!has_first[rank->pp_rank]) {
        has_first[rank->pp_rank] = true;
        int *copy = harpe_arena_alloc(&stages->fixed, count + 1, sizeof *copy);
        if (!copy) return harpe_fail_memory(error);
        if (count > 0) memcpy(copy, rank->available_frequencies_mhz, count * sizeof *copy);
        *stage = (harpe_rank_info){rank->pp_rank, 0, rank->pp_rank, 0, copy, count};
        return HARPE_OK;
    }
    if (same_frequencies(stage, rank)) return HARPE_OK;
    /* The list is the stages' own copy, so it may be changed. */
    keep_common(stage, (int *)stage->available_frequencies_mhz, rank);
    if (stage->available_frequency_count > 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "rank %d shares no available frequency with the other ranks of stage %d: one "
                      "schedule cannot serve them",
                      rank->rank, rank->pp_rank);
}

harpe_status harpe_stages_new(const harpe_job_info *job, const harpe_rank_info *ranks,
                              harpe_stages **out, harpe_error *error) {
    harpe_stages *stages = harpe_calloc(1, sizeof *stages);
    bool *has_first = harpe_calloc((size_t)job->pp_degree, sizeof *has_first);
    harpe_status status = stages && has_first ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) {
        stages->job = *job;
        stages->job.dp_degree = stages->job.tp_degree = 1;
        stages->job.world_size = job->pp_degree;
        stages->ranks = ranks;
        stages->rank_count = job->world_size;
        stages->stages = harpe_calloc((size_t)job->pp_degree, sizeof *stages->stages);
        if (!stages->stages) status = harpe_fail_memory(error);
    }
    for (int r = 0; r < job->world_size && status == HARPE_OK; r++)
        status = add_rank(stages, has_first, &ranks[r], error);
    free(has_first);
    if (status != HARPE_OK) {
        harpe_stages_free(stages);
        return status;
    }
    *out = stages;
    return HARPE_OK;
}

void harpe_stages_free(harpe_stages *stages) {
    if (!stages) return;
    free(stages->stages);
    harpe_arena_free(&stages->fixed);
    harpe_arena_free(&stages->round);
    free(stages);
}

const harpe_job_info *harpe_stages_job(const harpe_stages *stages) { return &stages->job; }
const harpe_rank_info *harpe_stages_ranks(const harpe_stages *stages) { return stages->stages; }

/* ---- Results --------------------------------------------------------------------------------- */

typedef enum combination { MAXIMUM, SUM } combination;

static void combine_values(double *into, const double *from, size_t count, combination how) {
    for (size_t i = 0; i < count; i++)
        if (how == SUM)
            into[i] += from[i];
        else if (from[i] > into[i])
            into[i] = from[i];
}

static harpe_status fail_lengths(int rank, int other, const char *what, harpe_error *error) {
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "ranks %d and %d of one stage reported a different number of values in "
                      "%.64s: their results cannot be combined",
                      other, rank, what);
}

/* Combines lists that have a value for each iteration. `*into` NULL: `rank` is the first rank of
 * the stage. */
static harpe_status combine_list(harpe_stages *stages, const double **into, size_t *into_count,
                                 const double *from, size_t count, bool is_first, combination how,
                                 const char *what, int rank, int first, harpe_error *error) {
    if (is_first) {
        double *copy = harpe_arena_alloc(&stages->round, count + 1, sizeof *copy);
        if (!copy) return harpe_fail_memory(error);
        if (count > 0) memcpy(copy, from, count * sizeof *copy);
        *into = copy;
        *into_count = count;
        return HARPE_OK;
    }
    if (*into_count != count) return fail_lengths(rank, first, what, error);
    combine_values((double *)*into, from, count, how); /* the arena's copy */
    return HARPE_OK;
}

static size_t value_count(const harpe_breakdown *breakdown) {
    size_t count = 0;
    for (size_t i = 0; i < breakdown->iteration_count; i++)
        count += breakdown->counts[i];
    return count;
}

/* Makes a copy. The values of the copy are in one array, in order. */
static harpe_status copy_breakdown(harpe_stages *stages, const harpe_breakdown *from,
                                   harpe_breakdown *to, harpe_error *error) {
    size_t iterations = from->iteration_count;
    size_t *counts = harpe_arena_alloc(&stages->round, iterations * 2 + 1, sizeof *counts);
    double *values = harpe_arena_alloc(&stages->round, value_count(from) + 1, sizeof *values);
    if (!counts || !values) return harpe_fail_memory(error);
    size_t *offsets = counts + iterations;
    size_t at = 0;
    for (size_t i = 0; i < iterations; i++) {
        counts[i] = from->counts[i];
        offsets[i] = at;
        if (counts[i] > 0)
            memcpy(values + at, from->values + from->offsets[i], counts[i] * sizeof *values);
        at += counts[i];
    }
    *to = (harpe_breakdown){from->instruction, iterations, counts, offsets, values};
    return HARPE_OK;
}

const harpe_breakdown *harpe_find_breakdown(const harpe_breakdown *list, size_t count,
                                            const char *instruction) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].instruction, instruction) == 0) return &list[i];
    return NULL;
}

static harpe_status add_breakdown(const harpe_breakdown *into, const harpe_breakdown *from,
                                  combination how, int rank, int first, harpe_error *error) {
    if (!from || from->iteration_count != into->iteration_count)
        return fail_lengths(rank, first, into->instruction, error);
    for (size_t i = 0; i < into->iteration_count; i++) {
        if (into->counts[i] != from->counts[i])
            return fail_lengths(rank, first, into->instruction, error);
        combine_values((double *)into->values + into->offsets[i], /* the arena's copy */
                       from->values + from->offsets[i], into->counts[i], how);
    }
    return HARPE_OK;
}

static harpe_status combine_breakdowns(harpe_stages *stages, const harpe_breakdown **into,
                                       size_t *into_count, const harpe_breakdown *from,
                                       size_t count, bool is_first, combination how, int rank,
                                       int first, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (is_first) {
        harpe_breakdown *list = harpe_arena_alloc(&stages->round, count + 1, sizeof *list);
        if (!list) return harpe_fail_memory(error);
        for (size_t i = 0; i < count && status == HARPE_OK; i++)
            status = copy_breakdown(stages, &from[i], &list[i], error);
        *into = list;
        *into_count = count;
        return status;
    }
    if (*into_count != count) return fail_lengths(rank, first, "their breakdowns", error);
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        const harpe_breakdown *same = harpe_find_breakdown(from, count, (*into)[i].instruction);
        status = add_breakdown(&(*into)[i], same, how, rank, first, error);
    }
    return status;
}

/* Adds the result of `rank` to its stage's result; `first` is the rank that was added first. */
static harpe_status add_result(harpe_stages *stages, harpe_profiling_result *into,
                               const harpe_profiling_result *from, int first, harpe_error *error) {
    bool is_first = first == from->rank;
    int rank = from->rank;
    harpe_status status = combine_list(stages, &into->iteration_time_s, &into->iteration_time_count,
                                       from->iteration_time_s, from->iteration_time_count, is_first,
                                       MAXIMUM, "iter_time", rank, first, error);
    if (status == HARPE_OK)
        status = combine_list(stages, &into->iteration_energy_j, &into->iteration_energy_count,
                              from->iteration_energy_j, from->iteration_energy_count, is_first, SUM,
                              "iter_energy", rank, first, error);
    if (status == HARPE_OK)
        status = combine_breakdowns(stages, &into->time_breakdown, &into->time_breakdown_count,
                                    from->time_breakdown, from->time_breakdown_count, is_first,
                                    MAXIMUM, rank, first, error);
    if (status == HARPE_OK)
        status = combine_breakdowns(stages, &into->energy_breakdown, &into->energy_breakdown_count,
                                    from->energy_breakdown, from->energy_breakdown_count, is_first,
                                    SUM, rank, first, error);
    return status;
}

harpe_status harpe_stages_combine(harpe_stages *stages, const harpe_profiling_result *results,
                                  const harpe_profiling_result **combined, harpe_error *error) {
    harpe_arena_free(&stages->round);
    size_t count = (size_t)stages->job.world_size;
    harpe_profiling_result *list = harpe_arena_alloc(&stages->round, count, sizeof *list);
    int *first = harpe_arena_alloc(&stages->round, count, sizeof *first);
    if (!list || !first) return harpe_fail_memory(error);
    for (size_t s = 0; s < count; s++) {
        list[s].rank = (int)s;
        first[s] = -1;
    }
    for (int r = 0; r < stages->rank_count; r++) {
        int stage = stages->ranks[r].pp_rank;
        if (first[stage] < 0) first[stage] = results[r].rank;
        harpe_status status = add_result(stages, &list[stage], &results[r], first[stage], error);
        if (status != HARPE_OK) return status;
    }
    *combined = list;
    return HARPE_OK;
}
