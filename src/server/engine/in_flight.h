/* SPDX-License-Identifier: Apache-2.0 */
/* The list of all work that the engine has begun and that has not ended yet. With this list the
 * engine can wait for the work, and can free work that never ends. */
#ifndef HARPE_SERVER_ENGINE_IN_FLIGHT_H
#define HARPE_SERVER_ENGINE_IN_FLIGHT_H

#include "server/engine/job_state.h"

/* Adds `entry` to the list. `drop` frees it if the engine is freed first. */
void harpe_in_flight_add(harpe_jobs *jobs, harpe_in_flight *entry,
                         void (*drop)(harpe_in_flight *self));
void harpe_in_flight_remove(harpe_jobs *jobs, harpe_in_flight *entry);

#endif
