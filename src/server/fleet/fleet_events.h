/* SPDX-License-Identifier: Apache-2.0 */
/* Events: times in which a budget is smaller. */
#ifndef HARPE_SERVER_FLEET_FLEET_EVENTS_H
#define HARPE_SERVER_FLEET_FLEET_EVENTS_H

#include "server/fleet/fleet_state.h"

/* The time in which a fleet must be under a new budget after the notice, in s. */
#define HARPE_FLEET_GRACE_S 30.0

harpe_fleet_event *harpe_fleet_event_find(const harpe_fleet_state *state, int64_t id);
harpe_fleet_event_state harpe_fleet_event_state_of(const harpe_fleet_event *event, double at_s);
const char *harpe_fleet_event_state_name(harpe_fleet_event_state state);
/* Returns the time at which the event is known to the fleet, and the time at which it ends. */
double harpe_fleet_event_notice_s(const harpe_fleet_event *event);
double harpe_fleet_event_end_s(const harpe_fleet_event *event);
/* Returns the watts at the meter that a group may have at a moment: its budget less the events that
 * run then. Negative: any. */
double harpe_fleet_events_watts(const harpe_fleet_state *state, int group, double at_s);
/* Returns the highest limit at the meter that the event's group has while the event runs. The event
 * need not be in the state. */
double harpe_fleet_event_limit_w(const harpe_fleet_state *state, const harpe_fleet_event *event);
/* Returns the limit that was announced when the event was posted. Its result is judged by this
 * limit, whatever changes later. */
double harpe_fleet_event_promised_w(const harpe_fleet_state *state, const harpe_fleet_event *event);
/* Returns true if the event has begun or begins before `until_s`, and its ramp is not over. */
bool harpe_fleet_event_counts(const harpe_fleet_event *event, double at_s, double until_s);
/* Removes each event that has been over for a week, or for an hour if it is not among the newest
 * 200, in the time of the steady clock since this server first saw that it is over. Such a one that
 * is not among the newest 1200 is removed at once. So a wall clock that is wrong for a while
 * removes no event of a usual number. Calls `gone` for each of them, so that the caller can
 * remove it from the store. */
void harpe_fleet_events_prune(harpe_fleet_state *state, harpe_fleet_now now,
                              void (*gone)(void *user, int64_t id), void *user);

#endif
