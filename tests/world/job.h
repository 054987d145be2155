/* SPDX-License-Identifier: Apache-2.0 */
/* A training job in a world with faults: the ranks, their optimizers and controllers, the server
 * and its store. Checks what must hold whatever happens. */
#ifndef HARPE_TESTS_WORLD_JOB_H
#define HARPE_TESTS_WORLD_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "world/notes.h"

/* Kinds of faults, as bits. */
enum {
    WORLD_MESSAGES = 1, /* late, lost, doubled, cut, out of order */
    WORLD_KILLS = 2,    /* of the server, of ranks and of controllers, at any step */
    WORLD_STORE = 4,    /* writes fail, the disk is full, the last writes of a killed server tear */
    WORLD_DRIVER = 8,   /* the driver is slow, refuses, or loses a GPU */
    WORLD_CLOCKS = 16,  /* the time of day jumps */
    WORLD_STALLS = 32,  /* a process stands still */
    WORLD_ALL_FAULTS = 63,
};

/* Reads "all", "none", or names such as "messages,kills". Returns false if a name is unknown. */
bool world_faults_read(const char *list, unsigned *faults);
/* The names, with commas. */
extern const char world_fault_names[];

/* What is broken on purpose, to show that it is noticed. */
typedef enum world_sabotage {
    WORLD_NO_SABOTAGE,
    WORLD_IGNORES_SYNCS, /* the disk loses what it has called durable */
    WORLD_KILLS_PAIRS,   /* nobody is left to give a GPU back */
} world_sabotage;

/* What happens to the first schedule that is given to a rank. */
typedef enum world_first_schedule {
    WORLD_FIRST_ARRIVES,
    WORLD_FIRST_IS_CUT,
    WORLD_FIRST_IS_DOUBLED, /* the rank's own request is late, and is refused */
    WORLD_FIRST_IS_LOST,    /* and nobody is told */
} world_first_schedule;

typedef struct world_job_options {
    uint64_t seed; /* decides the shape of the job, its GPUs, and all faults */
    unsigned faults;
    int ranks; /* 0: drawn, 1 to 8 */
    int steps; /* 0: drawn */
    world_sabotage sabotage;
    world_first_schedule first;
    FILE *trace; /* a line for each event; NULL: none */
} world_job_options;

typedef struct world_job_result {
    char fault[1024]; /* what did not hold; "": all did */
    int ranks, steps; /* steps that all ranks have run */
    int64_t last_round;
    int kills, stalls, jumps, store_faults, driver_faults, message_faults;
    double virtual_s;
    uint64_t turns;
    double energy_j; /* of all GPUs, as the emulator counts it */
    uint64_t digest; /* of the times, energies and rounds of all steps */
} world_job_result;

/* Runs the job. Uses the environment and the one world of this process. */
world_job_result world_job_run(const world_job_options *options);

#endif
