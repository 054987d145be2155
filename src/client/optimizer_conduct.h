/* SPDX-License-Identifier: Apache-2.0 */
/* Counts how the steps of a training run: as planned, or why not. The training thread counts, and
 * the optimizer's own thread sends the counts with each result. */
#ifndef HARPE_CLIENT_OPTIMIZER_CONDUCT_H
#define HARPE_CLIENT_OPTIMIZER_CONDUCT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pfo/result_scan.h"

/* One step that has ended. */
typedef struct harpe_step_conduct {
    bool fits;    /* its instructions fitted the schedule */
    bool obeyed;  /* no look has shown another clock than the set one */
    bool is_lost; /* events of the step were lost */
    bool was_to_be_measured, is_measured;
    uint32_t wanted_mhz, held_mhz; /* if it has not obeyed */
} harpe_step_conduct;

/* Only the training thread writes. Initialise with zeros. */
typedef struct harpe_conduct_counts {
    _Atomic int64_t steps, as_planned, misfits, misfits_measured, disobeyed, lost, left_out;
    _Atomic int64_t wanted_mhz, held_mhz;
} harpe_conduct_counts;

void harpe_conduct_count(harpe_conduct_counts *counts, const harpe_step_conduct *step);
/* Returns the counts since the start. */
harpe_conduct harpe_conduct_counted(const harpe_conduct_counts *counts);
/* Returns the conduct since `before`. */
harpe_conduct harpe_conduct_since(const harpe_conduct *now, const harpe_conduct *before);

#endif
