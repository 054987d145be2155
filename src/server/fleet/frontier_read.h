/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the plans from a job's frontier. */
#ifndef HARPE_SERVER_FLEET_FRONTIER_READ_H
#define HARPE_SERVER_FLEET_FRONTIER_READ_H

#include <stddef.h>

#include <harpe/fleet.h>

typedef struct harpe_frontier_plans {
    harpe_fleet_plan *plans; /* whole iterations, in the order of the frontier */
    size_t count;
    double power_cap_w; /* the cap that the job has now; 0: none */
    /* The measured time and energy outside of the pipeline, less those that caps count. */
    double shift_time_s, shift_energy_j;
} harpe_frontier_plans;

/* Reads the JSON of GET /jobs/{id}/frontier. `count` is 0 if the job has no plans yet. Free the
 * plans with free(). Can be called on any thread. */
harpe_status harpe_frontier_plans_read(const char *text, size_t length, harpe_frontier_plans *out,
                                       harpe_error *error);

#endif
