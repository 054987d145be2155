/* SPDX-License-Identifier: Apache-2.0 */
/* The relaxation at a fixed time: on random pipelines and graphs, with instructions fixed to
 * options and released in random order, each optimum is compared with the energy of its own spans,
 * with a solution after all changes at once, with the frontier, and with a third-party LP solver.
 */
#include "test.h"

#include "search_parts.h"

#include "relaxation_lp.h"

/* How often each kind of comparison was made, so that none is left out by chance. */
static int optima, above, infeasible, lps;

/* A relaxation in use, and what each instruction is fixed to. */
typedef struct state_of {
    const parts *p;
    int64_t deadline_ps;
    int32_t *fixed; /* [instruction]: option, -1: free */
} state_of;

static const harpe_relaxation_curve *curve_of(const state_of *s, int32_t i) {
    int32_t choice = s->p->problem->choice_of[i];
    const harpe_relaxation_curves *curves = &s->p->curves;
    return s->fixed[i] < 0 ? &curves->hull[choice]
                           : &curves->option[curves->first_option[choice] + s->fixed[i]];
}

/* Loads the walk's solution again, and makes all changes before the first pivot. */
static void change_at_once(const state_of *s, harpe_relaxation *r) {
    assert_works(harpe_relaxation_init(r, &s->p->walk.network, &failure));
    harpe_relaxation_load(r, &s->p->curves, &s->p->walk.solver);
    for (int32_t i = 0; i < s->p->problem->instruction_count; i++)
        harpe_relaxation_change(r, i, curve_of(s, i));
}

/* Returns the energy of an instruction that takes `span_ps`. */
static double energy_at(const harpe_relaxation_curve *curve, int64_t span_ps) {
    int32_t k = curve->segment_count;
    if (span_ps >= curve->time_ps[k]) return curve->energy_j[k];
    while (k > 0 && curve->time_ps[k - 1] > span_ps)
        k--;
    assert_true(k > 0); /* not faster than its fastest point */
    return curve->energy_j[k] +
           (double)curve->rate_uw[k] * (double)(curve->time_ps[k] - span_ps) * 1e-18;
}

/* Returns the rounding error of sums of energies. */
static double noise_j(const state_of *s, const harpe_relaxation *r) {
    double flow_j = 0;
    for (int32_t e = 0; e < r->edge_count; e++)
        flow_j += (double)r->now.edges[e].flow * (double)r->now.edges[e].curve->time_ps[0] * 1e-18;
    return 1e-10 * scale_j(s->p) + 1e-11 * fabs(flow_j);
}

/* The objective is that of a flow, a lower bound. The spans respect every curve and dependency, so
 * their energy is an upper bound. Both together prove the optimum. */
static void assert_optimal(const state_of *s, const harpe_relaxation *r) {
    double energy_j = 0;
    for (int32_t e = 0; e + 1 < r->edge_count; e++) {
        int64_t span_ps = harpe_relaxation_span_ps(r, e);
        assert_true(span_ps >= r->now.edges[e].curve->time_ps[0]);
        if (e < s->p->problem->instruction_count) {
            assert_ptr_equal(r->now.edges[e].curve, curve_of(s, e));
            energy_j += energy_at(r->now.edges[e].curve, span_ps);
        }
    }
    assert_true(harpe_relaxation_event_ps(r, r->sink) <= s->deadline_ps);
    if (fabs(energy_j - r->now.objective_j) > noise_j(s, r))
        fail_msg("the spans need %.15g J, the flow proves %.15g J", energy_j, r->now.objective_j);
}

static bool is_feasible(const state_of *s) {
    int64_t time_ps[4096];
    for (int32_t i = 0; i < s->p->problem->instruction_count; i++)
        time_ps[i] = curve_of(s, i)->time_ps[0];
    return longest_ps(s->p->problem, time_ps) <= s->deadline_ps;
}

#ifdef HARPE_HAVE_CLP

/* Returns the optimum of the LP with the present options. */
static double lp_energy_j(const state_of *s) {
    const harpe_dag *dag = &s->p->problem->dag;
    size_t n = (size_t)dag->node_count;
    owned_array harpe_option_list *lists = calloc(n, sizeof *lists);
    owned_relaxation r = relaxation_of(s->p->problem);
    r.blocking_power_w = 0;
    for (int32_t i = 0; i < dag->node_count; i++) {
        lists[i] = *list_at(s->p->problem, i);
        if (s->fixed[i] >= 0) {
            const harpe_option *option = &lists[i].options[s->fixed[i]];
            lists[i].curve_count = 1;
            lists[i].curve_time_s = &option->time_s;
            lists[i].curve_effective_energy_j = &option->effective_energy_j;
        }
        r.list_of[i] = &lists[i];
    }
    owned_relaxation_lp lp = relaxation_lp_new(&r);
    double energy_j = relaxation_lp_energy_j(&lp, (double)s->deadline_ps / HARPE_PS_PER_S);
    return energy_j;
}

/* The solver's times and rates are rounded down to picoseconds and microwatts, and Clp has a
 * tolerance of 1e-9 of the longest duration. */
static void assert_matches_lp(const state_of *s, const harpe_relaxation *r) {
    double expected_j = lp_energy_j(s), tolerance_j = 1e-6 * scale_j(s->p), longest_s = 0;
    double price_w = (double)r->now.edges[r->edge_count - 1].flow * 1e-6;
    for (int32_t i = 0; i < s->p->problem->instruction_count; i++) {
        const harpe_relaxation_curve *curve = curve_of(s, i);
        double slowest_s = (double)curve->time_ps[curve->segment_count] / HARPE_PS_PER_S;
        longest_s = fmax(longest_s, slowest_s);
        tolerance_j += 1e-6 * slowest_s + 1e-12 * price_w;
    }
    tolerance_j += 1e-7 * longest_s * price_w;
    if (isnan(expected_j)) return; /* Clp found it infeasible by less than its tolerance */
    lps++;
    if (fabs(r->now.objective_j - expected_j) > tolerance_j)
        fail_msg("%.12g J, but the LP says %.12g J", r->now.objective_j, expected_j);
}

#endif

static void fix_or_release(state_of *s, harpe_relaxation *r, int32_t i, test_random *random) {
    int32_t options = (int32_t)list_at(s->p->problem, i)->option_count;
    s->fixed[i] = random_int(random, 0, 2) == 0 ? -1 : random_int(random, 0, options - 1);
    harpe_relaxation_change(r, i, curve_of(s, i));
}

/* Solves after all changes at once, and returns the optimum (INFINITY: infeasible). */
static double solve_at_once(const state_of *s) {
    AT_END(harpe_relaxation_clear) harpe_relaxation cold; /* contains pointers into itself */
    change_at_once(s, &cold);
    harpe_relaxation_outcome outcome = harpe_relaxation_solve(&cold, INFINITY);
    bool feasible = is_feasible(s);
    assert_int_equal(outcome, feasible ? HARPE_RELAXATION_OPTIMAL : HARPE_RELAXATION_INFEASIBLE);
    if (feasible) assert_optimal(s, &cold);
    double objective_j = feasible ? cold.now.objective_j : INFINITY;
    return objective_j;
}

/* Changes some curves, solves with or without a limit, and compares. */
static void change_and_compare(state_of *s, harpe_relaxation *r, test_random *random) {
    int32_t n = s->p->problem->instruction_count;
    for (int k = random_int(random, 1, random_int(random, 0, 3) == 0 ? n : 2); k > 0; k--)
        fix_or_release(s, r, random_int(random, 0, n - 1), random);
    double optimum_j = solve_at_once(s);
    if (random_int(random, 0, 2) == 0) {
        double limit_j = isfinite(optimum_j)
                             ? optimum_j + random_between(random, -0.02, 0.02) * scale_j(s->p)
                             : scale_j(s->p);
        switch (harpe_relaxation_solve(r, limit_j)) {
        case HARPE_RELAXATION_OPTIMAL:
            assert_true(r->now.objective_j < limit_j);
            assert_optimal(s, r);
            break;
        case HARPE_RELAXATION_ABOVE:
            assert_true(optimum_j >= limit_j - noise_j(s, r));
            above++;
            break;
        case HARPE_RELAXATION_INFEASIBLE: assert_true(isinf(optimum_j)); break;
        }
        if (random_int(random, 0, 1) == 0) return; /* goes on from there */
    }
    harpe_relaxation_outcome outcome = harpe_relaxation_solve(r, INFINITY);
    if (isinf(optimum_j)) {
        assert_int_equal(outcome, HARPE_RELAXATION_INFEASIBLE);
        infeasible++;
        return;
    }
    assert_int_equal(outcome, HARPE_RELAXATION_OPTIMAL);
    assert_optimal(s, r);
    assert_true(fabs(r->now.objective_j - optimum_j) <= 2 * noise_j(s, r));
    optima++;
#ifdef HARPE_HAVE_CLP
    if (n <= 40 && random_int(random, 0, 7) == 0) assert_matches_lp(s, r);
#endif
}

static void one_problem(harpe_problem *problem, test_random *random, int changes) {
    owned_parts p;
    parts_init(&p, problem);
    static const double shares[] = {0, 1, 0.5, 0.1, 0.9};
    int64_t time_ps = time_at(&p, random_int(random, 0, 1) ? shares[random_int(random, 0, 4)]
                                                           : random_between(random, 0, 1));
    parts_walk_to(&p, time_ps);
    size_t n = (size_t)problem->instruction_count;
    state_of s = {.p = &p, .deadline_ps = time_ps, .fixed = malloc(n * sizeof *s.fixed)};
    for (size_t i = 0; i < n; i++)
        s.fixed[i] = -1;
    AT_END(harpe_relaxation_clear) harpe_relaxation r;
    assert_works(harpe_relaxation_init(&r, &p.walk.network, &failure));
    for (int load = 0; load < 2; load++) {
        harpe_relaxation_load(&r, &p.curves, &p.walk.solver);
        for (size_t i = 0; i < n; i++)
            s.fixed[i] = -1;
        /* The walk's solution is the optimum already, and the frontier has the same energy. */
        uint64_t pivots = r.pivots;
        assert_int_equal(harpe_relaxation_solve(&r, INFINITY), HARPE_RELAXATION_OPTIMAL);
        assert_true(r.pivots == pivots);
        assert_optimal(&s, &r);
        double time_s = (double)time_ps / HARPE_PS_PER_S;
        double bound_j = harpe_frontier_bound_at(p.frontier, time_s) -
                         harpe_problem_iteration_power_w(problem) * time_s;
        double rounding_j = 1e-11 * harpe_problem_iteration_power_w(problem) * time_s +
                            1e-18 * (double)p.walk.solver.flow_uw;
        assert_true(fabs(r.now.objective_j - bound_j) <= noise_j(&s, &r) + rounding_j);
        for (int k = 0; k < changes; k++)
            change_and_compare(&s, &r, random);
    }
    free(s.fixed);
}

TEST(changes_match_those_made_at_once) {
    test_random random = {41};
    int trials = test_trials(1100);
    for (int trial = 0; trial < trials; trial++)
        one_problem(any_problem(&random, trial, 3, 4), &random, 12);
    printf("%d optima, %d above a limit, %d infeasible, %d compared with the LP\n", optima, above,
           infeasible, lps);
    assert_true(optima > 3 * trials && above > trials / 2 && infeasible > trials);
#ifdef HARPE_HAVE_CLP
    assert_true(lps > trials / 4);
#endif
}

TEST(larger_problems_too) {
    test_random random = {42};
    for (int trial = 0; trial < test_trials(44); trial++)
        one_problem(any_problem(&random, trial, 5, 9), &random, 25);
}
