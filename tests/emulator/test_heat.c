/* SPDX-License-Identifier: Apache-2.0 */
/* Temperature, leakage, drift and thermal limits, compared with a simulation in steps of 1 ms that
 * uses no closed formula. */
#include "one_gpu.h"

#include <math.h>

#include "draws.h"
#include "exact.h"
#include "heat.h"

#define S INT64_C(1000000000)
#define START_NS (1000 * S)

static void start(gpu *g, const char *model) {
    make_gpu(g, model_of(model));
    emulator_state_start(&g->state, &g->chip, START_NS);
}

static void advance_s(gpu *g, double s) {
    emulator_advance(&g->state, &g->chip, START_NS + (int64_t)(s * 1e9));
}

/* ---- The simulation in steps ----------------------------------------------------------------- */

typedef struct stepped {
    double temperature_c, energy_j, finished_s;
    int degrees_c;
} stepped;

typedef struct setting {
    double work_s, until_s;
    bool is_whole; /* leakage and drift follow whole degrees, as the emulator documents */
} setting;

/* The formulas of docs/emulator.md for the A100 at its highest clock. */
static stepped simulate(const emulator_effects *e, const setting *set) {
    const double step_s = 1e-3;
    stepped s = {.temperature_c = e->ambient_c + e->heating_k * 62 / 400.0, .finished_s = -1};
    s.degrees_c = (int)floor(s.temperature_c);
    double done_s = 0;
    for (long i = 0; (double)i * step_s < set->until_s; i++) {
        bool is_busy = done_s < set->work_s;
        double over_k = (set->is_whole ? s.degrees_c : s.temperature_c) - e->reference_c;
        double static_w = is_busy ? 98 : 62;
        double power_w = (is_busy ? 98 + 290 : 62) +
                         e->leakage_share * static_w * (exp(e->leakage_per_k * over_k) - 1);
        if (is_busy) {
            done_s += step_s / (1 + e->drift_per_k * over_k);
            if (done_s >= set->work_s) s.finished_s = (double)(i + 1) * step_s;
        }
        s.energy_j += power_w * step_s;
        double final_c = e->ambient_c + e->heating_k * power_w / 400;
        s.temperature_c += (final_c - s.temperature_c) * step_s / 18;
        while (s.temperature_c >= s.degrees_c + 1)
            s.degrees_c++;
        while (s.temperature_c <= s.degrees_c - 1)
            s.degrees_c--;
    }
    return s;
}

static void run_case(const emulator_effects *effects, const setting *set, double tolerance) {
    gpu g;
    start(&g, "A100");
    g.effects = *effects;
    emulator_state_start(&g.state, &g.chip, START_NS);
    g.state.power_limit_mw = 4000000; /* the simulation has no limit */
    emulator_work *work = put_work(&g, set->work_s, 1);
    advance_s(&g, set->until_s);
    stepped expected = simulate(effects, set);
    assert_true(fabs(g.state.temperature_c - expected.temperature_c) < 0.02 + 40 * tolerance);
    assert_true(fabs(g.state.energy_mj * 1e-3 / expected.energy_j - 1) < tolerance);
    assert_true(work->is_done);
    double finished_s = 1e-9 * (double)(work->finished_ns - START_NS);
    assert_true(fabs(finished_s - expected.finished_s) < 2e-3 + tolerance * expected.finished_s);
}

TEST(state_equals_a_simulation_in_steps) {
    static const double works_s[] = {0.5, 7, 40, 90};
    for (size_t i = 0; i < 16; i++) {
        emulator_effects effects = ideal_effects();
        effects.leakage_share = i & 1 ? 0.5 : 0.2;
        effects.leakage_per_k = i & 2 ? 0.02 : 0.004;
        effects.drift_per_k = i & 4 ? 0.002 : -0.001;
        effects.heating_k = i & 8 ? 70 : 40;
        setting set = {.work_s = works_s[i % 4], .until_s = 150, .is_whole = true};
        run_case(&effects, &set, 3e-4);
        set.is_whole = false; /* whole degrees differ by less than one from the temperature */
        run_case(&effects, &set, 5e-3);
    }
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void make_hot(gpu *g) {
    start(g, "H100");
    g->effects.leakage_share = 0.5;
    g->effects.leakage_per_k = 0.015;
    g->effects.drift_per_k = 0.001;
    g->effects.heating_k = 75;
    g->effects.thermal_limit_c = 85;
    emulator_state_start(&g->state, &g->chip, START_NS);
}

TEST(readers_change_nothing) {
    gpu watched, alone;
    uint64_t random = 3;
    make_hot(&watched);
    make_hot(&alone);
    put_work(&watched, 50, 1);
    put_work(&alone, 50, 1);
    for (int64_t ns = 0; ns < 100 * S; ns += 1 + (int64_t)(emulator_random(&random) % (S / 10)))
        emulator_advance(&watched.state, &watched.chip, START_NS + ns);
    advance_s(&watched, 100);
    advance_s(&alone, 100);
    assert_true(fabs(watched.state.energy_mj / alone.state.energy_mj - 1) < 1e-7);
    assert_true(llabs(watched.state.work[0].finished_ns - alone.state.work[0].finished_ns) < 1000);
    assert_true(fabs(watched.state.temperature_c - alone.state.temperature_c) < 1e-5);
}

TEST(a_hot_gpu_lowers_its_clock_and_says_why) {
    gpu g;
    make_hot(&g);
    put_work(&g, 1e5, 1);
    assert_false(operate(&g).is_thermally_capped);
    advance_s(&g, 400);
    emulator_operation hot = operate(&g);
    assert_true(hot.is_thermally_capped);
    assert_false(hot.is_slowed_down);
    assert_true(hot.graphics_mhz < 1980 && hot.graphics_mhz > 1500);
    /* In balance: this clock would end below the present degree, the next higher above it. */
    assert_true(fabs(emulator_final_c(&g.chip, hot.power_w) - g.state.degrees_c) < 3);
    /* The clock has one step per degree above the limit. */
    assert_int_equal(hot.graphics_mhz, 1980 - 15 * (g.state.degrees_c - 85));
}

TEST(a_very_hot_gpu_halves_its_clock) {
    gpu g;
    start(&g, "A100");
    g.effects.heating_k = 80;
    g.effects.thermal_slowdown_c = 89;
    emulator_state_start(&g.state, &g.chip, START_NS);
    put_work(&g, 1e5, 1);
    bool was_slow = false, was_fast_again = false;
    for (int s = 1; s < 300; s++) {
        advance_s(&g, s);
        emulator_operation now = operate(&g);
        assert_int_equal(now.is_slowed_down, g.state.degrees_c >= 89);
        assert_int_equal(now.graphics_mhz, now.is_slowed_down ? 705 : 1410);
        was_fast_again = was_fast_again || (was_slow && !now.is_slowed_down);
        was_slow = was_slow || now.is_slowed_down;
    }
    assert_true(was_slow && was_fast_again);
}

TEST(a_rewind_restores_the_temperature) {
    gpu g;
    make_hot(&g);
    put_work(&g, 20, 1);
    advance_s(&g, 25);
    memset(&g.state.work[0], 0, sizeof g.state.work[0]);
    g.state.is_waiting = true;
    g.state.floor_ns = g.state.now_ns;
    advance_s(&g, 27);
    emulator_state before = g.state;
    advance_s(&g, 31);
    assert_true(fabs(g.state.temperature_c - before.temperature_c) > 0.5);
    emulator_rewind(&g.state, &g.chip, before.now_ns);
    assert_true(fabs(g.state.temperature_c - before.temperature_c) < 1e-6);
    assert_int_equal(g.state.degrees_c, before.degrees_c);
    advance_s(&g, 60);
    emulator_advance(&before, &g.chip, g.state.now_ns);
    assert_true(fabs(g.state.energy_mj / before.energy_mj - 1) < 1e-9);
}

/* Long times must not need more than one event for each degree. */
TEST(a_year_takes_few_steps) {
    gpu g;
    start(&g, "A100");
    g.effects.leakage_share = 0.5;
    g.effects.leakage_per_k = 0.01;
    emulator_state_start(&g.state, &g.chip, START_NS);
    put_work(&g, 1e6, 1);
    uint32_t changes = g.state.history_count;
    advance_s(&g, 365.0 * 86400);
    assert_true(g.state.history_count - changes < 120);
    assert_true(isfinite(g.state.energy_mj));
}

TEST(an_ideal_gpu_ignores_its_temperature) {
    gpu g;
    start(&g, "GH200");
    put_work(&g, 100, 1);
    double power_w = operate(&g).power_w;
    advance_s(&g, 90);
    assert_true(operate(&g).power_w == power_w);
    assert_int_equal(g.state.history_count, 1);
}

TEST(the_own_exponential_function_is_exact) {
    for (double x = -40; x < 40; x += 0x1p-9)
        assert_true(fabs(emulator_exp(x) / exp(x) - 1) < 1e-14);
}
