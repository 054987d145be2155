/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that depend only on a seed, a GPU, a stream and a number, and not on the numbers
 * that were drawn before. The same work on the same GPU therefore always gets the same numbers. */
#ifndef HARPE_EMULATOR_DRAWS_H
#define HARPE_EMULATOR_DRAWS_H

#include <stdint.h>

/* Streams 0 to 15 are the sensors of sensor.h. */
typedef enum emulator_stream {
    EMULATOR_DRAW_CALL = 16, /* duration of a set call */
    EMULATOR_DRAW_LATENCY,   /* latency of a change of clock */
    EMULATOR_DRAW_IGNORED,   /* whether a set call has no effect */
    EMULATOR_DRAW_SPEED,     /* speed of a GPU under a power limit */
    EMULATOR_DRAW_OUTLIER,   /* whether a GPU is much slower */
    EMULATOR_DRAW_LEAKAGE,   /* leakage of a GPU */
    EMULATOR_DRAW_COOLING,   /* cooling of a GPU */
    EMULATOR_DRAW_JITTER,    /* time of a piece of work */
    EMULATOR_DRAW_WANDER,    /* clock of a GPU at its power limit */
} emulator_stream;

/* Returns the next number of a sequence of random numbers (splitmix64). */
uint64_t emulator_random(uint64_t *state);
/* Returns a number with mean 0 and standard deviation 1, between -3.5 and 3.5. */
double emulator_draw_deviation(uint64_t seed, uint64_t gpu, uint64_t stream, uint64_t number);
/* Returns a number of the uniform distribution from 0 to 1. It is independent of the deviation of
 * the same arguments. */
double emulator_draw_share(uint64_t seed, uint64_t gpu, uint64_t stream, uint64_t number);

#endif
