/* SPDX-License-Identifier: Apache-2.0 */
/* What `harpe gpus` knows: the facts of every GPU and what this process may do to them. Filled by
 * gpus_facts.c, judged by gpus_doctor.c, told by gpus_view.c. */
#ifndef HARPE_CLI_GPUS_FACTS_H
#define HARPE_CLI_GPUS_FACTS_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/gpu.h>

/* An energy counter, watched. */
typedef struct harpe_counter_facts {
    bool is_supported;
    double read_cost_us;
    double step_ms; /* median between two moves; 0: none or one seen */
    double step_mj;
    char problem[HARPE_ERROR_MESSAGE_SIZE]; /* why it cannot be read */
} harpe_counter_facts;

/* One GPU's facts; a number that cannot be read is negative. */
typedef struct harpe_gpu_facts {
    const harpe_gpu_info *info;
    double limit_minimum_w, limit_default_w, limit_maximum_w, limit_w;
    double limit_enforced_w; /* may be less than limit_w */
    double graphics_minimum_mhz, graphics_maximum_mhz, graphics_mhz;
    size_t graphics_count;
    double memory_maximum_mhz, memory_mhz;
    double power_w, average_power_w, temperature_c;
    double module_power_w;
    int persistence; /* 1, 0, or -1 when unknown */
    bool is_mig_enabled;
    bool is_module; /* the energy is that of GPU and CPU */
    bool is_lost;
    harpe_counter_facts counter;
} harpe_gpu_facts;

/* Whether a set would be allowed. Told without trying, since trying is a write. */
typedef enum harpe_may_set {
    HARPE_MAY_NOT_SET,
    HARPE_MAY_SET,
    HARPE_MAY_SET_UNKNOWN, /* emulated: its faults decide, not the process's rights */
} harpe_may_set;

typedef struct harpe_gpu_permissions {
    harpe_may_set may_set;
    bool is_root;
    bool needs_root; /* the user root; otherwise CAP_SYS_ADMIN suffices */
    bool has_zeusd;
    bool has_persistence_daemon;
} harpe_gpu_permissions;

typedef struct harpe_machine_facts {
    const harpe_gpus *gpus;
    int count;
    harpe_gpu_facts *facts; /* one per visible GPU */
    harpe_gpu_permissions permissions;
} harpe_machine_facts;

/* Reads everything and watches the energy counters for 0.4 s; sets nothing. `gpus` must outlive
 * the facts, which harpe_machine_facts_free frees. */
harpe_status harpe_machine_facts_read(harpe_gpus *gpus, harpe_machine_facts *out,
                                      harpe_error *error);
void harpe_machine_facts_free(harpe_machine_facts *facts);

#endif
