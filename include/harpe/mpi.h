/* SPDX-License-Identifier: Apache-2.0 */
/* The broadcast callback over MPI. A job that uses MPI includes this header after <mpi.h>. libharpe
 * itself does not link to MPI.
 *
 *     MPI_Comm world = MPI_COMM_WORLD;
 *     options.broadcast = harpe_mpi_broadcast;
 *     options.broadcast_user = &world; */
#ifndef HARPE_MPI_H
#define HARPE_MPI_H

#include <stdio.h>

#include <mpi.h>

#include <harpe/status.h>

/* Broadcasts `data` from rank 0. `user` is an MPI_Comm *. Rank 0 of the communicator must be
 * rank 0 of the job. */
static inline harpe_status harpe_mpi_broadcast(void *user, void *data, size_t size,
                                               harpe_error *error) {
    const MPI_Comm *communicator = (const MPI_Comm *)user;
    int code = MPI_Bcast(data, (int)size, MPI_BYTE, 0, *communicator);
    if (code == MPI_SUCCESS) return HARPE_OK;
    if (error) {
        error->status = HARPE_IO_ERROR;
        (void)snprintf(error->message, sizeof error->message, "MPI_Bcast failed with code %d",
                       code);
    }
    return HARPE_IO_ERROR;
}

#endif
