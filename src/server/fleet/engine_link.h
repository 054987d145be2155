/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet's view of the engine's jobs. */
#ifndef HARPE_SERVER_FLEET_ENGINE_LINK_H
#define HARPE_SERVER_FLEET_ENGINE_LINK_H

#include "server/engine/engine.h"
#include "server/fleet/fleet_state.h"

/* Brings the members up to date with the jobs. `gone` is called for each member that is removed
 * because its job is gone. `stamp` must be a new number in each call. */
void harpe_engine_link_look(harpe_fleet_state *state, harpe_jobs *jobs, harpe_fleet_now now,
                            uint64_t stamp, void (*gone)(void *user, const harpe_member *member),
                            void *user);
/* Adds the last energy of a job that will be evicted. Returns true if the store does not have it
 * yet. */
bool harpe_engine_link_settle(harpe_fleet_state *state, const harpe_job_glance *glance,
                              double at_s);

#endif
