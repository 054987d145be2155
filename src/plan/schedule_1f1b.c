/* SPDX-License-Identifier: Apache-2.0 */
/* 1F1B, the synchronous one-forward-one-backward schedule (Narayanan et al. 2021, arXiv 2104.04473,
 * section 2.2.1). A stage holds at most as many microbatches as there are stages from this stage to
 * the last, both included. On a single rank, a forward may overlap with the backward of the
 * microbatch before it, as Megatron-Core runs it with overlap_moe_expert_parallel_comm.
 * schedule_early_recomputation.c adds recomputation. */
#include "base/error.h"
#include "plan/schedule.h"

/* Megatron-Core overlaps either without a pipeline or with several stages per rank. In a 1F1B
 * pipeline of several ranks a pair would wait for two neighbours that wait for it in turn, so that
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

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
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
    .list_rank = list_rank,
};
