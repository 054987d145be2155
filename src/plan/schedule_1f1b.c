/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B, the synchronous one-forward-one-backward schedule (Narayanan et al. 2021, arXiv 2104.04473,
 * section 2.2.1). A stage holds at most as many microbatches as there are stages from this stage to
 * the last, both included. schedule_early_recomputation.c adds recomputation. */
#include "plan/schedule.h"

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    int stages_behind = shape->ranks - 1 - rank;
    int warm_up = shape->microbatches < stages_behind ? shape->microbatches : stages_behind;
    for (int i = 0; i < warm_up; i++)
        harpe_schedule_run(builder, HARPE_FORWARD, rank);
    for (int i = warm_up; i < shape->microbatches; i++) {
        harpe_schedule_run(builder, HARPE_FORWARD, rank);
        harpe_schedule_run(builder, HARPE_BACKWARD, rank);
    }
    for (int i = 0; i < warm_up; i++)
        harpe_schedule_run(builder, HARPE_BACKWARD, rank);
}

const harpe_schedule_kind harpe_schedule_1f1b = {
    .name = "1f1b",
    .description = "one forward, one backward (synchronous, the usual one)",
    .default_chunks = 1,
    .minimum_chunks = 1,
    .maximum_chunks = 1,
    .instructions_per_microbatch = 2,
    .list_rank = list_rank,
};
