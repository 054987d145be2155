/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether jobs of this user change the GPUs through a node agent (`harpe agent`), or the
 * reason why they do not. Asks the agent only for its status. */
#ifndef HARPE_CLI_GPUS_GPUS_AGENT_H
#define HARPE_CLI_GPUS_GPUS_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>

#include "lease/lease.h"

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

/* Looks for the agent and asks it. Waits up to 2 s for the answer. */
void harpe_agent_facts_read(const harpe_gpus *gpus, harpe_agent_facts *out);

#endif
