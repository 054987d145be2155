/* SPDX-License-Identifier: Apache-2.0 */
/* The results of one round. Only the loop counts references. */
#ifndef HARPE_SERVER_ENGINE_ROUND_RESULTS_H
#define HARPE_SERVER_ENGINE_ROUND_RESULTS_H

#include "base/text.h"
#include "pfo/models.h"
#include "pfo/rank_clocks.h"
#include "pfo/result_scan.h"
#include "server/engine/job_state.h"
#include "server/store/store.h"

/* Returns results without texts: all texts are in the store. Returns NULL if memory runs out. */
harpe_round_results *harpe_round_results_new(int count);
harpe_round_results *harpe_round_results_ref(harpe_round_results *results);
void harpe_round_results_unref(harpe_round_results *results); /* accepts NULL */

/* The round in the store from which missing texts are read. */
typedef struct harpe_stored_round {
    harpe_store *store;
    const char *job_id;
    int64_t round;
} harpe_stored_round;
/* What the ranks report of a round, one element per rank. */
typedef struct harpe_round_reports {
    size_t count;
    harpe_profiling_result *results;
    harpe_conduct *conducts;
    harpe_rank_clocks *clocks;
} harpe_round_reports;
/* Decodes the results for a scheduler. A rank has `gpus` GPUs. If a result has more energy than
 * they can use in the time, Harpe's own schedulers get it without its steps; schedulers of the user
 * get it as it is. Free the results with harpe_round_reports_free. Call this on a worker. */
harpe_status harpe_round_results_decode(const harpe_stored_round *from,
                                        const harpe_round_results *results,
                                        const harpe_scheduler *scheduler, int gpus,
                                        harpe_round_reports *out, harpe_error *error);
void harpe_round_reports_free(harpe_round_reports *reports);
/* Appends all results as one JSON list. Call this on a worker. */
harpe_status harpe_round_results_format(const harpe_stored_round *from,
                                        const harpe_round_results *results, harpe_text *to,
                                        harpe_error *error);

#endif
