/* SPDX-License-Identifier: Apache-2.0 */
/* The search for better drafts; see search.h. dive.c, splice.c and assignment.c do the work on one
 * draft. */
#include "plan/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "plan/change_moves.h"
#include "plan/dwell.h"
#include "plan/switching.h"

/* Positions that local search may recompute for each result of rounding, a dive, a join or
 * windows. */
#define ROUNDING_VISITS UINT64_C(600000)
#define ROUNDING_VISITS_BEFORE_DIVES UINT64_C(50000)
#define DIVE_VISITS UINT64_C(200000)
#define JOIN_VISITS UINT64_C(600000)
#define JOIN_VISITS_AFTER_DIVES UINT64_C(100000)
#define WINDOW_SEARCH_VISITS UINT64_C(100000)
/* An effort dives in all orders with beams of twice the usual width, and doubles it so often, minus
 * one. */
#define EFFORT_DIVE_ROUNDS 4
/* Events that the windows of one turn of a draft may touch, which takes about 20 ms. */
#define VISITS_PER_TURN UINT64_C(1000000)
/* Larger problems are not dived, because the time of a dive grows faster than the number of
 * instructions. */
#define MOST_DIVED 2000
/* A relative gap below this is a rounding error: the draft cannot be improved. */
#define CLOSED_GAP 1e-10
#define NO_DRAFT SIZE_MAX
/* Boxes of the first search for the bound of a problem that is one block. */
#define SMALLEST_TREE ((size_t)250)

/* The common part of the runs of this file. */
typedef struct run_user {
    const harpe_search *search;
    size_t *order; /* the drafts, the slowest deadline first; joins: the hull */
    size_t count;  /* effort: the drafts of `order` */
    const harpe_clock_switch *cost;
    bool has_cost;
    size_t *fast, *slow;     /* joins: the neighbours on the hull; NO_DRAFT: none */
    harpe_bound_turns turns; /* bounds */
    double began_s, effort_s;
    pthread_mutex_t lock; /* protects gap_sum */
    double gap_sum;
} run_user;

/* ---- Drafts ---------------------------------------------------------------------------------- */

void harpe_draft_take(harpe_draft *draft, const harpe_assignment *assignment) {
    const harpe_assignment *a = assignment;
    memcpy(draft->option, a->option, (size_t)a->count * sizeof *draft->option);
    draft->time_s = (double)harpe_assignment_time_ps(a) / HARPE_PS_PER_S;
    draft->energy_j = a->energy_j + harpe_problem_iteration_power_w(a->problem) * draft->time_s -
                      harpe_assignment_wait_saving_j(a);
}

double harpe_draft_gap(const harpe_frontier *frontier, const harpe_draft *draft) {
    double bound_j = harpe_frontier_bound_at(frontier, draft->time_s);
    return (draft->energy_j - bound_j) / fabs(bound_j);
}

/* Replaces the draft by the assignment if this is nearer to the lower bound. */
static void keep_better(const harpe_search *search, harpe_draft *draft,
                        const harpe_assignment *assignment) {
    harpe_draft found = {.time_s = (double)harpe_assignment_time_ps(assignment) / HARPE_PS_PER_S};
    found.energy_j = assignment->energy_j +
                     harpe_problem_iteration_power_w(search->problem) * found.time_s -
                     harpe_assignment_wait_saving_j(assignment);
    if (harpe_draft_gap(search->frontier, &found) < harpe_draft_gap(search->frontier, draft))
        harpe_draft_take(draft, assignment);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static bool report_begun(void *user, size_t begun) {
    const harpe_search *search = ((run_user *)user)->search;
    if (!search->report) return true;
    return search->report(search->user, (double)begun / (double)search->draft_count, NAN);
}

static harpe_status run_once(run_user *u,
                             harpe_status (*step)(void *, harpe_tools *, size_t, size_t, bool *,
                                                  harpe_error *),
                             harpe_error *error) {
    harpe_crew_run run = {
        .count = u->search->draft_count, .step = step, .report = report_begun, .user = u};
    bool stopped;
    harpe_status status = harpe_crew_do(u->search->crew, &run, &stopped, error);
    if (status == HARPE_OK && stopped)
        status = harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
    return status;
}

static bool is_over(void *tools) { return harpe_crew_is_over(tools); }

/* ---- Local search and dives ------------------------------------------------------------------ */

/* Brings the thread's own walk to a time, with a new walk if it has passed this time. The numbers
 * of a run are taken in their order, so the times of one thread only fall during a run. */
static harpe_status walk_to(const harpe_search *search, harpe_tools *tools, int64_t time_ps,
                            harpe_error *error) {
    if (tools->is_walking && tools->walk.solver.time_ps < time_ps) {
        harpe_walk_clear(&tools->walk);
        tools->is_walking = false;
    }
    if (!tools->is_walking) {
        harpe_status status = harpe_walk_begin(&tools->walk, search->problem, NULL, error);
        if (status != HARPE_OK) return status;
        tools->is_walking = true;
    }
    return harpe_walk_to(&tools->walk, time_ps, error);
}

/* Dives at the draft's deadline, and keeps the result if it is better. */
static harpe_status dive(const harpe_search *search, harpe_tools *tools, harpe_draft *draft,
                         harpe_dive_order order, int width, harpe_error *error) {
    harpe_assignment *a = &tools->assignment;
    bool found;
    harpe_status status = walk_to(search, tools, draft->deadline_ps, error);
    if (status == HARPE_OK)
        status = harpe_diver_dive(&tools->diver, &tools->walk.solver, order, width, &found, error);
    if (status != HARPE_OK || !found) return status;
    for (int32_t i = 0; i < a->count; i++)
        tools->ordered[i] = tools->diver.option[a->instruction_at[i]];
    harpe_assignment_restore(a, tools->ordered, tools->walk.solver.time_ps);
    status = harpe_assignment_settle(a, a->deadline_ps, error);
    if (status == HARPE_OK) status = harpe_assignment_improve(a, DIVE_VISITS, error);
    if (status == HARPE_OK) keep_better(search, draft, a);
    return status;
}

static bool is_dived(const harpe_search *search) {
    return search->problem->instruction_count <= MOST_DIVED;
}

/* Returns the width of the first dives. The time of a dive grows faster than the number of
 * instructions. */
static int usual_width(const harpe_search *search) {
    int32_t count = search->problem->instruction_count;
    return count <= 600 ? 4 : count <= 1200 ? 2 : 1;
}

/* The dives of each draft. Small problems, and those with narrow beams, have time for more of
 * them. */
static harpe_status dive_first(const harpe_search *search, harpe_tools *tools, harpe_draft *draft,
                               harpe_error *error) {
    static const harpe_dive_order orders[] = {HARPE_DIVE_BACKWARDS, HARPE_DIVE_FORWARDS,
                                              HARPE_DIVE_OUTWARDS, HARPE_DIVE_INWARDS};
    int32_t count = search->problem->instruction_count;
    int width = usual_width(search), dives = 1;
    if (width == 1 || count <= 250) dives = 2;
    if (count <= 150) dives = 4;
    harpe_status status = HARPE_OK;
    for (int k = 0; status == HARPE_OK && k < dives; k++)
        status = dive(search, tools, draft, orders[k], width, error);
    return status;
}

static harpe_status refine_step(void *user, harpe_tools *tools, size_t number, size_t turn,
                                bool *is_done, harpe_error *error) {
    const run_user *u = user;
    const harpe_search *search = u->search;
    harpe_draft *draft = &search->drafts[u->order[number]];
    (void)turn;
    *is_done = true;
    if (harpe_draft_gap(search->frontier, draft) <= CLOSED_GAP) return HARPE_OK;
    harpe_assignment_restore(&tools->assignment, draft->option, draft->deadline_ps);
    uint64_t visits = is_dived(search) ? ROUNDING_VISITS_BEFORE_DIVES : ROUNDING_VISITS;
    harpe_status status = harpe_assignment_improve(&tools->assignment, visits, error);
    if (status != HARPE_OK) return status;
    keep_better(search, draft, &tools->assignment);
    return is_dived(search) ? dive_first(search, tools, draft, error) : HARPE_OK;
}

static int compare_deadlines(const void *a, const void *b, void *drafts) {
    int64_t x = ((const harpe_draft *)drafts)[*(const size_t *)a].deadline_ps;
    int64_t y = ((const harpe_draft *)drafts)[*(const size_t *)b].deadline_ps;
    if (x != y) return x > y ? -1 : 1;
    return *(const size_t *)a < *(const size_t *)b ? -1 : 1;
}

/* Writes the order in which threads that walk must take the drafts. */
static harpe_status order_by_deadline(run_user *u, harpe_error *error) {
    const harpe_search *search = u->search;
    u->order = harpe_calloc(search->draft_count + 1, sizeof *u->order);
    if (!u->order) return harpe_fail_memory(error);
    for (size_t i = 0; i < search->draft_count; i++)
        u->order[i] = i;
    qsort_r(u->order, search->draft_count, sizeof *u->order, compare_deadlines, search->drafts);
    return HARPE_OK;
}

harpe_status harpe_search_refine(const harpe_search *search, harpe_error *error) {
    run_user u = {.search = search};
    harpe_status status = order_by_deadline(&u, error);
    if (status == HARPE_OK) status = run_once(&u, refine_step, error);
    free(u.order);
    return status;
}

/* ---- Joins ----------------------------------------------------------------------------------- */

static int compare_drafts(const void *a, const void *b) {
    const harpe_draft *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    if (x->energy_j != y->energy_j) return x->energy_j < y->energy_j ? -1 : 1;
    if (x->deadline_ps != y->deadline_ps) return x->deadline_ps < y->deadline_ps ? -1 : 1;
    return 0;
}

/* Finds the lower convex hull of the drafts in (time, energy). The drafts are sorted by time.
 * Returns the number of drafts on the hull. */
static size_t find_hull(const harpe_search *search, size_t *hull) {
    size_t count = 0;
    for (size_t i = 0; i < search->draft_count; i++) {
        const harpe_draft *d = &search->drafts[i];
        while (count > 0) {
            const harpe_draft *last = &search->drafts[hull[count - 1]];
            if (count == 1) {
                if (d->time_s > last->time_s || d->energy_j >= last->energy_j) break;
                count--;
                continue;
            }
            const harpe_draft *before = &search->drafts[hull[count - 2]];
            double turn = (last->time_s - before->time_s) * (d->energy_j - before->energy_j) -
                          (d->time_s - before->time_s) * (last->energy_j - before->energy_j);
            if (turn > 0) break;
            count--;
        }
        hull[count++] = i;
    }
    return count;
}

/* Finds the neighbours on the hull of each draft that is not on it and that may take longer than
 * the faster one. */
static void find_neighbours(run_user *u) {
    const harpe_search *search = u->search;
    size_t *hull = u->order, count = find_hull(search, hull), edge = 0;
    for (size_t i = 0; i < search->draft_count; i++) {
        const harpe_draft *d = &search->drafts[i];
        u->fast[i] = u->slow[i] = NO_DRAFT;
        while (edge + 1 < count && search->drafts[hull[edge + 1]].time_s <= d->time_s)
            edge++;
        if (hull[edge] == i || edge + 1 >= count) continue;
        double deadline_s = (double)d->deadline_ps / HARPE_PS_PER_S;
        if (search->drafts[hull[edge]].time_s > deadline_s) continue;
        u->fast[i] = hull[edge];
        u->slow[i] = hull[edge + 1];
    }
}

/* Reads drafts on the hull, which no step changes. */
static harpe_status join_step(void *user, harpe_tools *tools, size_t number, size_t turn,
                              bool *is_done, harpe_error *error) {
    const run_user *u = user;
    const harpe_search *search = u->search;
    harpe_draft *draft = &search->drafts[number];
    (void)turn;
    *is_done = true;
    if (u->fast[number] == NO_DRAFT) return HARPE_OK;
    const int32_t *fast = search->drafts[u->fast[number]].option;
    const int32_t *slow = search->drafts[u->slow[number]].option;
    uint64_t visits = is_dived(search) ? JOIN_VISITS_AFTER_DIVES : JOIN_VISITS;
    harpe_status status = HARPE_OK;
    for (int slow_first = 0; status == HARPE_OK && slow_first < 2; slow_first++) {
        status = harpe_splice(&tools->splicer, &tools->assignment, fast, slow, slow_first,
                              draft->deadline_ps, error);
        if (status == HARPE_OK)
            status = harpe_assignment_improve(&tools->assignment, visits, error);
        if (status == HARPE_OK) keep_better(search, draft, &tools->assignment);
    }
    return status;
}

harpe_status harpe_search_join(const harpe_search *search, harpe_error *error) {
    run_user u = {.search = search};
    qsort(search->drafts, search->draft_count, sizeof *search->drafts, compare_drafts);
    size_t *memory = harpe_calloc(3 * search->draft_count + 1, sizeof *memory);
    if (!memory) return harpe_fail_memory(error);
    u.order = memory;
    u.fast = memory + search->draft_count;
    u.slow = u.fast + search->draft_count;
    find_neighbours(&u);
    harpe_status status = run_once(&u, join_step, error);
    free(memory);
    return status;
}

/* ---- Frequencies ----------------------------------------------------------------------------- */

/* Returns whether a plan can stay as it is: only the latency costs something, and the controller
 * can ask for every clock in time. */
static bool is_in_time(const run_user *u, const int *frequency_mhz) {
    harpe_late_plan late = {0};
    if (u->cost->energy_j > 0 || u->cost->minimum_dwell_s > 0) return false;
    harpe_status status = harpe_plan_evaluate_late(u->search->problem, frequency_mhz, u->cost,
                                                   INFINITY, &late, NULL, NULL);
    return status == HARPE_OK && late.is_steady && late.late_count == 0;
}

/* Removes changes of clock from a plan, and looks for a better plan with few changes. The prices of
 * the relaxation are not computed for large problems, because each thread needs a walk for them. */
static harpe_status limit_changes(const run_user *u, harpe_tools *tools, harpe_draft *draft,
                                  harpe_error *error) {
    const harpe_problem *problem = u->search->problem;
    size_t count = (size_t)problem->instruction_count;
    bool has_prices = problem->instruction_count <= MOST_DIVED;
    harpe_relaxed relaxed = {0};
    int *merged_mhz = harpe_calloc(count, sizeof *merged_mhz);
    if (!merged_mhz) return harpe_fail_memory(error);
    harpe_status status = harpe_switching_merge(problem, u->cost, draft->frequency_mhz, error);
    if (status == HARPE_OK) memcpy(merged_mhz, draft->frequency_mhz, count * sizeof *merged_mhz);
    if (status == HARPE_OK && has_prices) {
        relaxed.duration_ps = harpe_calloc(count, sizeof *relaxed.duration_ps);
        relaxed.price_uw = harpe_calloc(count, sizeof *relaxed.price_uw);
        if (!relaxed.duration_ps || !relaxed.price_uw) status = harpe_fail_memory(error);
        if (status == HARPE_OK) status = walk_to(u->search, tools, draft->deadline_ps, error);
        if (status == HARPE_OK) harpe_walk_read(&tools->walk, &relaxed);
    }
    if (status == HARPE_OK)
        status = harpe_dwell_improve(problem, u->cost, has_prices ? &relaxed : NULL,
                                     draft->longest_ps, draft->frequency_mhz, error);
    if (status == HARPE_OK && harpe_clock_switch_longest_s(problem, u->cost) > 0)
        status =
            harpe_change_moves_improve(problem, u->cost, (double)draft->longest_ps / HARPE_PS_PER_S,
                                       draft->frequency_mhz, merged_mhz, error);
    free(merged_mhz);
    free(relaxed.duration_ps);
    free(relaxed.price_uw);
    return status;
}

/* Brief instructions have the clock of their neighbours, which may make a plan a little slower. The
 * fastest plan and those for asked times must not become slower, and without a cost no plan becomes
 * worse. */
static void follow(const run_user *u, const harpe_draft *draft) {
    size_t count = 0;
    double fastest_s = harpe_frontier_vertices(u->search->frontier, &count)[0].time_s;
    bool is_fastest = (double)draft->deadline_ps / HARPE_PS_PER_S <= fastest_s;
    bool may_be_slower = !is_fastest && !draft->is_asked && u->has_cost;
    harpe_switching_follow(u->search->problem, !may_be_slower, draft->frequency_mhz);
}

static harpe_status finish_step(void *user, harpe_tools *tools, size_t number, size_t turn,
                                bool *is_done, harpe_error *error) {
    const run_user *u = user;
    harpe_draft *draft = &u->search->drafts[u->order[number]];
    (void)turn;
    *is_done = true;
    draft->frequency_mhz =
        harpe_calloc((size_t)u->search->problem->instruction_count, sizeof *draft->frequency_mhz);
    if (!draft->frequency_mhz) return harpe_fail_memory(error);
    harpe_assignment_restore(&tools->assignment, draft->option, draft->deadline_ps);
    harpe_assignment_frequencies(&tools->assignment, draft->frequency_mhz);
    follow(u, draft);
    bool must_change = u->has_cost && !is_in_time(u, draft->frequency_mhz);
    return must_change ? limit_changes(u, tools, draft, error) : HARPE_OK;
}

harpe_status harpe_search_finish(const harpe_search *search, const harpe_clock_switch *cost,
                                 harpe_error *error) {
    run_user u = {.search = search,
                  .cost = cost,
                  .has_cost = harpe_clock_switch_has_cost(search->problem, cost)};
    harpe_status status = order_by_deadline(&u, error);
    if (status == HARPE_OK) status = run_once(&u, finish_step, error);
    free(u.order);
    return status;
}

/* ---- Searching for some time ----------------------------------------------------------------- */

/* Returns the distance of a draft to the highest known bound, relative to the bound. */
static double tight_gap(const harpe_search *search, const harpe_draft *draft) {
    double bound_j = fmax(harpe_frontier_bound_at(search->frontier, draft->time_s),
                          harpe_cut_at(&draft->cut, draft->time_s));
    return (draft->energy_j - bound_j) / fabs(bound_j);
}

/* Returns true if the draft reaches its bound, up to rounding errors. */
static bool is_closed(const harpe_search *search, const harpe_draft *draft) {
    double bound_j = fmax(harpe_frontier_bound_at(search->frontier, draft->time_s),
                          harpe_cut_at(&draft->cut, draft->time_s));
    double rounding_j = CLOSED_GAP * fabs(bound_j) + 2 * HARPE_FLOW_ROUNDING_W *
                                                         search->problem->instruction_count *
                                                         draft->time_s;
    return draft->energy_j - bound_j <= rounding_j;
}

static void add_gap(run_user *u, double difference) {
    (void)pthread_mutex_lock(&u->lock);
    u->gap_sum += difference;
    (void)pthread_mutex_unlock(&u->lock);
}

static bool report_gap(void *user, size_t begun) {
    run_user *u = user;
    const harpe_search *search = u->search;
    (void)begun;
    if (!search->report) return true;
    (void)pthread_mutex_lock(&u->lock);
    double mean_gap = u->gap_sum / (double)u->count;
    (void)pthread_mutex_unlock(&u->lock);
    return search->report(search->user, (harpe_clock_s() - u->began_s) / u->effort_s, mean_gap);
}

/* Leaves only the drafts of asked times in the order, if there are any. The others were made to
 * join them, and are not in the result. */
static void keep_asked(run_user *u) {
    const harpe_search *search = u->search;
    size_t asked = 0;
    for (size_t i = 0; i < search->draft_count; i++)
        asked += search->drafts[i].is_asked;
    u->count = 0;
    for (size_t i = 0; i < search->draft_count; i++)
        if (asked == 0 || search->drafts[u->order[i]].is_asked) u->order[u->count++] = u->order[i];
}

/* Runs a step for the drafts of the order, in turn, for `effort_s`. */
static harpe_status run_for(run_user *u, double effort_s,
                            harpe_status (*step)(void *, harpe_tools *, size_t, size_t, bool *,
                                                 harpe_error *),
                            bool *stopped, harpe_error *error) {
    const harpe_search *search = u->search;
    u->began_s = harpe_clock_s();
    u->effort_s = effort_s;
    keep_asked(u);
    for (size_t i = 0; i < u->count; i++)
        u->gap_sum += tight_gap(search, &search->drafts[u->order[i]]);
    harpe_crew_run run = {.count = u->count,
                          .end_s = u->began_s + effort_s,
                          .step = step,
                          .report = report_gap,
                          .user = u};
    (void)pthread_mutex_init(&u->lock, NULL);
    *stopped = !report_gap(u, 0); /* the gap before the first step */
    harpe_status status = HARPE_OK;
    if (!*stopped) status = harpe_crew_do(search->crew, &run, stopped, error);
    (void)pthread_mutex_destroy(&u->lock);
    return status;
}

/* ---- Windows --------------------------------------------------------------------------------- */

static harpe_status try_windows(const harpe_search *search, harpe_tools *tools, harpe_draft *draft,
                                uint64_t random, harpe_error *error) {
    harpe_assignment *a = &tools->assignment;
    for (int32_t k = 0; k < a->count; k++)
        tools->option[a->instruction_at[k]] = draft->option[k];
    tools->diver.random = random;
    harpe_diver_take(&tools->diver, tools->option, draft->deadline_ps);
    harpe_diver_improve(&tools->diver, VISITS_PER_TURN);
    for (int32_t k = 0; k < a->count; k++)
        tools->ordered[k] = tools->diver.option[a->instruction_at[k]];
    harpe_assignment_restore(a, tools->ordered, draft->deadline_ps);
    harpe_status status = harpe_assignment_improve(a, WINDOW_SEARCH_VISITS, error);
    if (status == HARPE_OK) keep_better(search, draft, a);
    return status;
}

/* Every second turn is a dive, in all orders with each width, until the beams are wide enough.
 * Wider ones find hardly better plans. */
static harpe_status effort_step(void *user, harpe_tools *tools, size_t number, size_t turn,
                                bool *is_done, harpe_error *error) {
    run_user *u = user;
    const harpe_search *search = u->search;
    harpe_draft *draft = &search->drafts[u->order[number]];
    double gap = tight_gap(search, draft);
    *is_done = is_closed(search, draft);
    if (*is_done) return HARPE_OK;
    tools->diver.is_over = is_over; /* a wide dive takes long */
    tools->diver.user = tools;
    size_t dives = turn / 2, rounds = dives / HARPE_DIVE_ORDERS;
    harpe_status status;
    if (is_dived(search) && turn % 2 == 0 && rounds < EFFORT_DIVE_ROUNDS)
        status = dive(search, tools, draft, (harpe_dive_order)(dives % HARPE_DIVE_ORDERS),
                      (2 * usual_width(search)) << rounds, error);
    else
        status = try_windows(search, tools, draft, u->order[number] * UINT64_C(1000003) + turn + 1,
                             error);
    if (status == HARPE_OK) add_gap(u, tight_gap(search, draft) - gap);
    return status;
}

harpe_status harpe_search_for(const harpe_search *search, double effort_s, bool *stopped,
                              harpe_error *error) {
    run_user u = {.search = search};
    harpe_status status = order_by_deadline(&u, error);
    if (status == HARPE_OK) status = run_for(&u, effort_s, effort_step, stopped, error);
    free(u.order);
    return status;
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* How the bound of a draft is looked for in each turn. Larger blocks give higher bounds, and take
 * much longer. */
typedef struct bound_turn {
    int ranks_together;
    size_t block_size, most_boxes;
} bound_turn;

static harpe_cut cut_of_turn(const harpe_problem *problem, size_t turn) {
    static const bound_turn turns[] = {
        {8, 16, 500}, {2, 24, 1000}, {8, 32, 2000}, {4, 40, 3000}, {8, 64, 4000},
    };
    size_t last = sizeof turns / sizeof turns[0] - 1, more = turn > last ? turn - last : 0;
    const bound_turn *of = &turns[turn < last ? turn : last];
    int ranks = of->ranks_together < problem->rank_count ? of->ranks_together : problem->rank_count;
    if (problem->instruction_count <= HARPE_BLOCK_MOST_MEMBERS)
        return (harpe_cut){.is_flat = true,
                           .ranks_together = problem->rank_count,
                           .block_size = HARPE_BLOCK_MOST_MEMBERS,
                           .most_boxes = SMALLEST_TREE << (2 * (turn < 8 ? turn : 8))};
    return (harpe_cut){.ranks_together = ranks,
                       .block_size = of->block_size,
                       .missing = 13 * more,
                       .most_boxes = of->most_boxes << (more < 8 ? more : 8)};
}

/* Takes the optimum of a problem that is one block. */
static void take_optimum(const harpe_search *search, harpe_tools *tools, harpe_draft *draft) {
    harpe_assignment *a = &tools->assignment;
    harpe_block_read(&tools->bounder.block, tools->option);
    for (int32_t k = 0; k < a->count; k++)
        tools->ordered[k] = tools->option[a->instruction_at[k]];
    harpe_assignment_restore(a, tools->ordered, draft->deadline_ps);
    keep_better(search, draft, a);
}

static harpe_status bound_step(void *user, harpe_tools *tools, size_t number, size_t turn,
                               bool *is_done, harpe_error *error) {
    run_user *u = user;
    const harpe_search *search = u->search;
    harpe_draft *draft = &search->drafts[u->order[number]];
    double gap = tight_gap(search, draft);
    bool is_optimal = draft->cut.is_exact && isfinite(harpe_cut_at(&draft->cut, draft->time_s));
    *is_done = is_closed(search, draft) || is_optimal;
    if (*is_done) return HARPE_OK;
    bool is_first = u->turns == HARPE_BOUND_FIRST_TURN;
    harpe_cut cut = cut_of_turn(search->problem, is_first ? 0 : turn + 1);
    /* A flat bound is high only at its deadline. */
    int64_t time_ps = draft->deadline_ps;
    if (cut.is_flat) time_ps = llround(draft->time_s * HARPE_PS_PER_S);
    harpe_status status = walk_to(search, tools, time_ps, error);
    cut.deadline_ps = harpe_cut_deadline_ps(time_ps, search->problem->instruction_count);
    if (status == HARPE_OK && !tools->is_bounding) {
        status = harpe_bounder_init(&tools->bounder, search->problem, search->crew->network,
                                    &search->crew->curves, error);
        tools->is_bounding = status == HARPE_OK;
    }
    if (status != HARPE_OK) return status;
    tools->bounder.block.is_over = is_over;
    tools->bounder.block.user = tools;
    status = harpe_bounder_cut(&tools->bounder, &tools->walk.solver, &cut, error);
    if (status != HARPE_OK || harpe_crew_is_over(tools)) return status;
    if (harpe_cut_at(&cut, draft->time_s) > harpe_cut_at(&draft->cut, draft->time_s))
        draft->cut = cut;
    if (cut.is_exact && cut.is_flat) take_optimum(search, tools, draft);
    add_gap(u, tight_gap(search, draft) - gap);
    *is_done = is_first;
    return HARPE_OK;
}

/* Writes an order in which the first numbers, however few, are spread evenly over all drafts: a
 * bound is of use for the neighbours, too. */
static void order_spread(size_t *order, size_t count) {
    size_t next = 0, step = 1;
    while (step < count)
        step *= 2;
    for (; step > 0; step /= 2)
        for (size_t k = 0; k < count; k += step)
            if (next == 0 || k % (2 * step) != 0) order[next++] = k;
}

static bool has_fitted_curve(const harpe_problem *problem) {
    for (size_t c = 0; c < problem->choice_count; c++)
        if (problem->choices[c].is_fitted) return true;
    return false;
}

harpe_status harpe_search_bounds(const harpe_search *search, double effort_s,
                                 harpe_bound_turns turns, bool *stopped, harpe_error *error) {
    run_user u = {.search = search, .turns = turns};
    *stopped = false;
    if (has_fitted_curve(search->problem)) return HARPE_OK; /* its bound is none */
    if (harpe_problem_has_any_wait_kinds(search->problem))
        return HARPE_OK; /* blocks price no waits */
    u.order = harpe_calloc(search->draft_count + 1, sizeof *u.order);
    if (!u.order) return harpe_fail_memory(error);
    order_spread(u.order, search->draft_count);
    harpe_status status = run_for(&u, effort_s, bound_step, stopped, error);
    free(u.order);
    return status;
}
