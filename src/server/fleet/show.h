/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet as JSON. */
#ifndef HARPE_SERVER_FLEET_SHOW_H
#define HARPE_SERVER_FLEET_SHOW_H

#include "base/text.h"
#include "server/fleet/fleet_state.h"

/* Returns "none", "within", "lowering", "over" or "infeasible". */
const char *harpe_fleet_state_name(const harpe_fleet_state *state, double at_s);
/* Returns the sum of weight * (slowdown - 1) of the members that follow plans. */
double harpe_fleet_weighted_slowdown(const harpe_fleet_state *state);
/* Returns the watts by which a group's budget is too small for what its members draw at least; 0:
 * none. */
double harpe_fleet_group_missing_w(const harpe_fleet_group_state *group);
/* Returns the watts that are missing to meet an event; 0: none. */
double harpe_fleet_event_missing_w(const harpe_fleet_state *state, const harpe_fleet_event *event);
/* Returns "follows", "lowering", "raising", "learning", "silent" or "not steered". `is_set`: a
 * budget, an event or a price is set. Without one, nothing is steered. */
const char *harpe_fleet_member_state_name(const harpe_member *member, bool is_set);
/* Appends everything. Call harpe_limits_update before. Leaves out jobs, budgets, groups and events
 * of groups that `scope` (NULL: all) does not cover. */
void harpe_fleet_show(const harpe_fleet_state *state, const char *scope, harpe_fleet_now now,
                      harpe_text *text);
/* Appends what POST /fleet/events answers. */
void harpe_fleet_show_event_answer(const harpe_fleet_state *state, int64_t id, harpe_text *text);
/* Appends what PUT /fleet/budget answers. Call harpe_limits_update before. */
void harpe_fleet_show_budget_answer(const harpe_fleet_state *state, const char *group,
                                    harpe_text *text);
/* Appends what a declared member gets: its plan and its cap. */
void harpe_fleet_show_plan(const harpe_member *member, double cap_w, harpe_text *text);

#endif
