/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of clock: they are counted and priced as computed by hand, and removed until all
 * remaining changes pay. No plan becomes slower, and plans without a price do not change. */
#include "test.h"

#include "instances.h"
#include "plan/plans.h"

static harpe_switching switching_of(const harpe_problem *problem, const int *frequency_mhz,
                                    const harpe_clock_switch *cost) {
    harpe_switching out;
    assert_works(harpe_plan_switching(problem, frequency_mhz, cost, &out, &failure));
    return out;
}

TEST(changes_are_counted_by_hand) {
    owned_problem problem = one_rank();
    harpe_switching one = switching_of(problem, (int[]){1000, 1400, 1000, 1400}, NULL);
    assert_int_equal(one.clock_writes, 4); /* the last change is that to the next iteration */
    assert_near(one.shortest_dwell_s, 2, 1e-12);
    assert_near(one.time_s, 8, 1e-12);
    assert_near(one.energy_j, 2000, 1e-12);
    one = switching_of(problem, (int[]){1000, 1400, 1400, 1000}, NULL);
    assert_int_equal(one.clock_writes, 2);
    one = switching_of(problem, (int[]){1400, 0, 0, 1400}, NULL); /* 0: the default */
    assert_int_equal(one.clock_writes, 0);
    assert_true(one.shortest_dwell_s == 0);
}

/* A forward does half of its work first, at 1400 MHz. A backward does a sixth of its work at 1000.
 */
TEST(late_changes_are_priced_by_hand) {
    owned_problem problem = one_rank();
    const harpe_clock_switch cost = {.latency_s = 0.5, .energy_j = 10};
    harpe_switching one = switching_of(problem, (int[]){1000, 1400, 1000, 1400}, &cost);
    assert_near(one.time_s, 2 * (0.5 + 1 + 0.5 + 2 * 5. / 6), 1e-12);
    assert_near(one.energy_j, 2 * (0.5 * 300 + 0.5 * 400 + 500. / 6 + 600 * 5. / 6) + 4 * 10,
                1e-12);
    /* The change to 1000 MHz takes longer than a forward at 1400: the backward begins at 1400. */
    const harpe_clock_switch slow = {.latency_s = 2};
    one = switching_of(problem, (int[]){1000, 1000, 1400, 1400}, &slow);
    assert_near(one.time_s, (1 + 0.5 * 2 + 0.5 * 3) + (2 + 2), 1e-12);
}

TEST(bad_costs_are_refused) {
    owned_problem problem = one_rank();
    harpe_switching out;
    const harpe_clock_switch bad[] = {
        {.latency_s = -1}, {.energy_j = NAN}, {.minimum_dwell_s = INFINITY}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(
            harpe_plan_switching(problem, (int[]){0, 0, 0, 0}, &bad[i], &out, &failure),
            HARPE_INVALID_ARGUMENT);
        harpe_plan_set *plans = NULL;
        assert_int_equal(harpe_plan_set_new(problem, &(harpe_plan_request){.clock_switch = bad[i]},
                                            NULL, NULL, &plans, &failure),
                         HARPE_INVALID_ARGUMENT);
    }
    assert_int_equal(harpe_plan_switching(problem, (int[]){0, 0, 7, 0}, NULL, &out, &failure),
                     HARPE_INVALID_INPUT);
}

/* Zero bubble on one rank, F0 I0 W0 F1 I1 W1. The input half of the first stage's backward computes
 * nothing. It has its own best clock, which would raise the long instructions around it. */
static harpe_problem *rank_with_brief_instructions(double brief_s) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 1, 300);
    add_row(&rows, 0, "forward", 1000, 1.2, 250);
    add_row(&rows, 0, "backward_input", 1400, brief_s, 300 * brief_s);
    add_row(&rows, 0, "backward_input", 1000, 1.2 * brief_s, 400 * brief_s);
    add_row(&rows, 0, "backward_weight", 1400, 2, 600);
    add_row(&rows, 0, "backward_weight", 1000, 2.4, 500);
    return problem_from_rows(
        &rows, &(harpe_schedule_options){.name = "zb-h1", .ranks = 1, .microbatches = 2}, 50);
}

TEST(brief_instructions_have_the_clock_before_them) {
    owned_problem problem = rank_with_brief_instructions(20e-6);
    assert_int_equal(problem->instruction_count, 6);
    int mhz[6] = {1000, 1400, 1000, 1400, 1000, 1400};
    harpe_switching_follow(problem, false, mhz);
    const int expected[6] = {1000, 1000, 1000, 1400, 1400, 1400};
    assert_memory_equal(mhz, expected, sizeof expected);
    harpe_problem_free(problem);
    problem = rank_with_brief_instructions(0.05); /* long enough for a clock of its own */
    int own[6] = {1000, 1400, 1000, 1400, 1000, 1400};
    harpe_switching_follow(problem, false, own);
    assert_int_equal(own[1], 1400);
}

/* If changes cost nothing, a brief instruction follows only where this is not worse: at 1400 MHz
 * it needs less time and less energy. */
TEST(nothing_becomes_worse_if_changes_cost_nothing) {
    owned_problem problem = rank_with_brief_instructions(20e-6);
    int mhz[6] = {1000, 1400, 1000, 1400, 1000, 1400};
    harpe_switching_follow(problem, true, mhz);
    const int expected[6] = {1000, 1400, 1000, 1400, 1400, 1400};
    assert_memory_equal(mhz, expected, sizeof expected);
}

/* One rank: F0 B0 F1 B1. A forward takes 10 us at 1400 MHz, and 0.5 s at 1000. */
TEST(an_instruction_follows_only_if_it_stays_brief) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 10e-6, 1e-3);
    add_row(&rows, 0, "forward", 1000, 0.5, 1e-4);
    add_row(&rows, 0, "backward", 1400, 2, 600);
    add_row(&rows, 0, "backward", 1000, 3, 500);
    owned_problem problem = problem_1f1b(&rows, 1, 2, 50);
    int mhz[4] = {1400, 1000, 1400, 1000};
    const int expected[4] = {1400, 1000, 1400, 1000};
    harpe_switching_follow(problem, false, mhz);
    assert_memory_equal(mhz, expected, sizeof expected);
    int slow[4] = {1000, 1400, 1400, 1000}; /* would be faster, but at a price */
    const int slow_expected[4] = {1000, 1400, 1400, 1000};
    harpe_switching_follow(problem, false, slow);
    assert_memory_equal(slow, slow_expected, sizeof slow_expected);
}

/* Profiles in which the times of an instruction differ by factors of up to 1000, so that it may be
 * brief at some clocks and the longest at others. */
TEST(asked_times_hold_with_brief_instructions) {
    test_random random = {31};
    for (int trial = 0; trial < few_trials(150); trial++) {
        int ranks = random_int(&random, 1, 3);
        const harpe_schedule_options options = {.ranks = ranks,
                                                .microbatches = random_int(&random, 1, 4)};
        owned_rows rows = {0};
        for (int row = 0; row < 6 * ranks; row++) {
            double time_s = pow(10, random_int(&random, -5, -2)) * random_int(&random, 1, 9);
            add_row(&rows, row / 6, row % 6 < 3 ? "forward" : "backward", 1410 - 15 * (row % 3),
                    time_s, time_s * random_int(&random, 100, 400));
        }
        owned_problem problem = problem_from_rows(&rows, &options, 75);
        owned_frontier frontier = frontier_of(problem);
        size_t count = 0;
        const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &count);
        double range_s = vertices[count - 1].time_s - vertices[0].time_s, times_s[3];
        for (int k = 0; k < 3; k++)
            times_s[k] = vertices[0].time_s + range_s * k * random_between(&random, 0, 0.5);
        const harpe_clock_switch costs[] = {{0}, {.minimum_dwell_s = 1e-3}, {.energy_j = 1e-4}};
        const harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                            .times_s = times_s,
                                            .time_count = 3,
                                            .count = 1 + trial % 2,
                                            .clock_switch = costs[trial % 3]};
        owned_plan_set plans = plan_set_of(problem, &request, NULL);
        harpe_plan maximum = maximum_of(problem);
        for (size_t k = 0; k < 3; k++) {
            double most_s = times_s[k] * (1 + 1e-9) + 1e-10;
            /* No faster plan may keep its clocks for long enough. */
            if (trial % 3 == 1) most_s = fmax(most_s, maximum.time_s * (1 + 1e-9));
            assert_true(harpe_plan_set_at(plans, k)->time_s <= most_s);
        }
    }
}

/* The plan with the least energy takes 7.2 s and the brief instructions' time at 1400 MHz. They
 * must not become slower if just this time is asked for, and no faster plan is made. */
TEST(asked_times_hold_if_changes_have_a_cost) {
    const harpe_clock_switch costs[] = {
        {.energy_j = 0.01}, {.minimum_dwell_s = 0.01}, {.latency_s = 0.01}};
    for (size_t c = 0; c < sizeof costs / sizeof *costs; c++) {
        for (double brief_s = 1e-9; brief_s < 2e-5; brief_s *= 10) {
            owned_problem problem = rank_with_brief_instructions(brief_s);
            double time_s = 2 * (1.2 + 2.4 + brief_s);
            const harpe_plan_request request = {.choice = HARPE_PLANS_AT,
                                                .times_s = &time_s,
                                                .time_count = 1,
                                                .count = 1,
                                                .clock_switch = costs[c]};
            owned_plan_set plans = plan_set_of(problem, &request, NULL);
            assert_true(harpe_plan_set_at(plans, 0)->time_s <= time_s * (1 + 1e-9));
        }
    }
}

/* With a price of changes, plans run the brief instructions at their neighbours' clocks. No
 * neighbour pays for them. */
TEST(plans_do_not_change_clocks_for_brief_instructions) {
    const harpe_clock_switch costs[] = {
        {.energy_j = 0.01}, {.minimum_dwell_s = 0.01}, {.latency_s = 0.01}};
    for (size_t c = 0; c < sizeof costs / sizeof *costs; c++) {
        for (double brief_s = 1e-9; brief_s < 2e-5; brief_s *= 10) {
            owned_problem problem = rank_with_brief_instructions(brief_s);
            owned_plan_set plans = NULL;
            assert_works(harpe_plan_set_new(problem,
                                            &(harpe_plan_request){.clock_switch = costs[c]}, NULL,
                                            NULL, &plans, &failure));
            const harpe_plan *slowest = harpe_plan_set_at(plans, 0);
            for (size_t p = 0; p < harpe_plan_set_count(plans); p++) {
                const harpe_plan *plan = harpe_plan_set_at(plans, p);
                assert_true(isfinite(plan->time_s) && isfinite(plan->energy_j));
                double dwell_s = switching_of(problem, plan->frequency_mhz, NULL).shortest_dwell_s;
                assert_true(dwell_s == 0 || dwell_s > 0.9);
                if (plan->energy_j < slowest->energy_j) slowest = plan;
            }
            /* all at 1000 MHz */
            assert_near(slowest->time_s, 2 * (1.2 + 2.4), 1e-3);
            assert_near(slowest->energy_j, 2 * (250 + 500), 0.1);
        }
    }
}

/* One rank: load F0 B0 F1 B1 reduce. No clock changes the first and the last. */
static harpe_problem *rank_with_phases(void) {
    static const char *const load[] = {"load", NULL}, *const reduce[] = {"reduce", NULL};
    owned_rows rows = {0};
    add_row(&rows, 0, "load", 0, 0.5, 20);
    add_row(&rows, 0, "reduce", 0, 0.25, 10);
    for (int backward = 0; backward < 2; backward++) {
        add_row(&rows, 0, backward ? "backward" : "forward", 1400, 1, 300);
        add_row(&rows, 0, backward ? "backward" : "forward", 1000, 1.2, 250);
    }
    return problem_from_rows(
        &rows,
        &(harpe_schedule_options){
            .ranks = 1, .microbatches = 2, .prologue = load, .epilogue = reduce},
        50);
}

TEST(phases_without_clocks_change_no_clock) {
    owned_problem problem = rank_with_phases();
    harpe_switching one = switching_of(problem, (int[]){0, 1000, 1000, 1000, 1000, 0}, NULL);
    assert_int_equal(one.clock_writes, 0);
    one = switching_of(problem, (int[]){0, 1000, 1400, 1400, 1400, 0}, NULL);
    assert_int_equal(one.clock_writes, 2); /* at F0, 0.5 s after the start, and at B0 */
    assert_near(one.shortest_dwell_s, 1.2, 1e-12);
}

/* Without costs the phases take 0.75 s and 30 J. With them, the least energy is that of one clock.
 */
TEST(plans_leave_the_clock_alone_in_phases_without_clocks) {
    const harpe_clock_switch costs[] = {
        {.energy_j = 1}, {.minimum_dwell_s = 0.3}, {.minimum_dwell_s = 9}, {.latency_s = 2.5}};
    for (size_t c = 0; c < sizeof costs / sizeof *costs; c++) {
        owned_problem problem = rank_with_phases();
        owned_plan_set plans = NULL;
        assert_works(harpe_plan_set_new(problem, &(harpe_plan_request){.clock_switch = costs[c]},
                                        NULL, NULL, &plans, &failure));
        size_t count = harpe_plan_set_count(plans);
        assert_near(harpe_plan_set_at(plans, 0)->time_s, 4.75, 1e-9);
        assert_near(harpe_plan_set_at(plans, count - 1)->time_s, 5.55, 1e-9);
        assert_near(harpe_plan_set_at(plans, count - 1)->energy_j, 1030, 1e-9);
        for (size_t p = 0; p < count; p++) {
            const int *mhz = harpe_plan_set_at(plans, p)->frequency_mhz;
            for (int i = 0; i < 6; i++)
                assert_int_equal(mhz[i] == 0, i == 0 || i == 5);
        }
    }
}

/* The other instructions have almost no time, so none has a clock that they could follow. */
TEST(brief_instructions_do_not_follow_a_phase_without_a_clock) {
    owned_rows rows = {0};
    add_row(&rows, 0, "forward", 1400, 10e-6, 3e-3);
    add_row(&rows, 0, "forward", 1000, 12e-6, 2e-3);
    add_row(&rows, 0, "backward", 0, 1, 100);
    owned_problem problem = problem_1f1b(&rows, 1, 1, 50);
    int mhz[2] = {1000, 0};
    harpe_switching_follow(problem, false, mhz);
    assert_int_equal(mhz[0], 1000);
}

static harpe_problem *pipeline(test_random *random, int ranks, int microbatches) {
    owned_profile profile = NULL;
    owned_schedule schedule = NULL;
    harpe_problem *problem = NULL;
    double power_w = 0;
    assert_works(harpe_profile_synthesize(&(harpe_synth_options){.stages = ranks,
                                                                 .imbalance = ranks > 1 ? 1.2 : 1,
                                                                 .seed = random_bits(random)},
                                          &profile, &power_w, &failure));
    assert_works(
        harpe_schedule_new(&(harpe_schedule_options){.ranks = ranks, .microbatches = microbatches},
                           &schedule, &failure));
    assert_works(harpe_problem_new(
        profile, schedule,
        &(harpe_problem_options){.blocking_power_w = &power_w, .blocking_power_count = 1}, &problem,
        &failure));
    return problem;
}

TEST(plans_with_a_dwell_are_a_frontier_again) {
    test_random random = {5};
    owned_problem problem = pipeline(&random, all_trials() ? 4 : 3, all_trials() ? 8 : 5);
    owned_frontier frontier = NULL;
    owned_plan_set plain = plan_set_of(problem, &(harpe_plan_request){.count = 30}, NULL);
    const harpe_plan_request request = {.count = 30, .clock_switch = {.minimum_dwell_s = 0.25}};
    owned_plan_set held = plan_set_of(problem, &request, &frontier);
    size_t count = harpe_plan_set_count(held);
    assert_in_range(count, 1, harpe_plan_set_count(plain) + 10); /* plans slower than T* */
    for (size_t i = 0; i < count; i++) {
        const harpe_plan *plan = harpe_plan_set_at(held, i);
        assert_works(harpe_plan_verify(problem, frontier, plan, &failure));
        harpe_switching left = switching_of(problem, plan->frequency_mhz, NULL);
        assert_true(left.clock_writes == 0 || left.shortest_dwell_s >= 0.25);
        if (i > 0) {
            const harpe_plan *faster = harpe_plan_set_at(held, i - 1);
            assert_true(faster->time_s <= plan->time_s && faster->energy_j > plan->energy_j);
        }
    }
    assert_near(harpe_plan_set_at(held, 0)->time_s, harpe_plan_set_at(plain, 0)->time_s, 1e-3);
}
