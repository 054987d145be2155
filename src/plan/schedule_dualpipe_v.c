/* SPDX-License-Identifier: Apache-2.0 */
/* DualPipe-V, the V-shaped half of DeepSeek-AI's DualPipe (DeepSeek-V3 technical report, arXiv
 * 2412.19437, section 3.2.1). The stages go down the ranks and up again: rank r owns stage r and
 * stage 2N-1-r. In the steady state, a forward of one stage overlaps with a full backward of the
 * other. The backward is split only if a weight half fills a bubble. */
#include "base/error.h"
#include "plan/schedule.h"

static harpe_status check(const harpe_schedule_shape *shape, harpe_error *error) {
    if (shape->microbatches >= 2 * shape->ranks) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "schedule dualpipe-v needs at least %d microbatches on %d ranks (two per "
                      "rank), not %d",
                      2 * shape->ranks, shape->ranks, shape->microbatches);
}

static void list_warm_up(harpe_schedule_builder *builder, int ranks, int rank) {
    int down = rank;
    int up = 2 * ranks - 1 - rank;
    int ranks_behind = ranks - 1 - rank;
    for (int i = 0; i < 2 * ranks_behind; i++)
        harpe_schedule_run(builder, HARPE_FORWARD, down);
    for (int i = 0; i < rank + 1; i++) {
        harpe_schedule_run(builder, HARPE_FORWARD, down);
        harpe_schedule_run(builder, HARPE_FORWARD, up);
    }
    for (int i = 0; i < ranks_behind; i++) {
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, up);
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, up);
        harpe_schedule_run(builder, HARPE_FORWARD, up);
    }
}

static void list_steady_state(harpe_schedule_builder *builder, int ranks, int rank,
                              int microbatches) {
    int down = rank;
    int up = 2 * ranks - 1 - rank;
    for (int i = 0; i < microbatches - 2 * ranks + rank + 1; i++) {
        if (i == 0 && rank == ranks - 1) {
            /* Not overlapped, so that the forward need not wait for the gradient that the backward
             * needs. */
            harpe_schedule_run(builder, HARPE_FORWARD, down);
            harpe_schedule_run(builder, HARPE_BACKWARD, up);
        } else {
            harpe_schedule_run_overlapped(builder, down, up);
        }
        harpe_schedule_run_overlapped(builder, up, down);
    }
    for (int i = 0; i < ranks - 1 - rank; i++) {
        harpe_schedule_run(builder, HARPE_BACKWARD, up);
        harpe_schedule_run_overlapped(builder, up, down);
    }
}

/* Lists the drain. In the first loop, the last `rank` + 1 backwards run only their input halves.
 * Their weight halves are placed between the remaining backwards and at the end. */
static void list_drain(harpe_schedule_builder *builder, int ranks, int rank) {
    int down = rank;
    int up = 2 * ranks - 1 - rank;
    for (int i = 0; i < 2 * (rank + 1); i++) {
        harpe_operation operation = i < rank + 1 ? HARPE_BACKWARD : HARPE_BACKWARD_INPUT;
        harpe_schedule_run(builder, operation, i % 2 == 0 ? up : down);
    }
    for (int i = 0; i < ranks - 1 - rank; i++) {
        harpe_schedule_run_oldest_weight(builder);
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, down);
    }
    for (int i = 0; i < rank + 1; i++)
        harpe_schedule_run_oldest_weight(builder);
}

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    list_warm_up(builder, shape->ranks, rank);
    list_steady_state(builder, shape->ranks, rank, shape->microbatches);
    list_drain(builder, shape->ranks, rank);
}

const harpe_schedule_kind harpe_schedule_dualpipe_v = {
    .name = "dualpipe-v",
    .description = "DualPipe-V: two stages per rank, in a V, forwards overlapping backwards",
    .default_chunks = 2,
    .minimum_chunks = 2,
    .maximum_chunks = 2,
    .instructions_per_microbatch = 3,
    .check = check,
    .list_rank = list_rank,
};
