/* SPDX-License-Identifier: Apache-2.0 */
/* Every clock of a plan holds for the minimum dwell time, also if the instructions of a rank were
 * not all measured at the same clocks. Only a rank whose instructions have no clock in common may
 * change it sooner. test_simple_plans.c has GPUs at their power limit, whose higher clocks are not
 * always faster. */
#include "test.h"

#include "instances.h"

#define RANKS 3
#define MOST_MICROBATCHES 6
#define CLOCKS 4

static int microbatches = MOST_MICROBATCHES;

#define MOST_INSTRUCTIONS 256

/* Adds an instruction that was measured at some clocks. A lower clock is slower. */
static void add_measured(test_rows *rows, int stage, bool backward, const int *mhz, int count,
                         test_random *random) {
    double base_s = (1 + backward) * random_between(random, 0.04, 0.06);
    for (int k = 0; k < count; k++) {
        double x = mhz[k] / 1410.0, time_s = base_s * (0.4 + 0.6 / x);
        add_row(rows, stage, backward ? "backward" : "forward", mhz[k], time_s,
                time_s * (100 + 250 * x * x * x));
    }
}

/* The first clocks are those of forwards, the others those of backwards. Ranks below `apart` have
 * the clocks `lone` for backwards. */
static harpe_problem *with_clocks(const char *schedule, const int *forward, const int *backward,
                                  const int *lone, int apart, test_random *random) {
    owned_rows rows = {0};
    for (int stage = 0; stage < RANKS; stage++) {
        add_measured(&rows, stage, false, forward, CLOCKS, random);
        add_measured(&rows, stage, true, stage < apart ? lone : backward, CLOCKS, random);
    }
    return problem_from_rows(
        &rows,
        &(harpe_schedule_options){.name = schedule, .ranks = RANKS, .microbatches = microbatches},
        60);
}

/* Returns the shortest time between two changes of a rank, INFINITY if it has none. The last clock
 * holds to the first change of the next iteration, so two iterations are looked at. */
static double dwell_of_rank_s(const harpe_plan *plan, const double *start_s, int rank) {
    int first = rank * microbatches * 2, length = microbatches * 2;
    double changed_s = -INFINITY, shortest_s = INFINITY;
    for (int k = 1; k <= 2 * length; k++) {
        int i = first + k % length, before = first + (k - 1) % length;
        if (plan->frequency_mhz[i] == plan->frequency_mhz[before]) continue;
        double now_s = start_s[i] + k / length * plan->time_s;
        shortest_s = fmin(shortest_s, now_s - changed_s);
        changed_s = now_s;
    }
    return shortest_s;
}

/* Makes plans, and checks that the clocks of the ranks from `first` on hold. Returns the saving of
 * the best plan against the fastest. */
static double check_ranks(const harpe_problem *problem, double dwell_s, int first) {
    const harpe_plan_request request = {.count = 12, .clock_switch = {.minimum_dwell_s = dwell_s}};
    owned_plan_set plans = plan_set_of(problem, &request, NULL);
    size_t count = harpe_plan_set_count(plans);
    for (size_t k = 0; k < count; k++) {
        const harpe_plan *plan = harpe_plan_set_at(plans, k);
        harpe_plan evaluated;
        double start_s[MOST_INSTRUCTIONS];
        assert_works(
            harpe_plan_evaluate(problem, plan->frequency_mhz, &evaluated, start_s, &failure));
        for (int rank = first; rank < RANKS; rank++) {
            double found_s = dwell_of_rank_s(&evaluated, start_s, rank);
            if (found_s < dwell_s * (1 - 1e-9))
                fail_msg("plan %zu of %zu: a clock of rank %d holds for %g s, not for %g s", k,
                         count, rank, found_s, dwell_s);
        }
    }
    return 1 -
           harpe_plan_set_at(plans, count - 1)->energy_j / harpe_plan_set_at(plans, 0)->energy_j;
}

static const int usual_mhz[CLOCKS] = {1410, 1350, 1290, 1200};
static const int lower_mhz[CLOCKS] = {1380, 1350, 1290, 1200}; /* but not the highest */
static const int other_mhz[CLOCKS] = {1395, 1335, 1275, 1185};

/* The highest clocks differ, so the fastest plan of all changes the clock, but all instructions of
 * a rank have lower clocks in common. */
TEST(clocks_hold_where_the_highest_differ) {
    test_random random = {.state = 2};
    for (int trial = 0; trial < few_trials(12); trial++) {
        owned_problem problem = with_clocks("1f1b", usual_mhz, lower_mhz, other_mhz, 0, &random);
        double dwell_s = trial % 3 == 0 ? 1e6 : random_between(&random, 0.05, 0.5);
        assert_true(check_ranks(problem, dwell_s, 0) > 0.02);
    }
}

/* The first rank has no clock in common. The others hold theirs, and plans still save energy. */
TEST(other_ranks_hold_where_one_cannot) {
    test_random random = {.state = 3};
    microbatches = all_trials() ? MOST_MICROBATCHES : 4;
    for (int trial = 0; trial < few_trials(12); trial++) {
        owned_problem problem = with_clocks("1f1b", usual_mhz, lower_mhz, other_mhz, 1, &random);
        double dwell_s = trial % 3 == 0 ? 1e6 : random_between(&random, 0.3, 0.5);
        assert_true(check_ranks(problem, dwell_s, 1) > 0.02);
    }
    microbatches = MOST_MICROBATCHES;
}

/* No rank has a clock in common, but all forwards come before all backwards, so two clocks per
 * iteration are enough, and they hold for a third of it. */
TEST(clocks_hold_without_a_common_one) {
    test_random random = {.state = 4};
    for (int trial = 0; trial < few_trials(12); trial++) {
        owned_problem problem =
            with_clocks("gpipe", usual_mhz, lower_mhz, other_mhz, RANKS, &random);
        assert_true(check_ranks(problem, random_between(&random, 0.1, 0.2), 0) > 0.02);
    }
}
