/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs at their power limit: the clock that fits, how it wanders around this clock, and what the
 * wandering costs, compared with formulas of docs/emulator.md and with a simulation in steps. */
#include "one_gpu.h"

#include <math.h>

#define MS INT64_C(1000000)
#define START_NS (INT64_C(1000000) * MS + 12345)

/* An H100 whose limit its highest clock exceeds. */
static void start(gpu *g, double wander, double waste, uint64_t index) {
    make_gpu(g, model_of("H100"));
    g->effects.seed = 5;
    g->effects.gpu = index;
    g->effects.throttle_wander = wander;
    g->effects.throttle_waste = waste;
    emulator_state_start(&g->state, &g->chip, START_NS);
    g->state.power_limit_mw = 450000;
    put_work(g, 1e5, 1);
}

static void advance_to(gpu *g, int64_t ms) {
    emulator_advance(&g->state, &g->chip, START_NS + ms * MS);
}

static double power_w(const gpu *g, unsigned int mhz) {
    return emulator_model_power_w(g->chip.model, mhz, 1);
}

/* The highest clock whose power, with the waste, is within 450 W. */
static unsigned int fit_mhz(const gpu *g, double waste) {
    unsigned int i = 0;
    while (power_w(g, emulator_clock_mhz(g->chip.model, i)) * (1 + waste) > 450)
        i++;
    return emulator_clock_mhz(g->chip.model, i);
}

TEST(a_steady_gpu_has_the_highest_clock_that_fits) {
    for (int wasteful = 0; wasteful < 2; wasteful++) {
        gpu g;
        start(&g, 0, 0.1 * wasteful, 0);
        for (int64_t ms = 0; ms < 3000; ms += 70) {
            advance_to(&g, ms);
            emulator_operation now = operate(&g);
            assert_true(now.is_power_capped);
            assert_int_equal(now.graphics_mhz, fit_mhz(&g, 0.1 * wasteful));
            double drawn_w = power_w(&g, now.graphics_mhz) * (1 + 0.1 * wasteful);
            assert_true(fabs(now.power_w - drawn_w) < 1e-9);
            assert_true(emulator_next_wander_ns(&g.state, &g.chip, &now) == INT64_MAX);
        }
    }
}

TEST(a_clock_that_fits_neither_wanders_nor_wastes) {
    gpu g;
    start(&g, 0.05, 0.1, 0);
    unsigned int mhz = fit_mhz(&g, 0);
    g.state.graphics_lock = (emulator_clock_range){mhz, mhz};
    for (int64_t ms = 0; ms < 3000; ms += 70) {
        advance_to(&g, ms);
        emulator_operation now = operate(&g);
        assert_false(now.is_power_capped);
        assert_int_equal(now.graphics_mhz, mhz);
        assert_true(fabs(now.power_w - power_w(&g, mhz)) < 1e-9);
    }
}

enum { PERIODS = 4000 };

/* Reads the clock in each period, near its beginning and near its end. */
static void read_clocks(gpu *g, double *mhz) {
    for (int k = 0; k < PERIODS; k++) {
        advance_to(g, 100 * k + 1);
        mhz[k] = operate(g).graphics_mhz;
        advance_to(g, 100 * k + 99);
        assert_true(mhz[k] == operate(g).graphics_mhz);
    }
}

static double mean_of(const double *values) {
    double sum = 0;
    for (int k = 0; k < PERIODS; k++)
        sum += values[k];
    return sum / PERIODS;
}

/* Returns the covariance of the clocks of periods that are `lag` apart. */
static double covariance(const double *mhz, double mean, int lag) {
    double sum = 0;
    for (int k = 0; k + lag < PERIODS; k++)
        sum += (mhz[k] - mean) * (mhz[k + lag] - mean);
    return sum / (PERIODS - lag);
}

TEST(the_clock_wanders_around_the_one_that_fits) {
    static double mhz[PERIODS];
    gpu g;
    start(&g, 0.05, 0, 0);
    read_clocks(&g, mhz);
    double fit = fit_mhz(&g, 0), mean = mean_of(mhz), variance = covariance(mhz, mean, 0);
    assert_true(fabs(mean / fit - 1) < 0.01);
    assert_true(fabs(sqrt(variance) / fit - 0.05) < 0.005);
    /* Neighbours are alike, and periods that are far apart are not. */
    assert_true(covariance(mhz, mean, 1) / variance > 0.6);
    for (int lag = 5; lag < 8; lag++)
        assert_true(fabs(covariance(mhz, mean, lag)) / variance < 0.1);
    assert_true(operate(&g).is_power_capped);
}

/* A clock just above the one that fits is the highest that the GPU may have. */
TEST(the_clock_never_exceeds_the_set_one) {
    static double mhz[PERIODS];
    gpu g;
    start(&g, 0.05, 0, 0);
    unsigned int set_mhz = fit_mhz(&g, 0) + 15;
    g.state.graphics_lock = (emulator_clock_range){set_mhz, set_mhz};
    read_clocks(&g, mhz);
    int at_set = 0;
    for (int k = 0; k < PERIODS; k++) {
        assert_true(mhz[k] <= set_mhz);
        at_set += mhz[k] == set_mhz;
    }
    assert_true(at_set > PERIODS / 4 && at_set < PERIODS);
}

TEST(the_seed_and_the_gpu_decide) {
    static double one[PERIODS], again[PERIODS], other[PERIODS];
    gpu g;
    start(&g, 0.05, 0, 0);
    read_clocks(&g, one);
    start(&g, 0.05, 0, 0);
    read_clocks(&g, again);
    start(&g, 0.05, 0, 1);
    read_clocks(&g, other);
    assert_memory_equal(one, again, sizeof one);
    int same = 0;
    for (int k = 0; k < PERIODS; k++)
        same += one[k] == other[k];
    assert_true(same < PERIODS / 5);
}

/* Energy, and the end of a work, are the same in one advance and in steps of 1 ms that use only the
 * operation of each step. */
TEST(one_advance_is_as_good_as_many) {
    gpu once, stepped;
    start(&once, 0.05, 0.1, 3);
    once.state.work[0].full_speed_s = 2.5;
    once.effects.throttle_period_s = 0.25; /* a whole number of steps */
    stepped = once;
    stepped.chip.effects = &stepped.effects;
    stepped.chip.points = stepped.points;
    double energy_mj = once.state.energy_mj, done = 0;
    int end_ms = 0;
    for (int ms = 0; ms < 6000; ms++) {
        emulator_advance(&stepped.state, &stepped.chip, START_NS + ms * MS);
        emulator_operation now = operate(&stepped);
        energy_mj += now.power_w;
        if (done < 2.5) end_ms = ms + 1;
        if (done < 2.5) done += 1e-3 * now.graphics_mhz / 1980.0;
    }
    advance_to(&once, 6000);
    advance_to(&stepped, 6000);
    assert_true(once.state.work[0].is_done && stepped.state.work[0].is_done);
    int64_t end_ns = once.state.work[0].finished_ns;
    assert_true(llabs(end_ns - stepped.state.work[0].finished_ns) < 10000);
    assert_true(end_ns <= START_NS + end_ms * MS + 1000 && end_ns > START_NS + (end_ms - 1) * MS);
    assert_true(fabs(once.state.energy_mj / stepped.state.energy_mj - 1) < 1e-6);
    assert_true(fabs(once.state.energy_mj / energy_mj - 1) < 1e-3);
}

/* What a user loses at the limit: the constant clock with the mean speed needs less energy. */
TEST(a_constant_clock_is_as_fast_and_needs_less) {
    for (int wasteful = 0; wasteful < 2; wasteful++) {
        gpu g;
        start(&g, 0.08, 0.1 * wasteful, 0);
        double before_mj = g.state.energy_mj, speed_mhz = 0;
        for (int k = 0; k < 600; k++) {
            advance_to(&g, 100 * k + 50);
            speed_mhz += operate(&g).graphics_mhz / 600.0;
        }
        advance_to(&g, 60000);
        double throttled_w = (g.state.energy_mj - before_mj) / 60000;
        double constant_w = power_w(&g, (unsigned int)speed_mhz);
        assert_true(constant_w < 0.99 * throttled_w);
        assert_true(wasteful ? constant_w < 0.92 * throttled_w : constant_w > 0.95 * throttled_w);
    }
}
