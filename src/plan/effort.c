/* SPDX-License-Identifier: Apache-2.0 */
/* Improvement for some time; see effort.h. Each draft has a lane for each thread, so that a single
 * draft occupies all threads. The lanes of a draft share its turns: a turn is a dive with an order
 * and a width of its own, some windows with random numbers of their own, or a search for a bound of
 * its own size. A step works on a copy of the draft, and then merges what it has changed. */
#include "plan/effort.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

/* Positions that local search may recompute after windows. */
#define WINDOW_SEARCH_VISITS UINT64_C(100000)
/* An effort dives in all orders with a first width, then again with twice the width, in DIVE_ROUNDS
 * rounds. */
#define DIVE_ROUNDS 4
/* Events that the windows of one turn of a draft may touch, which takes about 20 ms. */
#define VISITS_PER_TURN UINT64_C(1000000)
/* Boxes of the first search for the bound of a problem that is one block. */
#define SMALLEST_TREE ((size_t)250)

/* The common part of the runs of this file. */
typedef struct run_user {
    const harpe_search *search;
    size_t *order; /* the drafts, the slowest deadline first */
    size_t count;  /* the drafts of `order` */
    size_t lanes;  /* of each draft */
    harpe_bound_turns turns;
    double began_s, effort_s;
    pthread_mutex_t lock; /* protects the drafts and gap_sum */
    double gap_sum;
} run_user;

/* A step's copy of a draft. */
typedef struct work_copy {
    harpe_draft *draft;
    harpe_draft base, own; /* the draft as it was, and as the step improves it */
    size_t turn;           /* of the draft */
} work_copy;

static bool is_over(void *tools) { return harpe_crew_is_over(tools); }

/* A step that the end of the run has interrupted has not failed. */
static harpe_status end_of_step(harpe_tools *tools, harpe_status status) {
    return status == HARPE_INTERRUPTED && harpe_crew_is_over(tools) ? HARPE_OK : status;
}

/* ---- Gaps ------------------------------------------------------------------------------------ */

/* Returns the highest known bound of a draft. */
static double bound_of(const harpe_search *search, const harpe_draft *draft) {
    return fmax(harpe_frontier_bound_at(search->frontier, draft->time_s),
                harpe_cut_at(&draft->cut, draft->time_s));
}

/* Returns the distance of a draft to its bound, relative to the bound. */
static double tight_gap(const harpe_search *search, const harpe_draft *draft) {
    double bound_j = bound_of(search, draft);
    return (draft->energy_j - bound_j) / fabs(bound_j);
}

static bool is_closed(const harpe_search *search, const harpe_draft *draft) {
    return harpe_draft_reaches(search->problem, draft->time_s, draft->energy_j,
                               bound_of(search, draft));
}

static bool is_optimal(const harpe_draft *draft) {
    return draft->cut.is_exact && isfinite(harpe_cut_at(&draft->cut, draft->time_s));
}

static bool report_gap(void *user, size_t begun) {
    run_user *u = user;
    const harpe_search *search = u->search;
    (void)begun;
    if (!search->report) return true;
    harpe_lock(&u->lock);
    double mean_gap = u->gap_sum / (double)u->count;
    harpe_unlock(&u->lock);
    return search->report(search->user, (harpe_clock_s() - u->began_s) / u->effort_s, mean_gap);
}

/* ---- Copies of drafts ------------------------------------------------------------------------ */

/* Copies the draft of a step. Returns false if the draft reaches its bound, so that nothing is left
 * to do. */
static bool begin_work(run_user *u, harpe_tools *tools, size_t number, size_t turn, work_copy *w) {
    size_t size = (size_t)u->search->problem->instruction_count * sizeof *tools->own;
    *w = (work_copy){.draft = &u->search->drafts[u->order[number % u->count]],
                     .turn = turn * u->lanes + number / u->count};
    harpe_lock(&u->lock);
    w->base = *w->draft;
    memcpy(tools->base, w->draft->option, size);
    harpe_unlock(&u->lock);
    memcpy(tools->own, tools->base, size);
    w->own = w->base;
    w->base.option = tools->base;
    w->own.option = tools->own;
    return !is_closed(u->search, &w->base);
}

static bool has_same_plan(const harpe_draft *a, const harpe_draft *b) {
    return a->time_s == b->time_s && a->energy_j == b->energy_j;
}

/* Makes the changes of a step in the draft, which another thread has improved meanwhile. The
 * changes of both often fit together. */
static void merge(const run_user *u, harpe_tools *tools, const work_copy *w) {
    harpe_assignment *a = &tools->assignment;
    for (int32_t k = 0; k < a->count; k++)
        tools->ordered[k] = tools->own[k] != tools->base[k] ? tools->own[k] : w->draft->option[k];
    harpe_assignment_restore(a, tools->ordered, w->draft->deadline_ps);
    if (harpe_assignment_time_ps(a) <= w->draft->deadline_ps)
        harpe_draft_keep_better(u->search, w->draft, a);
}

/* Writes what a step has found into the draft. */
static void end_work(run_user *u, harpe_tools *tools, const work_copy *w) {
    const harpe_search *search = u->search;
    harpe_draft *draft = w->draft;
    harpe_lock(&u->lock);
    double gap = tight_gap(search, draft);
    if (!has_same_plan(&w->own, &w->base)) {
        if (!has_same_plan(draft, &w->base)) merge(u, tools, w);
        if (harpe_draft_gap(search->frontier, &w->own) < harpe_draft_gap(search->frontier, draft)) {
            memcpy(draft->option, w->own.option,
                   (size_t)search->problem->instruction_count * sizeof *draft->option);
            draft->time_s = w->own.time_s;
            draft->energy_j = w->own.energy_j;
        }
    }
    if (harpe_cut_at(&w->own.cut, draft->time_s) > harpe_cut_at(&draft->cut, draft->time_s))
        draft->cut = w->own.cut;
    u->gap_sum += tight_gap(search, draft) - gap;
    harpe_unlock(&u->lock);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Writes an order in which the first numbers, however few, are spread evenly over all drafts: what
 * is found for one is of use for its neighbours, too. */
static void order_spread(size_t *order, size_t count) {
    size_t next = 0, step = 1;
    while (step < count)
        step *= 2;
    for (; step > 0; step /= 2)
        for (size_t k = 0; k < count; k += step)
            if (next == 0 || k % (2 * step) != 0) order[next++] = k;
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

/* Runs a step for the drafts of the order, in turn, for `effort_s`. The numbers of the run are the
 * first lanes of all drafts, then their second lanes, and so on. */
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
    harpe_crew_run run = {.count = u->lanes * u->count,
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

/* ---- Plans ----------------------------------------------------------------------------------- */

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
    if (status == HARPE_OK) harpe_draft_keep_better(search, draft, a);
    return status;
}

static bool is_large(const harpe_search *search) {
    return search->problem->instruction_count > HARPE_MOST_DIVED;
}

/* The first dives have twice the width of those without an effort, if there were any. Dives from
 * the last instruction to the first take the least time. */
static harpe_status dive(const harpe_search *search, harpe_tools *tools, harpe_draft *draft,
                         size_t number, harpe_error *error) {
    static const harpe_dive_order orders[HARPE_DIVE_ORDERS] = {
        HARPE_DIVE_BACKWARDS, HARPE_DIVE_FORWARDS, HARPE_DIVE_OUTWARDS, HARPE_DIVE_INWARDS};
    int first_width = is_large(search) ? 1 : 2 * harpe_draft_usual_width(search);
    tools->diver.is_over = is_over; /* a wide dive takes long */
    tools->diver.user = tools;
    return harpe_draft_dive(search, tools, draft, orders[number % HARPE_DIVE_ORDERS],
                            first_width << (number / HARPE_DIVE_ORDERS), error);
}

/* Every second turn is a dive, in all orders with each width, until the beams are wide enough.
 * Wider ones find hardly better plans. */
static harpe_status improve_step(void *user, harpe_tools *tools, size_t number, size_t turn,
                                 bool *is_done, harpe_error *error) {
    run_user *u = user;
    const harpe_search *search = u->search;
    work_copy w;
    *is_done = !begin_work(u, tools, number, turn, &w);
    if (*is_done) return HARPE_OK;
    size_t dives = w.turn / 2;
    harpe_status status;
    if (search->may_walk && w.turn % 2 == 0 && dives < DIVE_ROUNDS * HARPE_DIVE_ORDERS)
        status = dive(search, tools, &w.own, dives, error);
    else
        status =
            try_windows(search, tools, &w.own,
                        (size_t)(w.draft - search->drafts) * UINT64_C(1000003) + w.turn + 1, error);
    if (status == HARPE_OK) end_work(u, tools, &w);
    return end_of_step(tools, status);
}

/* The drafts of a large problem are not all dived in the time of most efforts. */
static harpe_status order_drafts(run_user *u, harpe_error *error) {
    size_t count = u->search->draft_count, *sorted = NULL;
    harpe_status status = harpe_draft_order(u->search, &sorted, error);
    if (status != HARPE_OK || !is_large(u->search)) {
        u->order = sorted;
        return status;
    }
    u->order = harpe_calloc(count + 1, sizeof *u->order);
    if (u->order) {
        order_spread(u->order, count);
        for (size_t i = 0; i < count; i++)
            u->order[i] = sorted[u->order[i]];
    }
    free(sorted);
    return u->order ? HARPE_OK : harpe_fail_memory(error);
}

harpe_status harpe_effort_improve(const harpe_search *search, double effort_s, bool *stopped,
                                  harpe_error *error) {
    run_user u = {.search = search, .lanes = search->crew->member_count};
    harpe_status status = order_drafts(&u, error);
    if (status == HARPE_OK) status = run_for(&u, effort_s, improve_step, stopped, error);
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

/* Each turn then searches the whole problem again with more boxes, so lanes would do the same work
 * twice. */
static bool is_one_block(const harpe_problem *problem) {
    return problem->instruction_count <= HARPE_BLOCK_MOST_MEMBERS;
}

static harpe_cut cut_of_turn(const harpe_problem *problem, size_t turn) {
    static const bound_turn turns[] = {
        {8, 16, 500}, {2, 24, 1000}, {8, 32, 2000}, {4, 40, 3000}, {8, 64, 4000},
    };
    size_t last = sizeof turns / sizeof turns[0] - 1, more = turn > last ? turn - last : 0;
    const bound_turn *of = &turns[turn < last ? turn : last];
    int ranks = of->ranks_together < problem->rank_count ? of->ranks_together : problem->rank_count;
    if (is_one_block(problem))
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
    harpe_draft_keep_better(search, draft, a);
}

/* Looks for a bound of a draft with a cut. Keeps the cut that gives the higher bound. */
static harpe_status bound(const harpe_search *search, harpe_tools *tools, harpe_draft *draft,
                          harpe_cut cut, harpe_error *error) {
    /* A flat bound is high only at its deadline. */
    int64_t time_ps = draft->deadline_ps;
    if (cut.is_flat) time_ps = llround(draft->time_s * HARPE_PS_PER_S);
    harpe_status status = harpe_draft_walk_to(search, tools, time_ps, error);
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
    return HARPE_OK;
}

static harpe_status bound_step(void *user, harpe_tools *tools, size_t number, size_t turn,
                               bool *is_done, harpe_error *error) {
    run_user *u = user;
    const harpe_search *search = u->search;
    work_copy w;
    *is_done = !begin_work(u, tools, number, turn, &w) || is_optimal(&w.base);
    if (*is_done) return HARPE_OK;
    bool is_first = u->turns == HARPE_BOUND_FIRST_TURN;
    harpe_cut cut = cut_of_turn(search->problem, is_first ? 0 : w.turn + 1);
    harpe_status status = bound(search, tools, &w.own, cut, error);
    if (status == HARPE_OK) end_work(u, tools, &w); /* also if the time has ended meanwhile */
    *is_done = is_first && status == HARPE_OK;
    return end_of_step(tools, status);
}

static bool has_fitted_curve(const harpe_problem *problem) {
    for (size_t c = 0; c < problem->choice_count; c++)
        if (problem->choices[c].is_fitted) return true;
    return false;
}

/* The bound of a fitted curve is none, and blocks price no waits. */
bool harpe_effort_can_bound(const harpe_search *search) {
    return search->may_walk && !has_fitted_curve(search->problem) &&
           !harpe_problem_has_any_wait_kinds(search->problem);
}

harpe_status harpe_effort_bound(const harpe_search *search, double effort_s,
                                harpe_bound_turns turns, bool *stopped, harpe_error *error) {
    run_user u = {.search = search, .turns = turns};
    bool has_one_lane = turns == HARPE_BOUND_FIRST_TURN || is_one_block(search->problem);
    u.lanes = has_one_lane ? 1 : search->crew->member_count;
    *stopped = false;
    if (!harpe_effort_can_bound(search)) return HARPE_OK;
    u.order = harpe_calloc(search->draft_count + 1, sizeof *u.order);
    if (!u.order) return harpe_fail_memory(error);
    order_spread(u.order, search->draft_count);
    harpe_status status = run_for(&u, effort_s, bound_step, stopped, error);
    free(u.order);
    return status;
}
