/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline of an online job. It connects a schedule with measurements, which have only the name
 * of an instruction: it gives the (stage, instruction) of each instruction of the schedule, and of
 * the k-th run of a name on a rank. A pipeline does not change after it is made. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_PIPELINE_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_ONLINE_PIPELINE_H

#include <stddef.h>

#include <harpe/pfo.h>
#include <harpe/schedule.h>

#include "base/array.h"
#include "pfo/rank_clocks.h"

/* One (stage, instruction). Each has its own curve in a profile. */
typedef struct harpe_online_entry {
    int stage;
    int pipeline_rank; /* the pipeline rank that runs it */
    const char *instruction;
    size_t run_count; /* in one iteration */
} harpe_online_entry;

/* All runs of one name on one pipeline rank, in the order in which they run. If the rank has
 * several stages, these are the runs of all its stages. */
typedef struct harpe_online_name {
    const char *instruction;
    size_t run_count;
    const int *entry_of_run;
    int first_entry, entry_count; /* entries of one name follow one another */
} harpe_online_name;

typedef struct harpe_online_pipeline {
    harpe_schedule *schedule;
    int rank_count, microbatches;
    size_t instruction_count;
    size_t *rank_offset; /* [rank_count + 1]: first instruction of each rank */
    int *entry_of;       /* [instruction_count], rank by rank */
    size_t entry_count, entry_capacity;
    harpe_online_entry *entries;
    size_t *name_offset; /* [rank_count + 1]: first name of each rank */
    size_t name_capacity;
    harpe_online_name *names;
    harpe_arena arena;
} harpe_online_pipeline;

/* What the ranks report of a round: one element per rank in each list. */
typedef struct harpe_online_reports {
    const harpe_rank_info *ranks;
    const harpe_profiling_result *results;
    const harpe_rank_clocks *clocks; /* NULL: no rank reports its clocks, or they changed at once */
    size_t count;
} harpe_online_reports;

/* The schedule of an online job. */
typedef struct harpe_online_schedule {
    const char *name;            /* of a built-in schedule; NULL: csv_path, or else 1f1b */
    const char *csv_path;        /* the CSV file of a schedule; NULL: none */
    const char *const *prologue; /* as in harpe_schedule_options */
    const char *const *epilogue;
} harpe_online_schedule;

/* Makes a pipeline. If the schedule is a file, the number of microbatches is not used. */
harpe_status harpe_online_pipeline_new(const harpe_online_schedule *schedule, int ranks,
                                       int microbatches, harpe_online_pipeline **out,
                                       harpe_error *error);
void harpe_online_pipeline_free(harpe_online_pipeline *pipeline);

/* Finds the number of microbatches in an iteration from these results. Each iteration of each rank
 * gives a number by its runs of "forward", and the most frequent number is the result. Iterations
 * without any backward (evaluation steps) do not count, unless a rank has no other iterations.
 * Iterations whose runs fit no number of microbatches do not count either. If two numbers are
 * equally frequent, the number that occurs later in a rank's list is the result, because the first
 * iterations of a job can be unusual. Returns HARPE_INVALID_INPUT if this does not decide, or if a
 * rank has no iteration that counts. */
harpe_status harpe_online_count_microbatches(const char *name, int pipeline_ranks,
                                             const harpe_online_reports *reports, int *microbatches,
                                             harpe_error *error);

/* Makes the schedule. A schedule from a file must have no lags, and must have `ranks` ranks (0: any
 * number). */
harpe_status harpe_online_schedule_make(const harpe_online_schedule *which, int ranks,
                                        int microbatches, harpe_schedule **out, harpe_error *error);

/* Checks that microbatches can be counted with this schedule. Returns HARPE_INVALID_ARGUMENT if
 * they cannot. */
harpe_status harpe_online_can_count(const char *name, int pipeline_ranks, harpe_error *error);

#endif
