/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers that take time. A dependency between two ranks with a lag becomes two dependencies,
 * with a delay between them: a node of fixed length that belongs to no rank. */
#ifndef HARPE_PLAN_DELAYS_H
#define HARPE_PLAN_DELAYS_H

#include "plan/dag.h"

/* The delays of a graph: node `node_count + k` of the graph before is delay k. */
typedef struct harpe_delays {
    int32_t count;
    int32_t *after; /* [count]: the node that waits; ascending */
    int *rank;      /* [count]: its rank */
    double *lag_s;  /* [count] */
} harpe_delays;

/* Adds the delays of all instructions with a lag to a graph. `lists[r]` has the counts[r] nodes of
 * rank r. An instruction without a lag of its own has `transfer_time_s` (0: none). Fails with
 * HARPE_INVALID_ARGUMENT if a time is not between 0 and 1e6 s. Free the result with
 * harpe_delays_clear, also after a failure. */
harpe_status harpe_delays_add(harpe_dag *dag, const harpe_instruction *const *lists,
                              const size_t *counts, int rank_count, double transfer_time_s,
                              harpe_delays *out, harpe_error *error);
void harpe_delays_clear(harpe_delays *delays);

#endif
