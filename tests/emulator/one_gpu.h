/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU of the emulator's physics, without the shared memory of a cluster. */
#ifndef HARPE_TESTS_EMULATOR_ONE_GPU_H
#define HARPE_TESTS_EMULATOR_ONE_GPU_H

#include "test.h"

#include "physics.h"

typedef struct gpu {
    emulator_effects effects;
    emulator_points points[EMULATOR_WORK_MAX];
    emulator_chip chip;
    emulator_state state;
} gpu;

static inline const emulator_model *model_of(const char *key) {
    int index = emulator_model_find(key, strlen(key));
    assert_true(index >= 0);
    return emulator_model_at((unsigned int)index);
}

static inline emulator_effects ideal_effects(void) {
    emulator_effects ideal;
    emulator_effects_ideal(&ideal);
    return ideal;
}

/* Makes an ideal GPU. A test changes its effects before emulator_state_start. */
static inline void make_gpu(gpu *g, const emulator_model *model) {
    memset(g, 0, sizeof *g);
    g->chip.model = model;
    g->chip.effects = &g->effects;
    g->chip.points = g->points;
    g->effects = ideal_effects();
}

/* Starts work, as the only one. */
static inline emulator_work *put_work(gpu *g, double full_speed_s, double compute_share) {
    g->state.work[0] = (emulator_work){.id = ++g->state.works_started,
                                       .full_speed_s = full_speed_s,
                                       .compute_share = compute_share,
                                       .remaining = 1,
                                       .started_ns = g->state.now_ns};
    return &g->state.work[0];
}

static inline emulator_operation operate(const gpu *g) {
    return emulator_operate(&g->state, &g->chip);
}

#endif
