/* SPDX-License-Identifier: Apache-2.0 */
/* Three ways to bring a fleet under its budgets: Harpe's split, one power cap for all GPUs, and
 * stopping the jobs of lowest priority. */
#ifndef HARPE_FLEET_POLICIES_H
#define HARPE_FLEET_POLICIES_H

#include "fleet/fleet_file.h"

typedef enum harpe_fleet_policy {
    HARPE_FLEET_SPLIT = 0,
    HARPE_FLEET_UNIFORM_CAP,
    HARPE_FLEET_STOP_LOWEST,
    HARPE_FLEET_POLICY_COUNT,
} harpe_fleet_policy;

/* How a job runs. */
typedef struct harpe_fleet_pace {
    double power_w;
    double rate;   /* work of the fastest plan for each second; 0: the job is stopped */
    double time_s; /* of an iteration */
} harpe_fleet_pace;

typedef struct harpe_fleet_steering harpe_fleet_steering;

/* Makes the state of a policy for the jobs of a file, of which none is there yet. The file must
 * outlive it. Free with harpe_fleet_steering_free. */
harpe_status harpe_fleet_steering_new(const harpe_fleet_file *file, harpe_fleet_policy policy,
                                      const char *name, harpe_fleet_steering **out,
                                      harpe_error *error);
void harpe_fleet_steering_free(harpe_fleet_steering *steering);

/* Chooses how the jobs run for which `is_here` is set, under `watts` for each group and the price
 * of the moment. Sets `pace` of these jobs. */
harpe_status harpe_fleet_steer(harpe_fleet_steering *steering, const bool *is_here,
                               const double *watts, double at_s, harpe_fleet_pace *pace,
                               harpe_error *error);

#endif
