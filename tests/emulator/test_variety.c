/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between GPUs of a model and between pieces of work: their distributions, their effect
 * under a power limit, and that an ideal GPU has none. */
#include "one_gpu.h"

#include <math.h>

#include "draws.h"
#include "variety.h"

enum { GPUS = 4000 };

static void start(gpu *g, const char *model, const emulator_effects *effects, uint64_t index) {
    make_gpu(g, model_of(model));
    g->effects = *effects;
    g->effects.seed = 5;
    g->effects.gpu = index;
    emulator_draw_gpu(g->chip.model, &g->effects);
    emulator_state_start(&g->state, &g->chip, 0);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* Under a limit of exactly the model's full power, the clocks of GPUs are spread over the range
 * `variability`. The faster half is held back by the highest clock. */
TEST(clocks_under_a_limit_have_the_range) {
    emulator_effects effects = ideal_effects();
    effects.variability = 0.16;
    uint32_t lowest_mhz = UINT32_MAX;
    int slower = 0;
    for (uint64_t i = 0; i < GPUS; i++) {
        gpu g;
        start(&g, "H100", &effects, i);
        g.state.power_limit_mw = 676000; /* 141 + 535 W */
        put_work(&g, 1, 1);
        emulator_operation now = operate(&g);
        assert_true(now.power_w <= 676.0001);
        assert_int_equal(now.is_power_capped, now.graphics_mhz < 1980);
        slower += now.graphics_mhz < 1980;
        lowest_mhz = now.graphics_mhz < lowest_mhz ? now.graphics_mhz : lowest_mhz;
    }
    assert_true(slower > GPUS * 0.46 && slower < GPUS * 0.54);
    /* The slowest has 1 - 0.08, rounded down to a step of 15 MHz. */
    assert_true(lowest_mhz >= 1980 * 0.92 - 15 && lowest_mhz < 1980 * 0.925);
}

TEST(gpus_differ_in_power_and_not_in_speed_at_a_low_clock) {
    emulator_effects effects = ideal_effects();
    effects.variability = 0.08;
    double least_w = INFINITY, most_w = 0;
    for (uint64_t i = 0; i < GPUS; i++) {
        gpu g;
        start(&g, "A100", &effects, i);
        g.state.graphics_lock = (emulator_clock_range){1005, 1005};
        put_work(&g, 1, 1);
        emulator_operation now = operate(&g);
        assert_int_equal(now.graphics_mhz, 1005);
        assert_true(fabs(emulator_time_left_s(&g.state, &g.chip, 0) - 1410.0 / 1005) < 1e-12);
        least_w = fmin(least_w, now.power_w);
        most_w = fmax(most_w, now.power_w);
    }
    assert_true(most_w / least_w > 1.15 && most_w / least_w < 1.30);
}

/* A measured profile says what the measured GPU needed under the default limit. */
TEST(measured_work_slows_only_a_gpu_above_the_limit) {
    emulator_effects effects = ideal_effects();
    effects.variability = 0.2;
    int slower = 0, faster = 0;
    for (uint64_t i = 0; i < 200; i++) {
        gpu g;
        start(&g, "A100", &effects, i);
        put_work(&g, 1, 1);
        g.state.work[0].has_points = g.state.work[0].is_enqueued = true;
        g.points[0].count = 2;
        g.points[0].point[0].clock_mhz = 1110;
        g.points[0].point[0].time_s = 1.2;
        g.points[0].point[0].power_w = 260;
        g.points[0].point[1].clock_mhz = 1410;
        g.points[0].point[1].time_s = 1;
        g.points[0].point[1].power_w = 395;
        emulator_operation now = operate(&g);
        bool is_above = 395 * g.effects.power_factor > 400;
        assert_int_equal(now.is_power_capped, is_above);
        assert_int_equal(now.graphics_mhz < 1410, is_above);
        slower += is_above;
        faster += !is_above;
    }
    assert_true(slower > 50 && faster > 50);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(outliers_are_rare_and_held_down_by_the_board) {
    emulator_effects effects = ideal_effects();
    effects.outliers = (emulator_tail){0.05, 1.5};
    int outliers = 0;
    for (uint64_t i = 0; i < GPUS; i++) {
        gpu g;
        start(&g, "A100", &effects, i);
        put_work(&g, 1, 1);
        emulator_operation now = operate(&g);
        assert_true(now.graphics_mhz >= 1410 / 1.5 - 15);
        assert_int_equal(now.is_board_capped, now.graphics_mhz < 1410);
        outliers += now.is_board_capped;
    }
    assert_true(outliers > GPUS * 0.035 && outliers < GPUS * 0.065);
}

TEST(leakage_and_cooling_have_the_spread) {
    static double leakage[GPUS], heating[GPUS];
    emulator_effects effects = ideal_effects();
    effects.leakage_spread = 0.2;
    effects.cooling_spread = 0.1;
    double sum = 0;
    for (uint64_t i = 0; i < GPUS; i++) {
        gpu g;
        start(&g, "V100", &effects, i);
        leakage[i] = g.effects.leakage_factor;
        heating[i] = g.effects.heating_k;
        sum += pow(log(leakage[i]), 2);
    }
    qsort(leakage, GPUS, sizeof leakage[0], by_value);
    qsort(heating, GPUS, sizeof heating[0], by_value);
    assert_true(fabs(leakage[GPUS / 2] - 1) < 0.02);
    assert_true(fabs(heating[GPUS / 2] - 40) < 0.4);
    assert_true(fabs(sqrt(sum / GPUS) - 0.2) < 0.01);
    assert_true(leakage[GPUS - 1] < exp(0.7) && heating[0] > 40 * exp(-0.35));
}

TEST(the_seed_decides_everything) {
    emulator_effects first, again, other;
    emulator_effects_real(model_of("A100"), &first);
    first.seed = 7;
    first.gpu = 3;
    again = other = first;
    other.gpu = 4;
    emulator_draw_gpu(model_of("A100"), &first);
    emulator_draw_gpu(model_of("A100"), &again);
    emulator_draw_gpu(model_of("A100"), &other);
    assert_memory_equal(&first, &again, sizeof first);
    assert_true(first.power_factor != other.power_factor);
    assert_true(first.leakage_factor != other.leakage_factor);
}

/* ---- Work ------------------------------------------------------------------------------------ */

TEST(jitter_has_the_spread_and_the_tail) {
    enum { WORKS = 20000 };
    static double pace[WORKS];
    emulator_effects effects = ideal_effects();
    effects.jitter = 0.01;
    effects.jitter_tail = (emulator_tail){0.01, 3};
    effects.seed = 2;
    for (uint64_t i = 0; i < WORKS; i++)
        pace[i] = emulator_draw_pace(&effects, i);
    assert_true(pace[7] == emulator_draw_pace(&effects, 7));
    qsort(pace, WORKS, sizeof pace[0], by_value);
    assert_true(fabs(pace[WORKS / 2] - 1) < 0.001);
    assert_true(fabs(pace[WORKS * 16 / 100] - 0.99) < 0.0015);
    assert_true(pace[0] >= exp(-0.035));
    int late = 0;
    while (pace[WORKS - 1 - late] > exp(0.035))
        late++;
    assert_true(late > WORKS * 0.008 && late < WORKS * 0.0125);
    assert_true(pace[WORKS - 1] > 2.5 && pace[WORKS - 1] < 3 * exp(0.035));
}

TEST(pace_lengthens_the_work_and_not_its_power) {
    emulator_effects effects = ideal_effects();
    gpu g;
    start(&g, "A40", &effects, 0);
    put_work(&g, 1, 0.5);
    double power_w = operate(&g).power_w;
    double left_s = emulator_time_left_s(&g.state, &g.chip, 0);
    g.state.work[0].pace = 1.25;
    assert_true(operate(&g).power_w == power_w);
    assert_true(fabs(emulator_time_left_s(&g.state, &g.chip, 0) - 1.25 * left_s) < 1e-12);
}

TEST(an_administrator_and_a_board_limit_the_gpu) {
    emulator_effects effects = ideal_effects();
    effects.administrator_lock_mhz = 1200;
    gpu g;
    start(&g, "A100", &effects, 0);
    put_work(&g, 1, 1);
    assert_int_equal(operate(&g).graphics_mhz, 1200);
    assert_true(operate(&g).is_user_capped);
    g.state.graphics_lock = (emulator_clock_range){1410, 1410};
    assert_int_equal(operate(&g).graphics_mhz, 1200);
    g.state.graphics_lock = (emulator_clock_range){900, 900};
    assert_int_equal(operate(&g).graphics_mhz, 900);
    effects.administrator_lock_mhz = 0;
    effects.power_cap_w = 250;
    start(&g, "A100", &effects, 0);
    put_work(&g, 1, 1);
    assert_true(operate(&g).power_w <= 250 && operate(&g).is_power_capped);
    assert_int_equal(emulator_enforced_limit_mw(&g.state), 250000);
}

TEST(some_locks_are_ignored) {
    emulator_effects effects = ideal_effects();
    int ignored = 0;
    for (uint64_t i = 0; i < 1000; i++)
        assert_false(emulator_ignores_lock(&effects, i));
    effects.lock_ignored = 0.25;
    for (uint64_t i = 0; i < 10000; i++)
        ignored += emulator_ignores_lock(&effects, i);
    assert_true(ignored > 2300 && ignored < 2700);
}
