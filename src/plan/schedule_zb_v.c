/* SPDX-License-Identifier: Apache-2.0 */
/* ZB-V (Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 6). The stages
 * go down the ranks and up again: rank r owns stage r and stage 2N-1-r. The backward is split. If
 * forward, input half and weight half take equally long, ranks wait only while the first forward
 * passes down the ranks. No rank holds more than 2N stages' activations, as much as 1F1B holds on
 * its first rank. */
#include "plan/schedule.h"

/* Returns the number of microbatches to list, which is at least the number in a rank's warm-up. If
 * fewer microbatches were requested, the order stays the same, and the microbatches that do not
 * exist are left out. */
static int listed_microbatches(const harpe_schedule_shape *shape) {
    int fewest = 2 * shape->ranks - 1;
    return shape->microbatches > fewest ? shape->microbatches : fewest;
}

/* Lists the warm-up, until the first gradient has come back up to this rank's second stage. */
static void list_warm_up(harpe_schedule_builder *builder, int ranks, int rank) {
    int down = rank;
    int up = 2 * ranks - 1 - rank;
    for (int i = 0; i < 2 * (ranks - rank) - 1; i++)
        harpe_schedule_run(builder, HARPE_FORWARD, down);
    for (int i = 0; i < rank; i++) {
        harpe_schedule_run(builder, HARPE_FORWARD, up);
        harpe_schedule_run(builder, HARPE_FORWARD, down);
    }
    for (int i = 0; i < ranks - rank; i++) {
        harpe_schedule_run(builder, HARPE_FORWARD, up);
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, up);
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, up);
    }
}

static void list_steady_state(harpe_schedule_builder *builder, int ranks, int rank,
                              int microbatches) {
    int down = rank;
    int up = 2 * ranks - 1 - rank;
    for (int i = ranks; i < microbatches; i++) {
        harpe_schedule_run(builder, HARPE_FORWARD, down); /* if a microbatch is left */
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, down);
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, down);
        harpe_schedule_run(builder, HARPE_FORWARD, up);
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, up);
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, up);
    }
}

/* Lists the drain. Input halves come first, because other ranks wait for them. Weight halves fill
 * the times in which this rank would wait. */
static void list_drain(harpe_schedule_builder *builder, int ranks, int rank) {
    int down = rank;
    int up = 2 * ranks - 1 - rank;
    for (int i = 0; i < rank; i++) {
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, down);
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, up);
    }
    for (int i = 0; i < ranks - rank; i++) {
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, down);
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, down);
    }
    for (int i = 0; i < rank; i++)
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, up);
    for (int i = 0; i < rank; i++)
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, down);
}

static void list_zb_v(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    list_warm_up(builder, shape->ranks, rank);
    list_steady_state(builder, shape->ranks, rank, listed_microbatches(shape));
    list_drain(builder, shape->ranks, rank);
}

const harpe_schedule_kind harpe_schedule_zb_v = {
    .name = "zb-v",
    .description = "zero bubble V: two stages per rank, in a V, with a split backward",
    .default_chunks = 2,
    .minimum_chunks = 2,
    .maximum_chunks = 2,
    .instructions_per_microbatch = 3,
    .list_rank = list_zb_v,
};
