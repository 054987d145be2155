/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and loads a sweep for a restart of the server. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_SWEEP_STATE_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_SWEEP_STATE_H

#include <jansson.h>

#include <harpe/status.h>

#include "server/scheduler/perseus/sweep.h"

/* These functions save and load a sweep for a restart of the server. `save` returns NULL if memory
 * runs out. `load` refuses data that does not fit the pipeline, and leaves the sweep as it was. */
json_t *harpe_sweep_save(const harpe_sweep *sweep);
harpe_status harpe_sweep_load(harpe_sweep *sweep, const json_t *saved, harpe_error *error);

#endif
