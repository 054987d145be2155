/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of the effects of "real" for each GPU model. docs/emulator.md gives the source of each
 * size, and the range of those that are assumptions. */
#include <string.h>

#include "effects.h"

/* Sizes that differ between models. */
typedef struct real_sizes {
    const char *key; /* of the model */
    /* The median latency to the lowest, to half of the highest, and to the highest clock. */
    double low_s, middle_s, high_s;
    double switch_spread;
    emulator_tail switch_tail;
} real_sizes;

static const real_sizes sizes[] = {
    {"V100", 0.060, 0.045, 0.030, 0.15, {0.02, 4}},
    {"A40", 0.020, 0.015, 0.010, 0.15, {0.02, 4}},
    {"A100", 0.018, 0.012, 0.008, 0.15, {0.02, 2}},
    {"A100-PCIe", 0.018, 0.012, 0.008, 0.15, {0.02, 2}},
    {"H100", 0.040, 0.020, 0.010, 0.20, {0.03, 5}},
    {"GH200", 0.040, 0.020, 0.010, 0.20, {0.03, 8}},
};
enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };

static const real_sizes *find(const char *key) {
    for (int i = 0; i < SIZE_COUNT; i++)
        if (strcmp(sizes[i].key, key) == 0) return &sizes[i];
    return &sizes[0];
}

void emulator_effects_ideal(emulator_effects *out) {
    *out = (emulator_effects){
        .switch_call_tail.factor = 1,
        .switch_tail.factor = 1,
        .outliers.factor = 1,
        .jitter_tail.factor = 1,
        .throttle_period_s = 0.1,
        .ambient_c = 28,
        .heating_k = 40,
        .reference_c = 55,
        .power_factor = 1,
        .leakage_factor = 1,
        .ceiling = 1,
    };
}

void emulator_effects_real(const emulator_model *model, emulator_effects *out) {
    const real_sizes *size = find(model->key);
    emulator_effects_ideal(out);
    out->switch_call_s = 0.002;
    out->switch_call_tail = (emulator_tail){0.02, 10};
    out->latency_count = 3;
    out->latency[0].clock_mhz = model->base_half_mhz / 2.0;
    out->latency[0].latency_s = size->low_s;
    out->latency[1].clock_mhz = model->highest_mhz / 2.0;
    out->latency[1].latency_s = size->middle_s;
    out->latency[2].clock_mhz = model->highest_mhz;
    out->latency[2].latency_s = size->high_s;
    out->switch_spread = size->switch_spread;
    out->switch_tail = size->switch_tail;
    out->variability = 0.08;
    out->outliers = (emulator_tail){0.01, 1.5};
    out->leakage_spread = 0.1;
    out->cooling_spread = 0.1;
    out->jitter = 0.003;
    out->jitter_tail = (emulator_tail){0.001, 1.1};
    out->leakage_share = 0.5;
    out->leakage_per_k = 0.01;
    out->drift_per_k = 0.0001;
    out->thermal_limit_c = 85;
    out->thermal_slowdown_c = 89;
}
