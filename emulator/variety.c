/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between GPUs and between pieces of work; see variety.h. */
#include "variety.h"

#include "draws.h"
#include "exact.h"

double emulator_draw_tail(const emulator_effects *effects, const emulator_tail *tail,
                          uint64_t stream, uint64_t number) {
    uint64_t seed = effects->seed, gpu = effects->gpu;
    if (emulator_draw_share(seed, gpu, stream, 2 * number) >= tail->share) return 1;
    return 1 + (tail->factor - 1) * emulator_draw_share(seed, gpu, stream, 2 * number + 1);
}

static double draw_deviation(const emulator_effects *effects, emulator_stream stream) {
    return emulator_draw_deviation(effects->seed, effects->gpu, stream, 0);
}

/* Draws how much more or less power the GPU needs at the same clock. A GPU with speed s has, at s
 * times the highest clock, the power that the model has at the highest clock. */
static double draw_power_factor(const emulator_model *model, const emulator_effects *effects) {
    double share = emulator_draw_share(effects->seed, effects->gpu, EMULATOR_DRAW_SPEED, 0);
    double speed = 1 + effects->variability * (share - 0.5);
    return emulator_model_power_w(model, model->highest_mhz, 1) /
           emulator_model_power_w(model, speed * model->highest_mhz, 1);
}

void emulator_draw_gpu(const emulator_model *model, emulator_effects *out) {
    out->power_factor = out->variability > 0 ? draw_power_factor(model, out) : 1;
    out->ceiling = 1 / emulator_draw_tail(out, &out->outliers, EMULATOR_DRAW_OUTLIER, 0);
    out->leakage_factor =
        emulator_exp(out->leakage_spread * draw_deviation(out, EMULATOR_DRAW_LEAKAGE));
    out->heating_k *=
        emulator_exp(out->cooling_spread * draw_deviation(out, EMULATOR_DRAW_COOLING));
}

double emulator_draw_pace(const emulator_effects *effects, uint64_t number) {
    if (effects->jitter <= 0 && effects->jitter_tail.share <= 0) return 1;
    double deviation =
        emulator_draw_deviation(effects->seed, effects->gpu, EMULATOR_DRAW_JITTER, number);
    return emulator_exp(effects->jitter * deviation) *
           emulator_draw_tail(effects, &effects->jitter_tail, EMULATOR_DRAW_JITTER, number);
}

bool emulator_ignores_lock(const emulator_effects *effects, uint64_t number) {
    return effects->lock_ignored > 0 &&
           emulator_draw_share(effects->seed, effects->gpu, EMULATOR_DRAW_IGNORED, number) <
               effects->lock_ignored;
}
