/* SPDX-License-Identifier: Apache-2.0 */
/* The part of `harpe train-sim --mpi` that calls MPI. Messages between stages are sends and
 * receives, and the meeting of all ranks is an all-reduce. MPI libraries spin while they wait, but
 * here many ranks share few cores, so this code tests and sleeps in turn. */
#include <mpi.h>

#include <harpe/api.h>
#include <harpe/mpi.h>

#include "base/wait.h"
#include "sim/mpi.h"

#define NAP_NS 50000L

static MPI_Comm world;
static _Atomic int32_t *is_aborted;

static harpe_status fail(harpe_error *error, const char *call, int code) {
    if (error) {
        error->status = HARPE_IO_ERROR;
        (void)snprintf(error->message, sizeof error->message, "%s failed with code %d", call, code);
    }
    return HARPE_IO_ERROR;
}

static harpe_status start(int *rank, int *size, harpe_error *error) {
    int code = MPI_Init(NULL, NULL);
    if (code != MPI_SUCCESS) return fail(error, "MPI_Init", code);
    world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, rank);
    MPI_Comm_size(world, size);
    return HARPE_OK;
}

static harpe_status broadcast(void *user, void *data, size_t size, harpe_error *error) {
    (void)user;
    return harpe_mpi_broadcast(&world, data, size, error);
}

/* Waits for a request. Returns false if the run was aborted meanwhile; MPI_Abort then ends the
 * request. */
static bool await(MPI_Request *request) {
    for (;;) {
        int is_done = 0;
        if (MPI_Test(request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (is_done) return true;
        if (is_aborted && atomic_load(is_aborted)) return false;
        harpe_sleep_ns(NAP_NS);
    }
}

/* Returns the tag for the message with this number. MPI guarantees tags up to 32767, and keeps
 * messages with one tag in order. The numbers of two messages that are on their way between the
 * same two ranks never differ by 32768 or more. */
static int tag_of(size_t message) { return (int)(message % 32768); }

/* The analyzer knows only MPI_Wait, which would spin. */
/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
static bool send_message(void *user, int to, size_t message, int64_t time_ns) {
    MPI_Request request;
    (void)user;
    if (MPI_Isend(&time_ns, 1, MPI_INT64_T, to, tag_of(message), world, &request) != MPI_SUCCESS)
        return false;
    return await(&request);
}

static bool receive_message(void *user, int from, size_t message, int64_t after_ns,
                            int64_t *time_ns) {
    MPI_Request request;
    (void)user, (void)after_ns;
    if (MPI_Irecv(time_ns, 1, MPI_INT64_T, from, tag_of(message), world, &request) != MPI_SUCCESS)
        return false;
    return await(&request);
}

static bool meet(void *user, int64_t *time_ns, bool *stop) {
    int64_t own[2] = {*time_ns, *stop}, all[2];
    MPI_Request request;
    (void)user;
    if (MPI_Iallreduce(own, all, 2, MPI_INT64_T, MPI_MAX, world, &request) != MPI_SUCCESS)
        return false;
    if (!await(&request)) return false;
    *time_ns = all[0];
    *stop = all[1] != 0;
    return true;
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static harpe_sim_transport transport(_Atomic int32_t *aborted) {
    is_aborted = aborted;
    return (harpe_sim_transport){.send = send_message, .receive = receive_message, .meet = meet};
}

static void end(void) {
    if (is_aborted && atomic_load(is_aborted)) MPI_Abort(world, 1);
    MPI_Finalize();
}

HARPE_API const harpe_sim_mpi_class *harpe_sim_mpi(void);
const harpe_sim_mpi_class *harpe_sim_mpi(void) {
    static const harpe_sim_mpi_class class = {.abi = HARPE_SIM_MPI_ABI,
                                              .start = start,
                                              .broadcast = broadcast,
                                              .transport = transport,
                                              .end = end};
    return &class;
}
