/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the savings of an online scheduler. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_REPORT_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_PERSEUS_REPORT_H

#include <jansson.h>

#include "server/scheduler/perseus/perseus_job.h"

/* These functions return members of the frontier in JSON, or null if there is no baseline. */
json_t *harpe_perseus_show_baseline(const harpe_perseus *self);
json_t *harpe_perseus_show_saved(const harpe_perseus *self);
json_t *harpe_perseus_show_round(const harpe_perseus *self, const harpe_perseus_measured *measured);
/* Return how much more time and energy the latest sweep took than the same iterations would have
 * taken at the baseline. */
double harpe_perseus_sweep_extra_time_s(const harpe_perseus *self);
double harpe_perseus_sweep_extra_energy_j(const harpe_perseus *self);

#endif
