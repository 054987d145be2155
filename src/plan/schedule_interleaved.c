/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2). Rank r owns stages r,
 * r + N, r + 2N, ..., its chunks. It works through the microbatches in groups; a group passes
 * through all chunks before the next group begins. Bubbles are shorter, but there is more
 * communication. The lists are those of Megatron-Core (pipeline_parallel/schedules.py, with any
 * microbatch_group_size_per_vp_stage) and of torch (ScheduleInterleaved1F1B). Both take groups of N
 * microbatches where N divides the number of microbatches. Otherwise torch makes max(1, M / N)
 * groups of the same size, and Megatron-Core lets the user choose the size. */
#include "base/error.h"
#include "plan/schedule.h"

/* Returns the number of groups that torch makes. */
static int default_groups(const harpe_schedule_shape *shape) {
    int groups = shape->microbatches / shape->ranks;
    return groups > 1 ? groups : 1;
}

/* Returns the size of the groups, at least 1. Only the last group may be smaller. */
static int group_size_of(const harpe_schedule_shape *shape) {
    int size = shape->group_size;
    if (size == 0) size = shape->microbatches / default_groups(shape);
    return size > 1 ? size : 1;
}

static harpe_status check(const harpe_schedule_shape *shape, harpe_error *error) {
    int size = group_size_of(shape);
    if (shape->group_size == 0 && shape->microbatches % default_groups(shape) != 0)
        return harpe_fail(
            error, HARPE_INVALID_ARGUMENT,
            "schedule interleaved-1f1b cannot divide %d microbatches on %d ranks into "
            "%d equal groups: give the size of the groups (microbatch group size)",
            shape->microbatches, shape->ranks, default_groups(shape));
    int smallest = shape->ranks < shape->microbatches ? shape->ranks : shape->microbatches;
    if (size < smallest || size > shape->microbatches)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the microbatch group size of %d microbatches on %d ranks must be %d to "
                          "%d, not %d",
                          shape->microbatches, shape->ranks, smallest, shape->microbatches, size);
    int last = shape->microbatches % size;
    if (last == 0 || last >= shape->ranks) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "with a microbatch group size of %d, the last of %d microbatches are a group "
                      "of %d, but a group needs at least one for each of the %d ranks",
                      size, shape->microbatches, last, shape->ranks);
}

/* Returns the chunk of a rank's step-th forward. Backwards go through the chunks in reverse
 * order. */
static int chunk_of_step(const harpe_schedule_shape *shape, int step) {
    int size = group_size_of(shape);
    int steps_of_group = size * shape->chunks;
    int group = step / steps_of_group;
    int last = shape->microbatches % size;
    bool is_last = last > 0 && group == shape->microbatches / size;
    return step % steps_of_group / (is_last ? last : size);
}

static int forward_stage(const harpe_schedule_shape *shape, int rank, int step) {
    return chunk_of_step(shape, step) * shape->ranks + rank;
}

static int backward_stage(const harpe_schedule_shape *shape, int rank, int step) {
    return (shape->chunks - 1 - chunk_of_step(shape, step)) * shape->ranks + rank;
}

static void list_interleaved(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                             int rank) {
    int steps = shape->microbatches * shape->chunks;
    int warm_up = (shape->ranks - 1 - rank) * 2 + (shape->chunks - 1) * group_size_of(shape) +
                  shape->overlaps_expert_comm;
    if (warm_up > steps) warm_up = steps;
    for (int step = 0; step < warm_up; step++)
        harpe_schedule_run(builder, HARPE_FORWARD, forward_stage(shape, rank, step));
    for (int step = warm_up; step < steps; step++) {
        int forward = forward_stage(shape, rank, step);
        int backward = backward_stage(shape, rank, step - warm_up);
        if (shape->overlaps_expert_comm) {
            harpe_schedule_run_overlapped(builder, forward, backward);
        } else {
            harpe_schedule_run(builder, HARPE_FORWARD, forward);
            harpe_schedule_run(builder, HARPE_BACKWARD, backward);
        }
    }
    for (int step = steps - warm_up; step < steps; step++)
        harpe_schedule_run(builder, HARPE_BACKWARD, backward_stage(shape, rank, step));
}

const harpe_schedule_kind harpe_schedule_interleaved = {
    .name = "interleaved-1f1b",
    .description = "1F1B with several stages per rank (default 2), as in Megatron-LM",
    .default_chunks = 2,
    .minimum_chunks = 2,
    .maximum_chunks = 65536,
    .instructions_per_microbatch = 2,
    .takes_group_size = true,
    .takes_overlap = true,
    .check = check,
    .list_rank = list_interleaved,
};
