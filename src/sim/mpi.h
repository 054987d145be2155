/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a simulated job under mpirun. The program itself does not link to MPI. The option --mpi
 * opens a module (src/sim/mpi) that links to MPI. */
#ifndef HARPE_SIM_MPI_H
#define HARPE_SIM_MPI_H

#include "sim/board.h"

/* The table that the module exports. */
#define HARPE_SIM_MPI_ABI 1
typedef struct harpe_sim_mpi_class {
    int abi;
    /* Calls MPI_Init. `aborted` is checked while waiting. */
    harpe_status (*start)(int *rank, int *size, harpe_error *error);
    /* Broadcasts `data` of rank 0 to every rank. */
    harpe_status (*broadcast)(void *user, void *data, size_t size, harpe_error *error);
    harpe_sim_transport (*transport)(_Atomic int32_t *aborted);
    void (*end)(void); /* MPI_Finalize */
} harpe_sim_mpi_class;
typedef const harpe_sim_mpi_class *(*harpe_sim_mpi_entry)(void);
#define HARPE_SIM_MPI_ENTRY "harpe_sim_mpi"

/* Returns this process's rank from the environment that MPI's launchers set, or -1. */
int harpe_sim_mpi_rank(void);

/* Runs this process's rank. `board_path` is used only on rank 0. */
harpe_status harpe_sim_mpi_run_rank(const harpe_sim_options *options, const char *board_path,
                                    harpe_error *error);

#endif
