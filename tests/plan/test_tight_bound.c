/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of blocks, compared with the enumeration of all plans, and their proofs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan_set_contents.h"
#include "plan/tight_bound.h"
#include "plan/walk.h"

#include "instances.h"

#define INSTRUCTIONS_MAX 12
#define PLANS_MAX 6561
/* The planner counts whole picoseconds, and every instruction may be rounded. */
#define ROUNDING_S 1e-11

/* All plans of a small problem. */
typedef struct enumeration {
    size_t count;
    double time_s[PLANS_MAX], compute_j[PLANS_MAX]; /* effective energy */
} enumeration;

/* Computes the time by repeating all arcs until all are respected. */
static double time_of(const harpe_problem *problem, const harpe_option *const *option) {
    double end_s[INSTRUCTIONS_MAX], time_s = 0;
    int n = problem->instruction_count;
    for (int i = 0; i < n; i++)
        end_s[i] = option[i]->time_s;
    for (int pass = 0; pass < n; pass++) {
        for (int a = 0; a < problem->dag.arc_count; a++) {
            int to = problem->dag.arc_to[a];
            end_s[to] = fmax(end_s[to], end_s[problem->dag.arc_from[a]] + option[to]->time_s);
        }
    }
    for (int i = 0; i < n; i++)
        time_s = fmax(time_s, end_s[i]);
    return time_s;
}

/* Returns false if there are too many plans. */
static bool enumerate(const harpe_problem *problem, enumeration *out) {
    int n = problem->instruction_count;
    size_t digit[INSTRUCTIONS_MAX] = {0};
    double plans = 1;
    for (int i = 0; i < n && i < INSTRUCTIONS_MAX; i++)
        plans *= (double)harpe_problem_choice(problem, i)->list.option_count;
    if (n > INSTRUCTIONS_MAX || plans > PLANS_MAX) return false;
    out->count = 0;
    for (int i = 0; i < n;) {
        const harpe_option *option[INSTRUCTIONS_MAX] = {NULL};
        double sum_j = 0;
        for (int k = 0; k < n; k++) {
            option[k] = &harpe_problem_choice(problem, k)->list.options[digit[k]];
            sum_j += option[k]->effective_energy_j;
        }
        out->time_s[out->count] = time_of(problem, option);
        out->compute_j[out->count++] = sum_j;
        for (i = 0; i < n && ++digit[i] == harpe_problem_choice(problem, i)->list.option_count; i++)
            digit[i] = 0;
    }
    return true;
}

static harpe_problem *small_problem(test_random *random) {
    static const struct {
        int ranks, microbatches;
    } shapes[] = {{1, 2}, {1, 4}, {2, 1}, {2, 2}, {2, 3}, {3, 1}, {3, 2}, {4, 1}};
    int k = random_int(random, 0, 7);
    harpe_schedule_options options = {.ranks = shapes[k].ranks,
                                      .microbatches = shapes[k].microbatches};
    return random_problem(&options, random);
}

typedef struct solved {
    harpe_walk walk;
    harpe_relaxation_curves curves;
    harpe_bounder bounder;
} solved;

static void solved_init(solved *s, const harpe_problem *problem) {
    harpe_error error = {.message = ""};
    assert_int_equal(harpe_walk_begin(&s->walk, problem, NULL, &error), HARPE_OK);
    assert_int_equal(harpe_relaxation_curves_init(&s->curves, problem, &s->walk.network, &error),
                     HARPE_OK);
    assert_int_equal(harpe_bounder_init(&s->bounder, problem, &s->walk.network, &s->curves, &error),
                     HARPE_OK);
}

static void solved_clear(solved *s) {
    harpe_bounder_clear(&s->bounder);
    harpe_relaxation_curves_clear(&s->curves);
    harpe_walk_clear(&s->walk);
}

static harpe_cut random_cut(const harpe_problem *problem, test_random *random) {
    return (harpe_cut){
        .is_flat = random_int(random, 0, 1) == 0,
        .ranks_together = random_int(random, 1, problem->rank_count),
        .block_size = (size_t)random_int(random, 1, random_int(random, 1, 12)),
        .missing = (size_t)random_int(random, 0, 5),
        .most_boxes = (size_t)random_int(random, 0, 3) == 0 ? 3 : 100000,
    };
}

static double smallest_of(const enumeration *all, double most_s, double price_w) {
    double least = INFINITY;
    for (size_t k = 0; k < all->count; k++)
        if (all->time_s[k] <= most_s)
            least = fmin(least, all->compute_j[k] + price_w * all->time_s[k]);
    return least;
}

/* Flow is counted in whole microwatts. */
static double flow_rounding_j(const harpe_problem *problem, double time_s) {
    return 8e-6 * problem->instruction_count * time_s;
}

/* No bound is above a plan, none is below that of the relaxation, and with one block it is the
 * optimum. */
static void bounds_match_the_enumeration(void **state) {
    (void)state;
    test_random random = {31};
    static enumeration all;
    int exact = 0, trials = test_trials(1500);
    for (int trial = 0; trial < trials; trial++) {
        harpe_problem *problem = small_problem(&random);
        if (!enumerate(problem, &all)) {
            harpe_problem_free(problem);
            continue;
        }
        double power_w = harpe_problem_iteration_power_w(problem);
        solved s;
        solved_init(&s, problem);
        harpe_walk *walk = &s.walk;
        for (int k = 0; k < 4; k++) {
            int64_t low = walk->fastest_ps, high = walk->solver.time_ps;
            int64_t time_ps = low + (int64_t)(random_between(&random, 0, 1) * (double)(high - low));
            assert_int_equal(harpe_walk_to(walk, time_ps, NULL), HARPE_OK);
            double deadline_s = (double)walk->solver.time_ps / HARPE_PS_PER_S;
            double relaxed_j = harpe_walk_bound_j(walk, deadline_s);
            harpe_cut cut = random_cut(problem, &random);
            cut.deadline_ps = walk->solver.time_ps;
            assert_int_equal(harpe_bounder_cut(&s.bounder, &walk->solver, &cut, NULL), HARPE_OK);
            double size_j = 1e-6 + fabs(relaxed_j) + power_w * deadline_s;
            for (size_t p = 0; p < all.count; p++) {
                if (all.time_s[p] > deadline_s) continue;
                double plan_j = all.compute_j[p] + power_w * all.time_s[p];
                assert_true(harpe_cut_at(&cut, all.time_s[p]) <= plan_j + 2e-8 * size_j);
            }
            assert_true(harpe_cut_at(&cut, (1 - 1e-10) * deadline_s) >=
                        relaxed_j - 1e-8 * size_j - flow_rounding_j(problem, deadline_s));
            assert_true(harpe_cut_at(&cut, 1.001 * deadline_s) < 0);
            if (!cut.is_exact) continue;
            exact++;
            double price_w = cut.is_flat ? 0 : (double)walk->solver.flow_uw / HARPE_UW_PER_W;
            double above_j = smallest_of(&all, deadline_s - ROUNDING_S, price_w);
            double below_j = smallest_of(&all, deadline_s + ROUNDING_S, price_w);
            assert_true(cut.energy_j <= above_j + 1e-8 * size_j);
            assert_true(cut.energy_j >=
                        below_j - 2e-8 * size_j - flow_rounding_j(problem, deadline_s));
        }
        solved_clear(&s);
        harpe_problem_free(problem);
    }
    assert_true(exact > trials / 15);
}

static harpe_plan_set *plans_with_effort(const harpe_problem *problem, double effort_s,
                                         harpe_frontier **frontier) {
    harpe_plan_set *plans = NULL;
    harpe_plan_request request = {.count = 5, .effort_s = effort_s, .threads = 2};
    harpe_error error = {.message = ""};
    if (harpe_plan_set_new(problem, &request, NULL, frontier, &plans, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    return plans;
}

/* Proofs of all schedules hold, and a bound that is too high does not pass. Returns how many bounds
 * the effort raised. */
static int check_proofs(double effort_s) {
    test_random random = {32};
    const char *name;
    int raised = 0;
    for (int k = 0; (name = harpe_schedule_name_at(k)); k++) {
        harpe_schedule_options options = shape_for(name, 3, 6);
        if (strcmp(name, "interleaved-1f1b") == 0) options.chunks = 2;
        harpe_problem *problem = random_problem(&options, &random);
        harpe_frontier *frontier = NULL;
        harpe_plan_set *plans = plans_with_effort(problem, effort_s, &frontier);
        harpe_error error = {.message = ""};
        if (harpe_plan_set_verify(problem, frontier, plans, &error) != HARPE_OK)
            fail_msg("%s: %s", name, error.message);
        for (size_t i = 0; i < harpe_plan_set_count(plans); i++) {
            harpe_plan *plan = &plans->plans[i];
            assert_true(plan->lower_bound_j >= harpe_frontier_bound_at(frontier, plan->time_s));
            if (plans->cuts[i].deadline_ps == 0) continue;
            raised++;
            double bound_j = plan->lower_bound_j, more_j = 1e-6 * fabs(bound_j);
            plan->lower_bound_j += more_j; /* not what the cut says */
            assert_int_equal(harpe_plan_set_verify(problem, frontier, plans, NULL), HARPE_INTERNAL);
            plans->cuts[i].energy_j += more_j; /* not what the blocks prove */
            plan->energy_j += more_j;
            assert_int_equal(harpe_plan_set_verify(problem, frontier, plans, NULL), HARPE_INTERNAL);
            plan->energy_j -= more_j;
            plan->lower_bound_j = bound_j;
            plans->cuts[i].energy_j -= more_j;
        }
        harpe_plan_set_free(plans);
        harpe_frontier_free(frontier);
        harpe_problem_free(problem);
    }
    return raised;
}

static void proofs_hold_and_false_ones_do_not(void **state) {
    (void)state;
    int raised = 0;
    /* A busy machine may need a longer effort. */
    for (double effort_s = 0.05; raised == 0 && effort_s < 60; effort_s *= 4)
        raised = check_proofs(effort_s);
    assert_true(raised > 0);
}

/* The plans of a small job are proven optimal, and then the effort ends. */
static void small_jobs_reach_their_bound(void **state) {
    (void)state;
    test_random random = {33};
    static enumeration all;
    size_t closed = 0, count = 0;
    for (int trial = 0; trial < test_trials(60); trial++) {
        harpe_problem *problem = small_problem(&random);
        if (!enumerate(problem, &all)) {
            harpe_problem_free(problem);
            continue;
        }
        double power_w = harpe_problem_iteration_power_w(problem);
        harpe_frontier *frontier = NULL;
        harpe_plan_request request = {.count = 6, .effort_s = 1e5};
        harpe_plan_set *plans = NULL;
        harpe_error error = {.message = ""};
        assert_int_equal(harpe_plan_set_new(problem, &request, NULL, &frontier, &plans, &error),
                         HARPE_OK);
        for (size_t i = 0; i < harpe_plan_set_count(plans); i++) {
            const harpe_plan *plan = harpe_plan_set_at(plans, i);
            double least_j = smallest_of(&all, plan->time_s + ROUNDING_S, 0);
            double optimum_j = least_j + power_w * plan->time_s;
            double size_j = 1e-6 + fabs(optimum_j) + power_w * plan->time_s;
            assert_true(plan->lower_bound_j <= optimum_j + 1e-8 * size_j);
            assert_true(plan->energy_j >= optimum_j - 1e-8 * size_j);
            closed += plan->energy_j - plan->lower_bound_j <=
                      2e-8 * size_j + flow_rounding_j(problem, plan->time_s);
            count++;
        }
        harpe_plan_set_free(plans);
        harpe_frontier_free(frontier);
        harpe_problem_free(problem);
    }
    assert_int_equal(closed, count);
}

/* Instructions need the same energy at every clock, so the options are on a line after the blocking
 * energy is taken away. Parts of them have segments of equal rates. The search ends all the same,
 * and its proofs hold. */
static void options_on_a_line_come_to_an_end(void **state) {
    (void)state;
    test_random random = {34};
    for (int trial = 0; trial < test_trials(60); trial++) {
        int stages = random_int(&random, 2, 4);
        test_rows rows = {0};
        for (int stage = 0; stage < stages; stage++) {
            for (int k = 0; k < 2; k++) {
                double base_s = random_between(&random, 0.5, 1500);
                double energy_j = base_s * random_between(&random, 1e2, 2e5);
                int mhz = 1980;
                for (int o = random_int(&random, 2, 9); o > 0; o--) {
                    mhz -= random_int(&random, 1, 150);
                    add_row(&rows, stage, k == 0 ? "forward" : "backward", mhz, base_s * 2000 / mhz,
                            energy_j);
                }
            }
        }
        harpe_schedule_options options = {.ranks = stages,
                                          .microbatches = random_int(&random, 2, 6)};
        harpe_problem *problem =
            problem_from_rows(&rows, &options, random_int(&random, 0, 1) ? 17500 : 60);
        free(rows.rows);
        harpe_frontier *frontier = NULL;
        harpe_plan_set *plans = NULL;
        harpe_plan_request request = {.count = 3, .effort_s = 0.05, .threads = 1};
        harpe_error error = {.message = ""};
        if (harpe_plan_set_new(problem, &request, NULL, &frontier, &plans, &error) != HARPE_OK)
            fail_msg("%s", error.message);
        if (harpe_plan_set_verify(problem, frontier, plans, &error) != HARPE_OK)
            fail_msg("%s", error.message);
        harpe_plan_set_free(plans);
        harpe_frontier_free(frontier);
        harpe_problem_free(problem);
    }
}

/* One or two stages at all scales of time: no bound is above its plan, and the proofs hold. A
 * second of an iteration of a day has no exact picoseconds as a double. */
static void bounds_hold_at_all_scales(void **state) {
    (void)state;
    test_random random = {35};
    for (int trial = 0; trial < few_trials(120); trial++) {
        int stages = random_int(&random, 1, 2);
        double scale_s = pow(10, random_between(&random, -3, 3.7));
        test_rows rows = {0};
        for (int stage = 0; stage < stages; stage++) {
            for (int k = 0; k < 2; k++) {
                double power = random_between(&random, 0.2, 1.2);
                double base_s = scale_s * random_between(&random, 0.5, 2);
                for (int mhz = 1410; mhz > 400; mhz -= random_int(&random, 15, 200)) {
                    double slower = 1410.0 / mhz;
                    add_row(&rows, stage, k == 0 ? "forward" : "backward", mhz,
                            base_s * slower * random_between(&random, 0.99, 1.01),
                            300 * base_s * pow(slower, -power) *
                                random_between(&random, 0.98, 1.02));
                }
            }
        }
        harpe_schedule_options options = {.ranks = stages,
                                          .microbatches = random_int(&random, 1, 10)};
        harpe_problem *problem =
            problem_from_rows(&rows, &options, random_int(&random, 0, 1) ? 84 : 0);
        free(rows.rows);
        harpe_frontier *frontier = NULL;
        harpe_plan_set *plans = NULL;
        harpe_plan_request request = {.count = 12, .effort_s = 0.05, .threads = 1};
        harpe_error error = {.message = ""};
        if (harpe_plan_set_new(problem, &request, NULL, &frontier, &plans, &error) != HARPE_OK)
            fail_msg("%s", error.message);
        if (harpe_plan_set_verify(problem, frontier, plans, &error) != HARPE_OK)
            fail_msg("%d stages, scale %g s: %s", stages, scale_s, error.message);
        for (size_t i = 0; i < harpe_plan_set_count(plans); i++) {
            const harpe_plan *plan = harpe_plan_set_at(plans, i);
            assert_true(plan->lower_bound_j <= plan->energy_j * (1 + 1e-9));
        }
        harpe_plan_set_free(plans);
        harpe_frontier_free(frontier);
        harpe_problem_free(problem);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_hold_at_all_scales),
        cmocka_unit_test(options_on_a_line_come_to_an_end),
        cmocka_unit_test(bounds_match_the_enumeration),
        cmocka_unit_test(proofs_hold_and_false_ones_do_not),
        cmocka_unit_test(small_jobs_reach_their_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
