/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2). Rank r owns stages r,
 * r + N, r + 2N, ..., its chunks. It works through the microbatches in groups of N; a group passes
 * through all chunks before the next group begins. Bubbles are shorter, but there is more
 * communication. */
#include "base/error.h"
#include "plan/schedule.h"

static harpe_status check(const harpe_schedule_shape *shape, harpe_error *error) {
    if (shape->microbatches % shape->ranks == 0) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "schedule interleaved-1f1b needs a multiple of the %d ranks as the number of "
                      "microbatches, not %d",
                      shape->ranks, shape->microbatches);
}

/* Returns the chunk of a rank's step-th forward. Backwards go through the chunks in reverse
 * order. */
static int chunk_of_step(const harpe_schedule_shape *shape, int step) {
    return step / shape->ranks % shape->chunks;
}

static void run_forward(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                        int rank, int step) {
    int chunk = chunk_of_step(shape, step);
    harpe_schedule_run(builder, HARPE_FORWARD, chunk * shape->ranks + rank);
}

static void run_backward(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                         int rank, int step) {
    int chunk = shape->chunks - 1 - chunk_of_step(shape, step);
    harpe_schedule_run(builder, HARPE_BACKWARD, chunk * shape->ranks + rank);
}

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    int steps = shape->microbatches * shape->chunks;
    int warm_up = (shape->ranks - 1 - rank) * 2 + (shape->chunks - 1) * shape->ranks;
    if (warm_up > steps) warm_up = steps;
    for (int step = 0; step < warm_up; step++)
        run_forward(builder, shape, rank, step);
    for (int step = warm_up; step < steps; step++) {
        run_forward(builder, shape, rank, step);
        run_backward(builder, shape, rank, step - warm_up);
    }
    for (int step = steps - warm_up; step < steps; step++)
        run_backward(builder, shape, rank, step);
}

const harpe_schedule_kind harpe_schedule_interleaved = {
    .name = "interleaved-1f1b",
    .description = "1F1B with several stages per rank (default 2), as in Megatron-LM",
    .default_chunks = 2,
    .minimum_chunks = 2,
    .maximum_chunks = 65536,
    .instructions_per_microbatch = 2,
    .check = check,
    .list_rank = list_rank,
};
