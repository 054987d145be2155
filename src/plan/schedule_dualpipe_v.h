/* SPDX-License-Identifier: Apache-2.0 */
/* What the DualPipe schedules share: the list of one rank. DualPipe-V folds one pipeline over the
 * ranks. DualPipe folds the ranks themselves: two pipelines of opposite directions meet in the
 * middle. A rank's list depends only on its distance from the fold. */
#ifndef HARPE_PLAN_SCHEDULE_DUALPIPE_V_H
#define HARPE_PLAN_SCHEDULE_DUALPIPE_V_H

#include "plan/schedule.h"

typedef struct harpe_dualpipe_place {
    int depth;        /* ranks from an end of the pipeline to the fold */
    int position;     /* ranks between this one and the end, 0 to depth - 1 */
    int down, up;     /* the rank's stage on the way to the fold, and after it */
    int microbatches; /* that enter at one end */
} harpe_dualpipe_place;

/* Returns the number of steps in which both a forward of `down` with a backward of `up`, and a
 * forward of `up` with a backward of `down` run. At least 1. */
static inline int harpe_dualpipe_steady_steps(const harpe_dualpipe_place *place) {
    return place->microbatches - 2 * place->depth + place->position + 1;
}

/* Lists a rank. */
void harpe_dualpipe_list(harpe_schedule_builder *builder, const harpe_dualpipe_place *place);

/* Refuses fewer than two microbatches per rank. */
harpe_status harpe_dualpipe_check(const harpe_schedule_shape *shape, harpe_error *error);

#endif
