/* SPDX-License-Identifier: Apache-2.0 */
/* Members and groups of the fleet, and the beginning and the end of its state. A group is made when
 * a request or a job names it.
 *
 * A cap bounds the power of a member as long as it keeps to its plans: it runs the fastest plan
 * within the cap, or its slowest plan. A member that was given a cap may follow that cap, or any
 * that it was given since it last confirmed one. `most_w` is the highest of these. The power that
 * is counted is that of most_w, times the factor by which the member has exceeded its plans, and at
 * least the measured power. */
#include "server/fleet/fleet_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/number.h"
#include "base/possible.h"
#include "base/text.h"
#include "pfo/metadata.h"

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

static void free_member(harpe_member *member) {
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
        free_member(member);
        return NULL;
    }
    if (kind == HARPE_MEMBER_JOB) member->told = harpe_member_told(state, id);
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
    free_member(member);
}

harpe_member *harpe_member_find(const harpe_fleet_state *state, harpe_member_kind kind,
                                const char *id) {
    for (size_t i = 0; i < state->member_count; i++)
        if (state->members[i]->kind == kind && strcmp(state->members[i]->id, id) == 0)
            return state->members[i];
    return NULL;
}

/* ---- Terms ----------------------------------------------------------------------------------- */

const harpe_term harpe_terms[HARPE_TERM_COUNT] = {
    {"weight", offsetof(harpe_member_terms, weight), 0, 1e12},
    {"max_slowdown", offsetof(harpe_member_terms, max_slowdown), 1, 1e9},
    {"priority", offsetof(harpe_member_terms, priority), -1e6, 1e6},
    {"most_w", offsetof(harpe_member_terms, most_w), 0, 1e9},
    {"highest_w", offsetof(harpe_member_terms, highest_w), 0, 1e9},
};

harpe_member_terms harpe_member_no_terms(void) {
    harpe_member_terms terms = {.has_group = false};
    for (size_t i = 0; i < HARPE_TERM_COUNT; i++)
        *harpe_term_in(&terms, &harpe_terms[i]) = NAN;
    return terms;
}

harpe_member_terms harpe_member_told(const harpe_fleet_state *state, const char *id) {
    for (size_t i = 0; i < state->override_count; i++)
        if (strcmp(state->overrides[i].id, id) == 0) return state->overrides[i].terms;
    return harpe_member_no_terms();
}

/* The words are fleet_name=NAME, and the terms, such as fleet_weight=2. */
harpe_member_terms harpe_member_read_words(const char *metadata, char *name) {
    harpe_member_terms terms = harpe_member_no_terms();
    const char *text, *place = metadata ? metadata : "";
    size_t length;
    name[0] = '\0';
    while ((text = harpe_metadata_next(&place, "fleet_name", &length))) {
        if (length == 0 || length > HARPE_FLEET_TEXT_MAX) continue;
        (void)snprintf(name, length + 1, "%s", text);
        harpe_clean_in_place(name);
    }
    for (size_t i = 0; i < HARPE_TERM_COUNT; i++) {
        const harpe_term *term = &harpe_terms[i];
        char key[32];
        double value;
        (void)snprintf(key, sizeof key, "fleet_%s", term->name);
        place = metadata ? metadata : "";
        while ((text = harpe_metadata_next(&place, key, &length)))
            if (harpe_parse_double(text, length, &value) && value >= term->least &&
                value <= term->most)
                *harpe_term_in(&terms, term) = value;
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

static const char *group_name_of(const harpe_member *member) {
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

/* Returns true if the job's frontier must be read before its first cap: it says which cap a client
 * has set, and the first cap replaces that. */
static bool is_unread(const harpe_member *member) {
    return member->kind == HARPE_MEMBER_JOB && !member->was_steered &&
           member->rounds.plan_count < 0;
}

static bool follows_if_it_answers(const harpe_member *member) {
    return member->kind != HARPE_MEMBER_LOAD && member->plan_count > 0 && !member->is_learning &&
           !member->is_refused && !is_unread(member);
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

bool harpe_members_have_commands(const harpe_fleet_state *state) {
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        if (member->has_command || member->is_sending || member->was_steered) return true;
    }
    return false;
}

bool harpe_members_lack_plans(const harpe_fleet_state *state) {
    for (size_t i = 0; i < state->member_count; i++) {
        const harpe_member *member = state->members[i];
        bool has_none =
            member->kind == HARPE_MEMBER_JOB && (member->plan_count == 0 || is_unread(member));
        if (has_none && (member->rounds.wants_plans || member->rounds.is_reading)) return true;
    }
    return false;
}

void harpe_members_forget_own_caps(const harpe_fleet_state *state) {
    for (size_t i = 0; i < state->member_count; i++)
        if (!state->members[i]->was_steered) state->members[i]->rounds.plan_count = -1;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

enum { GROUPS_MAX = HARPE_FLEET_GROUPS_MAX / 10 };

bool harpe_groups_are_full(const harpe_fleet_state *state) {
    return state->group_count >= GROUPS_MAX;
}

static int add_group(harpe_fleet_state *state, const char *name, int parent) {
    if (harpe_groups_are_full(state) ||
        !HARPE_ARRAY_RESERVE(state->groups, state->group_capacity, state->group_count + 1))
        return -1;
    harpe_fleet_group_state group = {
        .name = strdup(name), .parent = parent, .budget = {.watts = -1, .overhead = 1}};
    if (!group.name) return -1;
    state->groups[state->group_count] = group;
    state->needs_solver = true;
    return (int)state->group_count++;
}

int harpe_groups_find(const harpe_fleet_state *state, const char *name) {
    for (size_t g = 0; g < state->group_count; g++)
        if (strcmp(state->groups[g].name, name) == 0) return (int)g;
    return -1;
}

int harpe_groups_need(harpe_fleet_state *state, const char *name) {
    int group = harpe_groups_find(state, name);
    return group >= 0 ? group : add_group(state, name, 0);
}

static int depth_of(const harpe_fleet_state *state, int group) {
    int depth = 0;
    for (; group > 0; group = state->groups[group].parent)
        depth++;
    return depth;
}

/* Returns the number of levels from this group to the deepest group inside of it. */
static int height_of(const harpe_fleet_state *state, int group) {
    int height = 0;
    for (int g = 1; g < (int)state->group_count; g++) {
        int above = g;
        while (above > 0 && above != group)
            above = state->groups[above].parent;
        if (above != group) continue;
        int levels = depth_of(state, g) - depth_of(state, group);
        if (levels > height) height = levels;
    }
    return height;
}

bool harpe_groups_may_contain(const harpe_fleet_state *state, int parent, int group) {
    for (int g = parent; g >= 0; g = state->groups[g].parent)
        if (g == group) return false;
    return depth_of(state, parent) + 1 + height_of(state, group) < HARPE_FLEET_DEPTH_MAX;
}

void harpe_groups_set_parent(harpe_fleet_state *state, int group, int parent) {
    if (state->groups[group].parent == parent) return;
    state->groups[group].parent = parent;
    /* Without memory for the entry, only tokens that name the group reach it. */
    (void)harpe_group_tree_put(&state->tree, state->groups[group].name, state->groups[parent].name);
    state->needs_solver = true;
}

bool harpe_groups_is_used(const harpe_fleet_state *state, int group) {
    for (size_t i = 0; i < state->member_count; i++)
        if (state->members[i]->group == group) return true;
    for (size_t g = 1; g < state->group_count; g++)
        if (state->groups[g].parent == group) return true;
    return state->groups[group].budget.watts >= 0;
}

void harpe_groups_remove(harpe_fleet_state *state, int group) {
    (void)harpe_group_tree_put(&state->tree, state->groups[group].name, NULL);
    free(state->groups[group].name);
    state->group_count--;
    for (size_t g = (size_t)group; g < state->group_count; g++)
        state->groups[g] = state->groups[g + 1];
    for (size_t g = 1; g < state->group_count; g++)
        if (state->groups[g].parent > group) state->groups[g].parent--;
    for (size_t i = 0; i < state->member_count; i++)
        if (state->members[i]->group > group) state->members[i]->group--;
    state->needs_solver = true;
}

void harpe_groups_place(harpe_fleet_state *state, harpe_member *member) {
    int group = harpe_groups_need(state, group_name_of(member));
    if (group < 0) group = 0;
    if (group != member->group) member->is_dirty = true;
    member->group = group;
}

/* ---- The whole state ------------------------------------------------------------------------- */

bool harpe_fleet_begin(harpe_fleet_state *state) { return add_group(state, "", -1) == 0; }

void harpe_fleet_end(harpe_fleet_state *state) {
    harpe_decide_free(state);
    for (size_t i = 0; i < state->member_count; i++)
        free_member(state->members[i]);
    for (size_t i = 0; i < state->override_count; i++)
        free(state->overrides[i].id);
    harpe_fleet_accounts_free(state);
    free(state->members);
    free(state->overrides);
    free(state->events);
    free(state->prices.points);
    for (size_t g = 0; g < state->group_count; g++)
        free(state->groups[g].name);
    free(state->groups);
    harpe_group_tree_free(&state->tree);
    *state = (harpe_fleet_state){0};
}
