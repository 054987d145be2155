/* SPDX-License-Identifier: Apache-2.0 */
/* Joins two plans at a moment of the iteration: one until then, the other from then on. Between two
 * plans that both lie close to the lower bound this gives plans for the times between them that do
 * too, where rounding a relaxed solution cannot: there every microbatch wants a little of both. */
#ifndef HARPE_PLAN_SPLICE_H
#define HARPE_PLAN_SPLICE_H

#include "plan/assignment.h"

/* Scratch for instances of one size. */
typedef struct harpe_splicer {
    double *moment; /* [count] when an instruction starts, as a share of the iteration */
    int32_t *order; /* [count] positions by moment */
} harpe_splicer;

harpe_status harpe_splicer_init(harpe_splicer *splicer, int32_t count, harpe_error *error);
void harpe_splicer_clear(harpe_splicer *splicer);

/* Leaves in `assignment` the join of `fast` (which meets the deadline) and `slow` (which need not)
 * that has most of `slow` and still meets the deadline, `slow` first if `slow_first`, with the
 * remaining slack spent. O(n log n). */
harpe_status harpe_splice(harpe_splicer *splicer, harpe_assignment *assignment, const int32_t *fast,
                          const int32_t *slow, bool slow_first, int64_t deadline_ps,
                          harpe_error *error);

#endif
