/* SPDX-License-Identifier: Apache-2.0 */
/* The split of a budget: against the enumeration of all plans, and the lower bound against an LP
 * solver, on random fleets; changes against fleets that are made anew; and bad input. */
#include "test.h"

#ifdef HARPE_HAVE_CLP
#include <coin/Clp_C_Interface.h>
#endif

#include "fleets.h"

static stated_fleet stated; /* large */

/* ---- By hand --------------------------------------------------------------------------------- */

static const harpe_fleet_plan steep[] = {{1, 400}, {1.1, 300}, {1.4, 200}};
static const harpe_fleet_plan flat[] = {{2, 500}, {2.02, 400}, {2.1, 300}};

static harpe_fleet *two_jobs(double watts) {
    harpe_fleet *fleet = NULL;
    harpe_error error = {.message = ""};
    int a, b;
    harpe_fleet_job job = {.name = "a", .weight = 1, .plan_count = 3, .plans = steep};
    assert_ok(harpe_fleet_new(&fleet, &error), error);
    assert_ok(harpe_fleet_add(fleet, &job, &a, &error), error);
    job.name = "b";
    job.plans = flat;
    assert_ok(harpe_fleet_add(fleet, &job, &b, &error), error);
    harpe_fleet_budget budget = {.watts = watts};
    assert_ok(harpe_fleet_set_budget(fleet, 0, &budget, &error), error);
    return fleet;
}

static harpe_fleet_choice choice_of(const harpe_fleet *fleet, int job) {
    harpe_fleet_choice choice;
    harpe_error error = {.message = ""};
    assert_ok(harpe_fleet_choice_of(fleet, job, &choice, &error), error);
    return choice;
}

TEST(the_job_that_loses_least_gives_the_watts) {
    /* 900 W: all. 800 W: b gives 100 W for 1 %. 700 W: b gives 200 W for 5 %. 600 W: a gives 100 W
     * for 10 %. */
    static const size_t expected[][3] = {{900, 0, 0}, {800, 0, 1}, {700, 0, 2}, {600, 1, 2}};
    for (size_t i = 0; i < 4; i++) {
        harpe_fleet *fleet = two_jobs((double)expected[i][0]);
        harpe_fleet_split split = solve(fleet);
        assert_true(split.is_feasible && split.is_optimal);
        assert_int_equal(choice_of(fleet, 0).plan, expected[i][1]);
        assert_int_equal(choice_of(fleet, 1).plan, expected[i][2]);
        assert_near(split.power_w, (double)expected[i][0], 1e-12);
        assert_true(fabs(split.objective - split.lower_bound) < 1e-12);
        harpe_fleet_free(fleet);
    }
}

TEST(a_choice_shows_what_the_next_watt_is_worth) {
    harpe_fleet *fleet = two_jobs(600);
    (void)solve(fleet);
    harpe_fleet_choice a = choice_of(fleet, 0), b = choice_of(fleet, 1);
    assert_near(a.gain_per_w, 0.1 / 100, 1e-9);
    assert_near(b.gain_per_w, 0.04 / 100, 1e-9);
    assert_near(b.slowdown, 1.05, 1e-12);
    assert_true(a.price_per_w >= 0.04 / 100 && a.price_per_w <= 0.3 / 100);
    assert_near(use_of(fleet, 0).price_per_w, a.price_per_w, 1e-12);
    harpe_fleet_free(fleet);
}

TEST(an_infeasible_budget_says_what_is_missing) {
    harpe_fleet *fleet = two_jobs(450);
    harpe_error error = {.message = ""};
    harpe_fleet_budget budget = {.watts = 450, .margin = 0.1, .overhead = 1.5};
    assert_ok(harpe_fleet_set_budget(fleet, 0, &budget, &error), error);
    harpe_fleet_split split = solve(fleet);
    assert_false(split.is_feasible);
    assert_near(split.power_w, 500, 1e-12);
    harpe_fleet_use use = use_of(fleet, 0);
    assert_near(use.limit_w, 450 * 0.9 / 1.5, 1e-9);
    assert_near(use.least_w, 500, 1e-12);
    assert_near(use.missing_w, 500 * 1.5 / 0.9 - 450, 1e-9);
    harpe_fleet_free(fleet);
}

TEST(a_price_alone_finds_the_least_cost) {
    harpe_fleet *fleet = two_jobs(-1);
    harpe_error error = {.message = ""};
    /* A second of a job is worth 1 per hour. For b, 100 W less cost 1 % of that. */
    harpe_fleet_price price = {.energy_per_kwh = 0.2, .value_per_s = 1.0 / 3600};
    assert_int_equal(solve(fleet).power_w, 900);
    assert_ok(harpe_fleet_set_price(fleet, &price, &error), error);
    harpe_fleet_split split = solve(fleet);
    assert_int_equal(choice_of(fleet, 0).plan, 0);
    assert_int_equal(choice_of(fleet, 1).plan, 1);
    assert_near(split.objective * 3600, 0.01 + 0.2 * (0.4 + 0.4 * 1.01), 1e-9);
    assert_true(split.is_optimal);
    harpe_fleet_free(fleet);
}

/* At a negative price more energy costs less, and these jobs use most energy with their fastest
 * plans. */
TEST(a_negative_price_pays_for_energy) {
    harpe_fleet *fleet = two_jobs(-1);
    harpe_error error = {.message = ""};
    harpe_fleet_price price = {.energy_per_kwh = -0.2, .value_per_s = 1.0 / 3600};
    assert_ok(harpe_fleet_set_price(fleet, &price, &error), error);
    harpe_fleet_split split = solve(fleet);
    assert_near(split.objective * 3600, -0.2 * split.power_w / 1000, 1e-9);
    assert_near(split.weighted_slowdown, 0, 1e-12);
    assert_near(split.lower_bound, split.objective, 1e-12);
    assert_true(split.is_optimal);
    assert_int_equal(choice_of(fleet, 0).plan + choice_of(fleet, 1).plan, 0);
    /* The carbon costs what the energy pays. */
    price.carbon_g_per_kwh = 300;
    price.carbon_per_kg = 0.2 / 0.3;
    assert_ok(harpe_fleet_set_price(fleet, &price, &error), error);
    assert_true(fabs(solve(fleet).objective) < 1e-12);
    price.energy_per_kwh = -1.1e6;
    assert_int_equal(harpe_fleet_set_price(fleet, &price, &error), HARPE_INVALID_INPUT);
    assert_non_null(strstr(error.message, "energy_per_kwh must be -1e6 .. 1e6"));
    harpe_fleet_free(fleet);
}

/* A price that is exactly 0 is no other kind of price: what a second is worth still counts. */
TEST(a_price_of_0_is_between_its_neighbours) {
    static const double energy[] = {-1e-9, 0, 1e-9, 0};
    harpe_fleet *fleet = two_jobs(600);
    harpe_error error = {.message = ""};
    for (int i = 0; i < 4; i++) {
        harpe_fleet_price price = {.energy_per_kwh = energy[i], .value_per_s = 0.01};
        /* At last, the carbon costs what the energy pays. */
        if (i == 3) price = (harpe_fleet_price){-0.25, 500, 0.5, 0.01};
        assert_ok(harpe_fleet_set_price(fleet, &price, &error), error);
        harpe_fleet_split split = solve(fleet);
        assert_near(choice_of(fleet, 0).gain_per_w, 0.01 * 0.1 / 100, 1e-6);
        assert_near(choice_of(fleet, 1).gain_per_w, 0.01 * 0.04 / 100, 1e-6);
        assert_near(split.objective, 0.01 * split.weighted_slowdown, 1e-6);
        assert_near(split.lower_bound, split.objective, 1e-6);
    }
    /* Without a price, the objective is the weighted slowdown. */
    assert_ok(harpe_fleet_set_price(fleet, NULL, &error), error);
    assert_near(solve(fleet).objective, solve(fleet).weighted_slowdown, 1e-12);
    assert_near(choice_of(fleet, 0).gain_per_w, 0.1 / 100, 1e-9);
    harpe_fleet_free(fleet);
}

/* ---- Enumeration ----------------------------------------------------------------------------- */

typedef struct enumeration {
    size_t plan[FLEET_JOBS_MAX];
    double best; /* INFINITY: nothing fits */
    double size; /* sum of the sizes of its parts: with a negative price, they may cancel */
} enumeration;

static bool fits(const stated_fleet *f, const size_t *plan) {
    for (size_t g = 0; g < f->group_count; g++) {
        long long sum = 0;
        for (size_t j = 0; j < f->job_count; j++)
            if (is_in_group(f, j, (int)g)) sum += llround(f->jobs[j].plans[plan[j]].power_w * 1e6);
        if (f->budgets[g].watts >= 0 && sum > llround(limit_of(f, g) * 1e6)) return false;
    }
    return true;
}

static void enumerate(const stated_fleet *f, enumeration *e) {
    *e = (enumeration){.best = INFINITY};
    for (;;) {
        double cost = 0, size = 0;
        bool is_accepted = true;
        for (size_t j = 0; j < f->job_count; j++) {
            cost += stated_cost(f, j, e->plan[j]);
            size += fabs(stated_cost(f, j, e->plan[j]));
            is_accepted = is_accepted && accepts(&f->jobs[j], e->plan[j]);
        }
        if (is_accepted && cost < e->best && fits(f, e->plan)) {
            e->best = cost;
            e->size = size;
        }
        size_t j = 0;
        while (j < f->job_count && ++e->plan[j] == f->jobs[j].plan_count)
            e->plan[j++] = 0;
        if (j == f->job_count) return;
    }
}

TEST(small_fleets_get_the_optimum_of_the_enumeration) {
    int feasible = 0, paid = 0, trials = test_trials(3000);
    for (int i = 0; i < trials; i++) {
        test_random random = {(uint64_t)i};
        enumeration e;
        /* Up to 6 jobs with 10 plans, but rarely all of it, which takes a million choices. */
        random_fleet(&random, &stated, i % 50 == 0 ? 6 : 4, i % 50 == 0 ? 10 : 6);
        harpe_fleet *fleet = make_fleet(&stated);
        harpe_fleet_split split = solve(fleet);
        enumerate(&stated, &e);
        if (split.is_feasible != isfinite(e.best)) fail_msg("fleet %d: feasible or not", i);
        harpe_fleet_free(fleet);
        if (!split.is_feasible) continue;
        feasible++;
        assert_true(split.is_optimal);
        paid += stated.price.energy_per_kwh < 0;
        if (fabs(split.objective - e.best) > 1e-9 * e.size)
            fail_msg("fleet %d: %.12g is not %.12g", i, split.objective, e.best);
        if (split.lower_bound > e.best + 1e-12 * e.size)
            fail_msg("fleet %d: the bound is above the optimum", i);
    }
    assert_true(feasible > trials / 3 && feasible < trials && paid > trials / 30);
}

/* ---- The relaxation -------------------------------------------------------------------------- */

#ifdef HARPE_HAVE_CLP

/* Returns the sum of the largest sizes of the jobs' costs: with a negative price, costs may cancel.
 */
static double size_of(const stated_fleet *f) {
    double sum = 0;
    for (size_t j = 0; j < f->job_count; j++) {
        double largest = 0;
        for (size_t k = 0; k < f->jobs[j].plan_count; k++)
            if (accepts(&f->jobs[j], k)) largest = fmax(largest, fabs(stated_cost(f, j, k)));
        sum += largest;
    }
    return sum;
}

/* Returns the optimum of the relaxation, with a share of each accepted plan as a column. */
static double lp_optimum(const stated_fleet *f, bool *is_feasible) {
    size_t rows = f->job_count + f->group_count, columns = 0, elements = 0;
    static double cost[FLEET_JOBS_MAX * FLEET_PLANS_MAX];
    static int starts[FLEET_JOBS_MAX * FLEET_PLANS_MAX + 1];
    static int index[FLEET_JOBS_MAX * FLEET_PLANS_MAX * (FLEET_GROUPS_MAX + 1)];
    static double value[FLEET_JOBS_MAX * FLEET_PLANS_MAX * (FLEET_GROUPS_MAX + 1)];
    static double low[FLEET_JOBS_MAX + FLEET_GROUPS_MAX], high[FLEET_JOBS_MAX + FLEET_GROUPS_MAX];
    for (size_t j = 0; j < f->job_count; j++) {
        low[j] = high[j] = 1;
        for (size_t k = 0; k < f->jobs[j].plan_count; k++) {
            if (!accepts(&f->jobs[j], k)) continue;
            starts[columns] = (int)elements;
            cost[columns++] = stated_cost(f, j, k);
            index[elements] = (int)j;
            value[elements++] = 1;
            for (int g = f->jobs[j].group; g >= 0; g = f->parent[g]) {
                index[elements] = (int)f->job_count + g;
                value[elements++] = f->jobs[j].plans[k].power_w / 1000;
            }
        }
    }
    starts[columns] = (int)elements;
    for (size_t g = 0; g < f->group_count; g++) {
        low[f->job_count + g] = -INFINITY;
        high[f->job_count + g] = limit_of(f, g) / 1000;
    }
    Clp_Simplex *model = Clp_newModel();
    Clp_setLogLevel(model, 0);
    Clp_setPrimalTolerance(model, 1e-9);
    Clp_setDualTolerance(model, 1e-9);
    Clp_loadProblem(model, (int)columns, (int)rows, starts, index, value, NULL, NULL, cost, low,
                    high);
    (void)Clp_initialSolve(model);
    *is_feasible = Clp_primalFeasible(model);
    double optimum = Clp_objectiveValue(model);
    Clp_deleteModel(model);
    return optimum;
}

TEST(the_bound_is_the_optimum_of_an_lp_solver) {
    int compared = 0, trials = test_trials(300);
    for (int i = 0; i < trials; i++) {
        test_random random = {(uint64_t)i + 7000};
        random_fleet(&random, &stated, i % 10 == 0 ? 400 : 60, FLEET_PLANS_MAX);
        /* An LP solver cannot handle weights of such different sizes. */
        for (size_t j = 0; j < stated.job_count; j++)
            if (stated.jobs[j].weight > 0)
                stated.jobs[j].weight = fmin(fmax(stated.jobs[j].weight, 0.1), 3);
        if (stated.price.value_per_s > 0) stated.price.value_per_s = 1e-3;
        harpe_fleet *fleet = make_fleet(&stated);
        harpe_fleet_split split = solve(fleet);
        harpe_fleet_free(fleet);
        bool is_feasible;
        double optimum = lp_optimum(&stated, &is_feasible);
        if (!split.is_feasible || !is_feasible) continue;
        compared++;
        double size = stated.price.energy_per_kwh < 0 ? size_of(&stated) : fabs(optimum);
        if (fabs(split.lower_bound - optimum) > 1e-6 * (1e-3 + size))
            fail_msg("fleet %d: %.12g is not %.12g", i, split.lower_bound, optimum);
    }
    assert_true(compared > trials / 4);
}

#endif

TEST(large_fleets_are_close_to_the_bound) {
    double gaps = 0;
    int fleets = test_trials(60), proven = 0;
    for (int i = 0; i < fleets; i++) {
        test_random random = {(uint64_t)i + 100};
        stated = (stated_fleet){.job_count = 100, .group_count = 1, .parent = {-1}};
        for (size_t j = 0; j < 100; j++) {
            random_job(&random, &stated, j, FLEET_PLANS_MAX);
            stated.jobs[j].weight = 1;
        }
        double least, highest;
        power_range(&stated, 0, &least, &highest);
        stated.budgets[0] = (harpe_fleet_budget){.watts = (least + highest) / 2, .overhead = 1};
        harpe_fleet *fleet = make_fleet(&stated);
        harpe_fleet_split split = solve(fleet);
        harpe_fleet_free(fleet);
        assert_true(split.is_feasible);
        gaps += split.objective / split.lower_bound - 1;
        proven += split.is_optimal;
    }
    if (gaps / fleets > 0.004) fail_msg("the mean gap is %.3f %%", 100 * gaps / fleets);
    if (proven < fleets * 3 / 4) fail_msg("%d of %d are proven", proven, fleets);
}

/* ---- Changes --------------------------------------------------------------------------------- */

static void replace_job(test_random *random, harpe_fleet *fleet, size_t j) {
    harpe_error error = {.message = ""};
    int number;
    random_job(random, &stated, j, FLEET_PLANS_MAX);
    if (below(random, 2) == 0) {
        assert_ok(harpe_fleet_update(fleet, (int)j, &stated.jobs[j], &error), error);
        return;
    }
    assert_ok(harpe_fleet_remove(fleet, (int)j, &error), error);
    assert_null(harpe_fleet_job_name(fleet, (int)j));
    assert_ok(harpe_fleet_add(fleet, &stated.jobs[j], &number, &error), error);
    assert_int_equal(number, j);
}

static void set_all_watts(test_random *random, harpe_fleet *fleet) {
    harpe_error error = {.message = ""};
    double watts[FLEET_GROUPS_MAX];
    for (size_t g = 0; g < stated.group_count; g++) {
        harpe_fleet_budget old = stated.budgets[g];
        random_budget(random, &stated, (int)g);
        old.watts = stated.budgets[g].watts;
        stated.budgets[g] = old;
        watts[g] = old.watts;
    }
    assert_ok(harpe_fleet_set_watts(fleet, watts, stated.group_count, &error), error);
}

/* The bound does not depend on the way to a fleet. The plans may, between equals. */
TEST(a_changed_fleet_is_solved_like_a_new_one) {
    for (int i = 0; i < test_trials(40); i++) {
        test_random random = {(uint64_t)i + 40000};
        random_fleet(&random, &stated, i % 4 == 0 ? 8 : 200, FLEET_PLANS_MAX);
        harpe_fleet *fleet = make_fleet(&stated);
        (void)solve(fleet);
        for (int change = 0; change < 12; change++) {
            if (change % 4 == 3)
                set_all_watts(&random, fleet);
            else
                replace_job(&random, fleet, below(&random, stated.job_count));
            harpe_fleet_split split = solve(fleet);
            harpe_fleet *again = make_fleet(&stated);
            harpe_fleet_split anew = solve(again);
            assert_int_equal(split.is_feasible, anew.is_feasible);
            double scale = fabs(anew.objective) + 1e-9;
            if (fabs(split.lower_bound - anew.lower_bound) > 1e-9 * scale)
                fail_msg("fleet %d: %.12g is not %.12g", i, split.lower_bound, anew.lower_bound);
            if (split.is_optimal && anew.is_optimal)
                assert_true(fabs(split.objective - anew.objective) <= 1e-9 * scale);
            harpe_fleet_free(again);
        }
        harpe_fleet_free(fleet);
    }
}

TEST(a_solution_is_stale_after_a_change) {
    harpe_fleet *fleet = two_jobs(700);
    harpe_fleet_choice choice;
    harpe_error error = {.message = ""};
    double watts[] = {600, 1};
    (void)solve(fleet);
    assert_ok(harpe_fleet_set_watts(fleet, watts, 1, &error), error);
    assert_int_equal(harpe_fleet_choice_of(fleet, 0, &choice, &error), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_fleet_verify(fleet, &error), HARPE_INVALID_ARGUMENT);
    assert_int_equal(harpe_fleet_set_watts(fleet, watts, 2, &error), HARPE_NOT_FOUND);
    (void)solve(fleet);
    assert_int_equal(choice_of(fleet, 0).plan, 1);
    harpe_fleet_free(fleet);
}

TEST(an_empty_fleet_has_a_solution) {
    harpe_fleet *fleet = NULL;
    harpe_error error = {.message = ""};
    assert_ok(harpe_fleet_new(&fleet, &error), error);
    harpe_fleet_budget budget = {.watts = 0};
    assert_ok(harpe_fleet_set_budget(fleet, 0, &budget, &error), error);
    harpe_fleet_split split = solve(fleet);
    assert_true(split.is_feasible && split.is_optimal && split.objective == 0);
    harpe_fleet_free(fleet);
    harpe_fleet_free(NULL);
}

/* ---- Bad input ------------------------------------------------------------------------------- */

TEST(bad_jobs_are_refused) {
    harpe_fleet *fleet = two_jobs(700);
    const harpe_fleet_plan unsorted[] = {{2, 1}, {1, 1}}, negative[] = {{1, -1}},
                           endless[] = {{NAN, 1}};
    const struct {
        harpe_fleet_job job;
        const char *part; /* of the message */
    } cases[] = {
        {{.name = "", .plan_count = 1, .plans = steep}, "no name"},
        {{.name = "a\nb", .plan_count = 1, .plans = steep}, "control character"},
        {{.name = "c", .group = 1, .plan_count = 1, .plans = steep}, "group"},
        {{.name = "c", .weight = -1, .plan_count = 1, .plans = steep}, "job 'c': the weight"},
        {{.name = "c", .max_slowdown = 0.5, .plan_count = 1, .plans = steep}, "slowdown"},
        {{.name = "c", .plans = steep}, "number of plans"},
        {{.name = "c", .plan_count = 2, .plans = unsorted}, "plan 1: it is faster"},
        {{.name = "c", .plan_count = 1, .plans = negative}, "plan 0: the power"},
        {{.name = "c", .plan_count = 1, .plans = endless}, "plan 0: the time"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int number = -7;
        harpe_error error = {.message = ""};
        assert_int_equal(harpe_fleet_add(fleet, &cases[i].job, &number, &error),
                         HARPE_INVALID_INPUT);
        assert_int_equal(number, -7);
        if (!strstr(error.message, cases[i].part))
            fail_msg("'%s' lacks '%s'", error.message, cases[i].part);
    }
    harpe_fleet_free(fleet);
}

TEST(bad_groups_and_budgets_are_refused) {
    harpe_fleet *fleet = two_jobs(700);
    harpe_error error = {.message = ""};
    int group = 0;
    harpe_fleet_budget budget = {.watts = 1, .margin = 1};
    assert_int_equal(harpe_fleet_set_budget(fleet, 0, &budget, &error), HARPE_INVALID_INPUT);
    assert_non_null(strstr(error.message, "margin"));
    budget = (harpe_fleet_budget){.watts = 1, .overhead = 0.5};
    assert_int_equal(harpe_fleet_set_budget(fleet, 0, &budget, &error), HARPE_INVALID_INPUT);
    budget = (harpe_fleet_budget){.watts = NAN};
    assert_int_equal(harpe_fleet_set_budget(fleet, 0, &budget, &error), HARPE_INVALID_INPUT);
    assert_int_equal(harpe_fleet_set_budget(fleet, 3, &budget, &error), HARPE_NOT_FOUND);
    assert_int_equal(harpe_fleet_add_group(fleet, "row", 5, &group, &error), HARPE_NOT_FOUND);
    for (int depth = 1; depth < HARPE_FLEET_DEPTH_MAX; depth++)
        assert_ok(harpe_fleet_add_group(fleet, "inner", group, &group, &error), error);
    assert_int_equal(harpe_fleet_add_group(fleet, "inner", group, &group, &error),
                     HARPE_LIMIT_EXCEEDED);
    assert_int_equal(harpe_fleet_remove(fleet, 9, &error), HARPE_NOT_FOUND);
    harpe_fleet_free(fleet);
}
