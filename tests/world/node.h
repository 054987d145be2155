/* SPDX-License-Identifier: Apache-2.0 */
/* A machine in a world with faults: the node agent, trainers that take leases, their controllers
 * and guards, and emulated GPUs. Checks what must hold whatever happens. */
#ifndef HARPE_TESTS_WORLD_NODE_H
#define HARPE_TESTS_WORLD_NODE_H

#include <stdint.h>
#include <stdio.h>

#include "world/job.h"

typedef struct world_node_options {
    uint64_t seed;   /* decides the machine, the trainers and all faults */
    unsigned faults; /* WORLD_KILLS: also stops of the agent; _STALLS, _DRIVER, _CLOCKS */
    FILE *trace;     /* a line for each event; NULL: none */
} world_node_options;

typedef struct world_node_result {
    char fault[WORLD_FAULT_SIZE]; /* what did not hold; "": all did */
    int gpus, trainers;
    int leases; /* that were granted */
    int kills, stalls, jumps, stops, driver_faults;
    double virtual_s;
    uint64_t turns;
} world_node_result;

/* Runs the machine. Uses the environment and the one world of this process. HARPE_NVML_LIBRARY
 * names the emulator. */
world_node_result world_node_run(const world_node_options *options);

#endif
