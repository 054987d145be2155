/* SPDX-License-Identifier: Apache-2.0 */
/* Members of the fleet.
 *
 * A cap bounds the power of a member as long as it keeps to its plans: it runs the fastest plan
 * within the cap, or its slowest plan. A member that was given a cap may follow that cap, or any
 * that it was given since it last confirmed one. `most_w` is the highest of these. The power that
 * is counted is that of most_w, times the factor by which the member has exceeded its plans, and at
 * least the measured power. */
#include "server/fleet/member.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/number.h"
#include "base/possible.h"
#include "base/text.h"

/* A member is silent if it does not answer for SILENT_S, or for SILENT_ROUNDS of its rounds. */
#define SILENT_S 30.0
#define SILENT_ROUNDS 3.0
/* While a budget is exceeded, an answer is overdue after OVERDUE_ROUNDS of the member's rounds, but
 * not before OVERDUE_S. Then the others are lowered in its place. */
#define OVERDUE_ROUNDS 1.5
#define OVERDUE_S 3.0
/* A time between two reports that is longer than this, and longer than two rounds, is taken for a
 * pause, and counts as the longer of the two. */
#define PAUSE_S 10.0
/* A factor is rounded up to this step, so that noise does not change it in every round. It falls
 * only if it is too high by FALL. */
#define SCALE_STEP 0.0025
#define SCALE_FALL 0.03
#define SCALE_MAX 10.0
/* An assumption, for a job of which nothing is known: an H100 SXM may draw 700 W. */
#define UNKNOWN_W 700.0

/* ---- The list -------------------------------------------------------------------------------- */

harpe_member_terms harpe_member_no_terms(void) {
    return (harpe_member_terms){
        .weight = NAN, .max_slowdown = NAN, .priority = NAN, .most_w = NAN, .highest_w = NAN};
}

void harpe_member_free(harpe_member *member) {
    if (!member) return;
    free(member->id);
    free(member->name);
    free(member->plans);
    free(member);
}

harpe_member *harpe_member_add(harpe_fleet_state *state, harpe_member_kind kind, const char *id) {
    harpe_member *member = harpe_calloc(1, sizeof *member);
    if (!member) return NULL;
    *member = (harpe_member){.kind = kind,
                             .id = strdup(id),
                             .name = strdup(id),
                             .said = harpe_member_no_terms(),
                             .told = harpe_member_no_terms(),
                             .scale = 1,
                             .measured_w = -1,
                             .cap_w = INFINITY,
                             .most_w = INFINITY,
                             .stored_w = INFINITY,
                             .solver_job = -1,
                             .is_dirty = true,
                             .rounds = {.round = -1,
                                        .reported = -1,
                                        .follows_after = INT64_MAX,
                                        .plan_count = -1,
                                        .plan = -1,
                                        .plan_from = INT64_MAX}};
    if (!member->id || !member->name ||
        !HARPE_ARRAY_RESERVE(state->members, state->member_capacity, state->member_count + 1)) {
        harpe_member_free(member);
        return NULL;
    }
    for (size_t i = 0; i < state->override_count && kind == HARPE_MEMBER_JOB; i++)
        if (strcmp(state->overrides[i].id, id) == 0) member->told = state->overrides[i].terms;
    state->members[state->member_count++] = member;
    return member;
}

void harpe_member_remove(harpe_fleet_state *state, size_t index) {
    harpe_member *member = state->members[index];
    state->members[index] = state->members[--state->member_count];
    bool is_known = member->solver_job >= 0 && !state->needs_solver;
    /* Without memory for the number, the solver is made anew. */
    if (is_known &&
        HARPE_ARRAY_RESERVE(state->removed, state->removed_capacity, state->removed_count + 1))
        state->removed[state->removed_count++] = member->solver_job;
    else if (is_known)
        state->needs_solver = true;
    state->must_solve = true;
    harpe_member_free(member);
}

harpe_member *harpe_member_find(const harpe_fleet_state *state, harpe_member_kind kind,
                                const char *id) {
    for (size_t i = 0; i < state->member_count; i++)
        if (state->members[i]->kind == kind && strcmp(state->members[i]->id, id) == 0)
            return state->members[i];
    return NULL;
}

/* ---- Terms ----------------------------------------------------------------------------------- */

static void read_number(const char *text, size_t length, double least, double most, double *into) {
    double value;
    if (harpe_parse_double(text, length, &value) && value >= least && value <= most) *into = value;
}

static void read_text(const char *text, size_t length, char *into) {
    if (length == 0 || length > HARPE_FLEET_TEXT_MAX) return;
    memcpy(into, text, length);
    into[length] = '\0';
    harpe_clean_in_place(into);
}

static bool begins(const char *word, size_t length, const char *name, const char **value,
                   size_t *value_length) {
    size_t name_length = strlen(name);
    if (length < name_length || strncmp(word, name, name_length) != 0) return false;
    *value = word + name_length;
    *value_length = length - name_length;
    return true;
}

harpe_member_terms harpe_member_read_words(const char *metadata, char *name) {
    static const char separators[] = " \t,;+";
    harpe_member_terms terms = harpe_member_no_terms();
    const char *word = metadata ? metadata : "";
    name[0] = '\0';
    for (; *word; word += strcspn(word, separators)) {
        word += strspn(word, separators);
        size_t length = strcspn(word, separators), n;
        const char *v;
        if (begins(word, length, "fleet_name=", &v, &n)) read_text(v, n, name);
        if (begins(word, length, "fleet_weight=", &v, &n))
            read_number(v, n, 0, 1e12, &terms.weight);
        if (begins(word, length, "fleet_max_slowdown=", &v, &n))
            read_number(v, n, 1, 1e9, &terms.max_slowdown);
        if (begins(word, length, "fleet_priority=", &v, &n))
            read_number(v, n, -1e6, 1e6, &terms.priority);
        if (begins(word, length, "fleet_most_w=", &v, &n)) read_number(v, n, 0, 1e9, &terms.most_w);
        if (begins(word, length, "fleet_highest_w=", &v, &n))
            read_number(v, n, 0, 1e9, &terms.highest_w);
    }
    return terms;
}

static double first_said(double told, double said, double otherwise) {
    return !isnan(told) ? told : !isnan(said) ? said : otherwise;
}

double harpe_member_weight(const harpe_member *member) {
    return first_said(member->told.weight, member->said.weight, 1);
}

double harpe_member_max_slowdown(const harpe_member *member) {
    return first_said(member->told.max_slowdown, member->said.max_slowdown, 0);
}

double harpe_member_priority(const harpe_member *member) {
    return first_said(member->told.priority, member->said.priority, 0);
}

double harpe_member_own_most_w(const harpe_member *member) {
    return first_said(member->told.most_w, member->said.most_w, INFINITY);
}

const char *harpe_member_group_name(const harpe_member *member) {
    return member->told.has_group   ? member->told.group
           : member->said.has_group ? member->said.group
                                    : "";
}

double harpe_member_possible_w(const harpe_member *member) {
    return member->world_size > 0 ? HARPE_GPU_HIGHEST_W * (double)member->world_size : 1e8;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static int compare_plans(const void *a, const void *b) {
    const harpe_fleet_plan *x = a;
    const harpe_fleet_plan *y = b;
    if (x->time_s != y->time_s) return x->time_s > y->time_s ? 1 : -1;
    return (x->power_w > y->power_w) - (x->power_w < y->power_w);
}

void harpe_member_set_plans(harpe_member *member, harpe_fleet_plan *plans, size_t count) {
    size_t kept = 0;
    double possible_w = harpe_member_possible_w(member);
    for (size_t i = 0; i < count && kept < HARPE_FLEET_PLANS_MAX; i++) {
        bool is_valid = plans[i].time_s >= 1e-9 && plans[i].time_s <= 1e9 &&
                        plans[i].power_w >= 0 && plans[i].power_w <= possible_w;
        if (is_valid) plans[kept++] = plans[i];
    }
    if (kept > 0) qsort(plans, kept, sizeof *plans, compare_plans);
    free(member->plans);
    member->plans = kept > 0 ? plans : NULL;
    if (kept == 0) free(plans);
    member->plan_count = kept;
    member->has_target = false;
    member->is_dirty = true;
}

bool harpe_member_is_unread(const harpe_member *member) {
    return member->kind == HARPE_MEMBER_JOB && !member->was_steered &&
           member->rounds.plan_count < 0;
}

static bool follows_if_it_answers(const harpe_member *member) {
    return member->kind != HARPE_MEMBER_LOAD && member->plan_count > 0 && !member->is_learning &&
           !member->is_refused && !harpe_member_is_unread(member);
}

bool harpe_member_can_follow(const harpe_member *member) {
    return follows_if_it_answers(member) && !member->is_silent && !member->is_overdue;
}

size_t harpe_member_plan_within(const harpe_member *member, double cap_w) {
    size_t plan = 0;
    /* The tolerance covers the rounding of a cap on its way to the job. */
    while (plan + 1 < member->plan_count && member->plans[plan].power_w > cap_w * (1 + 1e-9))
        plan++;
    return plan;
}

size_t harpe_member_first_plan(const harpe_member *member) {
    return harpe_member_plan_within(member, harpe_member_own_most_w(member));
}

/* ---- Powers ---------------------------------------------------------------------------------- */

double harpe_member_highest_w(const harpe_member *member) {
    double watts = 0;
    for (size_t i = 0; i < member->plan_count; i++)
        watts = fmax(watts, member->plans[i].power_w);
    return watts * member->scale;
}

/* Returns what a member without usable plans may draw. */
static double unplanned_w(const harpe_member *member) {
    double known_w = fmax(member->unplanned_w, harpe_member_highest_w(member));
    double possible_w = harpe_member_possible_w(member);
    bool is_too_much = member->said.highest_w > possible_w;
    double said_w =
        first_said(member->told.highest_w, is_too_much ? possible_w : member->said.highest_w, NAN);
    if (!isnan(said_w)) return fmax(said_w, known_w);
    return known_w > 0 ? known_w : UNKNOWN_W * (double)member->world_size;
}

double harpe_member_counted_with(const harpe_member *member, double cap_w) {
    if (member->kind == HARPE_MEMBER_LOAD) return member->measured_w;
    double measured_w = fmax(member->measured_w, 0);
    if (member->plan_count == 0 || member->is_learning)
        return fmax(unplanned_w(member), measured_w);
    double slowest_w = member->plans[member->plan_count - 1].power_w * member->scale;
    double capped_w =
        fmin(fmax(cap_w, member->most_w) * member->scale, harpe_member_highest_w(member));
    return fmax(fmax(capped_w, slowest_w), measured_w);
}

double harpe_member_counted_w(const harpe_member *member) {
    return harpe_member_counted_with(member, 0);
}

double harpe_member_planned_w(const harpe_member *member) {
    if (!harpe_member_can_follow(member)) return harpe_member_counted_w(member);
    return member->plans[harpe_member_plan_within(member, member->cap_w)].power_w * member->scale;
}

double harpe_member_answering_w(const harpe_member *member, bool exceeds) {
    if (!follows_if_it_answers(member)) return harpe_member_counted_w(member);
    size_t first = harpe_member_first_plan(member);
    double max_slowdown = exceeds ? 0 : harpe_member_max_slowdown(member);
    double most_s = max_slowdown > 0 ? max_slowdown * member->plans[0].time_s : INFINITY;
    double least_w = member->plans[first].power_w;
    for (size_t i = first; i < member->plan_count; i++)
        if (member->plans[i].time_s <= most_s * (1 + 1e-12))
            least_w = fmin(least_w, member->plans[i].power_w);
    return least_w * member->scale;
}

double harpe_member_least_w(const harpe_member *member, bool exceeds) {
    return harpe_member_can_follow(member) ? harpe_member_answering_w(member, exceeds)
                                           : harpe_member_counted_w(member);
}

/* ---- What happens ---------------------------------------------------------------------------- */

void harpe_member_decide(harpe_member *member, double cap_w, harpe_fleet_now now) {
    member->most_w = fmax(member->most_w, cap_w);
    member->cap_w = cap_w;
    member->was_steered = true;
    member->is_waiting = true;
    member->has_command = true;
    member->is_stored = false;
    member->rounds.follows_after = INT64_MAX;
    member->sent_s = now.steady_s;
}

void harpe_member_hear(harpe_member *member, harpe_fleet_now now) {
    member->heard_s = now.steady_s;
    member->heard_wall_s = now.wall_s;
}

void harpe_member_confirm(harpe_member *member) {
    if (!member->is_waiting || member->has_command) return;
    member->is_waiting = false;
    member->is_stored = false;
    member->most_w = member->cap_w;
}

void harpe_member_measure(harpe_member *member, double power_w, double predicted_w) {
    member->measured_w = power_w;
    if (member->is_learning || member->plan_count == 0)
        member->unplanned_w = fmax(member->unplanned_w, power_w);
    if (!(predicted_w > 0)) return;
    double needed = fmax(1, ceil(power_w / predicted_w / SCALE_STEP - 1e-9) * SCALE_STEP);
    double scale = member->scale;
    if (needed > scale)
        scale = fmin(needed, SCALE_MAX);
    else if (needed < scale - SCALE_FALL)
        scale = fmax(needed, 0.5 * (scale + needed));
    if (scale == member->scale) return;
    member->scale = scale;
    member->is_dirty = true;
    member->is_stored = false;
}

void harpe_member_follow(harpe_member *member, int64_t plan, double power_w, harpe_fleet_now now) {
    bool is_known = plan >= 0 && (size_t)plan < member->plan_count;
    double plan_w = is_known ? member->plans[plan].power_w : 0;
    double passed_s = now.steady_s - member->heard_s;
    if (member->round_s > 0) passed_s = fmin(passed_s, fmax(PAUSE_S, 2 * member->round_s));
    if (member->has_reported) member->round_s = fmax(passed_s, 0.7 * member->round_s);
    member->has_reported = true;
    harpe_member_hear(member, now);
    if (power_w >= 0) harpe_member_measure(member, power_w, plan_w);
    if (!is_known) return;
    if (plan_w <= member->cap_w * (1 + 1e-9))
        harpe_member_confirm(member);
    else
        member->most_w = fmax(member->most_w, plan_w);
}

void harpe_member_watch(harpe_member *member, bool is_exceeded, harpe_fleet_now now) {
    if (member->kind == HARPE_MEMBER_LOAD) return;
    /* A member that is new here, or comes from the store. */
    if (member->heard_s == 0) member->heard_s = now.steady_s;
    if (member->sent_s == 0) member->sent_s = now.steady_s;
    double patience_s = fmax(SILENT_S, SILENT_ROUNDS * member->round_s);
    bool is_unheard = now.steady_s - member->heard_s > patience_s;
    bool is_late = member->is_waiting && now.steady_s - member->sent_s > patience_s;
    bool is_silent = member->plan_count > 0 && (is_unheard || is_late);
    bool is_lowered = member->is_waiting && member->cap_w < member->most_w;
    double overdue_s = fmax(OVERDUE_S, OVERDUE_ROUNDS * member->round_s);
    bool is_overdue = (is_exceeded || member->is_overdue) && is_lowered && member->round_s > 0 &&
                      now.steady_s - member->heard_s > overdue_s;
    if (is_silent != member->is_silent || is_overdue != member->is_overdue) member->is_dirty = true;
    member->is_silent = is_silent;
    member->is_overdue = is_overdue;
}
