/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B with activation recomputation that starts early (after Merak, Lai et al. 2022, arXiv
 * 2206.04959). In the steady state the recomputation is fused with the backward
 * ("forward_backward"). While the pipeline drains, the recomputation is a separate instruction. It
 * needs nothing from the next stage, so it runs while the rank waits for the gradient of that
 * stage. The last stage does not wait for a gradient, and always fuses recomputation and
 * backward. */
#include "plan/schedule.h"

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    int stages_behind = shape->ranks - 1 - rank;
    int warm_up = shape->microbatches < stages_behind ? shape->microbatches : stages_behind;
    for (int i = 0; i < warm_up; i++)
        harpe_schedule_run(builder, HARPE_FORWARD, rank);
    for (int i = warm_up; i < shape->microbatches; i++) {
        harpe_schedule_run(builder, HARPE_FORWARD, rank);
        harpe_schedule_run(builder, HARPE_FORWARD_BACKWARD, rank);
    }
    for (int i = 0; i < warm_up; i++) {
        harpe_schedule_run(builder, HARPE_RECOMPUTATION, rank);
        harpe_schedule_run(builder, HARPE_BACKWARD, rank);
    }
}

const harpe_schedule_kind harpe_schedule_early_recomputation = {
    .name = "early-recomputation-1f1b",
    .description = "1F1B that recomputes activations while it waits for gradients",
    .default_chunks = 1,
    .minimum_chunks = 1,
    .maximum_chunks = 1,
    .instructions_per_microbatch = 3,
    .list_rank = list_rank,
};
