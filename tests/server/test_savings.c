/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics behind savings: quantiles from published tables, and intervals that contain the
 * truth as often as promised. */
#include "test.h"

#include <math.h>

#include "base/array.h"
#include "server/explored_gpu.h"
#include "server/scheduler/perseus/online_internal.h"

static uint64_t random_state;
static const double plain[HARPE_QUANTITIES];

static double normal(void) { return explored_draw_normal(&random_state); }

TEST(quantiles_are_those_of_the_tables) {
    static const double table[][2] = {{1, 12.706}, {2, 4.303},   {3, 3.182},    {4, 2.776},
                                      {5, 2.571},  {9, 2.262},   {15, 2.131},   {30, 2.042},
                                      {60, 2.000}, {120, 1.980}, {1e9, 1.95996}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        double found = harpe_student_quantile(table[i][0]);
        if (fabs(found / table[i][1] - 1) > 0.005)
            fail_msg("%g degrees of freedom: %g instead of %g", table[i][0], found, table[i][1]);
    }
}

TEST(one_stall_does_not_widen_a_spread) {
    for (size_t count = 2; count < 40; count++) {
        double sum = 0, stalled = 0;
        enum { TRIALS = 4000 };
        for (int trial = 0; trial < TRIALS; trial++) {
            double values[40];
            for (size_t i = 0; i < count; i++)
                values[i] = 100 + normal();
            sum += harpe_robust_spread(values, count);
            for (size_t i = 0; i < count; i++)
                values[i] = 100 + normal();
            values[0] = 5000;
            stalled += harpe_robust_spread(values, count);
        }
        assert_true(fabs(sum / TRIALS - 1) < 0.06);
        if (count >= 6) assert_true(stalled / TRIALS < 1.7);
    }
    double one = 3;
    assert_true(harpe_robust_spread(&one, 1) == 0);
}

/* ---- Intervals ------------------------------------------------------------------------------- */

static harpe_savings_round draw_round(double mean, double noise, int iterations) {
    double values[32];
    for (int i = 0; i < iterations; i++)
        values[i] = mean * (1 + noise * normal());
    qsort(values, (size_t)iterations, sizeof *values, harpe_compare_doubles);
    double median = 0.5 * (values[(iterations - 1) / 2] + values[iterations / 2]);
    double spread = harpe_robust_spread(values, (size_t)iterations);
    return (harpe_savings_round){.iterations = iterations,
                                 .value = {median, median},
                                 .total = {iterations * median, iterations * median},
                                 .spread = {spread, spread},
                                 .freedom = {iterations - 1, iterations - 1}};
}

/* Returns how often the interval of a job with so many rounds contains the truth. */
static double share_of_hits(int iterations, int baseline_rounds, int rounds, double noise) {
    enum { TRIALS = 2000 };
    int hits = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        harpe_savings savings = {0};
        for (int r = 0; r < baseline_rounds; r++) {
            harpe_savings_round round = draw_round(100, noise, iterations);
            harpe_savings_add_baseline(&savings, &round);
        }
        for (int r = 0; r < rounds; r++) {
            harpe_savings_round round = draw_round(85, noise, iterations);
            harpe_savings_add(&savings, &round, plain);
        }
        harpe_estimate total = harpe_savings_total(&savings, HARPE_ENERGY, NULL);
        hits += fabs(total.value - 15.0 * rounds * iterations) <= total.uncertainty;
    }
    return (double)hits / TRIALS;
}

TEST(intervals_hold_as_often_as_they_say) {
    static const int shapes[][3] = {{1, 2, 3},  {1, 3, 10}, {2, 2, 1},   {3, 2, 5},
                                    {4, 2, 10}, {4, 3, 1},  {10, 2, 20}, {25, 3, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        double share = share_of_hits(shapes[i][0], shapes[i][1], shapes[i][2], 0.02);
        printf("%d iterations, %d rounds at the highest clocks, %d others: %.1f %%\n", shapes[i][0],
               shapes[i][1], shapes[i][2], 100 * share);
        assert_true(share >= 0.94);
    }
}

/* The baseline's error is part of every round. With more rounds, the uncertainty of the sum
 * therefore grows in proportion to their number, not to its square root. */
TEST(the_error_of_the_baseline_does_not_average_out) {
    harpe_savings savings = {0};
    random_state = 7;
    for (int r = 0; r < 3; r++) {
        harpe_savings_round round = draw_round(100, 0.01, 4);
        harpe_savings_add_baseline(&savings, &round);
    }
    double relative = 0;
    for (int r = 1; r <= 10000; r++) {
        harpe_savings_round round = draw_round(85, 0.01, 4);
        harpe_savings_add(&savings, &round, plain);
        if (r == 1000)
            relative = harpe_savings_total(&savings, HARPE_ENERGY, NULL).uncertainty / 1000;
    }
    double later = harpe_savings_total(&savings, HARPE_ENERGY, NULL).uncertainty / 10000;
    assert_true(fabs(later / relative - 1) < 0.02);
}

TEST(one_iteration_alone_claims_nothing) {
    harpe_savings savings = {0};
    harpe_savings_round round = draw_round(100, 0, 1);
    harpe_savings_add_baseline(&savings, &round);
    round = draw_round(50, 0, 1);
    harpe_savings_add(&savings, &round, plain);
    harpe_estimate total = harpe_savings_total(&savings, HARPE_ENERGY, NULL);
    assert_true(isinf(total.uncertainty) && !harpe_estimate_is_significant(total));
}

/* If every round is one iteration and only one ran at the highest clocks, the other rounds show the
 * noise. */
TEST(rounds_of_one_iteration_tell_of_noise_together) {
    enum { TRIALS = 1000, ROUNDS = 30 };
    int hits = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        harpe_savings savings = {0};
        harpe_savings_round round = draw_round(100, 0.02, 1);
        harpe_savings_add_baseline(&savings, &round);
        for (int r = 0; r < ROUNDS; r++) {
            round = draw_round(85, 0.02, 1);
            round.number = r + 1;
            harpe_savings_add(&savings, &round, plain);
        }
        harpe_estimate total = harpe_savings_total(&savings, HARPE_ENERGY, NULL);
        assert_true(total.uncertainty < 0.15 * 85 * ROUNDS);
        hits += fabs(total.value - 15.0 * ROUNDS) <= total.uncertainty;
    }
    assert_true(hits >= 0.94 * TRIALS);
}

/* A new baseline of one round of one iteration has the noise of the one before it. The rounds that
 * have waited for it count from then on. */
TEST(a_new_baseline_keeps_what_is_known_of_noise) {
    harpe_savings savings = {0};
    for (int r = 0; r < 3; r++) {
        harpe_savings_round round = draw_round(100, 0.02, 1);
        harpe_savings_add_baseline(&savings, &round);
    }
    harpe_savings_expect_baseline(&savings);
    harpe_savings_round planned = draw_round(170, 0.02, 1), highest = draw_round(200, 0.02, 1);
    harpe_savings_add(&savings, &planned, plain);
    harpe_estimate before = harpe_savings_total(&savings, HARPE_ENERGY, NULL);
    assert_true(before.value == 0 && before.uncertainty == 0);
    harpe_savings_add_baseline(&savings, &highest);
    harpe_estimate total = harpe_savings_total(&savings, HARPE_ENERGY, NULL);
    assert_true(isfinite(total.uncertainty) && fabs(total.value - 30) <= total.uncertainty);
}

TEST(times_of_the_baseline_stay_in_order) {
    static const int64_t clock_s[] = {1000, 1030, 900, 5000, 930};
    harpe_savings savings = {0};
    for (int i = 0; i < 5; i++) {
        harpe_savings_round round = {
            .number = i, .wall_s = clock_s[i], .iterations = 5, .value = {10, 200}};
        harpe_savings_add_baseline(&savings, &round);
        assert_int_equal(savings.baseline.last_wall_s, clock_s[i]);
        assert_true(savings.baseline.first_wall_s <= savings.baseline.last_wall_s);
    }
    assert_int_equal(savings.baseline.first_wall_s, 900);
}
