/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of every GPU for `harpe gpus`, and the rights of this process. gpus_facts.c collects
 * them, and gpus_command.c evaluates and prints them. */
#ifndef HARPE_CLI_GPUS_GPUS_FACTS_H
#define HARPE_CLI_GPUS_GPUS_FACTS_H

#include "cli/cli.h"
#include "lease/lease.h"

/* Observations of an energy counter. */
typedef struct harpe_counter_facts {
    bool is_supported;
    double read_cost_us;
    double step_ms; /* median interval between two changes; 0: at most one change was seen */
    double step_mj;
    char problem[HARPE_ERROR_MESSAGE_SIZE]; /* reason why the counter cannot be read */
} harpe_counter_facts;

/* The facts of one GPU. A number that cannot be read is negative. */
typedef struct harpe_gpu_facts {
    const harpe_gpu_info *info;
    double limit_minimum_w, limit_default_w, limit_maximum_w, limit_w;
    double limit_enforced_w; /* may be less than limit_w */
    double graphics_minimum_mhz, graphics_maximum_mhz, graphics_mhz;
    size_t graphics_count;
    double memory_maximum_mhz, memory_mhz;
    double power_w, average_power_w, temperature_c;
    double module_power_w;
    int persistence;   /* 1, 0, or -1: unknown */
    uint32_t idle_mhz; /* at which the node agent's rule "idle" holds it now; 0: it does not */
    bool is_mig_enabled;
    bool is_module; /* the energy includes the energy of the CPU */
    bool is_lost;
    harpe_counter_facts counter;
} harpe_gpu_facts;

/* Says whether the process may change settings. It is not found out by an attempt, because an
 * attempt would change a setting. */
typedef enum harpe_may_set {
    HARPE_MAY_NOT_SET,
    HARPE_MAY_SET,
    HARPE_MAY_SET_UNKNOWN, /* on emulated GPUs, faults decide and not the rights of the process */
} harpe_may_set;

typedef struct harpe_gpu_permissions {
    harpe_may_set may_set;
    bool is_root;
    bool needs_root; /* only the user root may set values; otherwise CAP_SYS_ADMIN is enough */
    bool has_zeusd;
    bool has_persistence_daemon;
} harpe_gpu_permissions;

/* Whether jobs of this user change the GPUs through a node agent (`harpe agent`). */
typedef enum harpe_agent_state {
    HARPE_AGENT_NOT_LOOKED_FOR, /* emulated GPUs, and HARPE_AGENT_SOCKET is not set */
    HARPE_AGENT_OFF,            /* HARPE_AGENT_SOCKET is empty */
    HARPE_AGENT_ABSENT,         /* there is no socket */
    HARPE_AGENT_SILENT,         /* there is a socket, and nobody answers */
    HARPE_AGENT_REFUSES,        /* the agent lends nothing to this user, or cannot be trusted */
    HARPE_AGENT_LENDS,
} harpe_agent_state;

/* A limit of 0 means that there is no limit. */
typedef struct harpe_agent_facts {
    harpe_agent_state state;
    char socket[HARPE_LEASE_SOCKET_SIZE];  /* path; "": there is none */
    char reason[HARPE_ERROR_MESSAGE_SIZE]; /* why jobs do not use the agent; "": they use it */
    bool is_used_for_clocks;               /* false: the environment names a zeusd */
    int missing_gpu; /* a visible GPU that the agent does not have; -1: none */
    uint32_t lowest_mhz, highest_mhz;
    uint32_t lowest_mw, highest_mw;
} harpe_agent_facts;

typedef struct harpe_machine_facts {
    const harpe_gpus *gpus;
    int count;
    harpe_gpu_facts *facts; /* one element per visible GPU */
    harpe_gpu_permissions permissions;
    harpe_agent_facts agent;
} harpe_machine_facts;

/* Reads everything, watches the energy counters for 0.4 s, and asks the node agent. Changes
 * nothing. `gpus` must outlive the facts, which harpe_machine_facts_free frees. */
harpe_status harpe_machine_facts_read(harpe_gpus *gpus, harpe_machine_facts *out,
                                      harpe_error *error);
void harpe_machine_facts_free(harpe_machine_facts *facts);

#endif
