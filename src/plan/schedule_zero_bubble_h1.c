/* SPDX-License-Identifier: Apache-2.0 */
/* ZB-H1 (Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2): 1F1B with
 * a split backward. The previous stage waits only for the input half, and weight halves fill
 * bubbles. Stage s postpones s weight halves. Every rank therefore holds at most N unfinished
 * microbatches, which is the number that 1F1B holds on its first rank. */
#include "plan/schedule.h"

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    int stages_behind = shape->ranks - 1 - rank;
    int warm_up = shape->microbatches < stages_behind ? shape->microbatches : stages_behind;
    for (int i = 0; i < warm_up; i++)
        harpe_schedule_run(builder, HARPE_FORWARD, rank);
    for (int i = 0; i < shape->microbatches; i++) {
        if (i < shape->microbatches - warm_up) harpe_schedule_run(builder, HARPE_FORWARD, rank);
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, rank);
        if (i >= rank) harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, rank);
    }
    int outstanding = shape->microbatches < rank ? shape->microbatches : rank;
    for (int i = 0; i < outstanding; i++)
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, rank);
}

const harpe_schedule_kind harpe_schedule_zero_bubble_h1 = {
    .name = "zb-h1",
    .description = "zero bubble H1: 1F1B with a split backward, in the memory of 1F1B",
    .default_chunks = 1,
    .minimum_chunks = 1,
    .maximum_chunks = 1,
    .instructions_per_microbatch = 3,
    .list_rank = list_rank,
};
