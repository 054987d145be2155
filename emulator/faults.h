/* SPDX-License-Identifier: Apache-2.0 */
/* Faults on demand: what a list such as "no_permission,slow_set=200" asks for. Reading of the list
 * only; call.c and the calls themselves act on it. */
#ifndef HARPE_EMULATOR_FAULTS_H
#define HARPE_EMULATOR_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

/* What a call is about, for not_supported=<what>. In step with feature_names in faults.c. */
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
    uint32_t unsupported; /* bit per emulator_feature */
    int64_t lost_after;   /* calls; below 0: never */
    int lost_gpu;         /* below 0: any */
    double slow_set_s, slow_get_s;
    double energy_step_s;           /* below 0: the model's own */
    double counter_restart_after_s; /* below 0: never */
    double enforced_limit_w;        /* from outside the driver; 0: none; below 0: not touched */
} emulator_faults;

/* False when an entry is unknown or its value makes no sense; `*faults` then has the good ones. */
bool emulator_faults_parse(const char *text, emulator_faults *faults);
bool emulator_is_unsupported(const emulator_faults *faults, emulator_feature feature);

#endif
