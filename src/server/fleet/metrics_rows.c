/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics of the fleet: jobs, events, and energy with its price. Units are base units: joules and
 * grams, and prices for a joule. */
#include "server/fleet/metrics_rows.h"

#include <inttypes.h>
#include <math.h>

#include "base/format.h"
#include "base/text.h"
#include "server/fleet/decide.h"
#include "server/fleet/fleet_events.h"
#include "server/fleet/member.h"
#include "server/fleet/price_energy.h"
#include "server/fleet/show.h"

enum { JOBS_MAX = 1000, EVENTS_MAX = 100 };

/* ---- Parts ----------------------------------------------------------------------------------- */

void harpe_fleet_metrics_append_one(harpe_text *text, const char *name, const char *type,
                                    const char *help, const char *currency, double value) {
    harpe_metrics_text_head(text, name, type, help);
    if (!isfinite(value)) return;
    harpe_text_printf(text, "%s", name);
    if (currency) {
        harpe_text_printf(text, "{");
        harpe_metrics_text_label(text, "currency", currency);
        harpe_text_printf(text, "}");
    }
    harpe_metrics_text_value(text, value);
}

void harpe_fleet_metrics_append_states(harpe_text *text, const char *name, const char *help,
                                       const char *const *states, const double *counts,
                                       size_t count) {
    harpe_metrics_text_head(text, name, "gauge", help);
    for (size_t s = 0; s < count; s++) {
        harpe_text_printf(text, "%s{", name);
        harpe_metrics_text_label(text, "state", states[s]);
        harpe_text_printf(text, "}");
        harpe_metrics_text_value(text, counts[s]);
    }
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

typedef struct job_metric {
    const char *name, *help;
    double (*value)(const harpe_member *member);
} job_metric;

static double slowdown(const harpe_member *member) {
    size_t plan = harpe_member_plan_within(member, member->cap_w);
    return member->plans[plan].time_s / member->plans[0].time_s;
}

static double planned(const harpe_member *member) { return harpe_member_planned_w(member); }
static double counted(const harpe_member *member) { return harpe_member_counted_w(member); }
static double gain(const harpe_member *member) { return member->gain_per_w; }

static const job_metric JOB_METRICS[] = {
    {"harpe_fleet_job_slowdown", "Time of the job's plan, divided by that of its fastest plan",
     slowdown},
    {"harpe_fleet_job_planned_watts", "Power that the job's plan predicts", planned},
    {"harpe_fleet_job_counted_watts",
     "Highest power that the job may draw, as far as the server knows", counted},
    {"harpe_fleet_job_gain_per_watt",
     "How much the weighted slowdown, or with a price the cost, falls for another watt of the job",
     gain},
};

static void append_job_metric(const harpe_fleet_state *state, const job_metric *metric,
                              harpe_text *text) {
    size_t shown = 0;
    harpe_metrics_text_head(text, metric->name, "gauge", metric->help);
    for (size_t i = 0; i < state->member_count && shown < JOBS_MAX; i++) {
        const harpe_member *member = state->members[i];
        if (!harpe_member_can_follow(member)) continue;
        double value = metric->value(member);
        shown++;
        if (!isfinite(value)) continue;
        harpe_text_printf(text, "%s{", metric->name);
        harpe_metrics_text_label(text, "job_id", member->id);
        harpe_text_printf(text, ",");
        harpe_metrics_text_label(text, "group", state->groups[member->group].name);
        harpe_text_printf(text, "}");
        harpe_metrics_text_value(text, value);
    }
}

void harpe_fleet_metrics_append_jobs(const harpe_fleet_state *state, harpe_text *text) {
    for (size_t i = 0; i < sizeof JOB_METRICS / sizeof *JOB_METRICS; i++)
        append_job_metric(state, &JOB_METRICS[i], text);
}

/* ---- Events ---------------------------------------------------------------------------------- */

typedef struct event_metric {
    const char *name, *type, *help;
    double (*value)(const harpe_fleet_state *state, const harpe_fleet_event *event);
} event_metric;

static double highest(const harpe_fleet_state *state, const harpe_fleet_event *event) {
    (void)state;
    return event->highest_w >= 0 ? event->highest_w : NAN;
}

static double breaches(const harpe_fleet_state *state, const harpe_fleet_event *event) {
    (void)state;
    return (double)event->breaches;
}

static const event_metric EVENT_METRICS[] = {
    {"harpe_fleet_event_promised_watts", "gauge",
     "Power at the meter that was promised when the event was posted",
     harpe_fleet_event_promised_w},
    {"harpe_fleet_event_missing_watts", "gauge",
     "Power that was missing to meet the event when it was posted", harpe_fleet_event_missing_w},
    {"harpe_fleet_event_highest_watts", "gauge",
     "Highest measured power at the meter while the event had to be met", highest},
    {"harpe_fleet_event_breaches_total", "counter",
     "How often the measured power came above the promise of the event", breaches},
};

static bool is_shown(const harpe_fleet_event *event, double at_s) {
    harpe_fleet_event_state now = harpe_fleet_event_state_of(event, at_s);
    return now != HARPE_EVENT_OVER && now != HARPE_EVENT_CANCELLED;
}

static void append_event_metric(const harpe_fleet_state *state, double at_s,
                                const event_metric *metric, harpe_text *text) {
    size_t shown = 0;
    harpe_metrics_text_head(text, metric->name, metric->type, metric->help);
    for (size_t i = state->event_count; i-- > 0 && shown < EVENTS_MAX;) {
        const harpe_fleet_event *event = &state->events[i];
        if (!is_shown(event, at_s)) continue;
        double value = metric->value(state, event);
        shown++;
        if (!isfinite(value) || value < 0) continue;
        harpe_text_printf(text, "%s{event=\"%" PRId64 "\",", metric->name, event->id);
        harpe_metrics_text_label(text, "group", event->group);
        harpe_text_printf(text, "}");
        harpe_metrics_text_value(text, value);
    }
}

void harpe_fleet_metrics_append_events(const harpe_fleet_state *state, double at_s,
                                       harpe_text *text) {
    enum { STATES = HARPE_EVENT_CANCELLED + 1 };
    const char *states[STATES];
    double counts[STATES] = {0};
    for (int s = 0; s < STATES; s++)
        states[s] = harpe_fleet_event_state_name((harpe_fleet_event_state)s);
    for (size_t i = 0; i < state->event_count; i++)
        counts[harpe_fleet_event_state_of(&state->events[i], at_s)]++;
    harpe_fleet_metrics_append_states(text, "harpe_fleet_events",
                                      "Events that the server knows, by state", states, counts,
                                      STATES);
    for (size_t i = 0; i < sizeof EVENT_METRICS / sizeof *EVENT_METRICS; i++)
        append_event_metric(state, at_s, &EVENT_METRICS[i], text);
}

/* ---- Energy ---------------------------------------------------------------------------------- */

void harpe_fleet_metrics_append_energy(const harpe_fleet_state *state, double at_s,
                                       harpe_text *text) {
    const harpe_fleet_energy *energy = &state->energy;
    bool has_price = state->prices.count > 0, has_cost = energy->has_price && energy->is_known;
    harpe_fleet_price price = harpe_decide_price(state, at_s);
    harpe_fleet_metrics_append_one(
        text, "harpe_fleet_energy_joules_total", "counter",
        "Energy that jobs have used while a budget, an event or a price was set, with the "
        "overhead factor of the whole fleet",
        NULL, energy->is_known ? energy->used_j : NAN);
    harpe_fleet_metrics_append_one(text, "harpe_fleet_energy_saved_joules", "gauge",
                                   "Energy saved, with the overhead factor of the whole fleet",
                                   NULL, energy->is_known ? energy->saved_j : NAN);
    harpe_fleet_metrics_append_one(text, "harpe_fleet_energy_price_per_joule", "gauge",
                                   "Price of a joule now, without the price of carbon dioxide",
                                   state->prices.currency,
                                   has_price ? price.energy_per_kwh / HARPE_JOULES_PER_KWH : NAN);
    harpe_fleet_metrics_append_one(text, "harpe_fleet_carbon_intensity_grams_per_joule", "gauge",
                                   "Carbon dioxide of a joule now", NULL,
                                   has_price ? price.carbon_g_per_kwh / HARPE_JOULES_PER_KWH : NAN);
    harpe_fleet_metrics_append_one(
        text, "harpe_fleet_cost", "gauge",
        "Cost of the energy that jobs have reported since there are prices", energy->currency,
        has_cost ? energy->cost : NAN);
    harpe_fleet_metrics_append_one(text, "harpe_fleet_cost_saved", "gauge",
                                   "Cost of the energy saved", energy->currency,
                                   has_cost ? energy->cost_saved : NAN);
    harpe_fleet_metrics_append_one(
        text, "harpe_fleet_carbon_grams_total", "counter",
        "Carbon dioxide of the energy that jobs have reported since there are prices", NULL,
        has_cost ? energy->carbon_kg * HARPE_GRAMS_PER_KG : NAN);
    harpe_fleet_metrics_append_one(text, "harpe_fleet_carbon_saved_grams", "gauge",
                                   "Carbon dioxide of the energy saved", NULL,
                                   has_cost ? energy->carbon_kg_saved * HARPE_GRAMS_PER_KG : NAN);
}
