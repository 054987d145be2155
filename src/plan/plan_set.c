/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans along the frontier: chooses their iteration times, rounds the relaxed solution at
 * each time, lets search.c improve them, and evaluates every plan with measured numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/clocks_internal.h"
#include "plan/plans.h"
#include "plan/search_internal.h"

#define MOST_PLANS 1000000
#define BESIDE_ASKED 8 /* with deadlines: plans in addition to those for the requested times */
/* The number of times that each plan of the set is compared with a join of its neighbours. A better
 * join replaces the plan. */
#define SPLICE_ROUNDS 2
/* The parts of the reported progress: for finding T*, for rounding, and for refining. Joins have
 * the rest. */
#define SOLVING_SHARE 0.1
#define ROUNDING_SHARE 0.1
#define REFINING_SHARE 0.5
/* With a plan at every vertex, bounds of plans whose clocks hold are this far apart, relative. */
#define BOUND_STEP 0.005
typedef struct maker {
    const harpe_problem *problem;
    harpe_walk walk;
    harpe_crew crew;
    harpe_assignment *assignment; /* of the crew's tools for this thread */
    harpe_relaxed relaxed;        /* the solution at the time of a plan */
    harpe_draft *drafts;
    size_t draft_count, draft_capacity;
    const harpe_progress *progress; /* the caller's callback; NULL: none */
    harpe_progress walk_progress;   /* callback for the walk */
    const char *phase;              /* "solving", or "planning" after T* was found */
    double fraction;                /* progress reported last, 0 to 1; never falls */
    double share_from, share;       /* where the present part of the work begins, and its share */
    bool keeps_prices;
    harpe_clock_bound bound; /* if keeps_prices */
    double bounded_s;        /* the time of the last bound */
    double bound_step;       /* from one to the next, relative */
    double change_j;         /* energy of a change of clock */
    size_t done, wanted;     /* drafts made so far, and in total */
} maker;

/* ---- Progress -------------------------------------------------------------------------------- */

/* Reports progress. Returns false if the caller wants to stop. The fraction covers the whole
 * work. */
static bool report(maker *m, const char *phase, double fraction) {
    m->fraction = fmin(1, fmax(m->fraction, fraction));
    if (!m->progress || !m->progress->report) return true;
    return m->progress->report(m->progress->user, phase, m->fraction);
}

/* Begins the next part of the work. */
static void begin_part(maker *m, double share) {
    m->share_from += m->share;
    m->share = share;
}

/* Reports that a share of the present part is done. */
static bool report_part(maker *m, double done) {
    return report(m, m->phase, m->share_from + m->share * fmin(1, fmax(0, done)));
}

/* Receives progress of the walk. While plans are made, repeats the last fraction, only to find out
 * whether to stop. */
static bool report_walk(void *user, const char *phase, double fraction) {
    maker *m = user;
    bool is_solving = strcmp(m->phase, phase) == 0;
    return is_solving ? report_part(m, fraction) : report(m, m->phase, m->fraction);
}

/* Receives progress of the search. */
static bool report_search(void *user, double done) { return report_part(user, done); }

static harpe_status fail_interrupted(harpe_error *error) {
    return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
}

static harpe_status report_rounding(maker *m, harpe_error *error) {
    double share = m->wanted > 0 ? (double)m->done / (double)m->wanted : 0;
    m->done++;
    return report_part(m, share) ? HARPE_OK : fail_interrupted(error);
}

/* ---- Drafts ---------------------------------------------------------------------------------- */

static harpe_status add_draft(maker *m, harpe_error *error) {
    size_t count = (size_t)m->assignment->count;
    if (!HARPE_ARRAY_RESERVE(m->drafts, m->draft_capacity, m->draft_count + 1))
        return harpe_fail_memory(error);
    harpe_draft *added = &m->drafts[m->draft_count];
    *added = (harpe_draft){0};
    added->option = harpe_calloc(count, sizeof *added->option);
    if (!added->option) return harpe_fail_memory(error);
    harpe_draft_take(added, m->assignment);
    m->draft_count++;
    return HARPE_OK;
}

/* Copies the prices of the relaxation into a draft, if its clocks must hold. */
static harpe_status keep_prices(const maker *m, harpe_draft *draft, const int64_t *price_uw,
                                harpe_error *error) {
    size_t count = (size_t)m->problem->instruction_count;
    if (!m->keeps_prices) return HARPE_OK;
    draft->price_uw = harpe_calloc(count, sizeof *draft->price_uw);
    if (!draft->price_uw) return harpe_fail_memory(error);
    memcpy(draft->price_uw, price_uw, count * sizeof *price_uw);
    return HARPE_OK;
}

/* Adds the bound of plans that take at most a time, unless it is near the bound before. */
static harpe_status bound_draft(maker *m, int64_t longest_ps, harpe_error *error) {
    double longest_s = (double)longest_ps / HARPE_PS_PER_S;
    if (!m->keeps_prices || longest_s > m->bounded_s * (1 - m->bound_step)) return HARPE_OK;
    m->bounded_s = longest_s;
    return harpe_clock_bound_add(&m->bound, &m->walk, longest_s, error);
}

/* Makes the draft of a time. */
static harpe_status make_draft(maker *m, harpe_wanted_time wanted, harpe_error *error) {
    harpe_status status = harpe_walk_to(&m->walk, wanted.time_ps, error);
    if (status != HARPE_OK) return status;
    status = bound_draft(m, wanted.longest_ps, error);
    if (status != HARPE_OK) return status;
    harpe_walk_read(&m->walk, &m->relaxed);
    status = harpe_assignment_round(m->assignment, &m->relaxed, error);
    if (status == HARPE_OK) status = add_draft(m, error);
    if (status == HARPE_OK) {
        harpe_draft *added = &m->drafts[m->draft_count - 1];
        added->deadline_ps = wanted.time_ps;
        added->longest_ps = wanted.longest_ps;
        added->is_asked = wanted.is_asked;
        status = keep_prices(m, added, m->relaxed.price_uw, error);
    }
    if (status == HARPE_OK) status = report_rounding(m, error);
    return status;
}

/* ---- Drafts at times ------------------------------------------------------------------------- */

static harpe_status draft_at_times(maker *m, const harpe_plan_request *request,
                                   harpe_error *error) {
    harpe_wanted_times times = {0};
    harpe_status status = harpe_plan_times(&m->walk, request, &times, error);
    m->wanted = times.count;
    for (size_t i = 0; status == HARPE_OK && i < times.count; i++)
        status = make_draft(m, times.items[i], error);
    free(times.items);
    return status;
}

/* Makes a draft at every vertex. The number of vertices is known only at the end, so the reported
 * progress depends on the part of the iteration time that the walk has covered. */
static harpe_status draft_at_vertices(maker *m, harpe_error *error) {
    int64_t slowest = m->walk.minimum_energy_ps, fastest = m->walk.fastest_ps;
    m->wanted = 1000;
    for (;;) {
        int64_t time_ps = m->walk.solver.time_ps;
        if (slowest > fastest)
            m->done = (size_t)(1000 * (double)(slowest - time_ps) / (double)(slowest - fastest));
        harpe_wanted_time wanted = {.time_ps = time_ps, .longest_ps = time_ps};
        harpe_status status = make_draft(m, wanted, error);
        if (status != HARPE_OK || time_ps <= m->walk.fastest_ps) return status;
        status = harpe_walk_to_next_vertex(&m->walk, error);
        if (status != HARPE_OK) return status;
    }
}

/* ---- Drafts with deadlines ------------------------------------------------------------------- */

/* The rounding and the search have one deadline, the end of the iteration. In an iteration of time
 * T, any other deadline D has the same effect as a delay of T - D before the end. So the plan for
 * each time is made from a problem with such delays. */
typedef struct delay_before_end {
    double time_s, energy_j;
    harpe_profile_point point;
    harpe_option option;
} delay_before_end;

typedef struct timed_problem {
    harpe_arena arena;
    harpe_problem problem; /* shares all but the choices with the problem that has the deadlines */
    const harpe_deadline *deadlines;
    size_t deadline_count;
    delay_before_end *delays; /* [deadline_count] */
} timed_problem;

static void set_time(timed_problem *timed, int64_t time_ps) {
    for (size_t d = 0; d < timed->deadline_count; d++) {
        delay_before_end *delay = &timed->delays[d];
        int64_t left_ps = time_ps - harpe_round_down(timed->deadlines[d].time_s * HARPE_PS_PER_S);
        delay->time_s = left_ps > 0 ? (double)left_ps / HARPE_PS_PER_S : 0;
        delay->point.time_s = delay->option.time_s = delay->time_s;
    }
}

/* The result must not be moved. Free its arena, also after a failure. */
static harpe_status make_timed_problem(const harpe_problem *problem, timed_problem *out,
                                       harpe_error *error) {
    size_t choices = problem->choice_count, count = problem->deadline_count;
    *out = (timed_problem){
        .problem = *problem, .deadlines = problem->deadlines, .deadline_count = count};
    out->problem.deadline_count = 0;
    out->problem.choices = harpe_arena_alloc(&out->arena, choices, sizeof *problem->choices);
    out->delays = harpe_arena_alloc(&out->arena, count, sizeof *out->delays);
    if (out->arena.has_failed) return harpe_fail_memory(error);
    memcpy(out->problem.choices, problem->choices, choices * sizeof *problem->choices);
    for (size_t d = 0; d < count; d++) {
        int32_t instruction = problem->deadlines[d].instruction;
        harpe_choice *choice = &out->problem.choices[problem->choice_of[instruction]];
        delay_before_end *delay = &out->delays[d];
        delay->point = choice->points[0];
        delay->option = choice->list.options[0];
        choice->points = &delay->point;
        choice->list.options = &delay->option;
        choice->list.curve_time_s = &delay->time_s;
        choice->list.curve_effective_energy_j = &delay->energy_j;
    }
    return HARPE_OK;
}

/* Lists the times of the plans. These are the times of the vertices if the request asks for all
 * vertices. Otherwise they are the times for a problem without deadlines, and BESIDE_ASKED more if
 * the request names its times. */
static harpe_status times_with_deadlines(const maker *m, harpe_plan_request request,
                                         const harpe_frontier *frontier, harpe_wanted_times *out,
                                         harpe_error *error) {
    if (request.choice == HARPE_PLANS_AT) request.count = BESIDE_ASKED;
    if (request.choice != HARPE_PLANS_ALL) return harpe_plan_times(&m->walk, &request, out, error);
    out->items = harpe_calloc(frontier->count, sizeof *out->items);
    if (!out->items) return harpe_fail_memory(error);
    for (; out->count < frontier->count; out->count++) {
        int64_t time_ps = harpe_round_down(frontier->vertices[out->count].time_s * HARPE_PS_PER_S);
        if (time_ps > m->walk.minimum_energy_ps) time_ps = m->walk.minimum_energy_ps;
        out->items[out->count].time_ps =
            time_ps > m->walk.fastest_ps ? time_ps : m->walk.fastest_ps;
    }
    return HARPE_OK;
}

static harpe_status draft_with_deadlines(maker *m, const harpe_plan_request *request,
                                         const harpe_frontier *frontier, harpe_error *error) {
    timed_problem timed;
    harpe_wanted_times times = {0};
    harpe_status status = make_timed_problem(m->problem, &timed, error);
    if (status == HARPE_OK) status = times_with_deadlines(m, *request, frontier, &times, error);
    m->wanted = times.count;
    begin_part(m, 1 - SOLVING_SHARE);
    for (size_t i = 0; i < m->wanted && status == HARPE_OK; i++) {
        int64_t time_ps = times.items[i].time_ps;
        harpe_plan_set *set = NULL;
        status = report_rounding(m, error);
        if (status != HARPE_OK) break;
        double time_s = (double)time_ps / HARPE_PS_PER_S;
        harpe_plan_request one = {.choice = HARPE_PLANS_AT,
                                  .times_s = &time_s,
                                  .time_count = 1,
                                  .threads = request->threads};
        set_time(&timed, time_ps);
        status = harpe_plan_set_new(&timed.problem, &one, NULL, NULL, &set, error);
        if (status == HARPE_OK &&
            !HARPE_ARRAY_RESERVE(m->drafts, m->draft_capacity, m->draft_count + 1))
            status = harpe_fail_memory(error);
        if (status == HARPE_OK) {
            int *frequency_mhz = (int *)set->plans[0].frequency_mhz;
            set->plans[0].frequency_mhz = NULL;
            m->drafts[m->draft_count++] =
                (harpe_draft){.deadline_ps = time_ps, .frequency_mhz = frequency_mhz};
        }
        harpe_plan_set_free(set);
    }
    free(times.items);
    harpe_arena_free(&timed.arena);
    return status;
}

/* ---- Finishing ------------------------------------------------------------------------------- */

/* Adds, for the time of each draft, the best plan with one clock for all GPUs, if it needs less
 * energy than the best in `all` within this time. Where the highest clocks of instructions differ,
 * the plan at the highest clocks is not one of them. */
static harpe_status add_one_clock(maker *m, harpe_plan_set *all, harpe_error *error) {
    harpe_plan_set *simple = NULL;
    if (m->problem->graph) return HARPE_OK;
    harpe_status status = harpe_plan_set_one_clock(m->problem, &simple, error);
    for (size_t i = 0; i < m->draft_count && status == HARPE_OK; i++) {
        double most_s = (double)m->drafts[i].deadline_ps / HARPE_PS_PER_S;
        const harpe_plan *plan = harpe_plan_set_within(simple, most_s);
        const harpe_plan *best = harpe_plan_set_within(all, most_s);
        if (!plan || harpe_plan_one_clock_mhz(m->problem, plan->frequency_mhz) == 0) continue;
        if (!best || harpe_plan_set_cost_j(m->problem, m->change_j, best) > plan->energy_j)
            status = harpe_plan_set_add(all, m->problem, plan->frequency_mhz, error);
    }
    harpe_plan_set_free(simple);
    return status;
}

/* Plans from which those within limits on power are made, if times were asked for. */
#define LIMITED_STARTS 24

/* Replaces plans that break the limits on power. */
static harpe_status keep_limits(maker *m, const harpe_plan_request *request, harpe_plan_set *all,
                                harpe_error *error) {
    begin_part(m, 0); /* the fraction stays, and the caller can stop */
    harpe_status status =
        harpe_power_limits_keep(m->problem, request, report_search, m, all, error);
    if (status == HARPE_OK) harpe_plan_set_drop_dominated(all, m->problem, m->change_j);
    return status;
}

/* Evaluates the drafts, and chooses among them and the plans with one clock for all GPUs that are
 * better. */
static harpe_status finish(maker *m, const harpe_plan_request *request,
                           const harpe_frontier *frontier, harpe_plan_set **out,
                           harpe_error *error) {
    harpe_plan_set *all = harpe_calloc(1, sizeof *all);
    harpe_status status = all ? HARPE_OK : harpe_fail_memory(error);
    for (size_t i = 0; i < m->draft_count && status == HARPE_OK; i++)
        status = harpe_plan_set_add(all, m->problem, m->drafts[i].frequency_mhz, error);
    if (status == HARPE_OK && request->choice != HARPE_PLANS_ALL)
        status = add_one_clock(m, all, error);
    if (status == HARPE_OK) harpe_plan_set_drop_dominated(all, m->problem, m->change_j);
    if (status == HARPE_OK && harpe_power_limits_are_wanted(request))
        status = keep_limits(m, request, all, error);
    if (status == HARPE_OK && request->choice == HARPE_PLANS_AT)
        status = harpe_plan_set_pick(all, m->problem, request->times_s, request->time_count, error);
    if (status == HARPE_OK && !report(m, m->phase, 1)) status = fail_interrupted(error);
    if (status != HARPE_OK) {
        harpe_plan_set_free(all);
        return status;
    }
    for (size_t i = 0; i < all->count; i++)
        all->plans[i].lower_bound_j = harpe_frontier_bound_of(frontier, m->problem, &all->plans[i]);
    *out = all;
    return HARPE_OK;
}

/* Prepares the bounds of plans whose clocks hold, and adds that of all times. */
static harpe_status begin_bounds(maker *m, const harpe_plan_request *request, harpe_error *error) {
    harpe_status status = harpe_clock_bound_init(&m->bound, m->problem, &request->clock_switch,
                                                 &m->walk.network, error);
    if (status != HARPE_OK) return status;
    m->bounded_s = INFINITY;
    m->bound_step = request->choice == HARPE_PLANS_ALL ? BOUND_STEP : 0;
    return bound_draft(m, m->walk.slowest_ps, error);
}

/* Solves the problem down to T*, and prepares for making plans. */
static harpe_status maker_init(maker *m, const harpe_problem *problem,
                               const harpe_plan_request *request, const harpe_progress *progress,
                               harpe_error *error) {
    memset(m, 0, sizeof *m);
    m->problem = problem;
    m->progress = progress;
    m->walk_progress = (harpe_progress){.report = report_walk, .user = m};
    m->phase = "solving";
    m->change_j = request->clock_switch.energy_j;
    m->keeps_prices = harpe_clock_switch_has_cost(problem, &request->clock_switch);
    begin_part(m, SOLVING_SHARE);
    if (!report_part(m, 0)) return fail_interrupted(error);
    harpe_status status = harpe_walk_begin(&m->walk, problem, &m->walk_progress, error);
    if (status != HARPE_OK) return status;
    m->phase = "planning";
    if (problem->deadline_count > 0) return HARPE_OK;
    size_t count = (size_t)problem->instruction_count;
    m->relaxed.duration_ps = harpe_calloc(count, sizeof(int64_t));
    m->relaxed.price_uw = harpe_calloc(count, sizeof(int64_t));
    if (!m->relaxed.duration_ps || !m->relaxed.price_uw) return harpe_fail_memory(error);
    if (m->keeps_prices && !problem->graph) status = begin_bounds(m, request, error);
    if (status != HARPE_OK) return status;
    status = harpe_crew_init(&m->crew, problem, &m->walk.network, request->threads, error);
    if (status == HARPE_OK) m->assignment = &harpe_crew_tools(&m->crew)->assignment;
    return status;
}

static void maker_clear(maker *m) {
    for (size_t i = 0; i < m->draft_count; i++) {
        free(m->drafts[i].option);
        free(m->drafts[i].frequency_mhz);
        free(m->drafts[i].price_uw);
    }
    free(m->drafts);
    harpe_clock_bound_clear(&m->bound);
    harpe_crew_clear(&m->crew);
    harpe_walk_clear(&m->walk);
    free(m->relaxed.duration_ps);
    free(m->relaxed.price_uw);
}

/* Makes a draft for each plan by rounding. */
static harpe_status round_all(maker *m, const harpe_plan_request *request, harpe_error *error) {
    begin_part(m, ROUNDING_SHARE);
    return request->choice == HARPE_PLANS_ALL ? draft_at_vertices(m, error)
                                              : draft_at_times(m, request, error);
}

/* Joins the drafts, SPLICE_ROUNDS times. */
static harpe_status join(maker *m, const harpe_search *search, double share, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (int round = 0; status == HARPE_OK && round < SPLICE_ROUNDS; round++) {
        begin_part(m, share / SPLICE_ROUNDS);
        status = harpe_search_join(search, error);
    }
    return status;
}

/* Adds drafts that may take longer than T*, which is the time of least energy if each instruction
 * has its own clock. With one clock for several instructions, a plan may need the least energy at a
 * longer time. */
static harpe_status add_slower_drafts(maker *m, harpe_error *error) {
    static const double factors[] = {1.005, 1.01, 1.02, 1.03, 1.04, 1.06, 1.08, 1.1, 1.15, 1.2};
    size_t slowest = 0;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < m->draft_count; i++)
        if (m->drafts[i].time_s > m->drafts[slowest].time_s) slowest = i;
    for (size_t k = 0; k < sizeof factors / sizeof factors[0] && status == HARPE_OK; k++) {
        const harpe_draft *from = &m->drafts[slowest];
        int64_t deadline_ps = from->deadline_ps;
        double longest_ps = factors[k] * (double)m->walk.minimum_energy_ps;
        harpe_assignment_restore(m->assignment, from->option, deadline_ps);
        status = add_draft(m, error);
        if (status != HARPE_OK) return status;
        harpe_draft *added = &m->drafts[m->draft_count - 1];
        added->deadline_ps = deadline_ps;
        added->longest_ps = harpe_round_down(fmin(longest_ps, (double)m->walk.slowest_ps));
        status = keep_prices(m, added, m->drafts[slowest].price_uw, error);
    }
    return status;
}

/* Returns whether a clock must hold for longer than most instructions take. Plans then have few
 * changes, and clock_runs.c finds them without a draft that is good. */
static bool has_few_changes(const harpe_problem *problem, const harpe_clock_switch *cost) {
    double sum_s = 0;
    size_t count = harpe_problem_instruction_count(problem);
    for (size_t i = 0; i < count; i++)
        sum_s += harpe_problem_choice(problem, (int32_t)i)->list.options[0].time_s;
    double longest_s = harpe_clock_switch_longest_s(problem, cost);
    return fmax(cost->minimum_dwell_s, longest_s) * (double)count > sum_s;
}

/* Improves the drafts. The whole frontier is known. */
static harpe_status improve_all(maker *m, const harpe_plan_request *request,
                                const harpe_frontier *frontier, harpe_error *error) {
    harpe_search search = {
        .problem = m->problem,
        .frontier = frontier,
        .fastest = &m->walk.solver,
        .crew = &m->crew,
        .drafts = m->drafts,
        .draft_count = m->draft_count,
        .report = report_search,
        .user = m,
    };
    begin_part(m, REFINING_SHARE);
    bool must_refine = !has_few_changes(m->problem, &request->clock_switch);
    harpe_status status = must_refine ? harpe_search_refine(&search, error) : HARPE_OK;
    if (status == HARPE_OK && must_refine)
        status = join(m, &search, 1 - SOLVING_SHARE - ROUNDING_SHARE - REFINING_SHARE, error);
    if (status == HARPE_OK && request->choice != HARPE_PLANS_AT &&
        harpe_clock_switch_has_cost(m->problem, &request->clock_switch))
        status = add_slower_drafts(m, error);
    search.drafts = m->drafts;
    search.draft_count = m->draft_count;
    if (status == HARPE_OK) status = harpe_search_finish(&search, &request->clock_switch, error);
    return status;
}

static harpe_status check_request(const harpe_problem *problem, const harpe_plan_request *request,
                                  harpe_error *error) {
    if (request->count < 0 || request->count > MOST_PLANS || request->time_count > MOST_PLANS) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "too many plans: ask for 1 to %d",
                          MOST_PLANS);
    }
    if (request->choice == HARPE_PLANS_AT && request->time_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "no iteration times to make plans for");
    if (request->choice < HARPE_PLANS_SPREAD || request->choice > HARPE_PLANS_AT) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "unknown choice of plans %d",
                          (int)request->choice);
    }
    if (request->threads < 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the number of threads must be 0 or more");
    harpe_status status = harpe_power_limits_check(request->max_peak_power_w, request->max_swing_w,
                                                   request->max_swing_share, error);
    if (status == HARPE_OK && problem->deadline_count > 0 && harpe_power_limits_are_wanted(request))
        status =
            harpe_fail(error, HARPE_NOT_SUPPORTED, "a graph with deadlines has no limits on power");
    if (status != HARPE_OK) return status;
    return harpe_clock_switch_check(problem, &request->clock_switch, error);
}

harpe_status harpe_plan_set_new(const harpe_problem *problem, const harpe_plan_request *request,
                                const harpe_progress *progress, harpe_frontier **frontier,
                                harpe_plan_set **out, harpe_error *error) {
    static const harpe_plan_request defaults = {.choice = HARPE_PLANS_SPREAD};
    if (!request) request = &defaults;
    harpe_status status = check_request(problem, request, error);
    if (status != HARPE_OK) return status;
    double began_s = harpe_clock_s();
    harpe_plan_request with_starts = *request;
    if (harpe_power_limits_are_wanted(request) && request->choice == HARPE_PLANS_AT) {
        if (request->count < LIMITED_STARTS) with_starts.count = LIMITED_STARTS;
        request = &with_starts;
    }
    maker m;
    harpe_frontier *solved = NULL;
    status = maker_init(&m, problem, request, progress, error);
    bool has_deadlines = problem->deadline_count > 0;
    if (status == HARPE_OK && !has_deadlines) status = round_all(&m, request, error);
    if (status == HARPE_OK) status = harpe_walk_finish(&m.walk, m.walk.fastest_ps, &solved, error);
    if (status == HARPE_OK)
        status = has_deadlines ? draft_with_deadlines(&m, request, solved, error)
                               : improve_all(&m, request, solved, error);
    if (status == HARPE_OK) status = finish(&m, request, solved, out, error);
    maker_clear(&m);
    if (status != HARPE_OK) {
        harpe_frontier_free(solved);
        return status;
    }
    solved->work.assign_s = harpe_clock_s() - began_s - solved->work.build_s - solved->work.solve_s;
    if (frontier)
        *frontier = solved;
    else
        harpe_frontier_free(solved);
    return HARPE_OK;
}

/* ---- Contents of a set ----------------------------------------------------------------------- */

/* Adds plans to a set, sorts them, and chooses among them by time and energy. Of plans,
 * makes only those with one clock for all GPUs, which need no search. */

/* A plan may take longer than a limit by this share, so that the printed time of a plan, given as a
 * limit, finds the plan: sums in another order differ in the last digits. */
#define SLACK 1e-9
/* Two energies that differ by less than this share are equal: the order of addition alone can
 * change a sum of thousands of numbers by this much. */
#define ENERGY_ROUNDING 1e-11
#define TIME_ROUNDING 1e-12

harpe_status harpe_plan_set_add(harpe_plan_set *set, const harpe_problem *problem,
                                const int *frequency_mhz, harpe_error *error) {
    if (!HARPE_ARRAY_RESERVE(set->plans, set->capacity, set->count + 1))
        return harpe_fail_memory(error);
    int *copy = harpe_calloc((size_t)problem->instruction_count, sizeof *copy);
    if (!copy) return harpe_fail_memory(error);
    memcpy(copy, frequency_mhz, harpe_problem_instruction_count(problem) * sizeof *copy);
    harpe_status status = harpe_plan_evaluate(problem, copy, &set->plans[set->count], NULL, error);
    if (status == HARPE_OK)
        set->count++;
    else
        free(copy);
    return status;
}

static int compare_plans(const void *a, const void *b) {
    const harpe_plan *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    return (x->energy_j > y->energy_j) - (x->energy_j < y->energy_j);
}

/* Sorts the fastest first. Of equally fast plans the one with less energy is first. */
static void plan_set_sort(harpe_plan_set *set) {
    qsort(set->plans, set->count, sizeof *set->plans, compare_plans);
}

/* NOLINTBEGIN(clang-analyzer-unix.Malloc): no two plans of a set share their clocks */
double harpe_plan_set_cost_j(const harpe_problem *problem, double change_j,
                             const harpe_plan *plan) {
    if (change_j <= 0) return plan->energy_j;
    return plan->energy_j + change_j * (double)harpe_evaluate_changes(problem, plan->frequency_mhz);
}

void harpe_plan_set_drop_dominated(harpe_plan_set *set, const harpe_problem *problem,
                                   double change_j) {
    size_t kept = 0;
    double power_w = harpe_problem_iteration_power_w(problem);
    plan_set_sort(set);
    for (size_t i = 0; i < set->count; i++) {
        harpe_plan plan = set->plans[i], *last = kept > 0 ? &set->plans[kept - 1] : NULL;
        double rounding_j =
            last ? ENERGY_ROUNDING * (fabs(last->energy_j) + power_w * last->time_s) : 0;
        if (last && harpe_plan_set_cost_j(problem, change_j, &plan) >=
                        harpe_plan_set_cost_j(problem, change_j, last) - rounding_j) {
            free((void *)plan.frequency_mhz);
            continue;
        }
        bool is_as_fast = last && plan.time_s <= last->time_s * (1 + TIME_ROUNDING);
        if (is_as_fast) free((void *)last->frequency_mhz);
        set->plans[is_as_fast ? kept - 1 : kept++] = plan;
    }
    set->count = kept;
}
/* NOLINTEND(clang-analyzer-unix.Malloc) */

harpe_status harpe_plan_set_pick(harpe_plan_set *set, const harpe_problem *problem,
                                 const double *times_s, size_t count, harpe_error *error) {
    harpe_plan_set picked = {0};
    harpe_status status = HARPE_OK;
    for (size_t k = 0; k < count && status == HARPE_OK; k++) {
        size_t best = 0;
        while (best + 1 < set->count && set->plans[best + 1].time_s <= times_s[k] * (1 + SLACK))
            best++;
        status = harpe_plan_set_add(&picked, problem, set->plans[best].frequency_mhz, error);
    }
    harpe_plan_set_clear(set);
    *set = picked;
    return status;
}

const harpe_plan *harpe_plan_set_within(const harpe_plan_set *plans, double most_s) {
    const harpe_plan *best = NULL;
    for (size_t i = 0; i < plans->count; i++) {
        const harpe_plan *plan = &plans->plans[i];
        if (plan->time_s > most_s * (1 + SLACK)) continue;
        if (!best || plan->energy_j < best->energy_j) best = plan;
    }
    return best;
}

void harpe_plan_set_clear(harpe_plan_set *set) {
    for (size_t i = 0; i < set->count; i++)
        free((void *)set->plans[i].frequency_mhz);
    free(set->plans);
}

void harpe_plan_set_free(harpe_plan_set *plans) {
    if (plans) harpe_plan_set_clear(plans);
    free(plans);
}

size_t harpe_plan_set_count(const harpe_plan_set *plans) { return plans->count; }

const harpe_plan *harpe_plan_set_at(const harpe_plan_set *plans, size_t index) {
    return index < plans->count ? &plans->plans[index] : NULL;
}

/* ---- Plans with one clock -------------------------------------------------------------------- */

/* Makes the plans with one clock for all GPUs, which a user can have without a planner. Their set
 * also has the plan at the highest clocks. */

/* Returns the measured clocks of the first instruction that has clocks. A clock of all
 * instructions is one of these. */
static const harpe_choice *first_with_clocks(const harpe_problem *problem) {
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, i);
        if (harpe_choice_has_clocks(choice)) return choice;
    }
    return NULL;
}

/* Returns true if the GPU did not reach the clock of a point, and false for the highest clock,
 * because all savings are shown against it. */
static bool is_throttled(const harpe_choice *choice, const harpe_profile_point *point) {
    return point > choice->points && point < choice->points + choice->throttled_count;
}

/* Adds the plan with one clock, unless an instruction was not measured at this clock or did not
 * reach it. 0 MHz is no clock; a profile may have such a row beside others. */
static harpe_status add_clock(const harpe_problem *problem, int clock_mhz, int *frequency_mhz,
                              harpe_plan_set *set, harpe_error *error) {
    if (clock_mhz == 0) return HARPE_OK;
    for (size_t i = 0; i < harpe_problem_instruction_count(problem); i++) {
        const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
        const harpe_profile_point *point = harpe_choice_point(choice, clock_mhz);
        if (!point || is_throttled(choice, point)) return HARPE_OK;
        frequency_mhz[i] = point->frequency_mhz;
    }
    return harpe_plan_set_add(set, problem, frequency_mhz, error);
}

static harpe_status make_plans(const harpe_problem *problem, int *frequency_mhz,
                               harpe_plan_set *set, harpe_error *error) {
    const harpe_choice *choice = first_with_clocks(problem);
    harpe_status status = HARPE_OK;
    for (size_t p = 0; choice && p < choice->point_count && status == HARPE_OK; p++)
        status = add_clock(problem, choice->points[p].frequency_mhz, frequency_mhz, set, error);
    harpe_plan highest;
    if (status == HARPE_OK) status = harpe_plan_all_maximum(problem, &highest, error);
    if (status != HARPE_OK) return status;
    /* If the plan at the highest clocks has one clock, it is in the set already. */
    if (set->count == 0 || harpe_plan_one_clock_mhz(problem, highest.frequency_mhz) == 0)
        status = harpe_plan_set_add(set, problem, highest.frequency_mhz, error);
    plan_set_sort(set);
    return status;
}

harpe_status harpe_plan_set_one_clock(const harpe_problem *problem, harpe_plan_set **out,
                                      harpe_error *error) {
    if (problem->graph)
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "a graph has no plans with one clock: its activities have options, "
                          "which need not be clocks");
    harpe_plan_set *set = harpe_calloc(1, sizeof *set);
    int *frequency_mhz =
        harpe_calloc(harpe_problem_instruction_count(problem), sizeof *frequency_mhz);
    harpe_status status = set && frequency_mhz ? make_plans(problem, frequency_mhz, set, error)
                                               : harpe_fail_memory(error);
    free(frequency_mhz);
    if (status == HARPE_OK)
        *out = set;
    else
        harpe_plan_set_free(set);
    return status;
}

int harpe_plan_one_clock_mhz(const harpe_problem *problem, const int *frequency_mhz) {
    int clock_mhz = 0;
    for (size_t i = 0; !problem->graph && i < harpe_problem_instruction_count(problem); i++) {
        if (frequency_mhz[i] == 0) continue;
        if (clock_mhz != 0 && frequency_mhz[i] != clock_mhz) return 0;
        clock_mhz = frequency_mhz[i];
    }
    return clock_mhz;
}
