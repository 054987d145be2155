/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of GPUs, and what is asked of a chooser. Part of chooser.h. */
#ifndef HARPE_TUNE_SETTING_H
#define HARPE_TUNE_SETTING_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/tune.h>

typedef enum harpe_tune_knob {
    HARPE_TUNE_CLOCK,
    HARPE_TUNE_LIMIT,
    HARPE_TUNE_KNOBS
} harpe_tune_knob;

/* The values that a knob may have, highest first: MHz of the graphics clock, W of the power limit.
 */
typedef struct harpe_tune_range {
    const int *values; /* falling, above 0; copied */
    size_t count;      /* 0 or 1: the knob stays as it is */
} harpe_tune_range;

typedef struct harpe_tune_setting {
    int value[HARPE_TUNE_KNOBS]; /* 0: as the GPUs were found (nothing set) */
} harpe_tune_setting;

/* A finished choice, kept for a later run of the same program (`--save`). Ratios are those to the
 * highest setting. Initialise with zeros: nothing was saved. */
typedef struct harpe_tune_saved {
    harpe_tune_setting setting;
    double time_ratio, energy_ratio; /* 0: nothing was saved */
} harpe_tune_saved;

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_chooser_options {
    harpe_tune_range range[HARPE_TUNE_KNOBS];
    int gpu_count;       /* 0: 1 */
    double max_slowdown; /* share of time, such as 0.02, above 0; INFINITY: any */
    harpe_tuning_aim aim;
    double eta;             /* HARPE_TUNING_COST: 0 (time) .. 1 (energy) */
    double highest_w;       /* HARPE_TUNING_COST: the highest power limit, of all GPUs together */
    harpe_tune_saved saved; /* checked first, in place of a search */
} harpe_chooser_options;

#endif
