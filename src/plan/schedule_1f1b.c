/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules with one stage for each rank: GPipe, 1F1B, 1F1B with early recomputation, and ZB-H1. */
#include "base/error.h"
#include "plan/schedule.h"

/* ---- GPipe ----------------------------------------------------------------------------------- */

/* GPipe (Huang et al. 2019, arXiv 1811.06965): all forwards, then all backwards. A rank runs the
 * microbatches in the same order in both parts, beginning with microbatch 0. */

static void list_gpipe(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                       int rank) {
    for (int i = 0; i < shape->microbatches; i++)
        harpe_schedule_run(builder, HARPE_FORWARD, rank);
    for (int i = 0; i < shape->microbatches; i++)
        harpe_schedule_run(builder, HARPE_BACKWARD, rank);
}

const harpe_schedule_kind harpe_schedule_gpipe = {
    .name = "gpipe",
    .description = "all forwards, then all backwards in the same order",
    .default_chunks = 1,
    .minimum_chunks = 1,
    .maximum_chunks = 1,
    .instructions_per_microbatch = 2,
    .list_rank = list_gpipe,
};

/* ---- 1F1B ------------------------------------------------------------------------------------ */

/* 1F1B, the synchronous one-forward-one-backward schedule (Narayanan et al. 2021, arXiv 2104.04473,
 * section 2.2.1). A stage holds at most as many microbatches as there are stages from this stage to
 * the last, both included. On a single rank, a forward may overlap with the backward of the
 * previous microbatch, as in Megatron-Core with the option overlap_moe_expert_parallel_comm. */

/* Megatron-Core overlaps a forward with a backward only if there is a single rank, or if each rank
 * has several stages. In a 1F1B pipeline of several ranks, the overlapping pair of a rank would
 * wait for the pairs of both neighbours, and their pairs would wait for the pair of this rank, so
 * only every second rank would work at a time. */
static harpe_status check(const harpe_schedule_shape *shape, harpe_error *error) {
    if (!shape->overlaps_expert_comm || shape->ranks == 1) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "schedule 1f1b overlaps expert communication on one rank only, not on %d: "
                      "Megatron-Core needs interleaved-1f1b for this",
                      shape->ranks);
}

static void list_overlapping_rank(harpe_schedule_builder *builder,
                                  const harpe_schedule_shape *shape, int rank) {
    harpe_schedule_run(builder, HARPE_FORWARD, rank);
    for (int i = 1; i < shape->microbatches; i++)
        harpe_schedule_run_overlapped(builder, rank, rank);
    harpe_schedule_run(builder, HARPE_BACKWARD, rank);
}

static void list_1f1b(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
                      int rank) {
    if (shape->overlaps_expert_comm) {
        list_overlapping_rank(builder, shape, rank);
        return;
    }
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
    .takes_overlap = true,
    .check = check,
    .list_rank = list_1f1b,
};

/* ---- Early recomputation --------------------------------------------------------------------- */

/* 1F1B with activation recomputation that starts early (after Merak, Lai et al. 2022, arXiv
 * 2206.04959). In the steady state the recomputation is fused with the backward
 * ("forward_backward"). While the pipeline drains, the recomputation is a separate instruction. The
 * recomputation needs nothing from the next stage, so it runs while the rank waits for the gradient
 * of the next stage. The last stage does not wait for a gradient, and always fuses recomputation
 * and backward. */

static void list_recomputing(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
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
    .list_rank = list_recomputing,
};

/* ---- ZB-H1 ----------------------------------------------------------------------------------- */

/* ZB-H1 (Qi et al. 2023, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2): 1F1B with
 * each backward split into an input half and a weight half. The previous stage waits only for the
 * input half. The weight halves fill bubbles: stage s postpones s of them. On N ranks, every rank
 * therefore holds at most N unfinished microbatches, as many as the first rank of 1F1B. */

static void list_zb_h1(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
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
    .list_rank = list_zb_h1,
};
