/* SPDX-License-Identifier: Apache-2.0 */
/* Steers the jobs of an engine so that power budgets are kept. While no budget, event or price is
 * set, it does nothing. All functions run on the loop's thread. */
#ifndef HARPE_SERVER_FLEET_STEERING_H
#define HARPE_SERVER_FLEET_STEERING_H

#include "base/text.h"
#include "server/engine/engine.h"

typedef struct harpe_steering harpe_steering;

/* Loads the fleet's state from the store. Blocks. `jobs` and the pointers in `options` must stay
 * valid until harpe_steering_free. */
harpe_status harpe_steering_new(const harpe_jobs_options *options, harpe_jobs *jobs,
                                harpe_steering **out, harpe_error *error);
/* Call it before `jobs` is freed, and after the workers and the store have ended or
 * harpe_steering_is_idle is true. */
void harpe_steering_free(harpe_steering *self);
/* Stops steering. Calls get 503 from now on. `may_store`: stores what was used until now. A server
 * that has lost the store must not. */
void harpe_steering_stop(harpe_steering *self, bool may_store);
/* Returns true if nothing is in flight. */
bool harpe_steering_is_idle(const harpe_steering *self);

/* Returns true if this call is for the fleet. A power cap for a job that the fleet steers is for
 * the fleet too: it becomes the highest cap that the job gets. */
bool harpe_steering_takes(const harpe_steering *self, const harpe_call *call);
void harpe_steering_handle(harpe_steering *self, harpe_call *call);
/* Call this when the client of a call disconnects before the answer. */
void harpe_steering_forget(harpe_steering *self, harpe_call *call);

/* Appends the fleet's metrics for Prometheus. Appends nothing while nothing is steered. */
void harpe_steering_metrics(const harpe_steering *self, harpe_text *text);

#endif
