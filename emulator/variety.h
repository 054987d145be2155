/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between GPUs of the same model, and between pieces of work on one GPU. A GPU gets its
 * properties when the cluster is created, from the seed and the index of the GPU. */
#ifndef HARPE_EMULATOR_VARIETY_H
#define HARPE_EMULATOR_VARIETY_H

#include "effects.h"

/* Draws the properties of a GPU. `out` contains the effects, the seed and the index of the GPU. */
void emulator_draw_gpu(const emulator_model *model, emulator_effects *out);

/* Returns the factor of the time of a piece of work, or 1. `number` counts the GPU's works. */
double emulator_draw_pace(const emulator_effects *effects, uint64_t number);

/* Returns 1, or a number between 1 and the factor of the tail. */
double emulator_draw_tail(const emulator_effects *effects, const emulator_tail *tail,
                          uint64_t stream, uint64_t number);

/* Returns true if a request to lock a clock has no effect. `number` counts the GPU's requests. */
bool emulator_ignores_lock(const emulator_effects *effects, uint64_t number);

#endif
