/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the savings of plans. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_SAVINGS_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_SAVINGS_H

#include "server/scheduler/perseus/online_round.h"
#include "server/scheduler/perseus/perseus_job.h"

/* Counts the savings of a round that ran a plan, and fills in `measured`. `frequency_mhz` has the
 * clock of each instruction; the sweep has a point of each. */
harpe_status harpe_perseus_count_planned(harpe_perseus *self, const int *frequency_mhz,
                                         const harpe_online_round *round,
                                         harpe_perseus_measured *measured, harpe_error *error);
/* Counts a round of the sweep before the sweep uses it, or the round after the sweep. */
void harpe_perseus_count_sweep(harpe_perseus *self, const harpe_online_round *round,
                               int64_t number);
harpe_savings_round harpe_perseus_savings_round(const harpe_online_round *round, int64_t number);
/* Uses the measurements of the last sweep as the new baseline. */
void harpe_perseus_renew_baseline(harpe_perseus *self);
/* Ends the present sweep without making plans. The time and energy of the sweep are counted. */
void harpe_perseus_drop_baseline(harpe_perseus *self);
/* Returns the uncertainty of a GPU's blocking power: half the width of its 95 % confidence
 * interval. */
double harpe_perseus_blocking_uncertainty_w(const harpe_perseus *self);

#endif
