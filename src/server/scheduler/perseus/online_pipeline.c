/* SPDX-License-Identifier: Apache-2.0 */
/* Connects a schedule with measurements. Clients report values by instruction name. If a rank has
 * several stages, the order of the runs determines the stage of each value. */
#include "server/scheduler/perseus/online_pipeline.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "plan/schedule.h"

/* ---- Making it ------------------------------------------------------------------------------- */

static int find_name(const harpe_online_pipeline *pipeline, size_t first, size_t end,
                     const char *instruction) {
    for (size_t n = first; n < end; n++)
        if (strcmp(pipeline->names[n].instruction, instruction) == 0) return (int)n;
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

/* Returns the index of the entry; -1: out of memory. */
static int entry_for(harpe_online_pipeline *pipeline, harpe_online_name *name, int rank,
                     int stage) {
    for (int e = name->first_entry; e < name->first_entry + name->entry_count; e++)
        if (pipeline->entries[e].stage == stage) return e;
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
    for (int rank = 0; rank < pipeline->rank_count && status == HARPE_OK; rank++) {
        size_t count;
        const harpe_instruction *list = harpe_schedule_rank(pipeline->schedule, rank, &count);
        pipeline->rank_offset[rank + 1] = pipeline->rank_offset[rank] + count;
        status = add_names(pipeline, rank, list, count, error);
        for (size_t n = pipeline->name_offset[rank];
             status == HARPE_OK && n < pipeline->name_offset[rank + 1]; n++)
            status = add_entries(pipeline, rank, n, list, count, error);
    }
    return status;
}

static harpe_status check_lags(const harpe_online_schedule *which, const harpe_schedule *schedule,
                               harpe_error *error) {
    if (!harpe_schedule_has_lag(schedule)) return HARPE_OK;
    return harpe_fail(
        error, HARPE_NOT_SUPPORTED,
        "%.200s has lags, which only harpe plan and harpe evaluate take into account: "
        "leave the plus signs and the times after them out",
        which->csv_path);
}

static harpe_status read_schedule(const harpe_online_schedule *which, int ranks,
                                  harpe_schedule **out, harpe_error *error) {
    harpe_schedule *schedule;
    harpe_status status = harpe_file_check_regular(which->csv_path, error);
    if (status == HARPE_OK) status = harpe_schedule_read_csv(which->csv_path, &schedule, error);
    if (status != HARPE_OK) return status;
    if (ranks > 0 && harpe_schedule_rank_count(schedule) != ranks)
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%.200s has %d ranks, but this job has %d pipeline ranks",
                            which->csv_path, harpe_schedule_rank_count(schedule), ranks);
    if (status == HARPE_OK) status = check_lags(which, schedule, error);
    if (status == HARPE_OK)
        status = harpe_schedule_surround(schedule, which->prologue, which->epilogue, error);
    if (status != HARPE_OK) {
        harpe_schedule_free(schedule);
        return status;
    }
    *out = schedule;
    return HARPE_OK;
}

harpe_status harpe_online_schedule_make(const harpe_online_schedule *which, int ranks,
                                        int microbatches, harpe_schedule **out,
                                        harpe_error *error) {
    if (which->csv_path) return read_schedule(which, ranks, out, error);
    harpe_schedule_options options = {.name = which->name,
                                      .ranks = ranks,
                                      .microbatches = microbatches,
                                      .prologue = which->prologue,
                                      .epilogue = which->epilogue};
    return harpe_schedule_new(&options, out, error);
}

/* A profile has one row for a (stage, instruction, frequency), so two ranks of a stage could not
 * have measurements of their own. */
static harpe_status check_stages(const harpe_schedule *schedule, harpe_error *error) {
    int *owner = harpe_calloc((size_t)harpe_schedule_stage_count(schedule), sizeof *owner);
    if (!owner) return harpe_fail_memory(error);
    int stage = harpe_schedule_shared_stage(schedule, owner);
    free(owner);
    if (stage < 0) return HARPE_OK;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "schedule %s runs stage %d on two ranks, which only offline planning supports",
        harpe_schedule_name(schedule), stage);
}

harpe_status harpe_online_pipeline_new(const harpe_online_schedule *schedule, int ranks,
                                       int microbatches, harpe_online_pipeline **out,
                                       harpe_error *error) {
    harpe_online_pipeline *pipeline = harpe_calloc(1, sizeof *pipeline);
    if (!pipeline) return harpe_fail_memory(error);
    pipeline->rank_count = ranks;
    harpe_status status =
        harpe_online_schedule_make(schedule, ranks, microbatches, &pipeline->schedule, error);
    if (status == HARPE_OK) status = check_stages(pipeline->schedule, error);
    if (status == HARPE_OK) {
        pipeline->microbatches = harpe_schedule_microbatch_count(pipeline->schedule);
        status = fill(pipeline, error);
    }
    if (status != HARPE_OK) {
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

/* ---- Counting microbatches ------------------------------------------------------------------- */

static const char FORWARD[] = "forward";
static const char BACKWARD[] = "backward"; /* also backward_input and backward_weight */

/* Counts the runs of "forward" on rank 0 in one iteration that has `microbatches` microbatches. */
static harpe_status count_forwards(const char *name, int ranks, int microbatches, size_t *forwards,
                                   harpe_error *error) {
    harpe_schedule_options options = {.name = name, .ranks = ranks, .microbatches = microbatches};
    harpe_schedule *schedule;
    harpe_status status = harpe_schedule_new(&options, &schedule, error);
    if (status != HARPE_OK) return status;
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
    size_t probe =
        4 * (size_t)ranks; /* every schedule accepts a multiple of twice the number of ranks */
    harpe_status status = count_forwards(name, ranks, (int)probe, &few, error);
    if (status == HARPE_OK) status = count_forwards(name, ranks, (int)(2 * probe), &many, error);
    if (status != HARPE_OK) return status;
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

/* The vote of one iteration of one rank. */
typedef struct vote {
    size_t forwards;
    size_t age; /* number of the rank's later iterations */
} vote;

typedef struct votes {
    vote *items;
    size_t count, capacity;
} votes;

static size_t runs_in(const harpe_breakdown *breakdown, size_t iteration) {
    return iteration < breakdown->iteration_count ? breakdown->counts[iteration] : 0;
}

/* Returns true if the iteration has a backward. An evaluation step has none. */
static bool has_backward(const harpe_profiling_result *result, size_t iteration) {
    for (size_t b = 0; b < result->time_breakdown_count; b++) {
        const harpe_breakdown *breakdown = &result->time_breakdown[b];
        if (strncmp(breakdown->instruction, BACKWARD, sizeof BACKWARD - 1) == 0 &&
            runs_in(breakdown, iteration) > 0)
            return true;
    }
    return false;
}

/* Adds votes for the iterations of a rank that runs `each` forwards per microbatch. An iteration
 * without a backward has a vote only if no iteration has a backward. Returns false if memory runs
 * out. */
static bool add_votes(votes *all, const harpe_profiling_result *result, size_t each) {
    const harpe_breakdown *forwards = NULL;
    for (size_t b = 0; b < result->time_breakdown_count; b++)
        if (strcmp(result->time_breakdown[b].instruction, FORWARD) == 0)
            forwards = &result->time_breakdown[b];
    size_t iterations = forwards ? forwards->iteration_count : 0;
    bool is_trained = false;
    for (size_t i = 0; i < iterations && !is_trained; i++)
        is_trained = forwards->counts[i] > 0 && has_backward(result, i);
    for (size_t i = 0; i < iterations; i++) {
        size_t runs = forwards->counts[i];
        if (runs == 0 || runs % each != 0 || runs / each > INT_MAX) continue;
        if (is_trained && !has_backward(result, i)) continue;
        if (!HARPE_ARRAY_RESERVE(all->items, all->capacity, all->count + 1)) return false;
        all->items[all->count++] = (vote){runs, iterations - 1 - i};
    }
    return true;
}

/* Sorts by the number of forwards, then by age: the latest iteration of each number comes first. */
static int compare_votes(const void *a, const void *b) {
    const vote *x = a, *y = b;
    if (x->forwards != y->forwards) return x->forwards < y->forwards ? -1 : 1;
    return (x->age > y->age) - (x->age < y->age);
}

/* Returns the number with the most votes. If two numbers have the same number of votes, returns the
 * number that occurs in a later iteration. If this does not decide either, returns 0 and sets
 * `*first` and `*second` to the two numbers. */
static size_t elect(votes *all, size_t *first, size_t *second) {
    size_t best_votes = 0, best_age = 0;
    *first = *second = 0;
    if (all->count > 0) qsort(all->items, all->count, sizeof *all->items, compare_votes);
    for (size_t i = 0, end; i < all->count; i = end) {
        const vote *latest = &all->items[i];
        for (end = i; end < all->count && all->items[end].forwards == latest->forwards;)
            end++;
        if (end - i > best_votes || (end - i == best_votes && latest->age < best_age)) {
            best_votes = end - i;
            best_age = latest->age;
            *first = latest->forwards;
            *second = 0;
        } else if (end - i == best_votes && latest->age == best_age) {
            *second = latest->forwards;
        }
    }
    return *second > 0 ? 0 : *first;
}

static harpe_status collect_votes(const harpe_online_reports *reports, size_t each, votes *all,
                                  harpe_error *error) {
    for (size_t r = 0; r < reports->count; r++) {
        size_t before = all->count;
        if (!add_votes(all, &reports->results[r], each)) return harpe_fail_memory(error);
        if (all->count == before)
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "rank %d reported no iteration that shows the microbatches by its "
                              "runs of 'forward': give num_microbatches, or let every rank report "
                              "its time_breakdown",
                              reports->ranks[r].rank);
    }
    return HARPE_OK;
}

harpe_status harpe_online_count_microbatches(const char *name, int pipeline_ranks,
                                             const harpe_online_reports *reports, int *microbatches,
                                             harpe_error *error) {
    size_t each, first, second;
    votes all = {0};
    harpe_status status = forwards_per_microbatch(name, pipeline_ranks, &each, error);
    if (status == HARPE_OK) status = collect_votes(reports, each, &all, error);
    if (status != HARPE_OK) {
        free(all.items);
        return status;
    }
    size_t forwards = elect(&all, &first, &second);
    free(all.items);
    if (forwards == 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "as many iterations of the ranks ran 'forward' %zu times as %zu times: "
                          "give num_microbatches",
                          first, second);
    *microbatches = (int)(forwards / each);
    return HARPE_OK;
}
