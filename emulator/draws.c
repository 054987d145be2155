/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers; see draws.h. */
#include "draws.h"

#include <math.h>

uint64_t emulator_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static double next_share(uint64_t *state) {
    return (double)(emulator_random(state) >> 11) * 0x1p-53;
}

static uint64_t start(uint64_t seed, uint64_t gpu, uint64_t stream, uint64_t number) {
    uint64_t state = seed;
    state = emulator_random(&state) ^ (gpu << 8 | stream);
    return emulator_random(&state) ^ number;
}

/* The sum of four uniform distributions. */
double emulator_draw_deviation(uint64_t seed, uint64_t gpu, uint64_t stream, uint64_t number) {
    uint64_t state = start(seed, gpu, stream, number);
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += next_share(&state) - 0.5;
    return sum * sqrt(3.0);
}

double emulator_draw_share(uint64_t seed, uint64_t gpu, uint64_t stream, uint64_t number) {
    uint64_t state = start(seed, gpu, stream + 128, number);
    return next_share(&state);
}
