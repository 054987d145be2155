/* SPDX-License-Identifier: Apache-2.0 */
/* What the online schedulers know of a job's pipeline: which (stage, instruction) each entry of a
 * schedule is, and which of them the k-th run of a name on a rank was. Stands between a schedule
 * and everything that is measured by name. Immutable once made. */
#ifndef HARPE_SERVER_SCHEDULERS_ONLINE_PIPELINE_H
#define HARPE_SERVER_SCHEDULERS_ONLINE_PIPELINE_H

#include <stddef.h>

#include <harpe/pfo.h>
#include <harpe/schedule.h>

#include "base/array.h"

/* One (stage, instruction): what gets a curve of its own in a profile. */
typedef struct harpe_online_entry {
    int stage;
    int pipeline_rank; /* who runs it */
    const char *instruction;
    size_t run_count; /* in one iteration */
} harpe_online_entry;

/* All runs of one name on one pipeline rank, in the order in which they run: those of several
 * stages where a rank has several. */
typedef struct harpe_online_name {
    const char *instruction;
    size_t run_count;
    const int *entry_of_run;
    int first_entry, entry_count; /* entries of a name stand together */
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

/* `name`: a built-in schedule, or NULL and the path of a schedule's CSV file. Microbatches are not
 * asked for with a file. */
harpe_status harpe_online_pipeline_new(const char *name, const char *csv_path, int ranks,
                                       int microbatches, harpe_online_pipeline **out,
                                       harpe_error *error);
void harpe_online_pipeline_free(harpe_online_pipeline *pipeline);

/* The number of microbatches in an iteration of these results, by its runs of "forward": the number
 * that most iterations of all ranks have. Iterations without any backward (an evaluation step) do
 * not count, unless a rank has no others. Iterations whose runs fit no number of microbatches do
 * not count. If two numbers are equally frequent, the one that occurs later in a rank's list is
 * taken, because the first iterations of a job are the unusual ones. HARPE_INVALID_INPUT when that
 * does not decide, or when a rank has no iteration that counts. */
harpe_status harpe_online_count_microbatches(const char *name, int pipeline_ranks,
                                             const harpe_rank_info *ranks,
                                             const harpe_profiling_result *results, size_t count,
                                             int *microbatches, harpe_error *error);

/* Can they be counted with this schedule? HARPE_INVALID_ARGUMENT when not. */
harpe_status harpe_online_can_count(const char *name, int pipeline_ranks, harpe_error *error);

#endif
