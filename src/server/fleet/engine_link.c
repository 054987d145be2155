/* SPDX-License-Identifier: Apache-2.0 */
/* Brings the members of the fleet up to date with the engine's jobs: which jobs there are, whether
 * they answer, what they have measured, and whether they follow their caps.
 *
 * A job takes a cap between two rounds. When it has accepted the cap after round k was handed out,
 * round k + 1 is the first round under the cap, and the results of all ranks for round k + 1 show
 * that every rank has run under it. */
#include "server/fleet/fleet_state.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

/* ---- Plans of a frontier --------------------------------------------------------------------- */

/* Reads the plans from a job's frontier. A plan of the frontier has the time and energy of the
 * pipeline. The time and energy outside of it ("job_request_outside") are added, as the scheduler
 * adds them when it compares a plan with a cap. */

static double number_at(const json_t *object, const char *name, size_t index) {
    return json_number_value(json_array_get(json_object_get(object, name), index));
}

static harpe_status read_plans(const json_t *frontier, harpe_frontier_plans *out,
                               harpe_error *error) {
    const json_t *list = json_object_get(frontier, "plans");
    size_t count = json_array_size(list);
    double outside_s = number_at(frontier, "job_request_outside", 0);
    double outside_j = number_at(frontier, "job_request_outside", 1);
    if (count == 0) return HARPE_OK;
    if (count > HARPE_FLEET_PLANS_MAX)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "its frontier has more than %d plans",
                          HARPE_FLEET_PLANS_MAX);
    out->plans = harpe_calloc(count, sizeof *out->plans);
    if (!out->plans) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        const json_t *plan = json_array_get(list, i);
        double time_s = json_number_value(json_object_get(plan, "time")) + outside_s;
        double energy_j = json_number_value(json_object_get(plan, "energy")) + outside_j;
        out->plans[i] = (harpe_fleet_plan){time_s, time_s > 0 ? energy_j / time_s : -1};
    }
    out->count = count;
    out->shift_time_s = number_at(frontier, "outside", 0) - outside_s;
    out->shift_energy_j = number_at(frontier, "outside", 1) - outside_j;
    return HARPE_OK;
}

harpe_status harpe_frontier_plans_read(const char *text, size_t length, harpe_frontier_plans *out,
                                       harpe_error *error) {
    *out = (harpe_frontier_plans){0};
    json_t *frontier = json_loadb(text, length, 0, NULL);
    harpe_status status =
        json_is_object(frontier)
            ? read_plans(frontier, out, error)
            : harpe_fail(error, HARPE_INVALID_INPUT, "its frontier is not a JSON object");
    const json_t *requests = json_object_get(frontier, "job_requests");
    out->power_cap_w = json_number_value(json_object_get(requests, "power_cap"));
    json_decref(frontier);
    return status;
}

/* ---- Energy and its cost --------------------------------------------------------------------- */

/* Sums of energy and of its cost. Energy is counted when a job reports it, with the price of that
 * moment, and with the overhead factor of the whole fleet. While nothing steers the fleet, the
 * server seldom looks at its jobs, so that energy is not counted.
 *
 * Each job has an account: the figures up to which its energy is in the sums. Only what is above
 * them is added. Accounts and sums are one note of the store, so after a restart the next figures
 * of a job add exactly what the stored sums lack.
 *
 * The savings of a job are uncertain mainly because its baseline is. The same baseline serves all
 * its iterations. So if a part of the job's energy is counted, the same part of its uncertainty
 * counts. */

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Amounts of two currencies have no sum, so the costs begin again with another currency. No
 * currency counts as a currency of its own. */
static void set_currency(harpe_fleet_energy *energy, const char *currency) {
    if (strcmp(energy->currency, currency) != 0) energy->cost = energy->cost_saved = 0;
    (void)snprintf(energy->currency, sizeof energy->currency, "%s", currency);
}

static double carbon_kg_per_j_of(const harpe_fleet_price *price) {
    return price->carbon_g_per_kwh / HARPE_GRAMS_PER_KG / HARPE_JOULES_PER_KWH;
}

double harpe_fleet_cost_per_j(const harpe_fleet_price *price) {
    return price->energy_per_kwh / HARPE_JOULES_PER_KWH +
           carbon_kg_per_j_of(price) * price->carbon_per_kg;
}

static void add(harpe_fleet_state *state, double at_s, double used_j, double saved_j) {
    harpe_fleet_energy *energy = &state->energy;
    double overhead = state->groups[0].budget.overhead;
    used_j *= overhead;
    saved_j *= overhead;
    energy->used_j += used_j;
    energy->saved_j += saved_j;
    if (state->prices.count == 0) return;
    harpe_fleet_price price = harpe_decide_price(state, at_s);
    double carbon_kg_per_j = carbon_kg_per_j_of(&price);
    double cost_per_j = harpe_fleet_cost_per_j(&price);
    set_currency(energy, state->prices.currency);
    energy->has_price = true;
    energy->cost += used_j * cost_per_j;
    energy->cost_saved += saved_j * cost_per_j;
    energy->carbon_kg += used_j * carbon_kg_per_j;
    energy->carbon_kg_saved += saved_j * carbon_kg_per_j;
}

/* ---- Accounts -------------------------------------------------------------------------------- */

harpe_fleet_account *harpe_fleet_account_need(harpe_fleet_state *state, const char *id,
                                              bool is_new) {
    harpe_fleet_energy *energy = &state->energy;
    for (size_t i = 0; i < energy->account_count; i++)
        if (strcmp(energy->accounts[i]->id, id) == 0) return energy->accounts[i];
    harpe_fleet_account *account = harpe_calloc(1, sizeof *account);
    if (account) account->id = strdup(id);
    if (!account || !account->id ||
        !HARPE_ARRAY_RESERVE(energy->accounts, energy->account_capacity,
                             energy->account_count + 1)) {
        if (account) free(account->id);
        free(account);
        return NULL;
    }
    account->has_used = account->has_saved = is_new;
    energy->accounts[energy->account_count++] = account;
    return account;
}

static void free_account(harpe_fleet_account *account) {
    free(account->id);
    free(account);
}

/* Closes the account with this place in the list: its job is evicted. */
static void close_account(harpe_fleet_state *state, size_t index) {
    harpe_fleet_energy *energy = &state->energy;
    energy->gone_variance += pow(energy->accounts[index]->uncertainty_j, 2);
    free_account(energy->accounts[index]);
    energy->accounts[index] = energy->accounts[--energy->account_count];
}

void harpe_fleet_accounts_free(harpe_fleet_state *state) {
    harpe_fleet_energy *energy = &state->energy;
    for (size_t i = 0; i < energy->account_count; i++)
        free_account(energy->accounts[i]);
    free(energy->accounts);
}

void harpe_fleet_energy_begin(harpe_fleet_state *state, double at_s) {
    if (state->energy.since_s == 0) state->energy.since_s = at_s;
    state->energy.is_counting = true;
}

void harpe_fleet_energy_end(harpe_fleet_state *state) {
    state->energy.is_counting = false;
    for (size_t i = 0; i < state->energy.account_count; i++)
        state->energy.accounts[i]->has_used = state->energy.accounts[i]->has_saved = false;
}

void harpe_fleet_account_take(harpe_fleet_state *state, harpe_fleet_account *account, double at_s,
                              harpe_fleet_used figures) {
    double used_j = account->has_used ? figures.used_j - account->used_j : 0;
    double saved_j =
        account->has_saved && figures.has_saved ? figures.saved_j - account->saved_j : 0;
    if (used_j < 0) return; /* it counts already */
    add(state, at_s, used_j, saved_j);
    account->counted_j += used_j;
    account->has_used = true;
    account->used_j = figures.used_j;
    if (!figures.has_saved) return;
    account->has_saved = true;
    account->saved_j = figures.saved_j;
    double part = figures.used_j > 0 ? fmin(1, account->counted_j / figures.used_j) : 0;
    account->uncertainty_j = part * figures.uncertainty_j;
}

double harpe_fleet_energy_uncertainty_j(const harpe_fleet_state *state) {
    double variance = state->energy.gone_variance;
    for (size_t i = 0; i < state->energy.account_count; i++)
        variance += pow(state->energy.accounts[i]->uncertainty_j, 2);
    return state->groups[0].budget.overhead * sqrt(variance);
}

/* A prediction of the same plan that differs by more than this part comes from other plans. */
#define SAME_PLAN 1e-6

typedef struct look {
    harpe_fleet_state *state;
    harpe_fleet_now now;
    uint64_t stamp;
    bool has_begun_to_count; /* in this look */
    bool lacks_figures;      /* after a restart, those of some job are not known yet */
    bool is_short_of_memory;
} look;

/* ---- Which jobs there are -------------------------------------------------------------------- */

static harpe_member *find_member(look *self, const harpe_job_glance *glance) {
    if (*glance->member) return *glance->member;
    /* A member that comes from the store. */
    harpe_member *member = harpe_member_find(self->state, HARPE_MEMBER_JOB, glance->id);
    if (!member) member = harpe_member_add(self->state, HARPE_MEMBER_JOB, glance->id);
    if (!member) return NULL;
    char name[HARPE_FLEET_TEXT_MAX + 1];
    member->said = harpe_member_read_words(glance->metadata, name);
    /* The engine has read the group, by which it also decides who may see the job. */
    member->said.has_group = glance->group != NULL;
    (void)snprintf(member->said.group, sizeof member->said.group, "%s",
                   glance->group ? glance->group : "");
    char *copy = *name ? strdup(name) : NULL;
    if (copy) {
        free(member->name);
        member->name = copy;
    }
    member->world_size = (size_t)glance->world_size;
    member->is_dirty = true;
    harpe_groups_place(self->state, member);
    harpe_member_hear(member, self->now);
    *glance->member = member;
    return member;
}

/* ---- What a job has measured ----------------------------------------------------------------- */

/* Finds the first round that runs the running plan. */
static void follow_plan(harpe_member *member, const harpe_job_glance *glance) {
    harpe_member_rounds *rounds = &member->rounds;
    int64_t plan = glance->figures->phase && !member->is_learning ? glance->figures->plan : -1;
    if (plan == rounds->plan) return;
    rounds->plan = plan;
    rounds->plan_from = glance->round + (glance->reported_round == glance->round);
}

static double predicted_w(const harpe_member *member) {
    const harpe_member_rounds *rounds = &member->rounds;
    bool is_known = rounds->plan >= 0 && (size_t)rounds->plan < member->plan_count &&
                    rounds->reported >= rounds->plan_from && !member->is_learning;
    return is_known ? member->plans[rounds->plan].power_w : 0;
}

static void take_report(look *self, harpe_member *member, const harpe_job_glance *glance) {
    harpe_member_rounds *rounds = &member->rounds;
    if (!glance->figures->is_known || glance->reported_round <= rounds->reported) return;
    bool is_first = rounds->reported_s == 0;
    double passed_s = self->now.steady_s - rounds->reported_s;
    int64_t passed = glance->reported_round - rounds->reported;
    /* A slow round counts at once, and a fast one gradually. */
    if (!is_first) member->round_s = fmax(passed_s / (double)passed, 0.7 * member->round_s);
    rounds->reported = glance->reported_round;
    rounds->reported_s = self->now.steady_s;
    double power_w = glance->figures->power_w;
    if (power_w > 0 && power_w <= harpe_member_possible_w(member))
        harpe_member_measure(member, power_w, predicted_w(member));
    if (glance->reported_round > rounds->follows_after) harpe_member_confirm(member);
}

/* A job that has begun since energy is counted has an account from its first joule. Returns NULL if
 * there is no memory. */
static harpe_fleet_account *find_account(harpe_fleet_state *state, const harpe_job_glance *glance,
                                         bool is_new) {
    if (!*glance->account) *glance->account = harpe_fleet_account_need(state, glance->id, is_new);
    return *glance->account;
}

/* The savings of a loaded job are not known until its scheduler is made. */
static void take_figures(harpe_fleet_state *state, harpe_fleet_account *account,
                         const harpe_job_glance *glance, double at_s) {
    const harpe_figures *figures = glance->figures;
    harpe_fleet_used used = {.used_j = figures->used_energy_j,
                             .has_saved = glance->is_ready || figures->has_savings};
    if (figures->has_savings) used.saved_j = figures->saved_energy_j;
    if (figures->has_savings && isfinite(figures->saved_energy_uncertainty_j))
        used.uncertainty_j = figures->saved_energy_uncertainty_j;
    harpe_fleet_account_take(state, account, at_s, used);
}

/* A job that failed or ended with a server of an older version may have no figures for ever. */
static void take_energy(look *self, const harpe_job_glance *glance) {
    harpe_fleet_state *state = self->state;
    bool is_over = glance->has_failed || glance->has_ended;
    if (!state->energy.is_counting || glance->round < 0) return;
    harpe_fleet_account *account = find_account(state, glance, !self->has_begun_to_count);
    if (!account) return;
    account->stamp = self->stamp;
    if (glance->figures->is_known)
        take_figures(state, account, glance, self->now.wall_s);
    else if (!is_over)
        self->lacks_figures = true;
}

bool harpe_engine_link_settle(harpe_fleet_state *state, const harpe_job_glance *glance,
                              double at_s) {
    if (!state->energy.is_counting || glance->round < 0 || !glance->figures->is_known) return false;
    harpe_fleet_account *account = find_account(state, glance, true);
    if (!account) return false;
    take_figures(state, account, glance, at_s);
    return account->used_j != account->kept_j;
}

/* ---- Which plans it has ---------------------------------------------------------------------- */

static bool differs(double a, double b) { return fabs(a - b) > SAME_PLAN * fabs(b); }

/* Returns true if the job's prediction for its running plan is not that of the plans that were
 * read. */
static bool has_other_plans(const harpe_member *member, const harpe_figures *figures) {
    const harpe_member_rounds *rounds = &member->rounds;
    if (member->plan_count == 0 || rounds->plan_count < 0) return true;
    if (!figures->phase || figures->plan < 0) return false;
    if (figures->plan_count != rounds->plan_count) return true;
    if ((size_t)figures->plan >= member->plan_count) return true;
    const harpe_fleet_plan *plan = &member->plans[figures->plan];
    return differs(figures->plan_time_s - rounds->shift_time_s, plan->time_s) ||
           differs(figures->plan_energy_j - rounds->shift_energy_j, plan->power_w * plan->time_s);
}

static void look_at_plans(harpe_member *member, const harpe_job_glance *glance) {
    const harpe_figures *figures = glance->figures;
    bool was_learning = member->is_learning;
    /* After a restart the phase is not known until the scheduler is made. */
    if (figures->phase) member->is_learning = strcmp(figures->phase, "plan") != 0;
    if (member->is_learning != was_learning) member->is_dirty = true;
    if (member->is_learning) member->rounds.plan_count = -1;
    member->rounds.wants_plans = glance->is_ready && !glance->has_failed && !member->is_refused &&
                                 !member->is_learning && has_other_plans(member, figures);
}

static void note_failure(harpe_member *member, const harpe_job_glance *glance) {
    if (!glance->has_failed || member->is_refused) return;
    member->is_refused = member->is_dirty = true;
    (void)snprintf(member->reason, sizeof member->reason,
                   "its scheduler has failed, so it cannot be steered");
}

/* ---- All jobs -------------------------------------------------------------------------------- */

static void visit(void *user, const harpe_job_glance *glance) {
    look *self = user;
    take_energy(self, glance);
    if (glance->has_ended) {
        *glance->member = NULL;
        return;
    }
    if (!glance->has_begun) return;
    harpe_member *member = find_member(self, glance);
    if (!member) {
        self->is_short_of_memory = true;
        return;
    }
    member->stamp = self->stamp;
    /* Other requests may come from someone else than the job. */
    bool is_heard =
        glance->round != member->rounds.round || glance->reported_round != member->rounds.reported;
    if (is_heard) harpe_member_hear(member, self->now);
    note_failure(member, glance);
    look_at_plans(member, glance);
    follow_plan(member, glance);
    take_report(self, member, glance);
    member->rounds.round = glance->round;
}

/* While nothing is counted, accounts do not know which jobs are gone. */
static void close_accounts(const look *self) {
    harpe_fleet_energy *energy = &self->state->energy;
    for (size_t i = energy->account_count; i-- > 0 && energy->is_counting;)
        if (energy->accounts[i]->stamp != self->stamp) close_account(self->state, i);
    if (!self->lacks_figures) energy->is_known = true;
}

void harpe_engine_link_look(harpe_fleet_state *state, harpe_jobs *jobs, harpe_fleet_now now,
                            uint64_t stamp, void (*gone)(void *user, const harpe_member *member),
                            void *user) {
    look self = {.state = state, .now = now, .stamp = stamp};
    bool is_steered = harpe_limits_are_set(state, now.wall_s);
    self.has_begun_to_count = is_steered && !state->energy.is_counting;
    if (self.has_begun_to_count) harpe_fleet_energy_begin(state, now.wall_s);
    if (!is_steered) harpe_fleet_energy_end(state);
    harpe_jobs_glance(jobs, visit, &self);
    close_accounts(&self);
    /* Without memory for a new member, no member is taken as gone. */
    for (size_t i = state->member_count; i-- > 0 && !self.is_short_of_memory;) {
        harpe_member *member = state->members[i];
        if (member->kind != HARPE_MEMBER_JOB || member->stamp == stamp) continue;
        gone(user, member);
        harpe_member_remove(state, i);
    }
    for (size_t i = 0; i < state->member_count; i++) {
        harpe_member *member = state->members[i];
        harpe_member_watch(member, harpe_limits_are_exceeded(state, member->group), now);
    }
}
