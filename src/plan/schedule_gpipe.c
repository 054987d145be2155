/* SPDX-License-Identifier: Apache-2.0 */
/* GPipe (Huang et al. 2019, arXiv 1811.06965): all forwards, then all backwards. The backwards run
 * in the same order of microbatches as the forwards, 0 first. */
#include "plan/schedule.h"

static void list_rank(harpe_schedule_builder *builder, const harpe_schedule_shape *shape,
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
    .list_rank = list_rank,
};
