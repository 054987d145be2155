/* SPDX-License-Identifier: Apache-2.0 */
/* The temperature of an emulated GPU; see heat.h. */
#include "heat.h"

#include <math.h>

#include "exact.h"

#define THERMAL_TIME_S 18.0
/* Leakage that grows faster than the GPU cools would heat it without end. */
#define HOTTEST_C 150.0
/* Tolerance of a comparison with a whole degree, so that a crossing is not computed twice. */
#define CLOSE_K 1e-9

bool emulator_heat_matters(const emulator_effects *effects) {
    return effects->leakage_per_k > 0 || effects->drift_per_k != 0 ||
           effects->thermal_limit_c > 0 || effects->thermal_slowdown_c > 0;
}

double emulator_final_c(const emulator_chip *chip, double power_w) {
    const emulator_effects *effects = chip->effects;
    double final_c =
        effects->ambient_c + effects->heating_k * power_w * 1000.0 / chip->model->limit_maximum_mw;
    return fmin(final_c, HOTTEST_C);
}

double emulator_temperature_c(const emulator_chip *chip, double from_c, double power_w,
                              double span_s) {
    double final_c = emulator_final_c(chip, power_w);
    return final_c + (from_c - final_c) * emulator_exp(-span_s / THERMAL_TIME_S);
}

double emulator_next_degree_s(const emulator_state *state, const emulator_chip *chip,
                              double power_w) {
    if (!emulator_heat_matters(chip->effects)) return INFINITY;
    double final_c = emulator_final_c(chip, power_w), now_c = state->temperature_c;
    double next_c = final_c > now_c ? state->degrees_c + 1.0 : state->degrees_c - 1.0;
    bool is_reached = final_c > now_c ? final_c > next_c + CLOSE_K : final_c < next_c - CLOSE_K;
    if (!is_reached) return INFINITY;
    return fmax(THERMAL_TIME_S * emulator_log((final_c - now_c) / (final_c - next_c)), 0);
}

/* The temperature changes fastest at the beginning. */
bool emulator_degree_is_near(const emulator_state *state, const emulator_chip *chip, double power_w,
                             double span_s) {
    double now_c = state->temperature_c, final_c = emulator_final_c(chip, power_w);
    double most_k = fabs(final_c - now_c) * span_s / THERMAL_TIME_S + 2 * CLOSE_K;
    return emulator_heat_matters(chip->effects) &&
           (final_c > now_c ? now_c + most_k >= state->degrees_c + 1.0
                            : now_c - most_k <= state->degrees_c - 1.0);
}

void emulator_set_degrees(emulator_state *state, const emulator_chip *chip, int32_t degrees_c) {
    const emulator_effects *effects = chip->effects;
    state->degrees_c = degrees_c;
    state->leakage_growth =
        effects->leakage_per_k > 0
            ? emulator_exp(effects->leakage_per_k * (degrees_c - effects->reference_c))
            : 1;
}

void emulator_count_degrees(emulator_state *state, const emulator_chip *chip) {
    double up = floor(state->temperature_c + CLOSE_K), down = ceil(state->temperature_c - CLOSE_K);
    if (up > state->degrees_c) emulator_set_degrees(state, chip, (int32_t)up);
    if (down < state->degrees_c) emulator_set_degrees(state, chip, (int32_t)down);
}

double emulator_leakage_w(const emulator_state *state, const emulator_chip *chip, double static_w) {
    const emulator_effects *effects = chip->effects;
    return effects->leakage_share * static_w *
           (effects->leakage_factor * state->leakage_growth - 1);
}

double emulator_drift(const emulator_state *state, const emulator_chip *chip) {
    const emulator_effects *effects = chip->effects;
    return fmax(1 + effects->drift_per_k * (state->degrees_c - effects->reference_c), 0.1);
}

unsigned int emulator_thermal_steps(const emulator_state *state, const emulator_chip *chip,
                                    bool *is_slowdown) {
    const emulator_effects *effects = chip->effects;
    *is_slowdown =
        effects->thermal_slowdown_c > 0 && state->degrees_c >= effects->thermal_slowdown_c;
    if (effects->thermal_limit_c <= 0) return 0;
    double above_k = state->degrees_c - effects->thermal_limit_c;
    return above_k > 0 ? (unsigned int)ceil(above_k) : 0;
}
