/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of groups, and events, which lower them. The limit of a group for its members is watts *
 * (1 - margin) / overhead, where watts is the budget less the events of the moment. Before an event
 * the fleet already keeps the event's limit, so early that all members can follow. Shares of
 * several events multiply, and then their watts are subtracted. After its end an event gives its
 * watts back in steps below a straight ramp. */
#include "server/fleet/fleet_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* The time in which a fleet must be under a new budget after the notice, in s. */
#define GRACE_S 30.0

/* ---- Events ---------------------------------------------------------------------------------- */

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

/* Returns the time at which the event is known to the fleet. */
static double notice_s_of(const harpe_fleet_event *event) {
    return fmax(event->posted_s, event->from_s - event->notice_s);
}

static bool never_began(const harpe_fleet_event *event) {
    return event->cancelled_s > 0 && event->cancelled_s <= event->from_s;
}

harpe_fleet_event_state harpe_fleet_event_state_of(const harpe_fleet_event *event, double at_s) {
    double end_s = harpe_fleet_event_end_s(event);
    if (never_began(event)) return HARPE_EVENT_CANCELLED;
    if (at_s < event->from_s)
        return at_s < notice_s_of(event) ? HARPE_EVENT_PLANNED : HARPE_EVENT_ANNOUNCED;
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
    double end_s = harpe_fleet_event_end_s(event);
    double watts = watts_with(state, group, fmax(event->from_s, nextafter(end_s, 0)), event);
    for (size_t i = 0; i < state->event_count; i++) {
        double other_s = state->events[i].from_s;
        if (other_s > event->from_s && other_s < end_s)
            watts = fmax(watts, watts_with(state, group, nextafter(other_s, 0), event));
    }
    return watts < 0 ? event->base_w : watts;
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

/* ---- What is set ----------------------------------------------------------------------------- */

#define LEAD_S 5.0
#define LEAD_ROUNDS 2.0

bool harpe_limits_are_set(const harpe_fleet_state *state, double at_s) {
    if (state->prices.count > 0) return true;
    for (size_t g = 0; g < state->group_count; g++)
        if (state->groups[g].budget.watts >= 0) return true;
    for (size_t i = 0; i < state->event_count; i++)
        if (harpe_fleet_event_counts(&state->events[i], at_s, INFINITY)) return true;
    return false;
}

/* Returns how long before an event the fleet begins to lower its power: two rounds and a few
 * seconds. */
static double lead_s_of(const harpe_fleet_state *state) {
    double longest_s = 0;
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        if (harpe_member_can_follow(member)) longest_s = fmax(longest_s, member->round_s);
    }
    return LEAD_S + LEAD_ROUNDS * longest_s;
}

/* Returns the power of the group's members that its meter shows as `watts`. */
static double limit_of_members_w(const harpe_fleet_group_state *group, double watts) {
    return watts < 0 ? INFINITY : watts * (1 - group->budget.margin) / group->budget.overhead;
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static double least_of(double a, double b) { return a < 0 ? b : b < 0 ? a : fmin(a, b); }

static void set_limit(harpe_fleet_state *state, int g, double at_s, double lead_s) {
    harpe_fleet_group_state *group = &state->groups[g];
    group->now_watts = group->ahead_watts = harpe_fleet_events_watts(state, g, at_s);
    for (size_t i = 0; i < state->event_count; i++) {
        const harpe_fleet_event *event = &state->events[i];
        if (event->from_s <= at_s || strcmp(event->group, group->name) != 0) continue;
        bool is_known = at_s >= notice_s_of(event);
        if (!is_known || !harpe_fleet_event_counts(event, at_s, at_s + lead_s)) continue;
        group->ahead_watts =
            least_of(group->ahead_watts, harpe_fleet_events_watts(state, g, event->from_s));
    }
    group->limit_w = limit_of_members_w(group, group->now_watts);
    group->ahead_w = limit_of_members_w(group, group->ahead_watts);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

void harpe_limits_sum(harpe_fleet_state *state) {
    for (size_t g = 0; g < state->group_count; g++) {
        harpe_fleet_group_state *group = &state->groups[g];
        group->counted_w = group->planned_w = group->measured_w = 0;
        group->least_w = group->answered_w = 0;
        group->unmeasured = 0;
    }
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        double counted_w = harpe_member_counted_w(member);
        double planned_w = harpe_member_planned_w(member);
        double least_w = harpe_member_least_w(member, member->may_exceed);
        bool is_only_overdue = member->is_overdue && !member->is_silent;
        double answered_w =
            is_only_overdue ? harpe_member_answering_w(member, member->may_exceed) : least_w;
        bool is_measured = member->measured_w >= 0;
        for (int g = member->group; g >= 0; g = state->groups[g].parent) {
            harpe_fleet_group_state *group = &state->groups[g];
            group->counted_w += counted_w;
            group->planned_w += planned_w;
            group->measured_w += is_measured ? member->measured_w : 0;
            group->unmeasured += !is_measured;
            group->least_w += least_w;
            group->answered_w += answered_w;
        }
    }
}

bool harpe_limits_are_exceeded(const harpe_fleet_state *state, int group) {
    for (int g = group; g >= 0; g = state->groups[g].parent)
        if (state->groups[g].counted_w > state->groups[g].ahead_w * (1 + 1e-9)) return true;
    return false;
}

static bool is_inside(const harpe_fleet_state *state, int group, int of) {
    while (group >= 0 && group != of)
        group = state->groups[group].parent;
    return group == of;
}

/* ---- Slower than accepted -------------------------------------------------------------------- */

static int compare_priorities(const void *a, const void *b) {
    double x = harpe_member_priority(*(harpe_member *const *)a);
    double y = harpe_member_priority(*(harpe_member *const *)b);
    return (x > y) - (x < y);
}

static void permit(harpe_member *member, bool may_exceed) {
    if (member->may_exceed == may_exceed) return;
    member->may_exceed = may_exceed;
    member->is_dirty = true;
}

/* Lets members of the group exceed their slowdown, those of the lowest priority first, until the
 * rest can keep the limit. `permitted` says which members have got this permission. */
static void permit_group(harpe_fleet_state *state, int g, harpe_member **sorted, bool *permitted) {
    double least_w = 0, limit_w = state->groups[g].ahead_w;
    for (size_t i = 0; i < state->member_count; i++)
        if (is_inside(state, sorted[i]->group, g))
            least_w += harpe_member_least_w(sorted[i], permitted[i]);
    for (size_t i = 0; i < state->member_count && least_w > limit_w; i++) {
        harpe_member *member = sorted[i];
        if (permitted[i] || !is_inside(state, member->group, g)) continue;
        permitted[i] = true;
        least_w -= harpe_member_least_w(member, false) - harpe_member_least_w(member, true);
    }
}

static bool exceeds_in_group(const harpe_fleet_state *state, int g, double at_s, double until_s) {
    for (size_t i = 0; i < state->event_count; i++) {
        const harpe_fleet_event *event = &state->events[i];
        if (event->may_exceed && strcmp(event->group, state->groups[g].name) == 0 &&
            harpe_fleet_event_counts(event, at_s, until_s) && at_s >= notice_s_of(event))
            return true;
    }
    return false;
}

static void permit_all(harpe_fleet_state *state, double at_s, double until_s) {
    harpe_member **sorted = NULL;
    bool *permitted = NULL;
    for (size_t g = 0; g < state->group_count; g++) {
        if (!exceeds_in_group(state, (int)g, at_s, until_s)) continue;
        if (!sorted) {
            sorted = harpe_calloc(state->member_count, sizeof(harpe_member *));
            permitted = harpe_calloc(state->member_count, sizeof *permitted);
            if (!sorted || !permitted) break; /* without memory nobody may exceed */
            memcpy(sorted, state->members, state->member_count * sizeof(harpe_member *));
            qsort(sorted, state->member_count, sizeof(harpe_member *), compare_priorities);
        }
        permit_group(state, (int)g, sorted, permitted);
    }
    bool is_complete = sorted && permitted;
    for (size_t i = 0; i < state->member_count; i++)
        permit(is_complete ? sorted[i] : state->members[i], is_complete && permitted[i]);
    free(sorted);
    free(permitted);
}

void harpe_limits_update(harpe_fleet_state *state, harpe_fleet_now now) {
    double lead_s = lead_s_of(state);
    for (size_t g = 0; g < state->group_count; g++)
        set_limit(state, (int)g, now.wall_s, lead_s);
    permit_all(state, now.wall_s, now.wall_s + lead_s);
    harpe_limits_sum(state);
}

double harpe_limits_missing_w(const harpe_fleet_state *state, int group, double watts,
                              bool may_exceed) {
    const harpe_fleet_group_state *own = &state->groups[group];
    double least_w = 0;
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        if (is_inside(state, member->group, group))
            least_w += harpe_member_least_w(member, may_exceed || member->may_exceed);
    }
    double missing_w = least_w * own->budget.overhead / (1 - own->budget.margin) - watts;
    return missing_w > 1e-6 * (1 + watts) ? missing_w : 0;
}

/* ---- What came ------------------------------------------------------------------------------- */

/* Returns the time from which on the event must be kept. */
static double hold_s(const harpe_fleet_state *state, const harpe_fleet_event *event) {
    double grace_s = fmax(GRACE_S, lead_s_of(state));
    return fmax(event->from_s, notice_s_of(event) + grace_s);
}

static bool watch_event(const harpe_fleet_state *state, harpe_fleet_event *event, double at_s) {
    int g = harpe_groups_find(state, event->group);
    if (g < 0 || harpe_fleet_event_state_of(event, at_s) != HARPE_EVENT_ACTIVE) return false;
    const harpe_fleet_group_state *group = &state->groups[g];
    double meter_w = group->measured_w * group->budget.overhead;
    double most_w = event->promised_w * (1 + 1e-9);
    bool is_kept = meter_w <= most_w;
    /* What is not measured may be above the promise, unless what it may draw is within it. */
    bool is_certain = group->unmeasured == 0 || group->counted_w * group->budget.overhead <= most_w;
    bool has_changed = is_kept && is_certain && !(event->reached_s > 0);
    if (has_changed) event->reached_s = at_s;
    if (at_s < hold_s(state, event)) return has_changed;
    if (!is_kept && !event->is_breached) {
        event->breaches++;
        has_changed = true;
    }
    event->is_breached = !is_kept;
    event->highest_w = fmax(event->highest_w, meter_w);
    return has_changed;
}

bool harpe_limits_watch(harpe_fleet_state *state, harpe_fleet_now now) {
    bool has_changed = false;
    for (size_t g = 0; g < state->group_count; g++) {
        harpe_fleet_group_state *group = &state->groups[g];
        bool is_over = group->now_watts >= 0 &&
                       group->measured_w * group->budget.overhead > group->now_watts * (1 + 1e-9);
        group->breaches += is_over && !group->is_over;
        group->is_over = is_over;
    }
    for (size_t i = 0; i < state->event_count; i++)
        if (watch_event(state, &state->events[i], now.wall_s)) has_changed = true;
    return has_changed;
}
