/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the fleet as JSON for clients that only read. This file changes nothing. */
#include "server/fleet/show.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/json_text.h"
#include "base/text.h"
#include "rights/tokens.h"
#include "server/fleet/decide.h"
#include "server/fleet/fleet_events.h"
#include "server/fleet/groups.h"
#include "server/fleet/limits.h"
#include "server/fleet/member.h"
#include "server/fleet/price_energy.h"

enum { JOBS_SHOWN = 2000, EVENTS_SHOWN = 200 };

/* ---- Values ---------------------------------------------------------------------------------- */

/* Writes null if `value` is empty. */
static void append_name(harpe_text *text, const char *name, const char *value) {
    harpe_json_string(text, name, *value ? value : NULL);
}

static double if_not_negative(double value) { return value >= 0 ? value : NAN; }

/* ---- States ---------------------------------------------------------------------------------- */

/* Returns true if members of the group were told to draw less and have not confirmed it. */
static bool is_lowering(const harpe_fleet_state *state) {
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        if (member->is_waiting && !member->is_silent && member->cap_w < member->most_w) return true;
    }
    return false;
}

const char *harpe_fleet_state_name(const harpe_fleet_state *state, double at_s) {
    bool is_over = false, is_missing = false;
    if (!harpe_limits_are_set(state, at_s)) return "none";
    for (size_t g = 0; g < state->group_count; g++) {
        const harpe_fleet_group_state *group = &state->groups[g];
        bool exceeds = fmax(group->counted_w, group->measured_w) > group->limit_w * (1 + 1e-9);
        is_over = is_over || exceeds;
        is_missing = is_missing || (exceeds && group->least_w > group->limit_w * (1 + 1e-9));
    }
    if (!is_over) return "within";
    if (is_missing) return "infeasible";
    return is_lowering(state) || state->must_solve || state->is_solving ? "lowering" : "over";
}

const char *harpe_fleet_member_state_name(const harpe_member *member, bool is_set) {
    if (member->kind == HARPE_MEMBER_LOAD || member->is_refused || !is_set) return "not steered";
    if (member->plan_count == 0 || member->is_learning) return "learning";
    if (member->is_silent) return "silent";
    if (member->is_waiting) return member->cap_w < member->most_w ? "lowering" : "raising";
    /* A cap below all plans, so that the job explores, is a cap for the slowest plan. */
    size_t plan = harpe_member_plan_within(member, member->cap_w);
    return member->has_target && member->target < plan ? "raising" : "follows";
}

static const char *reason_of(const harpe_member *member, const char *state) {
    if (*member->reason) return member->reason;
    if (strcmp(state, "silent") == 0)
        return "it has not answered, so it is counted with the highest power that it may draw";
    if (strcmp(state, "raising") == 0 && !member->is_waiting)
        return "waits until jobs that draw less have confirmed it";
    if (strcmp(state, "learning") == 0)
        return "its plans are not known, so it is counted with the highest power that it may draw";
    return NULL;
}

double harpe_fleet_weighted_slowdown(const harpe_fleet_state *state) {
    double sum = 0;
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        if (!harpe_member_can_follow(member)) continue;
        size_t plan = harpe_member_plan_within(member, member->cap_w);
        sum += harpe_member_weight(member) *
               (member->plans[plan].time_s / member->plans[0].time_s - 1);
    }
    return sum;
}

double harpe_fleet_group_missing_w(const harpe_fleet_group_state *group) {
    double part = group->budget.overhead / (1 - group->budget.margin);
    bool is_missing = group->least_w > group->limit_w * (1 + 1e-9);
    return is_missing ? group->least_w * part - group->now_watts : 0;
}

double harpe_fleet_event_missing_w(const harpe_fleet_state *state, const harpe_fleet_event *event) {
    int group = harpe_groups_find(state, event->group);
    if (!isnan(event->missing_w)) return event->missing_w;
    return group < 0
               ? 0
               : harpe_limits_missing_w(state, group, harpe_fleet_event_promised_w(state, event),
                                        event->may_exceed);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void append_budget(harpe_text *text, const harpe_fleet_state *state, int g) {
    const harpe_fleet_group_state *group = &state->groups[g];
    append_name(text, "{\"group\":", group->name);
    harpe_json_number(text, ",\"watts\":", if_not_negative(group->budget.watts));
    harpe_json_number(text, ",\"margin\":", group->budget.margin);
    harpe_json_number(text, ",\"overhead\":", group->budget.overhead);
    harpe_json_number(text, ",\"now_watts\":", if_not_negative(group->now_watts));
    harpe_json_number(text, ",\"limit_w\":", group->limit_w);
    harpe_json_number(text, ",\"power_w\":", group->planned_w);
    harpe_json_number(text, ",\"measured_w\":", group->measured_w);
    harpe_text_printf(text, ",\"unmeasured\":%zu", group->unmeasured);
    harpe_json_number(text, ",\"counted_w\":", group->counted_w);
    harpe_json_number(text, ",\"least_w\":", group->least_w);
    harpe_json_number(text, ",\"missing_w\":", harpe_fleet_group_missing_w(group));
    harpe_json_number(text, ",\"price_per_kw\":", group->price_per_w * 1000);
    harpe_text_printf(text, ",\"breaches\":%" PRIu64 "}", group->breaches);
}

static void append_times(harpe_text *text, const harpe_member *member) {
    bool has_plans = member->plan_count > 0;
    size_t plan = harpe_member_plan_within(member, member->cap_w);
    if (!has_plans) {
        harpe_json_raw(text, ",\"plan\":null,\"plans\":0,\"time_s\":null,\"fastest_time_s\":null,"
                             "\"slowdown\":null");
        return;
    }
    double time_s = member->plans[plan].time_s, fastest_s = member->plans[0].time_s;
    harpe_text_printf(text, ",\"plan\":%zu,\"plans\":%zu", plan, member->plan_count);
    harpe_json_number(text, ",\"time_s\":", time_s);
    harpe_json_number(text, ",\"fastest_time_s\":", fastest_s);
    harpe_json_number(text, ",\"slowdown\":", time_s / fastest_s);
}

static void append_job(harpe_text *text, const harpe_fleet_state *state, const harpe_member *member,
                       bool is_set) {
    static const char *const kinds[] = {[HARPE_MEMBER_JOB] = "pipeline",
                                        [HARPE_MEMBER_DECLARED] = "power limit",
                                        [HARPE_MEMBER_LOAD] = "load"};
    const char *state_name = harpe_fleet_member_state_name(member, is_set);
    double max_slowdown = harpe_member_max_slowdown(member);
    append_name(text, "{\"job_id\":", member->id);
    append_name(text, ",\"name\":", member->name);
    append_name(text, ",\"group\":", state->groups[member->group].name);
    append_name(text, ",\"kind\":", kinds[member->kind]);
    harpe_json_number(text, ",\"weight\":", harpe_member_weight(member));
    harpe_json_number(text, ",\"max_slowdown\":", max_slowdown > 0 ? max_slowdown : NAN);
    harpe_json_number(text, ",\"priority\":", harpe_member_priority(member));
    append_times(text, member);
    harpe_json_number(text, ",\"planned_w\":", harpe_member_planned_w(member));
    harpe_json_number(text, ",\"measured_w\":", if_not_negative(member->measured_w));
    harpe_json_number(text, ",\"counted_w\":", harpe_member_counted_w(member));
    harpe_json_number(text, ",\"gain_per_kw\":", member->gain_per_w * 1000);
    append_name(text, ",\"state\":", state_name);
    harpe_json_string(text, ",\"reason\":", reason_of(member, state_name));
    harpe_json_number(text,
                      ",\"answered_at\":", member->heard_wall_s > 0 ? member->heard_wall_s : NAN);
    harpe_json_raw(text, "}");
}

static void append_event(harpe_text *text, const harpe_fleet_state *state,
                         const harpe_fleet_event *event, double at_s) {
    harpe_fleet_event_state now = harpe_fleet_event_state_of(event, at_s);
    /* The jobs of now say nothing of an event that is over. */
    bool is_unknown =
        isnan(event->missing_w) && (now == HARPE_EVENT_OVER || now == HARPE_EVENT_CANCELLED);
    harpe_text_printf(text, "{\"id\":%" PRId64, event->id);
    append_name(text, ",\"group\":", event->group);
    harpe_json_number(text, ",\"from\":", event->from_s);
    harpe_json_number(text, ",\"duration_s\":", event->duration_s);
    harpe_json_number(text, ",\"watts\":", event->watts);
    harpe_json_number(text, ",\"share\":", event->share);
    harpe_json_number(text, ",\"notice_s\":", event->notice_s);
    harpe_json_number(text, ",\"ramp_s\":", event->ramp_s);
    append_name(text, ",\"note\":", event->note);
    harpe_json_raw(text, event->may_exceed ? ",\"may_exceed_slowdown\":true"
                                           : ",\"may_exceed_slowdown\":false");
    append_name(text, ",\"state\":", harpe_fleet_event_state_name(now));
    harpe_json_number(text, ",\"promised_w\":", harpe_fleet_event_promised_w(state, event));
    harpe_json_number(
        text, ",\"missing_w\":", is_unknown ? 0 : harpe_fleet_event_missing_w(state, event));
    harpe_json_number(text, ",\"reached_at\":", event->reached_s > 0 ? event->reached_s : NAN);
    harpe_json_number(text, ",\"highest_w\":", if_not_negative(event->highest_w));
    harpe_text_printf(text, ",\"breaches\":%" PRId64 "}", event->breaches);
}

static void append_price(harpe_text *text, const harpe_fleet_state *state, double at_s) {
    const harpe_fleet_prices *prices = &state->prices;
    harpe_fleet_price price = harpe_decide_price(state, at_s);
    if (prices->count == 0) {
        harpe_json_raw(text, ",\"price\":null");
        return;
    }
    harpe_json_number(text, ",\"price\":{\"energy_per_kwh\":", price.energy_per_kwh);
    harpe_json_number(text, ",\"carbon_g_per_kwh\":", price.carbon_g_per_kwh);
    harpe_json_number(text, ",\"carbon_per_kg\":", price.carbon_per_kg);
    harpe_json_number(text, ",\"value_per_s\":", price.value_per_s > 0 ? price.value_per_s : NAN);
    const harpe_fleet_group_state *all = &state->groups[0];
    double meter_w = all->measured_w * all->budget.overhead;
    harpe_json_number(text, ",\"cost_per_h\":", meter_w * 3600 * harpe_fleet_cost_per_j(&price));
    append_name(text, ",\"currency\":", prices->currency);
    harpe_text_printf(text, ",\"series\":%zu", prices->count);
    harpe_json_number(text, ",\"set_at\":", prices->set_s);
    harpe_json_raw(text, "}");
}

/* Appends the members NAME_saved and NAME_saved_uncertainty. */
static void append_saved(harpe_text *text, const char *name, double saved, double uncertainty) {
    harpe_text_printf(text, ",\"%s_saved", name);
    harpe_json_number(text, "\":", saved);
    harpe_text_printf(text, ",\"%s_saved_uncertainty", name);
    harpe_json_number(text, "\":", uncertainty);
}

/* Returns NAN if no energy was counted at a price. */
static double if_priced(const harpe_fleet_energy *energy, double value) {
    return energy->has_price ? value : NAN;
}

static void append_energy(harpe_text *text, const harpe_fleet_state *state) {
    const harpe_fleet_energy *energy = &state->energy;
    if (!energy->is_known) {
        harpe_json_raw(text, ",\"energy\":null");
        return;
    }
    double uncertainty_j = harpe_fleet_energy_uncertainty_j(state);
    /* The uncertainty of the saved energy as a part of the used energy. Cost and carbon have the
     * same part. */
    double part = energy->used_j > 0 ? uncertainty_j / energy->used_j : 0;
    double cost_uncertainty = part * fabs(energy->cost);
    harpe_json_number(text, ",\"energy\":{\"since\":", energy->since_s > 0 ? energy->since_s : NAN);
    harpe_json_number(text, ",\"used_kwh\":", energy->used_j / HARPE_JOULES_PER_KWH);
    harpe_json_number(text, ",\"saved_kwh\":", energy->saved_j / HARPE_JOULES_PER_KWH);
    harpe_json_number(text, ",\"saved_kwh_uncertainty\":", uncertainty_j / HARPE_JOULES_PER_KWH);
    append_name(text, ",\"currency\":", energy->currency);
    harpe_json_number(text, ",\"cost\":", if_priced(energy, energy->cost));
    append_saved(text, "cost", if_priced(energy, energy->cost_saved),
                 if_priced(energy, cost_uncertainty));
    harpe_json_number(text, ",\"carbon_kg\":", if_priced(energy, energy->carbon_kg));
    append_saved(text, "carbon_kg", if_priced(energy, energy->carbon_kg_saved),
                 if_priced(energy, part * energy->carbon_kg));
    harpe_json_raw(text, "}");
}

/* ---- All of it ------------------------------------------------------------------------------- */

static void append_groups(harpe_text *text, const harpe_fleet_state *state, const char *scope) {
    const char *comma = "";
    harpe_json_raw(text, ",\"budgets\":[");
    for (size_t g = 0; g < state->group_count; g++) {
        if (state->groups[g].budget.watts < 0 && state->groups[g].now_watts < 0) continue;
        if (!harpe_scope_covers(&state->tree, scope, state->groups[g].name)) continue;
        harpe_json_raw(text, comma);
        append_budget(text, state, (int)g);
        comma = ",";
    }
    comma = "";
    harpe_json_raw(text, "],\"groups\":[");
    for (size_t g = 1; g < state->group_count; g++) {
        if (!harpe_scope_covers(&state->tree, scope, state->groups[g].name)) continue;
        harpe_json_raw(text, comma);
        append_name(text, "{\"name\":", state->groups[g].name);
        append_name(text, ",\"parent\":", state->groups[state->groups[g].parent].name);
        harpe_json_raw(text, "}");
        comma = ",";
    }
    harpe_json_raw(text, "]");
}

static void append_jobs(harpe_text *text, const harpe_fleet_state *state, const char *scope,
                        double at_s) {
    bool is_set = harpe_limits_are_set(state, at_s);
    size_t shown = 0, total = 0;
    harpe_json_raw(text, ",\"jobs\":[");
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        if (!harpe_scope_covers(&state->tree, scope, state->groups[member->group].name)) continue;
        total++;
        if (shown >= JOBS_SHOWN) continue;
        if (shown++ > 0) harpe_json_raw(text, ",");
        append_job(text, state, member, is_set);
    }
    harpe_text_printf(text, "],\"jobs_total\":%zu", total);
}

static bool is_over(const harpe_fleet_event *event, double at_s) {
    harpe_fleet_event_state state = harpe_fleet_event_state_of(event, at_s);
    return state == HARPE_EVENT_OVER || state == HARPE_EVENT_CANCELLED;
}

/* Appends all events that are not over, and the newest ones that are. */
static void append_events(harpe_text *text, const harpe_fleet_state *state, const char *scope,
                          double at_s) {
    const char *comma = "";
    size_t over = 0, skipped = 0;
    for (size_t i = 0; i < state->event_count; i++)
        over += harpe_scope_covers(&state->tree, scope, state->events[i].group) &&
                is_over(&state->events[i], at_s);
    harpe_json_raw(text, ",\"events\":[");
    for (size_t i = 0; i < state->event_count; i++) {
        const harpe_fleet_event *event = &state->events[i];
        if (!harpe_scope_covers(&state->tree, scope, event->group)) continue;
        if (is_over(event, at_s) && over - skipped > EVENTS_SHOWN) {
            skipped++;
            continue;
        }
        harpe_json_raw(text, comma);
        append_event(text, state, event, at_s);
        comma = ",";
    }
    harpe_json_raw(text, "]");
}

static void append_lists(harpe_text *text, const harpe_fleet_state *state, const char *scope,
                         double at_s) {
    append_groups(text, state, scope);
    append_jobs(text, state, scope, at_s);
    append_events(text, state, scope, at_s);
}

void harpe_fleet_show(const harpe_fleet_state *state, const char *scope, harpe_fleet_now now,
                      harpe_text *text) {
    const harpe_fleet_group_state *all = &state->groups[0];
    bool has_split = state->has_split && harpe_limits_are_set(state, now.wall_s);
    harpe_json_number(text, "{\"at\":", now.wall_s);
    harpe_text_printf(text, ",\"revision\":%" PRIu64, state->revision);
    append_name(text, ",\"state\":", harpe_fleet_state_name(state, now.wall_s));
    harpe_json_number(text, ",\"power\":{\"measured_w\":", all->measured_w);
    harpe_text_printf(text, ",\"unmeasured\":%zu", all->unmeasured);
    harpe_json_number(text, ",\"planned_w\":", all->planned_w);
    harpe_json_number(text, ",\"counted_w\":", all->counted_w);
    harpe_json_number(text, ",\"limit_w\":", all->limit_w);
    harpe_json_number(text, "},\"weighted_slowdown\":", harpe_fleet_weighted_slowdown(state));
    harpe_json_number(text, ",\"lower_bound\":", has_split ? state->split.lower_bound : NAN);
    harpe_json_number(text, ",\"objective\":", has_split ? state->split.objective : NAN);
    append_lists(text, state, scope, now.wall_s);
    append_price(text, state, now.wall_s);
    append_energy(text, state);
    harpe_json_raw(text, "}");
}

void harpe_fleet_show_event_answer(const harpe_fleet_state *state, int64_t id, harpe_text *text) {
    const harpe_fleet_event *event = harpe_fleet_event_find(state, id);
    harpe_text_printf(text, "{\"id\":%" PRId64, id);
    harpe_json_number(text,
                      ",\"promised_w\":", event ? harpe_fleet_event_promised_w(state, event) : NAN);
    harpe_json_number(text,
                      ",\"missing_w\":", event ? harpe_fleet_event_missing_w(state, event) : 0);
    harpe_json_raw(text, "}");
}

void harpe_fleet_show_budget_answer(const harpe_fleet_state *state, const char *group,
                                    harpe_text *text) {
    int g = harpe_groups_find(state, group);
    harpe_json_number(
        text, "{\"missing_w\":", g < 0 ? 0 : harpe_fleet_group_missing_w(&state->groups[g]));
    harpe_json_raw(text, "}");
}

void harpe_fleet_show_plan(const harpe_member *member, double cap_w, harpe_text *text) {
    size_t plan = harpe_member_plan_within(member, cap_w);
    harpe_text_printf(text, "{\"plan\":%zu", plan);
    harpe_json_number(text,
                      ",\"watts\":", plan < member->plan_count ? member->plans[plan].power_w : NAN);
    harpe_json_number(text,
                      ",\"time_s\":", plan < member->plan_count ? member->plans[plan].time_s : NAN);
    harpe_json_raw(text, "}");
}
