/* SPDX-License-Identifier: Apache-2.0 */
/* Members: what they say of themselves, what they may draw, and what they confirm. */
#ifndef HARPE_SERVER_FLEET_MEMBER_H
#define HARPE_SERVER_FLEET_MEMBER_H

#include "server/fleet/fleet_state.h"

/* Adds a member. Returns NULL if memory runs out. */
harpe_member *harpe_member_add(harpe_fleet_state *state, harpe_member_kind kind, const char *id);
/* Removes the member with this place in the list, and frees it. */
void harpe_member_remove(harpe_fleet_state *state, size_t index);
void harpe_member_free(harpe_member *member);
/* Returns NULL if there is none. */
harpe_member *harpe_member_find(const harpe_fleet_state *state, harpe_member_kind kind,
                                const char *id);

harpe_member_terms harpe_member_no_terms(void);
/* Reads the words fleet_group=, fleet_weight=, fleet_max_slowdown=, fleet_priority=, fleet_most_w=
 * and fleet_highest_w= of a job's metadata (NULL: none). A word that cannot be read says nothing.
 * `name` (of HARPE_FLEET_TEXT_MAX + 1 bytes) receives fleet_name=, or "". */
harpe_member_terms harpe_member_read_words(const char *metadata, char *name);
/* The terms that hold: those of the operator, then those of the job, then defaults. */
double harpe_member_weight(const harpe_member *member);
double harpe_member_max_slowdown(const harpe_member *member); /* 0: any */
double harpe_member_priority(const harpe_member *member);
double harpe_member_own_most_w(const harpe_member *member);      /* INFINITY: no cap of its own */
const char *harpe_member_group_name(const harpe_member *member); /* "": the whole fleet */

/* Returns the most power that the member's GPUs can draw, if their number is known. */
double harpe_member_possible_w(const harpe_member *member);

/* Takes over `plans`, sorts them, and drops plans that are not valid. `count` 0: none. */
void harpe_member_set_plans(harpe_member *member, harpe_fleet_plan *plans, size_t count);
/* Returns true if the job's frontier must be read before its first cap: it says which cap a client
 * has set, and the first cap replaces that. */
bool harpe_member_is_unread(const harpe_member *member);
/* Returns true if the member can be given another plan now. */
bool harpe_member_can_follow(const harpe_member *member);
/* Returns the number of the fastest plan whose predicted power is within `cap_w`, or the slowest
 * plan. */
size_t harpe_member_plan_within(const harpe_member *member, double cap_w);
/* Returns the first plan that the solver may choose: its own cap excludes those before. */
size_t harpe_member_first_plan(const harpe_member *member);

/* Returns the highest power of its plans, with its scale. */
double harpe_member_highest_w(const harpe_member *member);
/* Returns the power that the member may draw now. */
double harpe_member_counted_w(const harpe_member *member);
/* Returns the power that it may draw if it gets `cap_w` now. */
double harpe_member_counted_with(const harpe_member *member, double cap_w);
/* Returns the power that its present plan predicts, with its scale. */
double harpe_member_planned_w(const harpe_member *member);
/* Returns the least counted power that the solver can give it. `exceeds`: slower than it accepts.
 */
double harpe_member_least_w(const harpe_member *member, bool exceeds);
/* Returns what harpe_member_least_w would return if the member answered. */
double harpe_member_answering_w(const harpe_member *member, bool exceeds);

/* Decides a cap. It counts from now on. */
void harpe_member_decide(harpe_member *member, double cap_w, harpe_fleet_now now);
/* The member has shown a sign of life. */
void harpe_member_hear(harpe_member *member, harpe_fleet_now now);
/* The member has run a whole round under its last cap. */
void harpe_member_confirm(harpe_member *member);
/* The member has measured its power in a round. `predicted_w` is what its plan predicts for this
 * round (0: it ran no plan). */
void harpe_member_measure(harpe_member *member, double power_w, double predicted_w);
/* A declared member reports the plan that it runs (-1: not said) and its power (negative: not
 * said). */
void harpe_member_follow(harpe_member *member, int64_t plan, double power_w, harpe_fleet_now now);
/* Finds out whether the member is silent or overdue. `is_exceeded`: a limit of its groups is. */
void harpe_member_watch(harpe_member *member, bool is_exceeded, harpe_fleet_now now);

#endif
