/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule seen from the measuring side. Clients report values by instruction name; where a rank
 * has several stages, the order of the runs tells whose each value is. */
#include "server/schedulers/online_pipeline.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* ---- Making it -------------------------------------------------------------------------------
 */

static int find_name(const harpe_online_pipeline *pipeline, size_t first, size_t end,
                     const char *instruction) {
    for (size_t n = first; n < end; n++) {
        if (strcmp(pipeline->names[n].instruction, instruction) == 0) return (int)n;
    }
    return -1;
}

/* Counts the runs of each name. */
static harpe_status add_names(harpe_online_pipeline *pipeline, int rank,
                              const harpe_instruction *list, size_t count, harpe_error *error) {
    size_t first = pipeline->name_offset[rank], end = first;
    for (size_t i = 0; i < count; i++) {
        int n = find_name(pipeline, first, end, list[i].name);
        if (n < 0) {
            if (!HARPE_ARRAY_RESERVE(pipeline->names, pipeline->name_capacity, end + 1))
                return harpe_fail_memory(error);
            n = (int)end++;
            pipeline->names[n] = (harpe_online_name){.instruction = list[i].name};
        }
        pipeline->names[n].run_count++;
    }
    pipeline->name_offset[rank + 1] = end;
    return HARPE_OK;
}

/* -1: out of memory. */
static int entry_for(harpe_online_pipeline *pipeline, harpe_online_name *name, int rank,
                     int stage) {
    for (int e = name->first_entry; e < name->first_entry + name->entry_count; e++) {
        if (pipeline->entries[e].stage == stage) return e;
    }
    if (!HARPE_ARRAY_RESERVE(pipeline->entries, pipeline->entry_capacity,
                             pipeline->entry_count + 1))
        return -1;
    int e = (int)pipeline->entry_count++;
    name->entry_count++;
    pipeline->entries[e] = (harpe_online_entry){stage, rank, name->instruction, 0};
    return e;
}

static harpe_status add_entries(harpe_online_pipeline *pipeline, int rank, size_t n,
                                const harpe_instruction *list, size_t count, harpe_error *error) {
    harpe_online_name *name = &pipeline->names[n];
    int *runs = harpe_arena_alloc(&pipeline->arena, name->run_count, sizeof *runs);
    if (!runs) return harpe_fail_memory(error);
    name->first_entry = (int)pipeline->entry_count;
    name->entry_of_run = runs;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name->instruction) != 0) continue;
        int entry = entry_for(pipeline, name, rank, list[i].actions[0].stage);
        if (entry < 0) return harpe_fail_memory(error);
        pipeline->entries[entry].run_count++;
        pipeline->entry_of[pipeline->rank_offset[rank] + i] = entry;
        *runs++ = entry;
    }
    return HARPE_OK;
}

static harpe_status fill(harpe_online_pipeline *pipeline, harpe_error *error) {
    size_t total = harpe_schedule_instruction_count(pipeline->schedule);
    size_t ranks = (size_t)pipeline->rank_count;
    harpe_arena *arena = &pipeline->arena;
    pipeline->instruction_count = total;
    pipeline->rank_offset = harpe_arena_alloc(arena, ranks + 1, sizeof *pipeline->rank_offset);
    pipeline->name_offset = harpe_arena_alloc(arena, ranks + 1, sizeof *pipeline->name_offset);
    pipeline->entry_of = harpe_arena_alloc(arena, total + 1, sizeof *pipeline->entry_of);
    if (!pipeline->rank_offset || !pipeline->name_offset || !pipeline->entry_of)
        return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (int rank = 0; rank < pipeline->rank_count && !status; rank++) {
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(pipeline->schedule, rank, &count);
        pipeline->rank_offset[rank + 1] = pipeline->rank_offset[rank] + count;
        status = add_names(pipeline, rank, list, count, error);
        for (size_t n = pipeline->name_offset[rank]; !status && n < pipeline->name_offset[rank + 1];
             n++)
            status = add_entries(pipeline, rank, n, list, count, error);
    }
    return status;
}

static harpe_status make_schedule(const char *name, const char *csv_path, int ranks,
                                  int microbatches, harpe_schedule **out, harpe_error *error) {
    if (!csv_path) {
        harpe_schedule_options options = {
            .name = name, .ranks = ranks, .microbatches = microbatches};
        return harpe_schedule_new(&options, out, error);
    }
    harpe_schedule *schedule;
    harpe_status status = harpe_schedule_read_csv(csv_path, &schedule, error);
    if (status) return status;
    if (harpe_schedule_rank_count(schedule) != ranks) {
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%.200s has %d ranks, but this job has %d pipeline ranks", csv_path,
                            harpe_schedule_rank_count(schedule), ranks);
        harpe_schedule_free(schedule);
        return status;
    }
    *out = schedule;
    return HARPE_OK;
}

harpe_status harpe_online_pipeline_new(const char *name, const char *csv_path, int ranks,
                                       int microbatches, harpe_online_pipeline **out,
                                       harpe_error *error) {
    harpe_online_pipeline *pipeline = harpe_calloc(1, sizeof *pipeline);
    if (!pipeline) return harpe_fail_memory(error);
    pipeline->rank_count = ranks;
    harpe_status status =
        make_schedule(name, csv_path, ranks, microbatches, &pipeline->schedule, error);
    if (!status) {
        pipeline->microbatches = harpe_schedule_microbatch_count(pipeline->schedule);
        status = fill(pipeline, error);
    }
    if (status) {
        harpe_online_pipeline_free(pipeline);
        return status;
    }
    *out = pipeline;
    return HARPE_OK;
}

void harpe_online_pipeline_free(harpe_online_pipeline *pipeline) {
    if (!pipeline) return;
    harpe_schedule_free(pipeline->schedule);
    free(pipeline->names);
    free(pipeline->entries);
    harpe_arena_free(&pipeline->arena);
    free(pipeline);
}

/* ---- Counting microbatches -------------------------------------------------------------------
 */

static const char FORWARD[] = "forward";

/* Runs of "forward" on rank 0 in an iteration of that many microbatches. */
static harpe_status count_forwards(const char *name, int ranks, int microbatches, size_t *forwards,
                                   harpe_error *error) {
    harpe_schedule_options options = {.name = name, .ranks = ranks, .microbatches = microbatches};
    harpe_schedule *schedule;
    harpe_status status = harpe_schedule_new(&options, &schedule, error);
    if (status) return status;
    size_t count, found = 0;
    const harpe_instruction *list = harpe_schedule_rank(schedule, 0, &count);
    for (size_t i = 0; i < count; i++)
        found += strcmp(list[i].name, FORWARD) == 0;
    harpe_schedule_free(schedule);
    *forwards = found;
    return HARPE_OK;
}

static harpe_status forwards_per_microbatch(const char *name, int ranks, size_t *forwards,
                                            harpe_error *error) {
    size_t few, many;
    size_t probe = 4 * (size_t)ranks; /* every schedule takes a multiple of twice the ranks */
    harpe_status status = count_forwards(name, ranks, (int)probe, &few, error);
    if (!status) status = count_forwards(name, ranks, (int)(2 * probe), &many, error);
    if (status) return status;
    if (few == 0 || many != 2 * few || few % probe != 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "scheduler_args: the microbatches of schedule '%.64s' cannot be counted "
                          "from what ranks report: give num_microbatches",
                          name ? name : "1f1b");
    *forwards = few / probe;
    return HARPE_OK;
}

harpe_status harpe_online_can_count(const char *name, int pipeline_ranks, harpe_error *error) {
    size_t forwards;
    return forwards_per_microbatch(name, pipeline_ranks, &forwards, error);
}

/* The most runs of "forward" in one iteration: some iterations may be missing in part. */
static size_t most_forwards(const harpe_profiling_result *result) {
    size_t most = 0;
    for (size_t b = 0; b < result->time_breakdown_count; b++) {
        const harpe_breakdown *breakdown = &result->time_breakdown[b];
        if (strcmp(breakdown->instruction, FORWARD) != 0) continue;
        for (size_t i = 0; i < breakdown->iteration_count; i++) {
            if (breakdown->counts[i] > most) most = breakdown->counts[i];
        }
    }
    return most;
}

harpe_status harpe_online_count_microbatches(const char *name, int pipeline_ranks,
                                             const harpe_rank_info *ranks,
                                             const harpe_profiling_result *results, size_t count,
                                             int *microbatches, harpe_error *error) {
    size_t each;
    harpe_status status = forwards_per_microbatch(name, pipeline_ranks, &each, error);
    if (status) return status;
    size_t first = count > 0 ? most_forwards(&results[0]) : 0;
    if (first == 0 || first % each != 0 || first / each > INT_MAX)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "rank 0 reported %zu runs of 'forward' in an iteration: give "
                          "num_microbatches, or let every rank report its time_breakdown",
                          first);
    for (size_t r = 1; r < count; r++) {
        size_t other = most_forwards(&results[r]);
        if (other != first)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "rank %d reported %zu runs of 'forward' in an iteration and rank %d "
                              "%zu: give num_microbatches, or let every rank report its "
                              "time_breakdown",
                              ranks[0].rank, first, ranks[r].rank, other);
    }
    *microbatches = (int)(first / each);
    return HARPE_OK;
}
