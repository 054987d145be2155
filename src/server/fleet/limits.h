/* SPDX-License-Identifier: Apache-2.0 */
/* What groups may draw now, what they draw, and whether events are kept. */
#ifndef HARPE_SERVER_FLEET_LIMITS_H
#define HARPE_SERVER_FLEET_LIMITS_H

#include "server/fleet/fleet_state.h"

/* Returns true if a budget is set, an event is not over, or a price is set. Otherwise nothing is
 * steered. */
bool harpe_limits_are_set(const harpe_fleet_state *state, double at_s);
/* Returns how long before an event the fleet begins to lower its power: two rounds and a few
 * seconds. */
double harpe_limits_lead_s(const harpe_fleet_state *state);
/* Computes the members of all groups that depend on time and on members, and which members may
 * exceed their slowdown. */
void harpe_limits_update(harpe_fleet_state *state, harpe_fleet_now now);
/* Computes only the sums of powers. */
void harpe_limits_sum(harpe_fleet_state *state);
/* Returns true if the counted power of the group, or of a group around it, is above its limit, or
 * above the limit of an event for which it must be lowered now. */
bool harpe_limits_are_exceeded(const harpe_fleet_state *state, int group);
/* Compares the measured power with limits and promises. Returns true if an event has changed in a
 * way that must be stored. */
bool harpe_limits_watch(harpe_fleet_state *state, harpe_fleet_now now);
/* Returns what is missing for `watts` at the meter of the group: how much more its members draw at
 * least. 0: nothing. */
double harpe_limits_missing_w(const harpe_fleet_state *state, int group, double watts,
                              bool may_exceed);
/* Returns the power of the group's members that its meter shows as `watts`. */
double harpe_limits_of_members_w(const harpe_fleet_group_state *group, double watts);

#endif
