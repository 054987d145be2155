/* SPDX-License-Identifier: Apache-2.0 */
/* Joins two plans at a moment of the iteration: one plan until then, the other from then on. If
 * both plans are close to the lower bound, the joined plan is also close to it. A rounded relaxed
 * solution of the same time is not as close, because it mixes both plans in every microbatch. */
#ifndef HARPE_PLAN_SPLICE_H
#define HARPE_PLAN_SPLICE_H

#include "plan/assignment.h"

/* Scratch memory for problems of one size. */
typedef struct harpe_splicer {
    double *moment; /* [count] start of an instruction, as a share of the iteration */
    int32_t *order; /* [count] positions by moment */
} harpe_splicer;

harpe_status harpe_splicer_init(harpe_splicer *splicer, int32_t count, harpe_error *error);
void harpe_splicer_clear(harpe_splicer *splicer);

/* Joins `fast`, which meets the deadline, and `slow`, which may be too slow, and leaves the result
 * in `assignment`. The result contains as much of `slow` as the deadline allows: at the start of
 * the iteration if `slow_first` is true, otherwise at the end. The remaining slack is spent. O(n
 * log n). */
harpe_status harpe_splice(harpe_splicer *splicer, harpe_assignment *assignment, const int32_t *fast,
                          const int32_t *slow, bool slow_first, int64_t deadline_ps,
                          harpe_error *error);

#endif
