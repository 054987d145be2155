/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes models from request bodies, lists every invalid field, and checks that models fit their
 * job. harpe/pfo.h is the public part. May be called on any thread. */
#ifndef HARPE_PFO_MODELS_H
#define HARPE_PFO_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <harpe/pfo.h>

#include "base/text.h"
#include "pfo/conduct.h"
#include "pfo/validation.h"

/* Each function decodes a request body with at most 64 levels. On success it fills `*out` and
 * returns true. On failure it returns false, leaves `*out` unchanged, and adds problems whose
 * locations begin with "body". */
bool harpe_job_info_decode(const char *body, size_t length, harpe_job_info *out,
                           harpe_problems *problems);
bool harpe_rank_info_decode(const char *body, size_t length, harpe_rank_info *out,
                            harpe_problems *problems);
bool harpe_profiling_result_decode(const char *body, size_t length, harpe_profiling_result *out,
                                   harpe_problems *problems);

/* Returns true if it is certain that harpe_profiling_result_decode would accept the body. `*rank`
 * is then the rank. If it returns false, only harpe_profiling_result_decode can decide. The scan
 * takes less than half as long as decoding and allocates nothing. */
bool harpe_profiling_result_scan(const char *body, size_t length, int *rank);

/* The sums over the iterations of one rank. Implausible values are left out. */
typedef struct harpe_result_totals {
    size_t iterations; /* number of iterations for which a time was reported */
    double time_s, energy_j;
    harpe_conduct conduct; /* only the scan reads it; see harpe_conduct_read */
} harpe_result_totals;

/* Does the same, and adds up iter_time and iter_energy. */
bool harpe_profiling_result_scan_totals(const char *body, size_t length, int *rank,
                                        harpe_result_totals *totals);
harpe_result_totals harpe_profiling_result_totals(const harpe_profiling_result *result);

/* Returns false if `gpus` GPUs cannot have used the energy of the iterations in their time. */
bool harpe_result_totals_can_be(const harpe_result_totals *totals, int gpus);
/* Does the same for the iterations and for each instruction of a result. */
bool harpe_profiling_result_can_be(const harpe_profiling_result *result, int gpus);

/* Reads the conduct in the text of a result. It is unknown if the text has none. */
harpe_conduct harpe_conduct_read(const char *text, size_t length);
/* Decodes any result, and returns its rank and totals with the conduct. Returns false, with the
 * problems, if it is not valid. */
bool harpe_profiling_result_decode_totals(const char *body, size_t length, int *rank,
                                          harpe_result_totals *totals, harpe_problems *problems);

/* Decodes a query value such as "3" for `name` (location ["query", name]). `text` NULL: missing. */
bool harpe_query_int_decode(const char *name, const char *text, int64_t *out,
                            harpe_problems *problems);

/* Returns true if `rank` is possible in `job`: the rank is below the world size, and each
 * coordinate is below its degree. Otherwise adds a problem of type assertion_error. */
bool harpe_rank_info_fits(const harpe_rank_info *rank, const harpe_job_info *job,
                          harpe_problems *problems);
/* Returns true if `a` and `b` are equal, including the order of their frequencies. */
bool harpe_rank_info_equal(const harpe_rank_info *a, const harpe_rank_info *b);

/* Appends what harpe_ranks_save writes. */
void harpe_ranks_format(const harpe_rank_info *ranks, size_t count, harpe_text *text);

/* Makes the id of a job that registered at local time `when` with `scheduler`:
 * YYYY-MM-DD-HH-MM-SS+dpD+ppP+tpT+SCHEDULER[+METADATA]. `repetition` 1 adds nothing, 2 adds ".2"
 * after the time, and so on. Characters of scheduler and metadata outside [A-Za-z0-9._:=,@-] become
 * '_', and at most 128 characters of each of the two are kept. The caller frees the id with free();
 * NULL when out of memory. */
char *harpe_job_id_make(const harpe_job_info *job, const char *scheduler, time_t when,
                        int repetition);
/* Returns true if `id` has the form of Harpe's ids: 1 to 512 characters of [A-Za-z0-9._:=,@+-], of
 * which the first is not '.'. Only such an id may become a path. */
bool harpe_job_id_is_valid(const char *id);

#endif
