/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a list of faults such as "no_permission,slow_set=200". call.c and the NVML calls apply the
 * faults. */
#ifndef HARPE_EMULATOR_FAULTS_H
#define HARPE_EMULATOR_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of calls, for not_supported=<kind>. They have the order of feature_names in faults.c. */
typedef enum emulator_feature {
    EMULATOR_IDENTITY, /* cannot be switched off */
    EMULATOR_POWER_LIMIT,
    EMULATOR_PERSISTENCE,
    EMULATOR_CLOCK_LOCKS,
    EMULATOR_MEMORY_LOCKS,
    EMULATOR_SUPPORTED_CLOCKS,
    EMULATOR_CLOCKS,
    EMULATOR_POWER,
    EMULATOR_INSTANT_POWER,
    EMULATOR_AVERAGE_POWER,
    EMULATOR_FIELD_VALUES,
    EMULATOR_ENERGY,
    EMULATOR_TEMPERATURE,
    EMULATOR_REASONS,
    EMULATOR_LOAD,
    EMULATOR_FEATURE_COUNT,
} emulator_feature;

typedef struct emulator_faults {
    bool no_permission;
    uint32_t unsupported;   /* one bit per emulator_feature */
    int64_t lost_after;     /* number of calls; below 0: never */
    int lost_gpu;           /* GPU index; below 0: any GPU */
    double returns_after_s; /* a lost GPU returns, as after a reset; below 0: never */
    bool leaves_out_lost;   /* GPUs that are lost when a process initialises have no index in it */
    double slow_set_s, slow_get_s;
    int slow_get_gpu;               /* GPU index of slow_get_s; below 0: any GPU */
    bool has_mig;                   /* MIG is enabled on GPUs that have it */
    double energy_step_s;           /* below 0: the model's own */
    double counter_restart_after_s; /* below 0: never */
    double counter_factor;          /* the counter shows the energy times this; 1: correct */
    double enforced_limit_w; /* limit from outside of the driver; 0: none; below 0: unchanged */
    double limit_floor_w;    /* a set call raises a lower limit to this one; 0: none */
} emulator_faults;

/* Returns false if an entry is unknown or its value is invalid. In that case `*faults` contains the
 * valid entries. */
bool emulator_faults_parse(const char *text, emulator_faults *faults);
bool emulator_is_unsupported(const emulator_faults *faults, emulator_feature feature);

#endif
