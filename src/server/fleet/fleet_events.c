/* SPDX-License-Identifier: Apache-2.0 */
/* Events. Shares of several events multiply, and then their watts are subtracted. After its end an
 * event gives its watts back in steps below a straight ramp. */
#include "server/fleet/fleet_events.h"

#include <math.h>
#include <string.h>

#include "server/fleet/groups.h"

enum { RAMP_STEPS = 20, KEPT = 200, MOST = KEPT + HARPE_FLEET_EVENTS_MAX };
#define KEPT_S (7 * 86400.0)
/* One of too many events is removed after this time. A wall clock that is wrong may be set right
 * meanwhile. */
#define SURPLUS_KEPT_S 3600.0

harpe_fleet_event *harpe_fleet_event_find(const harpe_fleet_state *state, int64_t id) {
    for (size_t i = 0; i < state->event_count; i++)
        if (state->events[i].id == id) return &state->events[i];
    return NULL;
}

double harpe_fleet_event_end_s(const harpe_fleet_event *event) {
    double end_s = event->from_s + event->duration_s;
    return event->cancelled_s > 0 ? fmin(end_s, event->cancelled_s) : end_s;
}

double harpe_fleet_event_notice_s(const harpe_fleet_event *event) {
    return fmax(event->posted_s, event->from_s - event->notice_s);
}

static bool never_began(const harpe_fleet_event *event) {
    return event->cancelled_s > 0 && event->cancelled_s <= event->from_s;
}

harpe_fleet_event_state harpe_fleet_event_state_of(const harpe_fleet_event *event, double at_s) {
    double end_s = harpe_fleet_event_end_s(event);
    if (never_began(event)) return HARPE_EVENT_CANCELLED;
    if (at_s < event->from_s)
        return at_s < harpe_fleet_event_notice_s(event) ? HARPE_EVENT_PLANNED
                                                        : HARPE_EVENT_ANNOUNCED;
    if (at_s < end_s) return HARPE_EVENT_ACTIVE;
    if (at_s < end_s + event->ramp_s) return HARPE_EVENT_RAMP;
    return event->cancelled_s > 0 ? HARPE_EVENT_CANCELLED : HARPE_EVENT_OVER;
}

const char *harpe_fleet_event_state_name(harpe_fleet_event_state state) {
    static const char *const names[] = {
        [HARPE_EVENT_PLANNED] = "planned", [HARPE_EVENT_ANNOUNCED] = "announced",
        [HARPE_EVENT_ACTIVE] = "active",   [HARPE_EVENT_RAMP] = "ramp",
        [HARPE_EVENT_OVER] = "over",       [HARPE_EVENT_CANCELLED] = "cancelled"};
    return names[state];
}

/* Returns the part of its watts that the event takes at a moment: 1 while it runs, then less in
 * steps. A step begins when the straight ramp has reached the step's level. */
static double part_at(const harpe_fleet_event *event, double at_s) {
    double end_s = harpe_fleet_event_end_s(event);
    if (never_began(event) || at_s < event->from_s) return 0;
    if (at_s < end_s) return 1;
    if (!(event->ramp_s > 0) || at_s >= end_s + event->ramp_s) return 0;
    return 1 - floor((at_s - end_s) / event->ramp_s * RAMP_STEPS) / RAMP_STEPS;
}

/* Returns the watts that a group may have with the events of the state, and with `more` (NULL: no
 * other event). */
static double watts_with(const harpe_fleet_state *state, int group, double at_s,
                         const harpe_fleet_event *more) {
    const harpe_fleet_group_state *own = &state->groups[group];
    double base_w = own->budget.watts, factor = 1, less_w = 0;
    bool has_event = false;
    for (size_t i = 0; i < state->event_count + (more != NULL); i++) {
        const harpe_fleet_event *event = i < state->event_count ? &state->events[i] : more;
        double part = strcmp(event->group, own->name) == 0 ? part_at(event, at_s) : 0;
        if (part <= 0) continue;
        has_event = true;
        if (base_w < 0) base_w = event->base_w;
        if (isnan(event->share))
            less_w += event->watts * part;
        else
            factor *= 1 - event->share * part;
    }
    if (base_w < 0 || (own->budget.watts < 0 && !has_event)) return -1;
    return fmax(0, base_w * factor - less_w);
}

double harpe_fleet_events_watts(const harpe_fleet_state *state, int group, double at_s) {
    return watts_with(state, group, at_s, NULL);
}

/* While no event begins, the limit only rises, because ramps go on. So it is highest just before
 * another event begins, or at the end. */
double harpe_fleet_event_limit_w(const harpe_fleet_state *state, const harpe_fleet_event *event) {
    int group = harpe_groups_find(state, event->group);
    if (group < 0) return event->base_w;
    const harpe_fleet_event *more = harpe_fleet_event_find(state, event->id) ? NULL : event;
    double end_s = harpe_fleet_event_end_s(event);
    double watts = watts_with(state, group, fmax(event->from_s, nextafter(end_s, 0)), more);
    for (size_t i = 0; i < state->event_count; i++) {
        double other_s = state->events[i].from_s;
        if (other_s > event->from_s && other_s < end_s)
            watts = fmax(watts, watts_with(state, group, nextafter(other_s, 0), more));
    }
    return watts < 0 ? event->base_w : watts;
}

double harpe_fleet_event_promised_w(const harpe_fleet_state *state,
                                    const harpe_fleet_event *event) {
    return isnan(event->promised_w) ? harpe_fleet_event_limit_w(state, event) : event->promised_w;
}

bool harpe_fleet_event_counts(const harpe_fleet_event *event, double at_s, double until_s) {
    return !never_began(event) && event->from_s <= until_s &&
           at_s < harpe_fleet_event_end_s(event) + event->ramp_s;
}

/* Returns true if the event is over, by the wall clock, and notes since when. */
static bool is_over(harpe_fleet_event *event, harpe_fleet_now now) {
    double end_s = harpe_fleet_event_end_s(event) + event->ramp_s;
    bool is_past = never_began(event) || now.wall_s >= end_s;
    if (!is_past)
        event->over_since_s = 0;
    else if (event->over_since_s == 0)
        event->over_since_s = now.steady_s;
    return is_past;
}

void harpe_fleet_events_prune(harpe_fleet_state *state, harpe_fleet_now now,
                              void (*gone)(void *user, int64_t id), void *user) {
    size_t kept = 0, count = state->event_count;
    for (size_t i = 0; i < count; i++) {
        harpe_fleet_event *event = &state->events[i];
        double kept_s = count - i > MOST ? 0 : count - i > KEPT ? SURPLUS_KEPT_S : KEPT_S;
        if (is_over(event, now) && now.steady_s - event->over_since_s >= kept_s)
            gone(user, event->id);
        else
            state->events[kept++] = *event;
    }
    state->event_count = kept;
}
