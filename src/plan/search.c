/* SPDX-License-Identifier: Apache-2.0 */
/* The search for better drafts, see search_internal.h, and plans for one time, see plans.h.
 * assignment.c and dive.c do the work on one draft. */
#include "plan/search_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/clocks_internal.h"
#include "plan/plans.h"

/* A relative gap below this is a rounding error: the draft cannot be improved. */
#define CLOSED_GAP 1e-10
/* Positions that local search may recompute for each result of rounding, a dive or a join. */
#define ROUNDING_VISITS UINT64_C(600000)
#define ROUNDING_VISITS_BEFORE_DIVES UINT64_C(50000)
#define DIVE_VISITS UINT64_C(200000)
#define REPLICA_DIVE_VISITS UINT64_C(300000)
#define JOIN_VISITS UINT64_C(600000)
#define JOIN_VISITS_AFTER_DIVES UINT64_C(100000)
#define NO_DRAFT SIZE_MAX
/* Problems with more instructions get no dive, because the time of a dive grows faster than the
 * number of instructions. */
#define MOST_DIVED 2000
/* Plans from prices that local search improves, if changes of clock have a cost. */
#define MOST_STARTS 6
/* Most users choose a plan near the fastest one. A draft that takes at most this share longer has
 * NEAR_WEIGHT times the work of others, and one that takes at most NEAREST_SHARE longer has
 * NEAREST_WEIGHT times. */
#define NEAR_SHARE 0.05
#define NEAR_WEIGHT 4
#define NEAREST_SHARE 0.02
#define NEAREST_WEIGHT 8

/* The common part of the runs of this file. */
typedef struct run_user {
    const harpe_search *search;
    size_t *order;  /* the drafts, the latest deadline first; joins: the hull */
    int weight_sum; /* dives: of all drafts */
    const harpe_clock_switch *cost;
    bool has_cost;
    size_t *fast, *slow; /* joins: the neighbours on the hull; NO_DRAFT: none */
} run_user;

/* ---- Drafts ---------------------------------------------------------------------------------- */

/* Sets time and energy of a draft to those of an assignment. */
static void measure(harpe_draft *draft, const harpe_assignment *a) {
    draft->time_s = (double)harpe_assignment_time_ps(a) / HARPE_PS_PER_S;
    draft->energy_j = a->energy_j + harpe_problem_iteration_power_w(a->problem) * draft->time_s -
                      harpe_assignment_wait_saving_j(a);
}

void harpe_draft_take(harpe_draft *draft, const harpe_assignment *assignment) {
    memcpy(draft->option, assignment->option, (size_t)assignment->count * sizeof *draft->option);
    measure(draft, assignment);
}

/* Returns the distance of a draft to the relaxation's bound at its deadline, relative to the
 * bound. */
static double gap_of(const harpe_frontier *frontier, const harpe_draft *draft) {
    double bound_j =
        harpe_frontier_relaxed_at(frontier, (double)draft->deadline_ps / HARPE_PS_PER_S);
    return (draft->energy_j - bound_j) / fabs(bound_j);
}

/* Replaces the draft by the assignment if this needs less energy. */
static void keep_better(const harpe_search *search, harpe_draft *draft,
                        const harpe_assignment *assignment) {
    harpe_draft found = {.deadline_ps = draft->deadline_ps};
    measure(&found, assignment);
    if (gap_of(search->frontier, &found) < gap_of(search->frontier, draft))
        harpe_draft_take(draft, assignment);
}

/* ---- Dives ----------------------------------------------------------------------------------- */

static bool goes_on(void *user, const char *phase, double fraction) {
    (void)phase;
    (void)fraction;
    return !harpe_crew_is_over(user);
}

/* Brings the thread's own walk to a time, with a new walk if it has passed this time. In the order
 * of run_in_order, each thread needs only one walk. Fails with
 * HARPE_INTERRUPTED if the run must end. */
static harpe_status walk_to(const harpe_search *search, harpe_tools *tools, int64_t time_ps,
                            harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (tools->is_walking && tools->walk.solver.time_ps < time_ps) {
        harpe_walk_clear(&tools->walk);
        tools->is_walking = false;
    }
    tools->walk_progress = (harpe_progress){.report = goes_on, .user = tools};
    if (!tools->is_walking) {
        status = harpe_walk_begin(&tools->walk, search->problem, &tools->walk_progress, error);
        if (status != HARPE_OK) return status;
        tools->is_walking = true;
    }
    status = harpe_walk_to(&tools->walk, time_ps, error);
    if (status != HARPE_OK) {
        harpe_walk_clear(&tools->walk);
        tools->is_walking = false;
    }
    return status;
}

static bool is_over(void *tools) { return harpe_crew_is_over(tools); }

/* Dives at the solver's time with the tools of one thread, and improves the result by local search
 * that recomputes at most `visits` positions. If `*found` becomes true, tools->assignment has the
 * result. */
static harpe_status dive_from(harpe_tools *tools, const harpe_frontier_solver *solver, int width,
                              uint64_t visits, bool *found, harpe_error *error) {
    harpe_assignment *a = &tools->assignment;
    harpe_status status = harpe_diver_dive(&tools->diver, solver, width, found, error);
    if (status != HARPE_OK || !*found) return status;
    for (int32_t i = 0; i < a->count; i++)
        tools->ordered[i] = tools->diver.option[a->instruction_at[i]];
    harpe_assignment_restore(a, tools->ordered, solver->time_ps);
    status = harpe_assignment_settle(a, a->deadline_ps, error);
    return status == HARPE_OK ? harpe_assignment_improve(a, visits, error) : status;
}

/* Dives at the draft's deadline, and keeps the result if it is better. */
static harpe_status dive_at(const harpe_search *search, harpe_tools *tools, harpe_draft *draft,
                            int width, harpe_error *error) {
    bool found = false;
    tools->diver.is_over = is_over;
    tools->diver.user = tools;
    harpe_status status = HARPE_OK;
    const harpe_frontier_solver *solver = search->fastest;
    if (draft->deadline_ps != solver->time_ps) {
        status = walk_to(search, tools, draft->deadline_ps, error);
        solver = &tools->walk.solver;
    }
    if (status == HARPE_OK) status = dive_from(tools, solver, width, DIVE_VISITS, &found, error);
    if (status == HARPE_OK && found) keep_better(search, draft, &tools->assignment);
    return status;
}

/* ---- Order ----------------------------------------------------------------------------------- */

static int compare_deadlines(const void *a, const void *b, void *drafts) {
    int64_t x = ((const harpe_draft *)drafts)[*(const size_t *)a].deadline_ps;
    int64_t y = ((const harpe_draft *)drafts)[*(const size_t *)b].deadline_ps;
    if (x != y) return x > y ? -1 : 1;
    return *(const size_t *)a < *(const size_t *)b ? -1 : 1;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static bool report_begun(void *user, size_t begun) {
    const harpe_search *search = ((run_user *)user)->search;
    if (!search->report) return true;
    return search->report(search->user, (double)begun / (double)search->draft_count);
}

static harpe_status run_once(run_user *u,
                             harpe_status (*step)(void *, harpe_tools *, size_t, harpe_error *),
                             harpe_error *error) {
    harpe_crew_run run = {
        .count = u->search->draft_count, .step = step, .report = report_begun, .user = u};
    return harpe_crew_do(u->search->crew, &run, error);
}

/* Runs a step for all drafts, the one with the latest deadline first. */
static harpe_status run_in_order(run_user *u,
                                 harpe_status (*step)(void *, harpe_tools *, size_t, harpe_error *),
                                 harpe_error *error) {
    size_t count = u->search->draft_count;
    u->order = harpe_calloc(count + 1, sizeof *u->order);
    if (!u->order) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++)
        u->order[i] = i;
    qsort_r(u->order, count, sizeof *u->order, compare_deadlines, u->search->drafts);
    harpe_status status = run_once(u, step, error);
    free(u->order);
    return status;
}

/* ---- Local search and dives ------------------------------------------------------------------ */

static bool is_dived(const harpe_search *search) {
    return search->problem->instruction_count <= MOST_DIVED;
}

/* Returns the weight of a draft. Its share of the work of all dives is its weight divided by the
 * sum of all weights. */
static int weight_of(const harpe_search *search, const harpe_draft *draft) {
    size_t count;
    double fastest_s = harpe_frontier_vertices(search->frontier, &count)[0].time_s;
    double longer = (double)draft->deadline_ps / HARPE_PS_PER_S / fastest_s - 1;
    return longer <= NEAREST_SHARE ? NEAREST_WEIGHT : longer <= NEAR_SHARE ? NEAR_WEIGHT : 1;
}

/* The dive of a draft. Its mean width over all drafts does not depend on the weights, and so the
 * work of all dives hardly does. It is smaller for large problems, because the time of a dive grows
 * faster than the number of instructions. */
static harpe_status dive(const run_user *u, harpe_tools *tools, harpe_draft *draft,
                         harpe_error *error) {
    const harpe_search *search = u->search;
    int32_t count = search->problem->instruction_count;
    double mean = count <= 150 ? 12 : count <= 250 ? 8 : count <= 600 ? 4 : count <= 1200 ? 1.5 : 1;
    double mean_weight = (double)u->weight_sum / (double)search->draft_count;
    double width = fmax(1, round(mean * weight_of(search, draft) / mean_weight));
    return dive_at(search, tools, draft, (int)width, error);
}

static harpe_status refine_step(void *user, harpe_tools *tools, size_t number, harpe_error *error) {
    const run_user *u = user;
    const harpe_search *search = u->search;
    harpe_draft *draft = &search->drafts[u->order[number]];
    if (gap_of(search->frontier, draft) <= CLOSED_GAP) return HARPE_OK;
    harpe_assignment_restore(&tools->assignment, draft->option, draft->deadline_ps);
    uint64_t visits = is_dived(search) ? ROUNDING_VISITS_BEFORE_DIVES : ROUNDING_VISITS;
    harpe_status status = harpe_assignment_improve(&tools->assignment, visits, error);
    if (status != HARPE_OK) return status;
    keep_better(search, draft, &tools->assignment);
    return is_dived(search) ? dive(u, tools, draft, error) : HARPE_OK;
}

harpe_status harpe_search_refine(const harpe_search *search, harpe_error *error) {
    run_user u = {.search = search};
    for (size_t i = 0; i < search->draft_count; i++)
        u.weight_sum += weight_of(search, &search->drafts[i]);
    return run_in_order(&u, refine_step, error);
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
static harpe_status join_step(void *user, harpe_tools *tools, size_t number, harpe_error *error) {
    const run_user *u = user;
    const harpe_search *search = u->search;
    harpe_draft *draft = &search->drafts[number];
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

/* Looks for the best plan with few changes of clock. */
static harpe_status limit_changes(const run_user *u, harpe_draft *draft, harpe_error *error) {
    const harpe_problem *problem = u->search->problem;
    size_t count = (size_t)problem->instruction_count, found = 0;
    double deadline_s = (double)draft->longest_ps / HARPE_PS_PER_S;
    int *plans_mhz = harpe_calloc((1 + MOST_STARTS) * count, sizeof *plans_mhz);
    if (!plans_mhz) return harpe_fail_memory(error);
    harpe_status status = harpe_clock_runs_find(problem, u->cost, draft->price_uw, deadline_s,
                                                MOST_STARTS, plans_mhz, &found, error);
    memcpy(plans_mhz + found * count, draft->frequency_mhz, count * sizeof *plans_mhz);
    if (status == HARPE_OK)
        status = harpe_change_moves_improve(problem, u->cost, deadline_s, plans_mhz, 1 + found,
                                            draft->frequency_mhz, error);
    free(plans_mhz);
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

static harpe_status finish_step(void *user, harpe_tools *tools, size_t number, harpe_error *error) {
    const run_user *u = user;
    harpe_draft *draft = &u->search->drafts[u->order[number]];
    draft->frequency_mhz =
        harpe_calloc((size_t)u->search->problem->instruction_count, sizeof *draft->frequency_mhz);
    if (!draft->frequency_mhz) return harpe_fail_memory(error);
    harpe_assignment_restore(&tools->assignment, draft->option, draft->deadline_ps);
    harpe_assignment_frequencies(&tools->assignment, draft->frequency_mhz);
    follow(u, draft);
    bool must_change = u->has_cost && !is_in_time(u, draft->frequency_mhz);
    return must_change ? limit_changes(u, draft, error) : HARPE_OK;
}

harpe_status harpe_search_finish(const harpe_search *search, const harpe_clock_switch *cost,
                                 harpe_error *error) {
    run_user u = {.search = search,
                  .cost = cost,
                  .has_cost = harpe_clock_switch_has_cost(search->problem, cost)};
    return run_in_order(&u, finish_step, error);
}

/* ---- Plans for one time ---------------------------------------------------------------------- */

/* Rounds the solution at the walk's time. */
static harpe_status round_relaxed(const harpe_walk *walk, harpe_assignment *a, harpe_error *error) {
    int64_t *numbers = harpe_calloc(2 * (size_t)a->count, sizeof *numbers);
    if (!numbers) return harpe_fail_memory(error);
    harpe_relaxed relaxed = {.duration_ps = numbers, .price_uw = numbers + a->count};
    harpe_walk_read(walk, &relaxed);
    harpe_status status = harpe_assignment_round(a, &relaxed, error);
    free(numbers);
    return status;
}

/* Returns a time in whole picoseconds, from T_min to `slowest_ps`. */
static int64_t reachable_ps(const harpe_walk *walk, double time_s, int64_t slowest_ps) {
    int64_t time_ps = harpe_round_down(fmin(time_s * HARPE_PS_PER_S, (double)slowest_ps));
    return time_ps < walk->fastest_ps ? walk->fastest_ps : time_ps;
}

/* ---- Quick plans ----------------------------------------------------------------------------- */

harpe_status harpe_quick_plan_make(const harpe_problem *problem, double time_s, int *frequency_mhz,
                                   harpe_quick_plan *out, harpe_error *error) {
    harpe_walk walk;
    harpe_plan plan;
    harpe_assignment assignment = {0};
    size_t count = (size_t)problem->instruction_count;
    harpe_status status = harpe_walk_begin(&walk, problem, NULL, error);
    if (status != HARPE_OK) return status;
    int64_t time_ps = reachable_ps(&walk, time_s, walk.minimum_energy_ps);
    int *clocks = harpe_calloc(count, sizeof *clocks);
    status = clocks ? harpe_walk_to(&walk, time_ps, error) : harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_assignment_init(&assignment, problem, error);
    if (status == HARPE_OK) status = round_relaxed(&walk, &assignment, error);
    if (status == HARPE_OK) {
        harpe_assignment_frequencies(&assignment, clocks);
        status = harpe_plan_evaluate(problem, clocks, &plan, NULL, error);
    }
    if (status == HARPE_OK) {
        double bound_j = harpe_walk_bound_j(&walk, (double)time_ps / HARPE_PS_PER_S);
        *out = (harpe_quick_plan){plan.time_s, plan.energy_j, bound_j};
        memcpy(frequency_mhz, clocks, count * sizeof *clocks);
    }
    harpe_assignment_clear(&assignment);
    harpe_walk_clear(&walk);
    free(clocks);
    return status;
}

/* ---- Plans of replicas ----------------------------------------------------------------------- */

/* The time of a replica's iteration is given, so the energy of waiting all this time is given too.
 * The best plan therefore has the least sum of effective energies. This also holds beyond T*, where
 * a replica that does not wait for others would end its iteration earlier. */

/* Returns true if a plan of this effective energy reaches its bound. */
static bool is_closed(const harpe_walk *walk, double effective_j) {
    double waiting_j = harpe_problem_iteration_power_w(walk->problem) *
                       ((double)walk->solver.time_ps / HARPE_PS_PER_S);
    double bound_j = harpe_frontier_solver_energy_j(&walk->solver) + waiting_j;
    return effective_j + waiting_j - bound_j <= CLOSED_GAP * fabs(bound_j);
}

/* Makes the plan for the walk's time: by rounding, and by a dive if that is better. */
static harpe_status plan_replica(const harpe_walk *walk, harpe_tools *tools, int width,
                                 int *numbers, harpe_error *error) {
    harpe_assignment *a = &tools->assignment;
    harpe_status status = round_relaxed(walk, a, error);
    if (status == HARPE_OK) status = harpe_assignment_improve(a, ROUNDING_VISITS, error);
    bool found = false;
    double rounded_j = a->energy_j;
    bool is_dived = a->count <= MOST_DIVED && !is_closed(walk, rounded_j);
    memcpy(tools->option, a->option, (size_t)a->count * sizeof *a->option);
    if (status == HARPE_OK && is_dived)
        status = dive_from(tools, &walk->solver, width, REPLICA_DIVE_VISITS, &found, error);
    if (status != HARPE_OK) return status;
    if (!found || !(a->energy_j < rounded_j))
        harpe_assignment_restore(a, tools->option, walk->solver.time_ps);
    harpe_assignment_frequencies(a, numbers);
    return HARPE_OK;
}

harpe_status harpe_replica_search(const harpe_problem *problem, double time_s, double least_s,
                                  int width, int *numbers, harpe_frontier **frontier,
                                  harpe_error *error) {
    harpe_walk walk;
    harpe_crew crew = {0};
    harpe_status status = harpe_walk_begin_slowest(&walk, problem, error);
    if (status != HARPE_OK) return status;
    status = harpe_crew_init(&crew, problem, &walk.network, 1, error);
    if (status == HARPE_OK)
        status = harpe_walk_to(&walk, reachable_ps(&walk, time_s, walk.slowest_ps), error);
    if (status == HARPE_OK)
        status = plan_replica(&walk, harpe_crew_tools(&crew), width, numbers, error);
    harpe_crew_clear(&crew);
    if (status == HARPE_OK && frontier)
        status = harpe_walk_finish(
            &walk, reachable_ps(&walk, fmin(least_s, time_s), walk.slowest_ps), frontier, error);
    harpe_walk_clear(&walk);
    return status;
}
