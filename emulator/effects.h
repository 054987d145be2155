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

    /* Differences between GPUs; see variety.h. */
    double variability;     /* range of the speed under a power limit, relative */
    emulator_tail outliers; /* GPUs whose board holds the clock down, by up to the factor */
    double leakage_spread;  /* standard deviation of the leakage, relative */
    double cooling_spread;  /* standard deviation of heating_k, relative */

    /* Jitter */
    double jitter; /* standard deviation of the time of a piece of work, relative */
    emulator_tail jitter_tail;

    /* Heat; see heat.h. */
    double ambient_c;          /* temperature of a GPU without power */
    double heating_k;          /* steady rise of the temperature at the highest power limit */
    double reference_c;        /* temperature at which times and powers are those of the model */
    double leakage_share;      /* leakage as a share of the static power, at reference_c */
    double leakage_per_k;      /* relative growth of the leakage for each K */
    double drift_per_k;        /* relative growth of the time of work for each K */
    double thermal_limit_c;    /* each K above takes one step of the clock; 0: no limit */
    double thermal_slowdown_c; /* from here on the clock is at most half; 0: never */

    /* At the power limit */
    double throttle_wander;   /* standard deviation of the clock, relative */
    double throttle_period_s; /* between two changes of the clock */
    double throttle_waste;    /* additional power at the same clock, relative */

    /* Limits and disobedience */
    double power_cap_w;            /* limit of the board; 0: none */
    double administrator_lock_mhz; /* no clock above it holds; 0: none */
    double lock_ignored;           /* share of set calls that succeed without effect */

    /* Counters; 0: those of the model */
    double energy_step_s, average_s;
    bool counts_gpu; /* the counter of a GPU in a module counts the GPU alone */

    /* What was drawn for this GPU. */
    double power_factor;   /* of the model's power */
    double leakage_factor; /* of the model's leakage */
    double ceiling;        /* highest clock that the board allows, as a share of the model's */
    uint64_t seed, gpu;    /* of all random numbers of the GPU */
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

/* Returns the key of a file with this index, or NULL after the last. */
const char *emulator_effect_key(size_t index);

/* Fills in the sizes of "ideal": no effect. */
void emulator_effects_ideal(emulator_effects *out);
/* Fills in the sizes of "real" for a model. */
void emulator_effects_real(const emulator_model *model, emulator_effects *out);

#endif
