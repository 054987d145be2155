/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of files that describe the physics of emulated GPUs. Accepted effects must be
 * within their ranges, and a GPU with them must have a finite state. A refused file must have a
 * problem of one line, and leave the output unchanged. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "effects.h"
#include "physics.h"
#include "switching.h"
#include "variety.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_table(const emulator_effects *effects) {
    require(effects->latency_count <= EMULATOR_LATENCY_MAX);
    for (uint32_t i = 0; i < effects->latency_count; i++) {
        require(effects->latency[i].latency_s >= 0 && effects->latency[i].latency_s <= 10);
        require(i == 0 || effects->latency[i - 1].clock_mhz < effects->latency[i].clock_mhz);
    }
}

static void check_gpu(const emulator_model *model, emulator_effects *effects) {
    static emulator_points points[EMULATOR_WORK_MAX];
    static emulator_state state;
    emulator_chip chip = {.model = model, .effects = effects, .points = points};
    effects->seed = 1;
    emulator_draw_gpu(model, effects);
    emulator_state_start(&state, &chip, 0);
    state.work[0] = (emulator_work){.id = 1,
                                    .full_speed_s = 1,
                                    .compute_share = 0.5,
                                    .remaining = 1,
                                    .pace = emulator_draw_pace(effects, 1)};
    (void)emulator_request_clocks(&state, &chip, (emulator_clock_range){600, 600}, 0);
    emulator_advance(&state, &chip, INT64_C(60000000000));
    emulator_operation operation = emulator_operate(&state, &chip);
    require(operation.power_w > 0 && isfinite(operation.power_w));
    require(operation.graphics_mhz > 0 && operation.graphics_mhz <= model->highest_mhz);
    require(isfinite(state.energy_mj) && isfinite(state.temperature_c));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const emulator_model *model = emulator_model_at(2);
    emulator_effects effects, before;
    char problem[256] = "";
    memset(&effects, 0x5a, sizeof effects);
    before = effects;
    if (emulator_effects_parse((const char *)data, size, "fuzz", model, &effects, problem,
                               sizeof problem)) {
        check_table(&effects);
        check_gpu(model, &effects);
        return 0;
    }
    require(problem[0] && !strchr(problem, '\n'));
    require(memcmp(&effects, &before, sizeof effects) == 0);
    return 0;
}
