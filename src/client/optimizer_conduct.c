/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the steps of a rank. Counting takes a few stores and no lock, because the training waits
 * for it. */
#include "client/optimizer_conduct.h"

static void add(_Atomic int64_t *count, bool counts) {
    if (!counts) return;
    int64_t value = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, value + 1, memory_order_relaxed);
}

void harpe_conduct_count(harpe_conduct_counts *counts, const harpe_step_conduct *step) {
    add(&counts->steps, true);
    add(&counts->as_planned, step->fits && step->obeyed);
    add(&counts->misfits, !step->fits);
    add(&counts->misfits_measured, !step->fits && step->is_measured);
    add(&counts->disobeyed, !step->obeyed);
    add(&counts->lost, step->is_lost);
    add(&counts->left_out, step->was_to_be_measured && !step->is_measured);
    if (step->obeyed) return;
    atomic_store_explicit(&counts->wanted_mhz, step->wanted_mhz, memory_order_relaxed);
    atomic_store_explicit(&counts->held_mhz, step->held_mhz, memory_order_relaxed);
}

static int64_t value_of(const _Atomic int64_t *count) {
    return atomic_load_explicit(count, memory_order_relaxed);
}

harpe_conduct harpe_conduct_counted(const harpe_conduct_counts *counts) {
    /* `steps` is read last and written first, so no other count is larger. */
    harpe_conduct conduct = {.is_known = true,
                             .misfits_measured = value_of(&counts->misfits_measured),
                             .misfits = value_of(&counts->misfits),
                             .as_planned = value_of(&counts->as_planned),
                             .disobeyed = value_of(&counts->disobeyed),
                             .lost = value_of(&counts->lost),
                             .left_out = value_of(&counts->left_out),
                             .wanted_mhz = value_of(&counts->wanted_mhz),
                             .held_mhz = value_of(&counts->held_mhz)};
    conduct.steps = value_of(&counts->steps);
    return conduct;
}

harpe_conduct harpe_conduct_since(const harpe_conduct *now, const harpe_conduct *before) {
    harpe_conduct since = *now;
    since.steps -= before->steps;
    since.as_planned -= before->as_planned;
    since.misfits -= before->misfits;
    since.misfits_measured -= before->misfits_measured;
    since.disobeyed -= before->disobeyed;
    since.lost -= before->lost;
    since.impossible -= before->impossible;
    since.left_out -= before->left_out;
    if (since.disobeyed == 0) since.wanted_mhz = since.held_mhz = 0;
    return since;
}
