/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads an exploration as JSON. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_STATE_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_STATE_H

#include <jansson.h>

#include "server/scheduler/perseus/explorer.h"

/* Returns NULL if memory runs out. */
json_t *harpe_explorer_save(const harpe_explorer *explorer);
/* Reads the state into a new explorer of the same job. Returns false if it does not fit; the
 * explorer is then in an unknown state, and must be freed or restarted. */
bool harpe_explorer_load(harpe_explorer *explorer, const json_t *saved);

#endif
