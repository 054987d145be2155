/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions: gives the solver what has changed, takes its solution, and decides caps. */
#ifndef HARPE_SERVER_FLEET_DECIDE_H
#define HARPE_SERVER_FLEET_DECIDE_H

#include "server/fleet/fleet_state.h"

/* Brings the solver up to date, after harpe_limits_update. Returns true if it must solve. Then call
 * harpe_decide_solve, on any thread, and after it harpe_decide_take. */
bool harpe_decide_prepare(harpe_fleet_state *state, harpe_fleet_now now);
void harpe_decide_solve(harpe_fleet_state *state);
/* Takes the solution. Fails if the solver has failed. */
harpe_status harpe_decide_take(harpe_fleet_state *state, harpe_error *error);
/* Decides caps so that the members come to their plans of the solution. Lowers at once. Raises a
 * member only if the counted power of all of its groups stays within their limits. Sets has_command
 * of the members that get a new cap. */
void harpe_decide_caps(harpe_fleet_state *state, harpe_fleet_now now);
/* Decides for all members that they get no cap but their own, because nothing is set any more. */
void harpe_decide_release(harpe_fleet_state *state, harpe_fleet_now now);
/* Returns the price at a moment. Zeros: none. */
harpe_fleet_price harpe_decide_price(const harpe_fleet_state *state, double at_s);
void harpe_decide_free(harpe_fleet_state *state);

#endif
