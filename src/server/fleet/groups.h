/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of the fleet. */
#ifndef HARPE_SERVER_FLEET_GROUPS_H
#define HARPE_SERVER_FLEET_GROUPS_H

#include "server/fleet/fleet_state.h"

/* Makes group 0. Returns false if memory runs out. */
bool harpe_groups_begin(harpe_fleet_state *state);
void harpe_groups_free(harpe_fleet_state *state);
/* Returns the number of the group, or -1. "" is group 0. */
int harpe_groups_find(const harpe_fleet_state *state, const char *name);
/* Returns the number of the group, which is made inside of the whole fleet if it does not exist.
 * Returns -1 if memory runs out or there are too many groups. */
/* Returns true if no group can be added. */
bool harpe_groups_are_full(const harpe_fleet_state *state);
int harpe_groups_need(harpe_fleet_state *state, const char *name);
/* Returns true if `parent` may become the parent of `group`: it is not inside of it, and not too
 * deep. */
bool harpe_groups_may_contain(const harpe_fleet_state *state, int parent, int group);
void harpe_groups_set_parent(harpe_fleet_state *state, int group, int parent);
/* Returns true if members, groups or a budget are in the group. */
bool harpe_groups_is_used(const harpe_fleet_state *state, int group);
/* Removes a group that is not used. The numbers of other groups change. */
void harpe_groups_remove(harpe_fleet_state *state, int group);
/* Gives a member its group. */
void harpe_groups_place(harpe_fleet_state *state, harpe_member *member);

#endif
