/* SPDX-License-Identifier: Apache-2.0 */
/* What a client whose token is limited to groups may do with the fleet. */
#ifndef HARPE_SERVER_FLEET_FLEET_SCOPE_H
#define HARPE_SERVER_FLEET_FLEET_SCOPE_H

#include "server/engine/engine.h"
#include "server/fleet/fleet_state.h"

/* Returns true if the call's scope covers all groups that the call is about. Otherwise writes one
 * line that says which group is needed. What does not exist is left to the caller. */
bool harpe_fleet_is_in_scope(const harpe_fleet_state *state, const harpe_call *call, char *line,
                             size_t size);

#endif
