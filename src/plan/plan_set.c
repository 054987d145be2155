/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans along the frontier: chooses their iteration times, keeps the best of several
 * roundings near each time, and evaluates every plan with measured numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/graph_deadline.h"
#include "plan/plan_set_contents.h"
#include "plan/splice.h"
#include "plan/switching.h"
#include "plan/walk.h"

#define DEFAULT_COUNT 100
#define MOST_PLANS 1000000
/* Number of relaxed solutions that are rounded for each plan: the solution at the plan's time, and
 * those at the sharpest vertices between this plan and the next. At a vertex, most instructions
 * have the duration of a measured option. */
#define SNAPSHOTS_PER_PLAN 8
/* Positions that local search may recompute for each plan, which take about 10 ms. */
#define VISITS_PER_PLAN UINT64_C(600000)
/* The number of times that each plan of the set is compared with a join of its neighbours. A better
 * join replaces the plan. */
#define SPLICE_ROUNDS 2
/* The part of the reported progress that is for finding T*. The rest is for making plans. */
#define SOLVING_SHARE 0.1
/* A relative difference in energy below this is not a saving. Sums of thousands of measured numbers
 * can differ by this amount if the order of addition changes. */
#define ENERGY_ROUNDING 1e-11
#define TIME_ROUNDING 1e-12
/* Relative tolerance for a requested time. A plan's printed time, given as a request, must find
 * this plan. */
#define ASKED_ROUNDING 1e-9

/* A plan that is not finished. */
typedef struct draft {
    int32_t *option;         /* by position */
    int64_t deadline_ps;     /* the draft takes at most this time */
    double time_s, energy_j; /* blocking included */
} draft;

typedef struct maker {
    const harpe_problem *problem;
    harpe_walk walk;
    harpe_assignment assignment;
    harpe_splicer splicer;
    harpe_relaxed snapshots[SNAPSHOTS_PER_PLAN];
    int64_t kink_uw[SNAPSHOTS_PER_PLAN]; /* sharpness of the vertex */
    int snapshot_count;
    draft best, attempt; /* scratch; both own their options */
    draft *drafts;
    size_t draft_count, draft_capacity;
    size_t *hull; /* [draft_count]: drafts on the lower hull, fastest first */
    size_t hull_count;
    const harpe_progress *progress; /* the caller's callback; NULL: none */
    harpe_progress walk_progress;   /* callback for the walk */
    bool is_planning;               /* true after T* was found */
    double fraction;                /* progress reported last, 0 to 1; never falls */
    size_t done, wanted;            /* drafts made or joined so far, and in total */
    harpe_clock_switch clock_switch;
    bool merges; /* changes of clock have a cost */
} maker;

/* ---- Progress -------------------------------------------------------------------------------- */

/* Reports progress. Returns false if the caller wants to stop. The fraction covers both phases:
 * solving and planning. */
static bool report(maker *m, double fraction) {
    m->fraction = fmin(1, fmax(m->fraction, fraction));
    if (!m->progress || !m->progress->report) return true;
    return m->progress->report(m->progress->user, m->is_planning ? "planning" : "solving",
                               m->fraction);
}

/* Receives progress of the walk. While plans are made, repeats the last fraction, only to find out
 * whether to stop. */
static bool report_walk(void *user, const char *phase, double fraction) {
    maker *m = user;
    (void)phase;
    return report(m, m->is_planning ? m->fraction : SOLVING_SHARE * fraction);
}

static harpe_status fail_interrupted(harpe_error *error) {
    return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
}

static harpe_status report_planning(maker *m, harpe_error *error) {
    double share = m->wanted > 0 ? (double)m->done / (double)m->wanted : 0;
    m->done++;
    bool goes_on = report(m, SOLVING_SHARE + (1 - SOLVING_SHARE) * fmin(1, share));
    return goes_on ? HARPE_OK : fail_interrupted(error);
}

/* ---- Drafts ---------------------------------------------------------------------------------- */

/* Copies the assignment into a draft. The draft's array of options must be allocated. */
static void take_down(const maker *m, draft *into) {
    const harpe_assignment *a = &m->assignment;
    memcpy(into->option, a->option, (size_t)a->count * sizeof *into->option);
    into->deadline_ps = a->deadline_ps;
    into->time_s = (double)harpe_assignment_time_ps(a) / HARPE_PS_PER_S;
    into->energy_j = a->energy_j + harpe_problem_iteration_power_w(m->problem) * into->time_s;
}

/* Returns the distance to the lower bound at the draft's time, relative to the bound. */
static double gap_of(const maker *m, const draft *d) {
    double bound_j = harpe_walk_bound_j(&m->walk, d->time_s);
    return (d->energy_j - bound_j) / fabs(bound_j);
}

/* Stores the relaxed solution of a vertex if the vertex is among the sharpest since the last
 * plan. */
static void keep_sharpest(void *user, int64_t kink_uw) {
    maker *m = user;
    int at = m->snapshot_count;
    if (at < SNAPSHOTS_PER_PLAN) {
        m->snapshot_count++;
    } else {
        at = 1; /* [0] is the plan's own time */
        for (int k = 2; k < SNAPSHOTS_PER_PLAN; k++)
            if (m->kink_uw[k] < m->kink_uw[at]) at = k;
        if (kink_uw <= m->kink_uw[at]) return;
    }
    m->kink_uw[at] = kink_uw;
    harpe_walk_read(&m->walk, &m->snapshots[at]);
}

/* Rounds all snapshots and keeps the best rounding in `best`. */
static harpe_status round_snapshots(maker *m, harpe_error *error) {
    for (int k = 0; k < m->snapshot_count; k++) {
        harpe_status status = harpe_assignment_round(&m->assignment, &m->snapshots[k], error);
        if (status != HARPE_OK) return status;
        draft *into = k == 0 ? &m->best : &m->attempt;
        take_down(m, into);
        if (k > 0 && gap_of(m, &m->attempt) < gap_of(m, &m->best)) {
            draft swapped = m->best;
            m->best = m->attempt;
            m->attempt = swapped;
        }
    }
    return HARPE_OK;
}

static harpe_status add_draft(maker *m, harpe_error *error) {
    size_t count = (size_t)m->assignment.count;
    if (!HARPE_ARRAY_RESERVE(m->drafts, m->draft_capacity, m->draft_count + 1))
        return harpe_fail_memory(error);
    draft *added = &m->drafts[m->draft_count];
    *added = (draft){0};
    added->option = harpe_calloc(count, sizeof *added->option);
    if (!added->option) return harpe_fail_memory(error);
    take_down(m, added);
    m->draft_count++;
    return HARPE_OK;
}

/* Makes the draft for `target_ps`. The next draft is for `next_ps`. */
static harpe_status make_draft(maker *m, int64_t target_ps, int64_t next_ps, harpe_error *error) {
    harpe_status status = harpe_walk_to(&m->walk, target_ps, error);
    if (status != HARPE_OK) return status;
    m->snapshot_count = 1;
    harpe_walk_read(&m->walk, &m->snapshots[0]);
    m->walk.at_vertex = keep_sharpest;
    m->walk.user = m;
    if (next_ps < target_ps) status = harpe_walk_to(&m->walk, next_ps + 1, error);
    m->walk.at_vertex = NULL;
    if (status == HARPE_OK) status = round_snapshots(m, error);
    if (status != HARPE_OK) return status;
    harpe_assignment_restore(&m->assignment, m->best.option, m->best.deadline_ps);
    status = harpe_assignment_improve(&m->assignment, VISITS_PER_PLAN, error);
    if (status == HARPE_OK) status = add_draft(m, error);
    if (status == HARPE_OK) m->drafts[m->draft_count - 1].deadline_ps = target_ps;
    if (status == HARPE_OK) status = report_planning(m, error);
    return status;
}

/* ---- Joining neighbours ---------------------------------------------------------------------- */

static int compare_drafts(const void *a, const void *b) {
    const draft *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    if (x->energy_j != y->energy_j) return x->energy_j < y->energy_j ? -1 : 1;
    if (x->deadline_ps != y->deadline_ps) return x->deadline_ps < y->deadline_ps ? -1 : 1;
    return 0;
}

/* Finds the lower convex hull of the drafts in (time, energy). The drafts are sorted by time. */
static void find_hull(maker *m) {
    m->hull_count = 0;
    for (size_t i = 0; i < m->draft_count; i++) {
        const draft *d = &m->drafts[i];
        while (m->hull_count > 0) {
            const draft *last = &m->drafts[m->hull[m->hull_count - 1]];
            if (m->hull_count == 1) {
                if (d->time_s > last->time_s || d->energy_j >= last->energy_j) break;
                m->hull_count--;
                continue;
            }
            const draft *before = &m->drafts[m->hull[m->hull_count - 2]];
            double turn = (last->time_s - before->time_s) * (d->energy_j - before->energy_j) -
                          (d->time_s - before->time_s) * (last->energy_j - before->energy_j);
            if (turn > 0) break;
            m->hull_count--;
        }
        m->hull[m->hull_count++] = i;
    }
}

/* Joins the two neighbours of a draft on the hull, in both orders. Replaces the draft if a result
 * is closer to the lower bound. */
static harpe_status join_neighbours(maker *m, draft *d, const draft *fast, const draft *slow,
                                    harpe_error *error) {
    for (int slow_first = 0; slow_first < 2; slow_first++) {
        harpe_status status = harpe_splice(&m->splicer, &m->assignment, fast->option, slow->option,
                                           slow_first, d->deadline_ps, error);
        if (status == HARPE_OK)
            status = harpe_assignment_improve(&m->assignment, VISITS_PER_PLAN, error);
        if (status != HARPE_OK) return status;
        take_down(m, &m->attempt);
        if (gap_of(m, &m->attempt) < gap_of(m, d)) take_down(m, d);
    }
    return HARPE_OK;
}

static harpe_status splice_round(maker *m, harpe_error *error) {
    qsort(m->drafts, m->draft_count, sizeof *m->drafts, compare_drafts);
    find_hull(m);
    size_t edge = 0; /* hull[edge] .. hull[edge + 1] */
    for (size_t i = 0; i < m->draft_count; i++) {
        draft *d = &m->drafts[i];
        double deadline_s = (double)d->deadline_ps / HARPE_PS_PER_S;
        harpe_status status = report_planning(m, error);
        if (status != HARPE_OK) return status;
        while (edge + 1 < m->hull_count && m->drafts[m->hull[edge + 1]].time_s <= d->time_s)
            edge++;
        if (m->hull[edge] == i || edge + 1 >= m->hull_count) continue;
        const draft *fast = &m->drafts[m->hull[edge]], *slow = &m->drafts[m->hull[edge + 1]];
        if (fast->time_s > deadline_s) continue;
        status = join_neighbours(m, d, fast, slow, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status splice_all(maker *m, harpe_error *error) {
    m->hull = harpe_calloc(m->draft_count, sizeof *m->hull);
    if (!m->hull) return harpe_fail_memory(error);
    m->done = m->draft_count;
    m->wanted = m->draft_count * (1 + SPLICE_ROUNDS);
    for (int round = 0; round < SPLICE_ROUNDS; round++) {
        harpe_status status = splice_round(m, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

/* ---- Choosing the times ---------------------------------------------------------------------- */

typedef struct wanted_time {
    int64_t time_ps;
    int64_t next_ps; /* where trials for the next plan begin */
} wanted_time;

typedef struct wanted_times {
    wanted_time *items; /* slowest first */
    size_t count;
} wanted_times;

static int compare_slowest_first(const void *a, const void *b) {
    const wanted_time *x = a, *y = b;
    if (x->time_ps != y->time_ps) return x->time_ps > y->time_ps ? -1 : 1;
    if (x->next_ps != y->next_ps) return x->next_ps > y->next_ps ? -1 : 1;
    return 0;
}

/* Chooses `count` times, spread evenly from T* to T_min, including both. */
static size_t spread_times(const maker *m, size_t count, wanted_time *items) {
    int64_t slowest = m->walk.minimum_energy_ps, fastest = m->walk.fastest_ps;
    if (slowest == fastest) count = 1;
    int64_t steps = count > 1 ? (int64_t)count - 1 : 1;
    for (int64_t k = 0; k < (int64_t)count; k++) {
        int64_t time = slowest - (slowest - fastest) / steps * k;
        int64_t next = slowest - (slowest - fastest) / steps * (k + 1);
        if (k + 1 == (int64_t)count && count > 1) time = fastest;
        if (next < fastest || time == fastest) next = time;
        items[k] = (wanted_time){.time_ps = time, .next_ps = next};
    }
    return count;
}

static harpe_status asked_times(const maker *m, const double *times_s, size_t count,
                                wanted_time *items, harpe_error *error) {
    double fastest_s = (double)m->walk.fastest_ps / HARPE_PS_PER_S;
    for (size_t i = 0; i < count; i++) {
        double time_s = times_s[i];
        if (!(time_s >= fastest_s - harpe_time_slack_s(fastest_s))) {
            return harpe_fail(error, HARPE_INFEASIBLE,
                              "no plan runs in %s s: the fastest takes %s s",
                              HARPE_DIGITS(time_s, 9), HARPE_DIGITS(fastest_s, 9));
        }
        double most_ps = fmin(time_s * HARPE_PS_PER_S, (double)m->walk.minimum_energy_ps);
        int64_t time_ps = harpe_round_down(most_ps);
        if (time_ps < m->walk.fastest_ps) time_ps = m->walk.fastest_ps;
        items[i] = (wanted_time){.time_ps = time_ps, .next_ps = time_ps};
    }
    return HARPE_OK;
}

static harpe_status list_times(const maker *m, const harpe_plan_request *request, wanted_times *out,
                               harpe_error *error) {
    size_t spread = request->count > 0 ? (size_t)request->count : DEFAULT_COUNT;
    size_t asked = request->choice == HARPE_PLANS_AT ? request->time_count : 0;
    out->items = harpe_calloc(spread + asked, sizeof *out->items);
    if (!out->items) return harpe_fail_memory(error);
    harpe_status status = asked_times(m, request->times_s, asked, out->items, error);
    if (status != HARPE_OK) return status;
    out->count = asked + spread_times(m, spread, out->items + asked);
    qsort(out->items, out->count, sizeof *out->items, compare_slowest_first);
    return HARPE_OK;
}

static harpe_status draft_at_times(maker *m, const harpe_plan_request *request,
                                   harpe_error *error) {
    wanted_times times = {0};
    harpe_status status = list_times(m, request, &times, error);
    m->wanted = times.count * (1 + SPLICE_ROUNDS);
    for (size_t i = 0; status == HARPE_OK && i < times.count; i++) {
        int64_t next_ps = times.items[i].next_ps;
        if (i + 1 < times.count && next_ps < times.items[i + 1].time_ps)
            next_ps = times.items[i + 1].time_ps;
        status = make_draft(m, times.items[i].time_ps, next_ps, error);
    }
    free(times.items);
    return status;
}

/* Makes a draft at every vertex. The number of vertices is known only at the end, so the reported
 * progress depends on the part of the iteration time that the walk has covered. */
static harpe_status draft_at_vertices(maker *m, harpe_error *error) {
    int64_t slowest = m->walk.minimum_energy_ps, fastest = m->walk.fastest_ps;
    m->wanted = 1000 * (1 + SPLICE_ROUNDS);
    for (;;) {
        int64_t time_ps = m->walk.solver.time_ps;
        if (slowest > fastest)
            m->done = (size_t)(1000 * (double)(slowest - time_ps) / (double)(slowest - fastest));
        harpe_status status = make_draft(m, time_ps, time_ps, error);
        if (status != HARPE_OK || time_ps <= m->walk.fastest_ps) return status;
        status = harpe_walk_to_next_vertex(&m->walk, error);
        if (status != HARPE_OK) return status;
    }
}

/* ---- Finishing ------------------------------------------------------------------------------- */

static harpe_status finish_plan(maker *m, const draft *d, harpe_plan *out, harpe_error *error) {
    int *frequencies = harpe_calloc((size_t)m->problem->instruction_count, sizeof *frequencies);
    if (!frequencies) return harpe_fail_memory(error);
    harpe_assignment_restore(&m->assignment, d->option, d->deadline_ps);
    harpe_assignment_frequencies(&m->assignment, frequencies);
    harpe_switching_follow(m->problem, frequencies);
    harpe_status status = HARPE_OK;
    if (m->merges) status = harpe_switching_merge(m->problem, &m->clock_switch, frequencies, error);
    if (status == HARPE_OK) status = harpe_plan_evaluate(m->problem, frequencies, out, NULL, error);
    if (status != HARPE_OK) free(frequencies);
    return status;
}

static int compare_plans(const void *a, const void *b) {
    const harpe_plan *one = a, *other = b;
    if (one->time_s < other->time_s) return -1;
    if (one->time_s > other->time_s) return 1;
    return (one->energy_j > other->energy_j) - (one->energy_j < other->energy_j);
}

/* Returns the difference below which two energies of this problem count as equal. */
static double energy_rounding_j(const maker *m, const harpe_plan *plan) {
    return ENERGY_ROUNDING *
           (fabs(plan->energy_j) + harpe_problem_iteration_power_w(m->problem) * plan->time_s);
}

static void clear_plan(harpe_plan *plan) {
    free((void *)plan->frequency_mhz);
    *plan = (harpe_plan){0};
}

/* Goes through the plans, fastest first, and keeps those that need less energy than every faster
 * plan. Compares only evaluated numbers. The assignment's numbers can differ from them, because
 * they are added in another order, and because changes of clock may have been merged. */
static void drop_dominated(const maker *m, harpe_plan_set *set) {
    size_t kept = 0;
    qsort(set->plans, set->count, sizeof *set->plans, compare_plans);
    for (size_t i = 0; i < set->count; i++) {
        harpe_plan *plan = &set->plans[i], *last = kept > 0 ? &set->plans[kept - 1] : NULL;
        if (last && plan->energy_j >= last->energy_j - energy_rounding_j(m, last)) {
            clear_plan(plan);
            continue;
        }
        bool is_as_fast = last && plan->time_s <= last->time_s * (1 + TIME_ROUNDING);
        if (is_as_fast) clear_plan(last);
        size_t place = is_as_fast ? kept - 1 : kept++;
        harpe_plan moved = *plan;
        *plan = (harpe_plan){0};
        set->plans[place] = moved;
    }
    set->count = kept;
}

/* Evaluates every draft, and frees its options. */
static harpe_status finish_drafts(maker *m, harpe_plan_set *set, harpe_error *error) {
    for (size_t i = 0; i < m->draft_count; i++) {
        harpe_status status = finish_plan(m, &m->drafts[i], &set->plans[i], error);
        if (status != HARPE_OK) return status;
        set->count++;
        free(m->drafts[i].option);
        m->drafts[i].option = NULL;
    }
    return HARPE_OK;
}

static harpe_status copy_plan(const maker *m, const harpe_plan *plan, harpe_plan *out,
                              harpe_error *error) {
    size_t count = (size_t)m->problem->instruction_count;
    int *frequencies = harpe_calloc(count, sizeof *frequencies);
    if (!frequencies) return harpe_fail_memory(error);
    memcpy(frequencies, plan->frequency_mhz, count * sizeof *frequencies);
    *out = *plan;
    out->frequency_mhz = frequencies;
    return HARPE_OK;
}

/* Picks, for every requested time, the plan with the least energy among those that take at most
 * that time. This is the slowest of them, because in `all` a slower plan needs less energy. If no
 * plan is fast enough, as may be the case for T_min, picks the fastest plan. */
static harpe_status pick_asked(const maker *m, const harpe_plan_request *request,
                               const harpe_plan_set *all, harpe_plan_set *out, harpe_error *error) {
    for (size_t k = 0; k < request->time_count; k++) {
        double time_s = request->times_s[k];
        size_t best = 0;
        while (best + 1 < all->count &&
               all->plans[best + 1].time_s <= time_s * (1 + ASKED_ROUNDING))
            best++;
        harpe_status status = copy_plan(m, &all->plans[best], &out->plans[k], error);
        if (status != HARPE_OK) return status;
        out->count++;
    }
    return HARPE_OK;
}

static harpe_plan_set *new_set(size_t room, harpe_error *error) {
    harpe_plan_set *set = harpe_calloc(1, sizeof *set);
    if (set) set->plans = harpe_calloc(room, sizeof *set->plans);
    if (set && set->plans) return set;
    free(set);
    (void)harpe_fail_memory(error);
    return NULL;
}

static harpe_status finish(maker *m, const harpe_plan_request *request,
                           const harpe_frontier *frontier, harpe_plan_set **out,
                           harpe_error *error) {
    bool is_asked = request->choice == HARPE_PLANS_AT;
    harpe_plan_set *all = new_set(m->draft_count, error);
    harpe_plan_set *asked = is_asked && all ? new_set(request->time_count, error) : NULL;
    harpe_status status = all && (asked || !is_asked) ? HARPE_OK : HARPE_OUT_OF_MEMORY;
    if (status == HARPE_OK) status = finish_drafts(m, all, error);
    if (status == HARPE_OK) drop_dominated(m, all);
    if (status == HARPE_OK && is_asked) status = pick_asked(m, request, all, asked, error);
    if (status == HARPE_OK && !report(m, 1)) status = fail_interrupted(error);
    harpe_plan_set *made = is_asked ? asked : all;
    if (is_asked) harpe_plan_set_free(all);
    if (status != HARPE_OK) {
        harpe_plan_set_free(made);
        return status;
    }
    for (size_t i = 0; i < made->count; i++)
        made->plans[i].lower_bound_j = harpe_frontier_bound_at(frontier, made->plans[i].time_s);
    *out = made;
    return HARPE_OK;
}

static harpe_status maker_init(maker *m, const harpe_problem *problem,
                               const harpe_progress *progress, harpe_error *error) {
    memset(m, 0, sizeof *m);
    m->problem = problem;
    m->progress = progress;
    m->walk_progress = (harpe_progress){.report = report_walk, .user = m};
    if (!report(m, 0)) return fail_interrupted(error);
    harpe_status status = harpe_walk_begin(&m->walk, problem, &m->walk_progress, error);
    if (status != HARPE_OK) return status;
    m->is_planning = true;
    size_t count = (size_t)problem->instruction_count;
    m->best.option = harpe_calloc(count, sizeof(int32_t));
    m->attempt.option = harpe_calloc(count, sizeof(int32_t));
    bool complete = m->best.option && m->attempt.option;
    for (int k = 0; k < SNAPSHOTS_PER_PLAN; k++) {
        m->snapshots[k].duration_ps = harpe_calloc(count, sizeof(int64_t));
        m->snapshots[k].price_uw = harpe_calloc(count, sizeof(int64_t));
        complete = complete && m->snapshots[k].duration_ps && m->snapshots[k].price_uw;
    }
    if (!complete) return harpe_fail_memory(error);
    status = harpe_splicer_init(&m->splicer, problem->instruction_count, error);
    if (status == HARPE_OK) status = harpe_assignment_init(&m->assignment, problem, error);
    return status;
}

static void maker_clear(maker *m) {
    for (size_t i = 0; i < m->draft_count; i++)
        free(m->drafts[i].option);
    free(m->drafts);
    free(m->hull);
    harpe_splicer_clear(&m->splicer);
    harpe_assignment_clear(&m->assignment);
    harpe_walk_clear(&m->walk);
    free(m->best.option);
    free(m->attempt.option);
    for (int k = 0; k < SNAPSHOTS_PER_PLAN; k++) {
        free(m->snapshots[k].duration_ps);
        free(m->snapshots[k].price_uw);
    }
}

static harpe_status check_request(const harpe_plan_request *request, harpe_error *error) {
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
    return harpe_clock_switch_check(&request->clock_switch, error);
}

harpe_status harpe_plan_set_new(const harpe_problem *problem, const harpe_plan_request *request,
                                const harpe_progress *progress, harpe_frontier **frontier,
                                harpe_plan_set **out, harpe_error *error) {
    static const harpe_plan_request defaults = {.choice = HARPE_PLANS_SPREAD};
    if (!request) request = &defaults;
    harpe_status status = check_request(request, error);
    if (status != HARPE_OK) return status;
    if (harpe_problem_has_deadlines(problem))
        return harpe_deadline_plans(problem, request, progress, frontier, out, error);
    double began_s = harpe_clock_s();
    maker m;
    harpe_frontier *solved = NULL;
    status = maker_init(&m, problem, progress, error);
    const harpe_clock_switch *change = &request->clock_switch;
    m.clock_switch = *change;
    m.merges = change->latency_s > 0 || change->energy_j > 0 || change->minimum_dwell_s > 0;
    if (status == HARPE_OK) {
        status = request->choice == HARPE_PLANS_ALL ? draft_at_vertices(&m, error)
                                                    : draft_at_times(&m, request, error);
    }
    if (status == HARPE_OK) status = splice_all(&m, error);
    if (status == HARPE_OK) status = harpe_walk_finish(&m.walk, &solved, error);
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

void harpe_plan_set_free(harpe_plan_set *plans) {
    if (!plans) return;
    for (size_t i = 0; i < plans->count; i++)
        free((void *)plans->plans[i].frequency_mhz);
    free(plans->plans);
    free(plans);
}

size_t harpe_plan_set_count(const harpe_plan_set *plans) { return plans->count; }

const harpe_plan *harpe_plan_set_at(const harpe_plan_set *plans, size_t index) {
    return index < plans->count ? &plans->plans[index] : NULL;
}
