/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher of a simulated job. It does the work of torchrun, a cluster monitor and an observer
 * with a power meter. */
#ifndef HARPE_SIM_LAUNCHER_H
#define HARPE_SIM_LAUNCHER_H

#include <jansson.h>
#include <sys/types.h>

#include <harpe/status.h>

#include "sim/board.h"
#include "sim/options.h"
#include "sim/plan.h"
#include "sim/server.h"

enum { HARPE_SIM_CHANGES = 32 };

/* From this round on, the job runs plans, or learns. */
typedef struct harpe_sim_change {
    int64_t round;
    bool is_learned;
} harpe_sim_change;

/* The times of events. Steps are numbered as on the board, with the warm-up and without the
 * baseline; -1: the event has not happened. */
typedef struct harpe_sim_story {
    /* Before the first change, the job learns. A server that throws its plans away learns again. If
     * there are too many changes, the last entry is the newest change. */
    harpe_sim_change changes[HARPE_SIM_CHANGES];
    int change_count;
    int steady_step;    /* the first step in which all ranks ran plans */
    int straggler_step; /* step at which the server learned of the straggler */
    int answered_step;  /* the first step in which all ranks ran the answer */
    int64_t straggler_round;
    int kill_step, restart_step;
    double gpu_back_s;    /* real time from the kill until the GPU's clocks were reset */
    double downtime_s;    /* real time until the ranks trained again */
    double server_gone_s; /* real time until the server answered again */
    int step_count;       /* number of steps that all ranks finished */
    json_t *frontier;     /* the server's last frontier, owned; NULL: none */
    json_t *job;          /* the server's page of the job at the end, owned; NULL: none */
} harpe_sim_story;

/* Returns the round of the first change to plans, or -1. */
int64_t harpe_sim_planned_round(const harpe_sim_story *story);

typedef struct harpe_sim_run {
    const harpe_sim_options *options;
    const harpe_sim_plan *plan;
    harpe_sim_board *board;
    harpe_sim_server *server;
    harpe_sim_story story;
} harpe_sim_run;

/* Starts the ranks, plays all events, and returns when all ranks are gone. */
harpe_status harpe_sim_launch(harpe_sim_run *run, harpe_error *error);

/* ---- Ranks ----------------------------------------------------------------------------------- */

/* The processes of a job's ranks: real ones, or those of a world (world/world.h). */

#define HARPE_SIM_END_LIMIT_S 60.0 /* time in which ranks must end by themselves */

typedef struct harpe_sim_ranks {
    const harpe_sim_options *options;
    const harpe_sim_plan *plan;
    harpe_sim_board *board;
    struct harpe_sim_rank_process *processes; /* one for each rank */
} harpe_sim_ranks;

/* Prepares the ranks, and starts none. */
harpe_status harpe_sim_ranks_init(const harpe_sim_options *options, const harpe_sim_plan *plan,
                                  harpe_sim_board *board, harpe_sim_ranks *out, harpe_error *error);
void harpe_sim_ranks_free(harpe_sim_ranks *ranks);

/* Starts all ranks. */
harpe_status harpe_sim_ranks_start(harpe_sim_ranks *ranks, harpe_error *error);
/* Returns how many ranks have not ended. `*failed` is a rank that ended in an unexpected way since
 * the last call; -1: none. */
int harpe_sim_ranks_left(harpe_sim_ranks *ranks, int *failed);
void harpe_sim_ranks_kill(harpe_sim_ranks *ranks, int rank);
/* Ends the ranks. Each rank leaves when it next waits for a message. Calls `late` for each rank
 * that does not, and kills it. */
void harpe_sim_ranks_end(harpe_sim_ranks *ranks, void (*late)(void *user, int rank), void *user);

#endif
