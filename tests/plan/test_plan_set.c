/* SPDX-License-Identifier: Apache-2.0 */
/* Plans along the frontier from the caller's view: T_min and T* are among them, no plan is slower
 * than requested, every number is that of real options, and an interruption leaves nothing behind.
 * bench/ measures their distance from the bound. */
#include "test.h"

#include "instances.h"

/* The rounding to whole picoseconds, summed over all instructions of a small instance. */
#define ROUNDING_S 1e-10

typedef struct made {
    harpe_problem *problem;
    harpe_frontier *frontier;
    harpe_plan_set *plans;
    const harpe_frontier_vertex *vertices;
    size_t vertex_count;
    bool has_dwell; /* no plan at T_min may keep the dwell time */
} made;

static made make(harpe_problem *problem, const harpe_plan_request *request) {
    made m = {.problem = problem,
              .has_dwell = request && request->clock_switch.minimum_dwell_s > 0};
    assert_works(harpe_plan_set_new(problem, request, NULL, &m.frontier, &m.plans, &failure));
    m.vertices = harpe_frontier_vertices(m.frontier, &m.vertex_count);
    return m;
}

/* The caller owns the problem. */
static void clear(made *m) {
    harpe_plan_set_free(m->plans);
    harpe_frontier_free(m->frontier);
}
#define owned_made AT_END(clear) made

static double fastest_s(const made *m) { return m->vertices[0].time_s; }
static double slowest_s(const made *m) { return m->vertices[m->vertex_count - 1].time_s; }

static harpe_problem *usual_problem(uint64_t seed, int ranks, int microbatches) {
    return usual_1f1b(&(test_random){seed}, ranks, microbatches, 8, 12);
}

/* Checks every plan: verified numbers, real frequencies, at or above the bound. */
static void assert_good_plan(const made *m, const harpe_plan *plan) {
    harpe_plan again;
    assert_works(harpe_plan_verify(m->problem, m->frontier, plan, &failure));
    assert_works(harpe_plan_evaluate(m->problem, plan->frequency_mhz, &again, NULL, &failure));
    assert_true(again.time_s == plan->time_s && again.energy_j == plan->energy_j);
    assert_true(again.compute_energy_j == plan->compute_energy_j);
    assert_true(again.blocking_energy_j == plan->blocking_energy_j);
    assert_true(again.average_power_w == plan->average_power_w);
    assert_true(plan->lower_bound_j == harpe_frontier_bound_at(m->frontier, plan->time_s));
    assert_true(plan->time_s >= fastest_s(m) - ROUNDING_S);
}

/* Checks every set that is not made for requested times. */
static void assert_good_set(const made *m) {
    size_t count = harpe_plan_set_count(m->plans);
    assert_true(count >= 1);
    for (size_t i = 0; i < count; i++) {
        const harpe_plan *plan = harpe_plan_set_at(m->plans, i);
        assert_good_plan(m, plan);
        if (i == 0) continue;
        assert_true(plan->time_s > plan[-1].time_s);
        assert_true(plan->energy_j < plan[-1].energy_j);
    }
    if (m->has_dwell) return;
    assert_true(fabs(harpe_plan_set_at(m->plans, 0)->time_s - fastest_s(m)) <= ROUNDING_S);
    assert_true(harpe_plan_set_at(m->plans, count - 1)->time_s <= slowest_s(m) + ROUNDING_S);
    assert_null(harpe_plan_set_at(m->plans, count));
}

/* ---- Sets ------------------------------------------------------------------------------------ */

TEST(spread_gives_about_as_many_plans_as_asked) {
    owned_problem problem = usual_problem(2, all_trials() ? 4 : 3, 6);
    static const int counts[] = {1, 2, 3, 20, 50};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        owned_made m = make(problem, &(harpe_plan_request){.count = counts[i]});
        size_t made_count = harpe_plan_set_count(m.plans);
        /* There are always plans near the highest clocks. */
        assert_true(made_count <= (size_t)counts[i] + 9);
        assert_true(made_count >= (size_t)(counts[i] + 1) / 2);
        for (size_t k = 0; k < made_count; k++)
            assert_good_plan(&m, harpe_plan_set_at(m.plans, k));
        if (counts[i] > 1) assert_good_set(&m);
    }
}

TEST(no_request_is_a_spread_of_a_hundred) {
    owned_problem problem = usual_problem(3, 3, 4);
    owned_made m = make(problem, NULL);
    owned_made same = make(problem, &(harpe_plan_request){.count = 100});
    assert_good_set(&m);
    assert_int_equal(harpe_plan_set_count(m.plans), harpe_plan_set_count(same.plans));
}

/* Between the two ends, the plans are near the requested times, without large gaps. */
TEST(spread_plans_are_spread) {
    owned_problem problem = usual_problem(4, all_trials() ? 4 : 3, all_trials() ? 8 : 6);
    owned_made m = make(problem, &(harpe_plan_request){.count = 40});
    double range_s = slowest_s(&m) - fastest_s(&m);
    size_t count = harpe_plan_set_count(m.plans);
    for (size_t i = 1; i < count; i++) {
        const harpe_plan *plan = harpe_plan_set_at(m.plans, i);
        assert_true(plan->time_s - plan[-1].time_s < range_s / 5);
    }
    assert_true(harpe_plan_set_at(m.plans, count - 1)->time_s > slowest_s(&m) - range_s / 5);
}

TEST(the_least_energy_of_a_set_is_close_to_the_minimum) {
    owned_problem problem = usual_problem(5, all_trials() ? 4 : 3, 6);
    owned_made m = make(problem, NULL);
    const harpe_plan *last = harpe_plan_set_at(m.plans, harpe_plan_set_count(m.plans) - 1);
    assert_true(last->energy_j >= m.vertices[m.vertex_count - 1].lower_bound_j * (1 - 1e-9));
    assert_true(last->energy_j <= m.vertices[m.vertex_count - 1].lower_bound_j * 1.01);
    const harpe_plan *first = harpe_plan_set_at(m.plans, 0);
    assert_true(first->energy_j <= m.vertices[0].lower_bound_j * 1.02);
}

TEST(all_gives_a_plan_for_every_vertex_that_is_worth_it) {
    owned_problem problem = usual_problem(6, 2, 3);
    owned_made m = make(problem, &(harpe_plan_request){.choice = HARPE_PLANS_ALL});
    assert_good_set(&m);
    assert_true(harpe_plan_set_count(m.plans) <= m.vertex_count);
    assert_true(harpe_plan_set_count(m.plans) >= m.vertex_count / 4);
}

/* The frontier of a plan set equals the frontier that is solved alone. */
static void assert_frontier_alone_is_the_same(harpe_problem *problem) {
    const double times_s[] = {1e9};
    const harpe_plan_request requests[] = {
        {.count = 7},
        {.choice = HARPE_PLANS_ALL},
        {.choice = HARPE_PLANS_AT, .times_s = times_s, .time_count = 1, .count = 2},
    };
    owned_frontier alone = frontier_of(problem);
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(alone, &count);
    for (size_t r = 0; r < 3; r++) {
        owned_made m = make(problem, &requests[r]);
        assert_int_equal(m.vertex_count, count);
        for (size_t i = 0; i < count; i++) {
            assert_true(m.vertices[i].time_s == vertices[i].time_s);
            assert_near(m.vertices[i].lower_bound_j, vertices[i].lower_bound_j, 1e-12);
            assert_true(m.vertices[i].marginal_w == vertices[i].marginal_w);
        }
    }
}

TEST(frontier_is_the_same_with_and_without_plans) {
    test_random random = {9};
    harpe_problem *problem = usual_problem(9, 3, 4);
    assert_frontier_alone_is_the_same(problem);
    harpe_problem_free(problem);
    for (int trial = 0; trial < few_trials(40); trial++) {
        harpe_schedule_options options = random_1f1b(&random, 3, 3);
        problem = random_problem(&options, &random);
        assert_frontier_alone_is_the_same(problem);
        harpe_problem_free(problem);
    }
}

/* At T_min the solver could raise the flow further, but that would not make the iteration shorter:
 * the price there is that of the segment above. */
TEST(price_at_the_fastest_is_that_of_the_segment_above) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 10, 10);
    add_row(&rows, 0, "forward", 1000, 50, 8);
    add_row(&rows, 0, "backward", 1400, 10, 10);
    for (int s = 1; s < 3; s++) {
        add_row(&rows, s, "forward", 1400, 10, 10);
        add_row(&rows, s, "forward", 1000, 20, 1);
        add_row(&rows, s, "backward", 1400, 10, 10);
    }
    owned_problem problem = problem_1f1b(&rows, 3, 3, 0);
    assert_frontier_alone_is_the_same(problem);
    owned_made m = make(problem, &(harpe_plan_request){.choice = HARPE_PLANS_ALL});
    assert_true(m.vertex_count > 1 && m.vertices[0].marginal_w == m.vertices[1].marginal_w);
}

/* ---- Asked times ----------------------------------------------------------------------------- */

TEST(asked_times_are_kept_in_the_order_asked) {
    test_random random = {10};
    for (int trial = 0; trial < few_trials(20); trial++) {
        harpe_schedule_options options = random_1f1b(&random, 4, 5);
        owned_problem problem = random_problem(&options, &random);
        owned_frontier frontier = frontier_of(problem);
        size_t count = 0;
        const harpe_frontier_vertex *v = harpe_frontier_vertices(frontier, &count);
        double low_s = v[0].time_s, high_s = v[count - 1].time_s, times_s[8];
        times_s[0] = random_between(&random, low_s, high_s);
        times_s[1] = high_s;
        times_s[2] = low_s;
        times_s[3] = 3 * high_s;
        times_s[4] = times_s[0];
        times_s[5] = INFINITY;
        times_s[6] = low_s - 1e-10; /* the time of a plan, written to a file and read back */
        times_s[7] = random_between(&random, low_s, high_s);

        harpe_plan_request request = {
            .choice = HARPE_PLANS_AT, .times_s = times_s, .time_count = 8, .count = 10};
        owned_made m = make(problem, &request);
        assert_int_equal(harpe_plan_set_count(m.plans), 8);
        for (size_t i = 0; i < 8; i++) {
            const harpe_plan *plan = harpe_plan_set_at(m.plans, i);
            assert_good_plan(&m, plan);
            assert_true(plan->time_s <= times_s[i] + ROUNDING_S || i == 6);
            assert_true(plan->time_s <= slowest_s(&m) + ROUNDING_S);
        }
        assert_true(fabs(harpe_plan_set_at(m.plans, 2)->time_s - low_s) <= ROUNDING_S);
        assert_near(harpe_plan_set_at(m.plans, 0)->energy_j,
                    harpe_plan_set_at(m.plans, 4)->energy_j, 1e-12);
        /* More time never needs more energy. */
        assert_true(harpe_plan_set_at(m.plans, 1)->energy_j <=
                    harpe_plan_set_at(m.plans, 7)->energy_j * (1 + 1e-9));
    }
}

TEST(times_below_the_fastest_are_infeasible) {
    owned_problem problem = usual_problem(11, 2, 3);
    owned_made m = make(problem, &(harpe_plan_request){.count = 2});
    double shortest_s = fastest_s(&m);
    const double impossible_s[] = {
        shortest_s * 0.999, shortest_s - 1e-6, 1e-12, -1, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof impossible_s / sizeof impossible_s[0]; i++) {
        const double times_s[] = {2 * shortest_s, impossible_s[i]};
        harpe_plan_request request = {
            .choice = HARPE_PLANS_AT, .times_s = times_s, .time_count = 2};
        harpe_frontier *frontier = NULL;
        harpe_plan_set *plans = NULL;
        assert_refuses(harpe_plan_set_new(problem, &request, NULL, &frontier, &plans, &failure),
                       HARPE_INFEASIBLE, "the fastest takes");
        assert_null(frontier);
        assert_null(plans);
    }
}

TEST(nonsense_is_refused) {
    owned_problem problem = usual_problem(12, 2, 2);
    const harpe_plan_request nonsense[] = {
        {.count = -1},
        {.count = INT32_MAX},
        {.threads = -1},
        {.choice = HARPE_PLANS_AT},
        {.choice = HARPE_PLANS_AT, .times_s = &(double){1}, .time_count = SIZE_MAX},
        {.choice = (harpe_plan_choice)17},
    };
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        harpe_frontier *frontier = NULL;
        harpe_plan_set *plans = NULL;
        assert_refuses(harpe_plan_set_new(problem, &nonsense[i], NULL, &frontier, &plans, &failure),
                       HARPE_INVALID_ARGUMENT, " ");
        assert_null(frontier);
        assert_null(plans);
    }
    harpe_plan_set_free(NULL);
}

/* Times belong to HARPE_PLANS_AT. A request that is reused for a spread may still have times. */
TEST(times_are_ignored_unless_asked_for) {
    owned_problem problem = usual_problem(13, 2, 2);
    double times_s[500] = {0};
    owned_made m =
        make(problem, &(harpe_plan_request){.count = 3, .times_s = times_s, .time_count = 500});
    assert_good_set(&m);
}

/* ---- Stopping -------------------------------------------------------------------------------- */

typedef struct told {
    int reports_left, reports, phases;
    const char *phase;
    double fraction;
} told;

/* The phases follow each other, and the fraction never falls. */
static bool take_report(void *user, const char *phase, double fraction) {
    told *t = user;
    if (!t->phase || strcmp(t->phase, phase) != 0) t->phases++;
    assert_string_equal(phase, t->phases < 2 ? "solving" : "planning");
    assert_true(fraction >= t->fraction && fraction <= 1);
    t->phase = phase;
    t->fraction = fraction;
    t->reports++;
    return t->reports_left-- > 0;
}

enum { ENDLESS = 1000000 };

/* Without a request, only the frontier is solved. */
static harpe_status solve(const harpe_problem *problem, const harpe_plan_request *request,
                          const harpe_progress *progress, harpe_frontier **frontier,
                          harpe_plan_set **plans) {
    if (!request) return harpe_frontier_new(problem, progress, frontier, &failure);
    return harpe_plan_set_new(problem, request, progress, frontier, plans, &failure);
}

TEST(progress_can_stop_the_planner_at_any_report) {
    owned_problem problem = usual_problem(14, 2, 4);
    const double times_s[] = {1e3, 1e4};
    const harpe_plan_request alone = {.count = 8, .threads = 1}, threads = {.count = 8};
    const harpe_plan_request times = {
        .choice = HARPE_PLANS_AT, .times_s = times_s, .time_count = 2, .count = 3, .threads = 1};
    const harpe_plan_request *const requests[] = {NULL, &alone, &times, &threads};
    for (int r = 0; r < 4; r++) {
        told whole = {.reports_left = ENDLESS};
        harpe_progress progress = {take_report, &whole};
        harpe_frontier *frontier = NULL;
        harpe_plan_set *plans = NULL;
        bool is_alone = requests[r] != &threads;
        assert_works(solve(problem, requests[r], &progress, &frontier, &plans));
        harpe_frontier_free(frontier);
        harpe_plan_set_free(plans);
        assert_int_equal(whole.phases, requests[r] ? 2 : 1);
        /* On a busy machine the other threads may do most of the work, without a report. */
        assert_true(!is_alone || whole.reports > (requests[r] ? 4 : 1));
        for (int k = 0; k < whole.reports; k++) {
            told some = {.reports_left = k};
            progress.user = &some;
            frontier = NULL;
            plans = NULL;
            harpe_status status = solve(problem, requests[r], &progress, &frontier, &plans);
            if (!is_alone && some.reports <= k) {
                /* Several threads: the other threads had more of the work than before. */
                assert_int_equal(status, HARPE_OK);
                harpe_frontier_free(frontier);
                harpe_plan_set_free(plans);
                continue;
            }
            assert_int_equal(status, HARPE_INTERRUPTED);
            assert_int_equal(failure.status, HARPE_INTERRUPTED);
            assert_says(&failure, "interrupted");
            assert_null(frontier);
            assert_null(plans);
            assert_int_equal(some.reports, k + 1);
        }
    }
}

/* ---- Reports of progress --------------------------------------------------------------------- */

TEST(progress_rises_to_the_end_through_one_phase_after_the_other) {
    test_random random = {21};
    const char *name;
    for (int k = 0; (name = harpe_schedule_name_at(k)); k++) {
        for (int choice = HARPE_PLANS_SPREAD; choice <= HARPE_PLANS_AT; choice++) {
            harpe_schedule_options options = shape_for(name, random_int(&random, 1, 4), 5);
            owned_problem problem = random_problem(&options, &random);
            const double times_s[] = {1e4, 1e5};
            harpe_plan_request request = {.choice = (harpe_plan_choice)choice,
                                          .count = random_int(&random, 1, 9),
                                          .times_s = times_s,
                                          .time_count = 2};
            told whole = {.reports_left = ENDLESS}, alone = whole;
            harpe_progress progress = {take_report, &whole};
            owned_plan_set plans = NULL;
            owned_frontier frontier = NULL;
            assert_works(harpe_plan_set_new(problem, &request, &progress, NULL, &plans, &failure));
            assert_true(whole.fraction == 1 && whole.phases <= 2 && whole.reports >= 2);
            progress.user = &alone;
            assert_works(harpe_frontier_new(problem, &progress, &frontier, &failure));
            assert_true(alone.fraction == 1 && alone.phases == 1);
        }
    }
}

/* ---- No plan that another one beats ---------------------------------------------------------- */

/* Two clocks of equal energy, so that a plan at the lower clock is slower without saving energy. */
TEST(a_slower_plan_needs_less) {
    owned_rows rows = {0};
    for (int stage = 0; stage < 3; stage++) {
        add_row(&rows, stage, "forward", 1410, 0.1, 10);
        add_row(&rows, stage, "forward", 1305, 0.1125, 10);
        add_row(&rows, stage, "backward", 1410, 0.2, 20);
        add_row(&rows, stage, "backward", 1305, 0.23, 19.999999999999996);
    }
    harpe_schedule_options options = {.ranks = 3, .microbatches = 4};
    for (double blocking_w = 0; blocking_w <= 100; blocking_w += 20) {
        owned_problem problem = problem_from_rows(&rows, &options, blocking_w);
        for (int choice = HARPE_PLANS_SPREAD; choice <= HARPE_PLANS_ALL; choice++) {
            owned_made m =
                make(problem, &(harpe_plan_request){.choice = (harpe_plan_choice)choice});
            assert_good_set(&m);
            assert_int_equal(harpe_plan_set_count(m.plans), 1);
        }
    }
}

TEST(no_plan_of_a_set_is_beaten) {
    test_random random = {22};
    const char *name;
    for (int trial = 0; trial < few_trials(6); trial++) {
        for (int k = 0; (name = harpe_schedule_name_at(k)); k++) {
            harpe_schedule_options options =
                shape_for(name, random_int(&random, 1, 4), random_int(&random, 1, 6));
            owned_problem problem = random_problem(&options, &random);
            harpe_clock_switch change = {0};
            if (trial % 3 == 2) change.minimum_dwell_s = random_between(&random, 0, 0.2);
            owned_made all = make(
                problem,
                &(harpe_plan_request){.choice = trial % 2 ? HARPE_PLANS_SPREAD : HARPE_PLANS_ALL,
                                      .count = trial % 2 ? random_int(&random, 2, 12) : 0,
                                      .clock_switch = change});
            size_t count = harpe_plan_set_count(all.plans);
            assert_good_set(&all);
            for (size_t i = 0; i < count; i++) {
                const harpe_plan *plan = harpe_plan_set_at(all.plans, i);
                for (size_t other = 0; other < count; other++) {
                    const harpe_plan *beats = harpe_plan_set_at(all.plans, other);
                    assert_false(other != i && beats->time_s <= plan->time_s &&
                                 beats->energy_j <= plan->energy_j * (1 + 1e-12));
                }
            }
        }
    }
}

/* ---- Small and large times ------------------------------------------------------------------- */

/* From options a few picoseconds apart to iterations of days. Energies scale with times, so that
 * powers stay the same. A plan is never below its bound. */
TEST(gaps_are_never_negative) {
    static const double scales[] = {4e-8, 1e-7, 1e-6, 1e-4, 1, 1e3, 1e4};
    test_random random = {23};
    for (int trial = 0; trial < few_trials(36); trial++) {
        for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
            harpe_schedule_options options = random_1f1b(&random, 4, 6);
            owned_schedule schedule = schedule_of(&options);
            test_profile_shape shape = {.character = (test_character)(trial % CHARACTER_COUNT),
                                        .fewest_options = 2,
                                        .most_options = 9};
            if (shape.character == CHARACTER_WILD) shape.character = CHARACTER_MEASURED;
            owned_rows rows = make_rows(schedule, &shape, &random);
            for (size_t i = 0; i < rows.count; i++) {
                harpe_measurement *row = &rows.rows[i];
                row->energy_j *= scales[s];
                /* Nearly equal clocks: 50 ms become 2 ns here, and options are some ps apart. */
                double spread = trial % 2 ? 1 : 0.02;
                row->time_s = fmax(1e-9, scales[s] * (0.03 + spread * (row->time_s - 0.03)));
            }
            owned_problem problem =
                problem_from_rows(&rows, &options, random_between(&random, 0, 200));
            owned_made m = make(problem, &(harpe_plan_request){.choice = HARPE_PLANS_ALL});
            for (size_t i = 0; i < harpe_plan_set_count(m.plans); i++) {
                const harpe_plan *plan = harpe_plan_set_at(m.plans, i);
                double noise_j =
                    1e-11 * (plan->energy_j + problem->total_blocking_power_w * plan->time_s);
                if (plan->energy_j < plan->lower_bound_j - noise_j)
                    fail_msg("trial %d, scale %g: %.17g J in %.17g s, bound %.17g J", trial,
                             scales[s], plan->energy_j, plan->time_s, plan->lower_bound_j);
            }
            assert_works(harpe_frontier_verify(problem, m.frontier, 0, &failure));
        }
    }
}

/* ---- Measured profiles ----------------------------------------------------------------------- */

TEST(plans_of_measured_profiles_are_close_to_the_bound) {
    for (int i = 0; i < MEASURED_PROFILE_COUNT; i++) {
        owned_problem problem =
            measured_problem(i, all_trials() ? 12 : 4, (harpe_problem_options){0});
        owned_made m = make(problem, &(harpe_plan_request){.count = 12});
        assert_good_set(&m);
        for (size_t k = 0; k < harpe_plan_set_count(m.plans); k++) {
            const harpe_plan *plan = harpe_plan_set_at(m.plans, k);
            assert_true(plan->energy_j < plan->lower_bound_j * 1.004);
        }
    }
}

/* The curve of the model is fitted, but the plans' numbers are measured. */
TEST(exponential_model_plans_have_measured_numbers) {
    for (int i = 0; i < MEASURED_PROFILE_COUNT; i++) {
        owned_problem problem = measured_problem(
            i, all_trials() ? 6 : 3, (harpe_problem_options){.cost_model = HARPE_COST_EXPONENTIAL});
        owned_problem hull = measured_problem(i, all_trials() ? 6 : 3, (harpe_problem_options){0});
        owned_made m = make(problem, &(harpe_plan_request){.count = 8});
        owned_frontier truth = frontier_of(hull);
        for (size_t k = 0; k < harpe_plan_set_count(m.plans); k++) {
            const harpe_plan *plan = harpe_plan_set_at(m.plans, k);
            harpe_plan again;
            assert_works(harpe_plan_evaluate(hull, plan->frequency_mhz, &again, NULL, &failure));
            assert_true(again.time_s == plan->time_s && again.energy_j == plan->energy_j);
            assert_true(plan->energy_j >=
                        harpe_frontier_bound_at(truth, plan->time_s) * (1 - 1e-9));
            assert_true(plan->energy_j < harpe_frontier_bound_at(truth, plan->time_s) * 1.03);
        }
    }
}
