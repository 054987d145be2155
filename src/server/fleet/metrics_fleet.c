/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics of the fleet: the powers of groups with a limit, the slowdown, events and breaches. To
 * add a metric of groups, add a row here. metrics_rows.c has those of jobs, events and energy. */
#include "server/fleet/metrics_fleet.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "server/fleet/fleet_events.h"
#include "server/fleet/limits.h"
#include "server/fleet/metrics_rows.h"
#include "server/fleet/show.h"

typedef struct group_metric {
    const char *name, *type, *help;
    double (*value)(const harpe_fleet_group_state *group);
} group_metric;

static double measured(const harpe_fleet_group_state *group) { return group->measured_w; }
static double planned(const harpe_fleet_group_state *group) { return group->planned_w; }
static double counted(const harpe_fleet_group_state *group) { return group->counted_w; }
static double limit(const harpe_fleet_group_state *group) { return group->limit_w; }
static double budget(const harpe_fleet_group_state *group) {
    return group->now_watts >= 0 ? group->now_watts : NAN;
}
static double missing(const harpe_fleet_group_state *group) {
    return harpe_fleet_group_missing_w(group);
}
static double overhead(const harpe_fleet_group_state *group) { return group->budget.overhead; }
static double breaches(const harpe_fleet_group_state *group) { return (double)group->breaches; }

static const group_metric GROUP_METRICS[] = {
    {"harpe_fleet_measured_watts", "gauge",
     "Power of the group's jobs in their last rounds, without the overhead factor and without jobs "
     "that have not measured it yet",
     measured},
    {"harpe_fleet_planned_watts", "gauge", "Power that the plans of the group's jobs predict",
     planned},
    {"harpe_fleet_counted_watts", "gauge",
     "Highest power that the group's jobs may draw, as far as the server knows", counted},
    {"harpe_fleet_limit_watts", "gauge",
     "Power that the group's jobs may draw: the budget less events, margin and overhead", limit},
    {"harpe_fleet_budget_watts", "gauge", "The group's budget at the meter, less events and ramps",
     budget},
    {"harpe_fleet_missing_watts", "gauge",
     "By how much the budget is too small for what the group's jobs draw at least", missing},
    {"harpe_fleet_overhead_ratio", "gauge", "Watts of the group's budget for each watt of its jobs",
     overhead},
    {"harpe_fleet_breaches_total", "counter",
     "How often the measured power came above the group's budget", breaches},
};

static void append_group_metric(const harpe_fleet_state *state, const group_metric *metric,
                                harpe_text *text) {
    harpe_metrics_text_head(text, metric->name, metric->type, metric->help);
    for (size_t g = 0; g < state->group_count; g++) {
        const harpe_fleet_group_state *group = &state->groups[g];
        bool has_limit = group->budget.watts >= 0 || group->now_watts >= 0;
        double value = metric->value(group);
        if (!isfinite(value) || (g > 0 && !has_limit)) continue;
        harpe_text_printf(text, "%s{", metric->name);
        harpe_metrics_text_label(text, "group", group->name);
        harpe_text_printf(text, "}");
        harpe_metrics_text_value(text, value);
    }
}

static void append_members(const harpe_fleet_state *state, harpe_text *text) {
    static const char *const states[] = {"follows",  "lowering", "raising",
                                         "learning", "silent",   "not steered"};
    enum { STATES = sizeof states / sizeof *states };
    double counts[STATES] = {0};
    for (size_t i = 0; i < state->member_count; i++)
        for (size_t s = 0; s < STATES; s++)
            counts[s] +=
                strcmp(harpe_fleet_member_state_name(state->members[i], true), states[s]) == 0;
    harpe_fleet_metrics_append_states(
        text, "harpe_fleet_jobs", "Jobs and loads of the fleet, by state", states, counts, STATES);
}

void harpe_fleet_metrics(const harpe_fleet_state *state, harpe_fleet_now now, harpe_text *text) {
    double active = 0;
    if (!harpe_limits_are_set(state, now.wall_s)) return;
    for (size_t i = 0; i < sizeof GROUP_METRICS / sizeof *GROUP_METRICS; i++)
        append_group_metric(state, &GROUP_METRICS[i], text);
    for (size_t i = 0; i < state->event_count; i++)
        active += harpe_fleet_event_state_of(&state->events[i], now.wall_s) == HARPE_EVENT_ACTIVE;
    harpe_fleet_metrics_append_one(text, "harpe_fleet_events_active", "gauge",
                                   "Events that run now", NULL, active);
    harpe_fleet_metrics_append_one(text, "harpe_fleet_weighted_slowdown", "gauge",
                                   "Sum over all jobs of weight * (time / fastest time - 1)", NULL,
                                   harpe_fleet_weighted_slowdown(state));
    append_members(state, text);
    harpe_fleet_metrics_append_jobs(state, text);
    harpe_fleet_metrics_append_events(state, now.wall_s, text);
    harpe_fleet_metrics_append_energy(state, now.wall_s, text);
}
