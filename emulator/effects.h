/* SPDX-License-Identifier: Apache-2.0 */
/* The effects in which a real GPU differs from an ideal one, and their sizes. All sizes are 0 for
 * an ideal GPU. docs/emulator.md describes each effect and the source of its size. */
#ifndef HARPE_EMULATOR_EFFECTS_H
#define HARPE_EMULATOR_EFFECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models.h"

enum { EMULATOR_LATENCY_MAX = 64 };

/* Some values are much larger than the others: a share of them is multiplied by a factor between 1
 * and `factor`. */
typedef struct emulator_tail {
    double share, factor;
} emulator_tail;

typedef struct emulator_effects {
    /* Switching; see switching.h. */
    double switch_call_s; /* time for which a call that sets a clock blocks */
    emulator_tail switch_call_tail;
    uint32_t latency_count; /* 0: no latency */
    struct {
        double clock_mhz, latency_s; /* from the call's return to the new clock, by target clock */
    } latency[EMULATOR_LATENCY_MAX]; /* in order of rising clocks */
    double switch_spread;            /* standard deviation of the latency, relative */
    emulator_tail switch_tail;

    uint64_t seed, gpu; /* of all random numbers of the GPU */
} emulator_effects;

/* Reads a value of HARPE_EMULATOR_PHYSICS: "ideal", "real", or the path of a JSON file. Fills in
 * `out` for a GPU model. `*identity` receives a number that differs for other values and for other
 * contents of the file. Returns false, with one line in `problem`, if the value makes no sense. */
bool emulator_effects_read(const char *value, const emulator_model *model, emulator_effects *out,
                           uint64_t *identity, char *problem, size_t problem_size);

/* Reads the text of a file. `name` is used in messages. */
bool emulator_effects_parse(const char *text, size_t length, const char *name,
                            const emulator_model *model, emulator_effects *out, char *problem,
                            size_t problem_size);

/* Fills in the sizes of "real" for a model. */
void emulator_effects_real(const emulator_model *model, emulator_effects *out);

#endif
