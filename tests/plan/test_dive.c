/* SPDX-License-Identifier: Apache-2.0 */
/* Dives and windows on random pipelines and graphs: every result meets its deadline by an
 * independent longest path, its energy is that of harpe_plan_evaluate, and it is not below the
 * relaxation. Windows never make a plan worse. On small problems the results are compared with the
 * enumeration of all plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/dive.h"
#include "search_parts.h"

#define MOST_PLANS 20000

static void diver_init(harpe_diver *diver, const parts *p) {
    harpe_error error = {.message = ""};
    assert_ok(harpe_diver_init(diver, p->problem, &p->walk.network, &p->curves, &error), error);
}

/* Checks the present plan: real options, its time, its energy, and the bound. */
static void assert_sound(const parts *p, const harpe_diver *diver) {
    int frequency_mhz[4096];
    int32_t n = p->problem->instruction_count;
    for (int32_t i = 0; i < n; i++) {
        const harpe_option_list *list = list_at(p->problem, i);
        assert_in_range(diver->option[i], 0, list->option_count - 1);
        frequency_mhz[i] = list->options[diver->option[i]].frequency_mhz;
    }
    assert_true(plan_ps(p, diver->option) <= diver->deadline_ps);
    double noise_j = 1e-9 * scale_j(p);
    assert_true(fabs(diver->energy_j - plan_j(p, diver->option)) <= noise_j);
    harpe_error error = {.message = ""};
    harpe_plan plan;
    assert_ok(harpe_plan_evaluate(p->problem, frequency_mhz, &plan, NULL, &error), error);
    double iteration_j = harpe_problem_iteration_power_w(p->problem) * plan.time_s;
    assert_true(plan.time_s * HARPE_PS_PER_S <= (double)(diver->deadline_ps + n + 1));
    assert_true(fabs(plan.energy_j - iteration_j - diver->energy_j) <=
                noise_j + 1e-11 * iteration_j);
    assert_true(plan.energy_j >=
                harpe_frontier_bound_at(p->frontier, plan.time_s) - noise_j - 1e-9 * iteration_j);
}

static void dive(parts *p, harpe_diver *diver, harpe_dive_order order, int width) {
    bool found = false;
    harpe_error error = {.message = ""};
    assert_ok(harpe_diver_dive(diver, &p->walk.solver, order, width, &found, &error), error);
    assert_true(found); /* the faster of the options around a duration always fits */
    assert_true(diver->deadline_ps == p->walk.solver.time_ps);
    assert_sound(p, diver);
    assert_true(diver->energy_j >=
                harpe_frontier_solver_energy_j(&p->walk.solver) - 1e-9 * scale_j(p));
}

/* ---- Soundness ------------------------------------------------------------------------------- */

/* All instructions at their fastest meet every deadline. */
static void take_fastest(const parts *p, harpe_diver *diver, int64_t deadline_ps) {
    int32_t option[4096] = {0};
    assert_true(plan_ps(p, option) <= deadline_ps);
    harpe_diver_take(diver, option, deadline_ps);
}

static void dives_and_windows_are_sound(void **state) {
    (void)state;
    test_random random = {51};
    for (int trial = 0; trial < few_trials(150); trial++) {
        parts p;
        harpe_diver diver;
        parts_init(&p, any_problem(&random, trial, 4, 6));
        diver_init(&diver, &p);
        for (double share = 1; share >= 0; share -= 0.25) {
            parts_walk_to(&p, time_at(&p, share));
            for (int order = 0; order < HARPE_DIVE_ORDERS; order++)
                dive(&p, &diver, (harpe_dive_order)order, random_int(&random, 1, 12));
            for (int from_fastest = 0; from_fastest < 2; from_fastest++) {
                if (from_fastest) take_fastest(&p, &diver, p.walk.solver.time_ps);
                double before_j = plan_j(&p, diver.option);
                diver.random = random_bits(&random);
                harpe_diver_improve(&diver, 20000);
                assert_sound(&p, &diver);
                assert_true(diver.energy_j <= before_j + 1e-9 * scale_j(&p));
            }
        }
        harpe_diver_clear(&diver);
        parts_clear(&p);
    }
}

/* ---- All plans ------------------------------------------------------------------------------- */

/* Returns a problem with at most MOST_PLANS plans. */
static harpe_problem *tiny_problem(test_random *random) {
    for (int trial = random_int(random, 0, 1000);; trial++) {
        harpe_problem *problem = random_int(random, 0, 1)
                                     ? random_graph_problem(random, random_int(random, 2, 9), 4)
                                     : any_problem(random, trial, 2, 2);
        double count = plan_count(problem, MOST_PLANS);
        if (count > 8 && count <= MOST_PLANS) return problem;
        harpe_problem_free(problem);
    }
}

static void tiny_problems_against_all_plans(void **state) {
    (void)state;
    test_random random = {52};
    int trials = test_trials(120), dives_at_optimum = 0, windows_at_optimum = 0;
    for (int trial = 0; trial < trials; trial++) {
        parts p;
        harpe_diver diver;
        parts_init(&p, tiny_problem(&random));
        diver_init(&diver, &p);
        parts_walk_to(&p, time_at(&p, random_between(&random, 0, 1)));
        double noise_j = 1e-9 * scale_j(&p), best_j = INFINITY;
        double least_j = least_energy_j(&p, p.walk.solver.time_ps);
        assert_true(least_j >= harpe_frontier_solver_energy_j(&p.walk.solver) - noise_j);
        for (int order = 0; order < HARPE_DIVE_ORDERS; order++) {
            dive(&p, &diver, (harpe_dive_order)order, 1);
            assert_true(diver.energy_j >= least_j - noise_j);
            best_j = fmin(best_j, diver.energy_j);
        }
        dives_at_optimum += best_j <= least_j + noise_j;
        take_fastest(&p, &diver, p.walk.solver.time_ps);
        harpe_diver_improve(&diver, 100000);
        assert_true(diver.energy_j >= least_j - noise_j);
        windows_at_optimum += diver.energy_j <= least_j + fmax(noise_j, 2e-7);
        harpe_diver_clear(&diver);
        parts_clear(&p);
    }
    printf(
        "optimum reached by the best of 4 dives in %d, by windows from the fastest plan in %d of "
        "%d problems\n",
        dives_at_optimum, windows_at_optimum, trials);
    assert_true(dives_at_optimum >= trials * 8 / 10);
    assert_true(windows_at_optimum >= trials * 8 / 10);
}

/* ---- Determinism and budget ------------------------------------------------------------------ */

/* 1F1B, or interleaved 1F1B with more than one chunk. */
static harpe_problem *usual_problem(test_random *random, int ranks, int microbatches, int chunks) {
    harpe_schedule_options options = {.name = chunks > 1 ? "interleaved-1f1b" : "1f1b",
                                      .ranks = ranks,
                                      .microbatches = microbatches,
                                      .chunks = chunks > 1 ? chunks : 0};
    harpe_schedule *made = schedule_of(&options);
    test_profile_shape shape = {
        .character = CHARACTER_MEASURED, .fewest_options = 8, .most_options = 12};
    test_rows rows = make_rows(made, &shape, random);
    harpe_problem *problem = problem_from_rows(&rows, &options, 80);
    harpe_schedule_free(made);
    free(rows.rows);
    return problem;
}

static void windows_are_deterministic_and_keep_their_budget(void **state) {
    (void)state;
    test_random random = {53};
    parts p;
    harpe_diver one, other;
    parts_init(&p, usual_problem(&random, 4, 8, 1));
    diver_init(&one, &p);
    diver_init(&other, &p);
    parts_walk_to(&p, time_at(&p, 0.4));
    int32_t start[4096];
    size_t bytes = (size_t)p.problem->instruction_count * sizeof *start;
    dive(&p, &one, HARPE_DIVE_FORWARDS, 1);
    memcpy(start, one.option, bytes);
    uint64_t before = one.visits;
    harpe_diver_improve(&one, 0);
    assert_memory_equal(one.option, start, bytes);
    assert_true(one.visits == before);
    for (uint64_t budget = 1000; budget <= 1000000; budget *= 10) {
        harpe_diver_take(&one, start, p.walk.solver.time_ps);
        harpe_diver_take(&other, start, p.walk.solver.time_ps);
        one.random = other.random = budget;
        before = one.visits;
        harpe_diver_improve(&one, budget);
        /* The last window may exceed the budget. */
        assert_in_range(one.visits - before, budget, budget + 500000);
        harpe_diver_improve(&other, budget);
        assert_memory_equal(one.option, other.option, bytes);
        assert_true(one.energy_j == other.energy_j && one.random == other.random);
        assert_sound(&p, &one);
    }
    assert_true(one.energy_j < plan_j(&p, start)); /* windows find something here */
    harpe_diver_clear(&one);
    harpe_diver_clear(&other);
    parts_clear(&p);
}

/* ---- Beams ----------------------------------------------------------------------------------- */

static bool end_after(void *user) {
    int *left = user;
    return --*left < 0;
}

/* Wider beams need less energy, summed over some problems and times. The result does not depend on
 * what the diver did before, a dive that was ended included. */
static void beams_find_better_plans(void **state) {
    (void)state;
    test_random random = {55};
    double least_saved_j = 0, sum_j[3] = {0};
    static const int widths[] = {1, 4, 32};
    for (int trial = 0; trial < test_trials(4); trial++) {
        parts p;
        harpe_diver used, fresh;
        parts_init(&p, usual_problem(&random, 4, 8, 1));
        diver_init(&used, &p);
        diver_init(&fresh, &p);
        for (double share = 0.8; share > 0; share -= 0.3) {
            parts_walk_to(&p, time_at(&p, share));
            for (int k = 0; k < 3; k++) {
                int left = random_int(&random, 0, 60);
                bool found = true;
                harpe_error error = {.message = ""};
                used.is_over = end_after;
                used.user = &left;
                assert_ok(
                    harpe_diver_dive(&used, &p.walk.solver, HARPE_DIVE_INWARDS, 8, &found, &error),
                    error);
                assert_false(found);
                used.is_over = NULL;
                dive(&p, &used, HARPE_DIVE_BACKWARDS, widths[k]);
                sum_j[k] += used.energy_j;
            }
            dive(&p, &fresh, HARPE_DIVE_BACKWARDS, widths[2]);
            assert_memory_equal(used.option, fresh.option,
                                (size_t)p.problem->instruction_count * sizeof *used.option);
            harpe_diver_clear(&fresh);
            diver_init(&fresh, &p);
        }
        least_saved_j += 1e-6 * scale_j(&p);
        harpe_diver_clear(&used);
        harpe_diver_clear(&fresh);
        parts_clear(&p);
    }
    assert_true(sum_j[1] < sum_j[0] - least_saved_j);
    assert_true(sum_j[2] < sum_j[1] - least_saved_j);
}

/* ---- Room ------------------------------------------------------------------------------------ */

/* Windows of two microbatches on many ranks have paths between nearly all of their events, more
 * than a window may have. */
static void windows_with_too_many_paths_keep_their_room(void **state) {
    (void)state;
    test_random random = {61};
    parts p;
    harpe_diver diver;
    parts_init(&p, usual_problem(&random, 8, 8, 8));
    diver_init(&diver, &p);
    take_fastest(&p, &diver, time_at(&p, 0.5));
    int32_t most = 0;
    for (int turn = 0; turn < few_trials(150); turn++) {
        diver.random = random_bits(&random);
        harpe_diver_improve(&diver, (uint64_t)random_int(&random, 1, 60000));
        most = diver.part.edge_count > most ? diver.part.edge_count : most;
        assert_true((size_t)diver.part.edge_count <= diver.part.most_edges);
    }
    assert_true(most > 5500); /* the test reaches the limit */
    assert_sound(&p, &diver);
    harpe_diver_clear(&diver);
    parts_clear(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dives_and_windows_are_sound),
        cmocka_unit_test(tiny_problems_against_all_plans),
        cmocka_unit_test(windows_are_deterministic_and_keep_their_budget),
        cmocka_unit_test(beams_find_better_plans),
        cmocka_unit_test(windows_with_too_many_paths_keep_their_room),
    };
    return cmocka_run_group_tests_name("dive", tests, NULL, NULL);
}
