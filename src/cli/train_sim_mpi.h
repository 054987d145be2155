/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a simulated job under mpirun. The program does not link MPI: what needs it is a module
 * (src/cli/mpi), opened by --mpi. */
#ifndef HARPE_CLI_TRAIN_SIM_MPI_H
#define HARPE_CLI_TRAIN_SIM_MPI_H

#include "cli/train_sim_board.h"

/* What the module exports, as one table. */
#define HARPE_SIM_MPI_ABI 1
typedef struct harpe_sim_mpi_class {
    int abi;
    /* MPI_Init. `aborted` is looked at while waiting. */
    harpe_status (*start)(int *rank, int *size, harpe_error *error);
    /* `data` of rank 0 reaches every rank. */
    harpe_status (*broadcast)(void *user, void *data, size_t size, harpe_error *error);
    harpe_sim_transport (*transport)(_Atomic int32_t *aborted);
    void (*end)(void); /* MPI_Finalize */
} harpe_sim_mpi_class;
typedef const harpe_sim_mpi_class *(*harpe_sim_mpi_entry)(void);
#define HARPE_SIM_MPI_ENTRY "harpe_sim_mpi"

/* This process's rank by what MPI's launchers put into the environment, or -1. */
int harpe_sim_mpi_rank(void);

/* Runs this process's rank; `board_path` matters on rank 0 alone. */
harpe_status harpe_sim_mpi_run_rank(const harpe_sim_options *options, const char *board_path,
                                    harpe_error *error);

#endif
