/* SPDX-License-Identifier: Apache-2.0 */
/* The period of power: found in steps, not found in noise, and exact to a part of the 2 % that a
 * slowdown may have. */
#include "test.h"

#include <math.h>

#include "tune/tune_internal.h"

static harpe_power_samples samples;
static uint32_t drawn;

static double draw(void) { /* -1 to 1 */
    drawn = drawn * 1664525u + 1013904223u;
    return drawn / 2147483648.0 - 1;
}

/* A program that computes for `share` of each period, and waits for the rest of it. Each step takes
 * up to `jitter` (a share) more or less. */
static void run_steps(double period_s, double share, double jitter, double noise_w, int count) {
    double begin_s = 0, length_s = period_s;
    samples.count = 0;
    drawn = 7;
    for (int i = 0; i < count; i++) {
        double at_s = i * 0.02 + 0.003 * draw();
        while (at_s >= begin_s + length_s) {
            begin_s += length_s;
            length_s = period_s * (1 + jitter * draw());
        }
        double power_w = at_s - begin_s < share * length_s ? 400 : 150;
        harpe_power_samples_add(&samples, at_s, power_w + noise_w * draw());
    }
}

TEST(steps_have_a_period) {
    static const double periods_s[] = {0.2, 0.37, 0.5, 1.1, 1.6};
    for (size_t i = 0; i < sizeof periods_s / sizeof *periods_s; i++) {
        double found_s = 0;
        run_steps(periods_s[i], 0.7, 0.01, 20, 2000);
        assert_true(harpe_period_find(&samples, 0, 20, &found_s));
        assert_true(fabs(found_s / periods_s[i] - 1) < 0.005);
    }
}

TEST(a_slower_setting_has_a_longer_period) {
    double found_s = 0;
    run_steps(0.52, 0.7, 0.01, 20, 400);
    assert_true(harpe_period_find(&samples, 0.5, 6, &found_s));
    assert_true(fabs(found_s / 0.52 - 1) < 0.005);
}

TEST(nothing_that_is_unstable_has_one) {
    double found_s = -1;
    run_steps(1e9, 0.7, 0, 60, 2000); /* noise alone */
    assert_false(harpe_period_find(&samples, 0, 20, &found_s));
    run_steps(1e9, 0.7, 0, 0, 2000); /* constant power */
    assert_false(harpe_period_find(&samples, 0, 20, &found_s));
    run_steps(0.5, 0.7, 0.6, 20, 2000); /* steps of any length */
    assert_false(harpe_period_find(&samples, 0, 20, &found_s));
    run_steps(3, 0.7, 0.01, 20, 2000); /* only 13 periods */
    assert_false(harpe_period_find(&samples, 0, 20, &found_s));
    run_steps(0.06, 0.7, 0.01, 0, 2000); /* too short for the samples */
    assert_true(!harpe_period_find(&samples, 0, 20, &found_s) || found_s > 0.1);
    samples.count = 3;
    assert_false(harpe_period_find(&samples, 0, 20, &found_s));
}

TEST(a_change_of_the_period_is_not_stable) {
    double found_s = -1;
    run_steps(0.5, 0.7, 0.01, 20, 2000);
    for (int i = 1000; i < 2000; i++)
        samples.power_w[i] = fmod(i * 0.02, 0.41) < 0.2 ? 400 : 150;
    assert_false(harpe_period_find(&samples, 0, 20, &found_s));
}
