/* SPDX-License-Identifier: Apache-2.0 */
/* DualPipe-V, the V-shaped half of DeepSeek-AI's DualPipe (DeepSeek-V3 technical report, arXiv
 * 2412.19437, section 3.2.1). The stages go down the ranks and up again: rank r owns stage r and
 * stage 2N-1-r. In the steady state, a forward of one stage overlaps with a full backward of the
 * other. The backward is split only if a weight half fills a bubble. An instruction waits only for
 * those that make its input, as in torch (ScheduleDualPipeV). schedule_dualpipe.c has the same
 * lists with the dependencies of DeepSeek-AI's own runtime, and DualPipe itself. */
#include "plan/schedule_dualpipe_v.h"

#include "base/error.h"

harpe_status harpe_dualpipe_check(const harpe_schedule_shape *shape, harpe_error *error) {
    if (shape->microbatches >= 2 * shape->ranks) return HARPE_OK;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "DualPipe schedules need at least %d microbatches on %d ranks (two per rank), "
        "not %d",
        2 * shape->ranks, shape->ranks, shape->microbatches);
}

static void list_warm_up(harpe_schedule_builder *builder, const harpe_dualpipe_place *place) {
    int ranks_behind = place->depth - 1 - place->position;
    for (int i = 0; i < 2 * ranks_behind; i++)
        harpe_schedule_run(builder, HARPE_FORWARD, place->down);
    for (int i = 0; i < place->position + 1; i++) {
        harpe_schedule_run(builder, HARPE_FORWARD, place->down);
        harpe_schedule_run(builder, HARPE_FORWARD, place->up);
    }
    for (int i = 0; i < ranks_behind; i++) {
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, place->up);
        harpe_schedule_run(builder, HARPE_BACKWARD_WEIGHT, place->up);
        harpe_schedule_run(builder, HARPE_FORWARD, place->up);
    }
}

static void list_steady_state(harpe_schedule_builder *builder, const harpe_dualpipe_place *place) {
    for (int i = 0; i < harpe_dualpipe_steady_steps(place); i++) {
        if (i == 0 && place->position == place->depth - 1) {
            /* Not overlapped, so that the forward need not wait for the gradient that the backward
             * needs. */
            harpe_schedule_run(builder, HARPE_FORWARD, place->down);
            harpe_schedule_run(builder, HARPE_BACKWARD, place->up);
        } else {
            harpe_schedule_run_overlapped(builder, place->down, place->up);
        }
        harpe_schedule_run_overlapped(builder, place->up, place->down);
    }
    for (int i = 0; i < place->depth - 1 - place->position; i++) {
        harpe_schedule_run(builder, HARPE_BACKWARD, place->up);
        harpe_schedule_run_overlapped(builder, place->up, place->down);
    }
}

/* Lists the drain. In the first loop, the last `position` + 1 backwards run only their input
 * halves. Their weight halves are placed between the remaining backwards and at the end. */
static void list_drain(harpe_schedule_builder *builder, const harpe_dualpipe_place *place) {
    for (int i = 0; i < 2 * (place->position + 1); i++) {
        harpe_operation operation = i < place->position + 1 ? HARPE_BACKWARD : HARPE_BACKWARD_INPUT;
        harpe_schedule_run(builder, operation, i % 2 == 0 ? place->up : place->down);
    }
    for (int i = 0; i < place->depth - 1 - place->position; i++) {
        harpe_schedule_run_oldest_weight(builder);
        harpe_schedule_run(builder, HARPE_BACKWARD_INPUT, place->down);
    }
    for (int i = 0; i < place->position + 1; i++)
        harpe_schedule_run_oldest_weight(builder);
}

void harpe_dualpipe_list(harpe_schedule_builder *builder, const harpe_dualpipe_place *place) {
    list_warm_up(builder, place);
    list_steady_state(builder, place);
    list_drain(builder, place);
}

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    harpe_dualpipe_place place = {.depth = shape->ranks,
                                  .position = rank,
                                  .down = rank,
                                  .up = 2 * shape->ranks - 1 - rank,
                                  .microbatches = shape->microbatches};
    harpe_dualpipe_list(builder, &place);
}

const harpe_schedule_kind harpe_schedule_dualpipe_v = {
    .name = "dualpipe-v",
    .description = "DualPipe-V: two stages per rank, in a V, forwards overlapping backwards",
    .default_chunks = 2,
    .minimum_chunks = 2,
    .maximum_chunks = 2,
    .instructions_per_microbatch = 3,
    .check = harpe_dualpipe_check,
    .list_rank = list_rank,
};
