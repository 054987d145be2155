/* SPDX-License-Identifier: Apache-2.0 */
/* Models as they arrive in requests: decoded from a body with every bad field listed, and checked
 * against the job they belong to. The public side is harpe/pfo.h. Any thread. */
#ifndef HARPE_PFO_MODELS_H
#define HARPE_PFO_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <harpe/pfo.h>

#include "pfo/validation.h"

/* Each decodes a request body (at most 64 levels deep). True and `*out` filled; or false, `*out`
 * untouched, and problems (locations begin with "body") added. */
bool harpe_job_info_decode(const char *body, size_t length, harpe_job_info *out,
                           harpe_problems *problems);
bool harpe_rank_info_decode(const char *body, size_t length, harpe_rank_info *out,
                            harpe_problems *problems);
bool harpe_profiling_result_decode(const char *body, size_t length, harpe_profiling_result *out,
                                   harpe_problems *problems);

/* True: harpe_profiling_result_decode would accept it, and `*rank` is its rank. False: that one
 * must be asked. Takes a tenth of its time and nothing of the heap. */
bool harpe_profiling_result_scan(const char *body, size_t length, int *rank);

/* What one rank's iterations took together; values that make no sense are left out. */
typedef struct harpe_result_totals {
    size_t iterations; /* for which a time was reported */
    double time_s, energy_j;
} harpe_result_totals;

/* The same, and what its iter_time and iter_energy come to. */
bool harpe_profiling_result_scan_totals(const char *body, size_t length, int *rank,
                                        harpe_result_totals *totals);
harpe_result_totals harpe_profiling_result_totals(const harpe_profiling_result *result);

/* A query value such as "3" for `name` (location ["query", name]); `text` NULL: missing. */
bool harpe_query_int_decode(const char *name, const char *text, int64_t *out,
                            harpe_problems *problems);

/* Is `rank` possible in `job`: rank < world_size, each coordinate within its degree? Adds to
 * `problems` (assertion_error) where not. */
bool harpe_rank_info_fits(const harpe_rank_info *rank, const harpe_job_info *job,
                          harpe_problems *problems);
/* The same data, order of frequencies included. */
bool harpe_rank_info_equal(const harpe_rank_info *a, const harpe_rank_info *b);

/* The id of a job registered at local time `when` with `scheduler`:
 * YYYY-MM-DD-HH-MM-SS+dpD+ppP+tpT+SCHEDULER[+METADATA]. `repetition` 1 gives none, 2 gives ".2"
 * after the time, and so on. Characters of scheduler and metadata outside [A-Za-z0-9._:=,@-] become
 * '_', at most 128 of the metadata are kept. To be freed with free(); NULL when out of memory. */
char *harpe_job_id_make(const harpe_job_info *job, const char *scheduler, time_t when,
                        int repetition);
/* Could be an id of ours: 1 to 512 of [A-Za-z0-9._:=,@+-], does not begin with '.'. Nothing else
 * may become a path. */
bool harpe_job_id_is_valid(const char *id);

#endif
