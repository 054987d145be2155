/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the fleet for clients that only read: as JSON, and as metrics for Prometheus, whose units
 * are base units: joules and grams, and prices for a joule. To add a metric, add a row to its
 * table. This file changes nothing. */
#include "server/fleet/fleet_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/text.h"
#include "rights/tokens.h"

/* ---- History --------------------------------------------------------------------------------- */

/* The history of the fleet's power: two rings, one of 10 s and one of minutes. If the wall clock
 * was ahead for a while, the points of that time are not shown until new points replace them. */

enum { SHORT_POINTS = 360, LONG_POINTS = 1440, QUANTITIES = 3 };

typedef struct point {
    double at_s; /* the beginning of its time; 0: none */
    double sums[QUANTITIES];
    int count, limited; /* samples, and those of them with a limit */
} point;

typedef struct ring {
    double step_s;
    size_t size;
    point *points;
} ring;

struct harpe_fleet_history {
    ring rings[2]; /* 10 s, and minutes */
    double last_s; /* the time of the last call of harpe_fleet_history_add; INFINITY: none */
    point short_points[SHORT_POINTS];
    point long_points[LONG_POINTS];
};

harpe_fleet_history *harpe_fleet_history_new(void) {
    harpe_fleet_history *history = harpe_calloc(1, sizeof *history);
    if (!history) return NULL;
    history->last_s = INFINITY;
    history->rings[0] = (ring){10, SHORT_POINTS, history->short_points};
    history->rings[1] = (ring){60, LONG_POINTS, history->long_points};
    return history;
}

void harpe_fleet_history_free(harpe_fleet_history *history) { free(history); }

static point *place_of(const ring *own, double at_s) {
    double index = floor(at_s / own->step_s);
    return &own->points[(size_t)fmod(index, (double)own->size)];
}

void harpe_fleet_history_add(harpe_fleet_history *history, double at_s, double measured_w,
                             double counted_w, double limit_w) {
    if (!(at_s > 0 && at_s < 1e12)) return;
    history->last_s = at_s;
    for (int r = 0; r < 2; r++) {
        const ring *own = &history->rings[r];
        double start_s = floor(at_s / own->step_s) * own->step_s;
        point *place = place_of(own, at_s);
        if (place->at_s != start_s) *place = (point){.at_s = start_s};
        place->sums[0] += measured_w;
        place->sums[1] += counted_w;
        if (limit_w >= 0) place->sums[2] += limit_w;
        place->limited += limit_w >= 0;
        place->count++;
    }
}

/* ---- Showing --------------------------------------------------------------------------------- */

static int compare_points(const void *a, const void *b) {
    const point *x = a;
    const point *y = b;
    return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

/* Returns the time of the oldest point that is younger than the ring is long. After a pause the
 * ring also holds older points. Newer points have replaced some of these, so that the rest has
 * gaps. */
static double first_s(const ring *own, double last_s) {
    double newest_s = -INFINITY, first = INFINITY;
    for (size_t i = 0; i < own->size; i++)
        if (own->points[i].count > 0 && own->points[i].at_s <= last_s)
            newest_s = fmax(newest_s, own->points[i].at_s);
    for (size_t i = 0; i < own->size; i++) {
        double at_s = own->points[i].at_s;
        bool is_old = at_s <= newest_s - (double)own->size * own->step_s;
        if (own->points[i].count > 0 && !is_old) first = fmin(first, at_s);
    }
    return first;
}

/* Copies the points from `from_s` to `to_s` into `into`, sorted by time, and returns their number.
 * Uses the points of 10 s where there are any, and minutes before them. */
static size_t collect(const harpe_fleet_history *history, double from_s, double to_s, point *into) {
    double last_s = history->last_s;
    double fine_s = first_s(&history->rings[0], last_s);
    to_s = fmin(to_s, last_s);
    size_t count = 0;
    for (int r = 0; r < 2; r++) {
        const ring *own = &history->rings[r];
        double own_s = r == 0 ? fine_s : first_s(own, last_s);
        for (size_t i = 0; i < own->size; i++) {
            const point *one = &own->points[i];
            bool is_asked = one->count > 0 && one->at_s >= fmax(from_s, own_s) && one->at_s <= to_s;
            if (is_asked && (r == 0 || one->at_s < fine_s)) into[count++] = *one;
        }
    }
    qsort(into, count, sizeof *into, compare_points);
    return count;
}

/* The limit is a mean like the power beside it. A mean power above the mean limit is a breach then,
 * and a limit that falls within the time is none. A time that was partly without a limit has none.
 */
static double value_of(const point *one, int quantity) {
    if (quantity < 0) return one->at_s;
    if (quantity == 2 && one->limited < one->count) return NAN;
    return one->sums[quantity] / one->count;
}

static void append_row(harpe_text *text, const char *name, const point *points, size_t count,
                       size_t stride, int quantity) {
    harpe_text_printf(text, "%s[", name);
    for (size_t i = 0; i < count; i += stride)
        harpe_json_number(text, i > 0 ? "," : "", round(value_of(&points[i], quantity) * 10) / 10);
    harpe_text_printf(text, "]");
}

void harpe_fleet_history_show(const harpe_fleet_history *history, double from_s, double to_s,
                              size_t points, harpe_text *text) {
    point *list = harpe_calloc(SHORT_POINTS + LONG_POINTS, sizeof *list);
    size_t count = list ? collect(history, from_s, to_s, list) : 0;
    size_t stride = points > 0 && count > points ? (count + points - 1) / points : 1;
    append_row(text, "{\"at\":", list, count, stride, -1);
    append_row(text, ",\"measured_w\":", list, count, stride, 0);
    append_row(text, ",\"counted_w\":", list, count, stride, 1);
    append_row(text, ",\"limit_w\":", list, count, stride, 2);
    harpe_text_printf(text, "}");
    if (!list) text->failed = true;
    free(list);
}

/* ---- Keeping --------------------------------------------------------------------------------- */

void harpe_fleet_history_save(const harpe_fleet_history *history, harpe_text *text) {
    const ring *own = &history->rings[1];
    const char *comma = "";
    harpe_text_printf(text, "{\"minutes\":[");
    for (size_t i = 0; i < own->size; i++) {
        const point *one = &own->points[i];
        if (one->count == 0) continue;
        harpe_text_printf(text, "%s[", comma);
        harpe_text_number(text, one->at_s);
        for (int q = 0; q < QUANTITIES; q++) {
            double value = value_of(one, q);
            harpe_text_printf(text, ",");
            harpe_text_number(text, isfinite(value) ? round(value * 10) / 10 : -1);
        }
        harpe_text_printf(text, "]");
        comma = ",";
    }
    harpe_text_printf(text, "]}");
}

void harpe_fleet_history_load(harpe_fleet_history *history, const char *text, size_t length) {
    json_t *object = json_loadb(text, length, 0, NULL);
    const json_t *list = json_object_get(object, "minutes");
    for (size_t i = 0; i < json_array_size(list) && i < LONG_POINTS; i++) {
        const json_t *row = json_array_get(list, i);
        double values[4];
        for (size_t v = 0; v < 4; v++)
            values[v] = json_number_value(json_array_get(row, v));
        if (!(values[0] > 0 && values[0] < 1e12)) continue;
        point *place = place_of(&history->rings[1], values[0]);
        *place = (point){.at_s = values[0],
                         .sums = {values[1], values[2], values[3]},
                         .count = 1,
                         .limited = values[3] >= 0};
    }
    json_decref(object);
}

/* ---- What is shown --------------------------------------------------------------------------- */

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

/* Returns the slowdown of the plan that the member's cap allows. */
static double slowdown_of(const harpe_member *member) {
    size_t plan = harpe_member_plan_within(member, member->cap_w);
    return member->plans[plan].time_s / member->plans[0].time_s;
}

/* Returns the sum of weight * (slowdown - 1) of the members that follow plans. */
static double weighted_slowdown(const harpe_fleet_state *state) {
    double sum = 0;
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        if (harpe_member_can_follow(member))
            sum += harpe_member_weight(member) * (slowdown_of(member) - 1);
    }
    return sum;
}

/* Returns the watts by which a group's budget is too small for what its members draw at least; 0:
 * none. */
static double group_missing_w(const harpe_fleet_group_state *group) {
    double part = group->budget.overhead / (1 - group->budget.margin);
    bool is_missing = group->least_w > group->limit_w * (1 + 1e-9);
    return is_missing ? group->least_w * part - group->now_watts : 0;
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
    harpe_json_number(text, ",\"missing_w\":", group_missing_w(group));
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

static void append_event(harpe_text *text, const harpe_fleet_event *event, double at_s) {
    harpe_fleet_event_state now = harpe_fleet_event_state_of(event, at_s);
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
    harpe_json_number(text, ",\"promised_w\":", event->promised_w);
    harpe_json_number(text, ",\"missing_w\":", event->missing_w);
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
        append_event(text, event, at_s);
        comma = ",";
    }
    harpe_json_raw(text, "]");
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
    harpe_json_number(text, "},\"weighted_slowdown\":", weighted_slowdown(state));
    harpe_json_number(text, ",\"lower_bound\":", has_split ? state->split.lower_bound : NAN);
    harpe_json_number(text, ",\"objective\":", has_split ? state->split.objective : NAN);
    append_groups(text, state, scope);
    append_jobs(text, state, scope, now.wall_s);
    append_events(text, state, scope, now.wall_s);
    append_price(text, state, now.wall_s);
    append_energy(text, state);
    harpe_json_raw(text, "}");
}

void harpe_fleet_show_event_answer(const harpe_fleet_state *state, int64_t id, harpe_text *text) {
    const harpe_fleet_event *event = harpe_fleet_event_find(state, id);
    harpe_text_printf(text, "{\"id\":%" PRId64, id);
    harpe_json_number(text, ",\"promised_w\":", event ? event->promised_w : NAN);
    harpe_json_number(text, ",\"missing_w\":", event ? event->missing_w : 0);
    harpe_json_raw(text, "}");
}

void harpe_fleet_show_budget_answer(const harpe_fleet_state *state, const char *group,
                                    harpe_text *text) {
    int g = harpe_groups_find(state, group);
    harpe_json_number(text, "{\"missing_w\":", g < 0 ? 0 : group_missing_w(&state->groups[g]));
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

/* ---- Metrics --------------------------------------------------------------------------------- */

enum { METRIC_JOBS_MAX = 1000, METRIC_EVENTS_MAX = 100 };

typedef struct metric {
    const char *name, *type, *help;
} metric;

/* Appends a sample, if the value is finite. */
static void append_sample(harpe_text *text, const char *name, const char *const *labels,
                          double value) {
    if (isfinite(value)) harpe_metrics_text_sample(text, name, labels, value);
}

static void append_head(harpe_text *text, const metric *one) {
    harpe_metrics_text_head(text, one->name, one->type, one->help);
}

/* Appends a gauge with one sample for each of `count` states. */
static void append_states(harpe_text *text, const char *name, const char *help,
                          const char *const *states, const double *counts, size_t count) {
    harpe_metrics_text_head(text, name, "gauge", help);
    for (size_t s = 0; s < count; s++)
        append_sample(text, name, (const char *[]){"state", states[s], NULL}, counts[s]);
}

static void append_group_metrics(const harpe_fleet_state *state, harpe_text *text) {
    static const metric metrics[] = {
        {"harpe_fleet_measured_watts", "gauge",
         "Power of the group's jobs in their last rounds, without the overhead factor and without "
         "jobs that have not measured it yet"},
        {"harpe_fleet_planned_watts", "gauge", "Power that the plans of the group's jobs predict"},
        {"harpe_fleet_counted_watts", "gauge",
         "Highest power that the group's jobs may draw, as far as the server knows"},
        {"harpe_fleet_limit_watts", "gauge",
         "Power that the group's jobs may draw: the budget less events, margin and overhead"},
        {"harpe_fleet_budget_watts", "gauge",
         "The group's budget at the meter, less events and ramps"},
        {"harpe_fleet_missing_watts", "gauge",
         "By how much the budget is too small for what the group's jobs draw at least"},
        {"harpe_fleet_overhead_ratio", "gauge",
         "Watts of the group's budget for each watt of its jobs"},
        {"harpe_fleet_breaches_total", "counter",
         "How often the measured power came above the group's budget"},
    };
    enum { METRICS = sizeof metrics / sizeof *metrics };
    for (size_t m = 0; m < METRICS; m++) {
        append_head(text, &metrics[m]);
        for (size_t g = 0; g < state->group_count; g++) {
            const harpe_fleet_group_state *group = &state->groups[g];
            const double values[METRICS] = {group->measured_w,
                                            group->planned_w,
                                            group->counted_w,
                                            group->limit_w,
                                            if_not_negative(group->now_watts),
                                            group_missing_w(group),
                                            group->budget.overhead,
                                            (double)group->breaches};
            if (g > 0 && group->budget.watts < 0 && group->now_watts < 0) continue;
            append_sample(text, metrics[m].name, (const char *[]){"group", group->name, NULL},
                          values[m]);
        }
    }
}

/* Appends how many members are in each state, and figures of the first METRIC_JOBS_MAX members with
 * plans. */
static void append_job_metrics(const harpe_fleet_state *state, harpe_text *text) {
    static const char *const states[] = {"follows",  "lowering", "raising",
                                         "learning", "silent",   "not steered"};
    static const metric metrics[] = {
        {"harpe_fleet_job_slowdown", "gauge",
         "Time of the job's plan, divided by that of its fastest plan"},
        {"harpe_fleet_job_planned_watts", "gauge", "Power that the job's plan predicts"},
        {"harpe_fleet_job_counted_watts", "gauge",
         "Highest power that the job may draw, as far as the server knows"},
        {"harpe_fleet_job_gain_per_watt", "gauge",
         "How much the weighted slowdown, or with a price the cost, falls for another watt of the "
         "job"},
    };
    enum { STATES = sizeof states / sizeof *states, METRICS = sizeof metrics / sizeof *metrics };
    double counts[STATES] = {0};
    for (size_t i = 0; i < state->member_count; i++)
        for (size_t s = 0; s < STATES; s++)
            counts[s] +=
                strcmp(harpe_fleet_member_state_name(state->members[i], true), states[s]) == 0;
    append_states(text, "harpe_fleet_jobs", "Jobs and loads of the fleet, by state", states, counts,
                  STATES);
    for (size_t m = 0; m < METRICS; m++) {
        size_t shown = 0;
        append_head(text, &metrics[m]);
        for (size_t i = 0; i < state->member_count && shown < METRIC_JOBS_MAX; i++) {
            const harpe_member *member = state->members[i];
            if (!harpe_member_can_follow(member)) continue;
            const double values[METRICS] = {slowdown_of(member), harpe_member_planned_w(member),
                                            harpe_member_counted_w(member), member->gain_per_w};
            const char *const labels[] = {"job_id", member->id, "group",
                                          state->groups[member->group].name, NULL};
            shown++;
            append_sample(text, metrics[m].name, labels, values[m]);
        }
    }
}

/* Appends how many events are in each state, and the newest METRIC_EVENTS_MAX events that are not
 * over. */
static void append_event_metrics(const harpe_fleet_state *state, double at_s, harpe_text *text) {
    static const metric metrics[] = {
        {"harpe_fleet_event_promised_watts", "gauge",
         "Power at the meter that was promised when the event was posted"},
        {"harpe_fleet_event_missing_watts", "gauge",
         "Power that was missing to meet the event when it was posted"},
        {"harpe_fleet_event_highest_watts", "gauge",
         "Highest measured power at the meter while the event had to be met"},
        {"harpe_fleet_event_breaches_total", "counter",
         "How often the measured power came above the promise of the event"},
    };
    enum { STATES = HARPE_EVENT_CANCELLED + 1, METRICS = sizeof metrics / sizeof *metrics };
    const char *states[STATES];
    double counts[STATES] = {0};
    for (int s = 0; s < STATES; s++)
        states[s] = harpe_fleet_event_state_name((harpe_fleet_event_state)s);
    for (size_t i = 0; i < state->event_count; i++)
        counts[harpe_fleet_event_state_of(&state->events[i], at_s)]++;
    append_states(text, "harpe_fleet_events", "Events that the server knows, by state", states,
                  counts, STATES);
    for (size_t m = 0; m < METRICS; m++) {
        size_t shown = 0;
        append_head(text, &metrics[m]);
        for (size_t i = state->event_count; i-- > 0 && shown < METRIC_EVENTS_MAX;) {
            const harpe_fleet_event *event = &state->events[i];
            const double values[METRICS] = {event->promised_w, event->missing_w, event->highest_w,
                                            (double)event->breaches};
            char id[24];
            if (is_over(event, at_s)) continue;
            (void)snprintf(id, sizeof id, "%" PRId64, event->id);
            shown++;
            append_sample(text, metrics[m].name,
                          (const char *[]){"event", id, "group", event->group, NULL},
                          if_not_negative(values[m]));
        }
    }
}

/* Appends the price, energy, cost and carbon dioxide. */
static void append_energy_metrics(const harpe_fleet_state *state, double at_s, harpe_text *text) {
    const harpe_fleet_energy *energy = &state->energy;
    harpe_fleet_price price = harpe_decide_price(state, at_s);
    double if_known = energy->is_known ? 1 : NAN;
    double if_price = state->prices.count > 0 ? 1 : NAN;
    double if_cost = energy->has_price ? if_known : NAN;
    const struct {
        metric metric;
        const char *currency; /* NULL: without this label */
        double value;
    } rows[] = {
        {{"harpe_fleet_energy_joules_total", "counter",
          "Energy that jobs have used while a budget, an event or a price was set, with the "
          "overhead factor of the whole fleet"},
         NULL,
         energy->used_j * if_known},
        {{"harpe_fleet_energy_saved_joules", "gauge",
          "Energy saved, with the overhead factor of the whole fleet"},
         NULL,
         energy->saved_j * if_known},
        {{"harpe_fleet_energy_price_per_joule", "gauge",
          "Price of a joule now, without the price of carbon dioxide"},
         state->prices.currency,
         price.energy_per_kwh / HARPE_JOULES_PER_KWH * if_price},
        {{"harpe_fleet_carbon_intensity_grams_per_joule", "gauge", "Carbon dioxide of a joule now"},
         NULL,
         price.carbon_g_per_kwh / HARPE_JOULES_PER_KWH * if_price},
        {{"harpe_fleet_cost", "gauge",
          "Cost of the energy that jobs have reported since there are prices"},
         energy->currency,
         energy->cost * if_cost},
        {{"harpe_fleet_cost_saved", "gauge", "Cost of the energy saved"},
         energy->currency,
         energy->cost_saved * if_cost},
        {{"harpe_fleet_carbon_grams_total", "counter",
          "Carbon dioxide of the energy that jobs have reported since there are prices"},
         NULL,
         energy->carbon_kg * HARPE_GRAMS_PER_KG * if_cost},
        {{"harpe_fleet_carbon_saved_grams", "gauge", "Carbon dioxide of the energy saved"},
         NULL,
         energy->carbon_kg_saved * HARPE_GRAMS_PER_KG * if_cost},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        append_head(text, &rows[i].metric);
        append_sample(
            text, rows[i].metric.name,
            (const char *[]){rows[i].currency ? "currency" : NULL, rows[i].currency, NULL},
            rows[i].value);
    }
}

void harpe_fleet_metrics(const harpe_fleet_state *state, harpe_fleet_now now, harpe_text *text) {
    static const metric active = {"harpe_fleet_events_active", "gauge", "Events that run now"};
    static const metric slowdown = {"harpe_fleet_weighted_slowdown", "gauge",
                                    "Sum over all jobs of weight * (time / fastest time - 1)"};
    static const char *const no_labels[] = {NULL};
    double running = 0;
    if (!harpe_limits_are_set(state, now.wall_s)) return;
    append_group_metrics(state, text);
    for (size_t i = 0; i < state->event_count; i++)
        running += harpe_fleet_event_state_of(&state->events[i], now.wall_s) == HARPE_EVENT_ACTIVE;
    append_head(text, &active);
    append_sample(text, active.name, no_labels, running);
    append_head(text, &slowdown);
    append_sample(text, slowdown.name, no_labels, weighted_slowdown(state));
    append_job_metrics(state, text);
    append_event_metrics(state, now.wall_s, text);
    append_energy_metrics(state, now.wall_s, text);
}
