/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a job's ranks: real ones, or those of a world (world/world.h). */
#ifndef HARPE_SIM_RANKS_H
#define HARPE_SIM_RANKS_H

#include <sys/types.h>

#include <harpe/status.h>

#include "sim/board.h"
#include "sim/options.h"
#include "sim/plan.h"

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

/* Starts all ranks, unless mpirun has started them. */
harpe_status harpe_sim_ranks_start(harpe_sim_ranks *ranks, harpe_error *error);
/* Returns how many ranks have not ended. `*failed` is a rank that ended in an unexpected way since
 * the last call; -1: none. */
int harpe_sim_ranks_left(harpe_sim_ranks *ranks, int *failed);
/* Returns the number of a rank's process; 0: it has ended. */
pid_t harpe_sim_ranks_process(const harpe_sim_ranks *ranks, int rank);
void harpe_sim_ranks_kill(harpe_sim_ranks *ranks, int rank);
/* Ends the ranks. Each rank leaves when it next waits for a message. Calls `late` for each rank
 * that does not, and kills it. */
void harpe_sim_ranks_end(harpe_sim_ranks *ranks, void (*late)(void *user, int rank), void *user);

#endif
