/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning and the end of a fleet's state. */
#ifndef HARPE_SERVER_FLEET_FLEET_LIFE_H
#define HARPE_SERVER_FLEET_FLEET_LIFE_H

#include "server/fleet/fleet_state.h"

/* Makes the state of a fleet without members: group 0 and nothing else. `state` is zeroed memory.
 * Returns false if memory runs out. Then, too, call harpe_fleet_end. */
bool harpe_fleet_begin(harpe_fleet_state *state);
/* Frees all that the state owns. No worker may solve any more. */
void harpe_fleet_end(harpe_fleet_state *state);

#endif
