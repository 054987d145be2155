/* SPDX-License-Identifier: Apache-2.0 */
/* Overhead power: the energy of whole machines, T* and plans computed by hand, all plans of small
 * instances, the checker, and values that are refused. test_frontier.c compares the bound with an
 * LP solver, also with overhead power. */
#include "test.h"

#include "base/text.h"
#include "plan/plan_file.h"

#include "instances.h"

static const harpe_schedule_options one_by_one = {.ranks = 1, .microbatches = 1};

/* A forward of 1, 2 or 4 s, which saves 100 W from 1 to 2 s and 20 W from 2 to 4 s, and a backward
 * of 1 s and 100 J. */
static harpe_problem *forward_of_three_speeds(double blocking_w, double overhead_w) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 1, 300);
    add_row(&rows, 0, "forward", 1200, 2, 200);
    add_row(&rows, 0, "forward", 1000, 4, 160);
    add_row(&rows, 0, "backward", 1400, 1, 100);
    return problem_with_overhead(&rows, &one_by_one, blocking_w, overhead_w);
}

static harpe_plan_set *all_plans(const harpe_problem *problem, harpe_frontier **frontier) {
    harpe_plan_set *plans = NULL;
    harpe_error error = {.message = ""};
    harpe_plan_request request = {.choice = HARPE_PLANS_ALL};
    assert_ok(harpe_plan_set_new(problem, &request, NULL, frontier, &plans, &error), error);
    return plans;
}

TEST(overhead_moves_the_minimum_to_shorter_times) {
    static const struct {
        double overhead_w, slowest_s, least_j;
    } cases[] = {
        {0, 5, 260},           {19, 5, 260 + 19 * 5},   {21, 3, 300 + 21 * 3},
        {99, 3, 300 + 99 * 3}, {101, 2, 400 + 101 * 2}, {1e9, 2, 400 + 2e9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        owned_problem problem = forward_of_three_speeds(0, cases[i].overhead_w);
        owned_frontier frontier = NULL;
        owned_plan_set plans = all_plans(problem, &frontier);
        size_t count = 0;
        const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
        assert_near(vertices[0].time_s, 2, 1e-12);
        assert_near(vertices[count - 1].time_s, cases[i].slowest_s, 1e-12);
        assert_near(vertices[count - 1].lower_bound_j, cases[i].least_j, 1e-12);
        const harpe_plan *slowest = harpe_plan_set_at(plans, harpe_plan_set_count(plans) - 1);
        assert_near(slowest->time_s, cases[i].slowest_s, 1e-12);
        assert_near(slowest->energy_j, cases[i].least_j, 1e-12);
    }
}

TEST(energies_are_told_apart) {
    owned_problem problem = forward_of_three_speeds(10, 1000);
    const int frequency_mhz[2] = {1200, 1400};
    harpe_plan plan;
    assert_int_equal(harpe_plan_evaluate(problem, frequency_mhz, &plan, NULL, NULL), HARPE_OK);
    assert_near(plan.time_s, 3, 1e-12);
    assert_near(plan.compute_energy_j, 300, 1e-12);
    assert_true(plan.blocking_energy_j == 0);
    assert_near(plan.overhead_energy_j, 3000, 1e-12);
    assert_near(plan.energy_j, 3300, 1e-12);
    assert_near(plan.average_power_w, 100, 1e-12); /* of the GPU alone */
}

/* The lines that other servers also write contain the energy of the GPUs alone. */
TEST(a_plan_file_has_both_energies) {
    static const double overheads_w[] = {0, 1000};
    for (int i = 0; i < 2; i++) {
        owned_problem problem = forward_of_three_speeds(10, overheads_w[i]);
        harpe_plan plan;
        assert_int_equal(harpe_plan_all_maximum(problem, &plan, NULL), HARPE_OK);
        owned_text text = {0};
        harpe_plan_file_format(&text, problem, &plan, 7, 0);
        assert_non_null(strstr(text.data, "# Iteration 7 total cost: 380.0\n"));
        assert_non_null(strstr(text.data, "# Iteration 7 total cost with P2P: 400.0\n"));
        const char *line = "# Iteration 7 total cost with P2P and overhead: 2400.0\n";
        assert_true((strstr(text.data, line) != NULL) == (i == 1));
        owned_plan_file file = NULL;
        assert_int_equal(harpe_plan_file_parse(text.data, text.length, "plan", &file, NULL),
                         HARPE_OK);
    }
}

/* ---- All plans of small instances ------------------------------------------------------------ */

/* Returns the time of a plan: the arcs are repeated until all are respected. */
static double time_of(const harpe_problem *problem, const harpe_profile_point *const *points) {
    double end_s[8], longest_s = 0;
    int n = problem->instruction_count;
    for (int i = 0; i < n; i++)
        end_s[i] = points[i]->time_s;
    for (int pass = 0; pass < n; pass++) {
        for (int a = 0; a < problem->dag.arc_count; a++) {
            int to = problem->dag.arc_to[a];
            end_s[to] = fmax(end_s[to], end_s[problem->dag.arc_from[a]] + points[to]->time_s);
        }
    }
    for (int i = 0; i < n; i++)
        longest_s = fmax(longest_s, end_s[i]);
    return longest_s;
}

/* Checks every combination of measured points against the bound, and against the plan of least
 * energy that the planner found. */
static void assert_no_plan_is_below(const harpe_problem *problem, const harpe_frontier *frontier,
                                    double blocking_w, double overhead_w, double least_found_j) {
    int n = problem->instruction_count;
    size_t digit[8] = {0};
    double least_j = INFINITY;
    for (int i = 0; i < n;) {
        const harpe_profile_point *points[8] = {NULL};
        double busy_s = 0, energy_j = 0;
        for (int k = 0; k < n; k++) {
            points[k] = &harpe_problem_choice(problem, k)->points[digit[k]];
            busy_s += points[k]->time_s;
            energy_j += points[k]->energy_j;
        }
        double time_s = time_of(problem, points);
        energy_j += blocking_w * (problem->rank_count * time_s - busy_s) + overhead_w * time_s;
        least_j = fmin(least_j, energy_j);
        double bound_j = harpe_frontier_bound_at(frontier, time_s);
        if (energy_j < bound_j * (1 - 1e-8))
            fail_msg("a plan of %.12g s needs %.12g J, below the bound of %.12g J", time_s,
                     energy_j, bound_j);
        for (i = 0; i < n && ++digit[i] == harpe_problem_choice(problem, i)->point_count; i++)
            digit[i] = 0;
    }
    assert_true(least_found_j >= least_j * (1 - 1e-9));
    assert_true(least_found_j <= least_j * 1.02); /* heuristic, but the instances are small */
}

TEST(no_plan_of_a_small_instance_is_below_the_bound) {
    test_random random = {6};
    for (int trial = 0; trial < test_trials(100); trial++) {
        harpe_schedule_options options = {.ranks = random_int(&random, 1, 2), .microbatches = 2};
        double blocking_w = random_between(&random, 0, 100);
        double overhead_w = random_between(&random, 0, 600);
        owned_rows rows = {0};
        for (int stage = 0; stage < options.ranks; stage++) {
            for (int k = 0; k < 3; k++) {
                double slower = 1 + 0.2 * k;
                add_row(&rows, stage, "forward", 1400 - 100 * k,
                        slower * random_between(&random, 0.9, 1.1), 400 / slower);
                add_row(&rows, stage, "backward", 1400 - 100 * k, 2 * slower,
                        random_between(&random, 700, 900) / slower);
            }
        }
        owned_problem problem = problem_with_overhead(&rows, &options, blocking_w, overhead_w);
        owned_frontier frontier = NULL;
        owned_plan_set plans = all_plans(problem, &frontier);
        double least_j = INFINITY;
        harpe_error error = {.message = ""};
        assert_ok(harpe_frontier_verify(problem, frontier, 0, &error), error);
        for (size_t i = 0; i < harpe_plan_set_count(plans); i++) {
            const harpe_plan *plan = harpe_plan_set_at(plans, i);
            assert_ok(harpe_plan_verify(problem, frontier, plan, &error), error);
            least_j = fmin(least_j, plan->energy_j);
        }
        assert_no_plan_is_below(problem, frontier, blocking_w, overhead_w, least_j);
    }
}

/* ---- Wrong values ---------------------------------------------------------------------------- */

TEST(the_checker_finds_a_wrong_overhead_energy) {
    owned_problem problem = forward_of_three_speeds(10, 50);
    owned_frontier frontier = NULL;
    owned_plan_set plans = all_plans(problem, &frontier);
    harpe_plan plan = *harpe_plan_set_at(plans, 0);
    harpe_error error = {.message = ""};
    assert_ok(harpe_plan_verify(problem, frontier, &plan, &error), error);
    plan.overhead_energy_j += 1;
    assert_int_equal(harpe_plan_verify(problem, frontier, &plan, &error), HARPE_INTERNAL);
    assert_non_null(strstr(error.message, "overhead energy"));
    plan.overhead_energy_j = 0;
    plan.energy_j = plan.compute_energy_j + plan.blocking_energy_j;
    assert_int_equal(harpe_plan_verify(problem, frontier, &plan, &error), HARPE_INTERNAL);
}

TEST(impossible_overheads_are_refused) {
    static const double wrong_w[] = {-1, 1.1e9, INFINITY, NAN};
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 1, 300);
    add_row(&rows, 0, "backward", 1400, 1, 300);
    owned_schedule schedule = schedule_of(&one_by_one);
    owned_profile profile = profile_of(&rows);
    for (size_t i = 0; i < sizeof wrong_w / sizeof wrong_w[0]; i++) {
        harpe_problem *problem = NULL;
        harpe_error error = {.message = ""};
        harpe_problem_options options = {.overhead_power_w = wrong_w[i]};
        assert_int_equal(harpe_problem_new(profile, schedule, &options, &problem, &error),
                         HARPE_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "overhead power"));
        assert_null(problem);
    }
}

int main(void) { return run_listed_tests(); }
