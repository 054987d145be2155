/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a rank under mpirun: opens the MPI module, receives the board's path from rank 0, joins the
 * emulated cluster, and trains. */
#include "sim/mpi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "sim/rank.h"

#ifndef HARPE_LIBDIR_FROM_BINDIR
#define HARPE_LIBDIR_FROM_BINDIR "../lib"
#endif
#define MODULE_NAME "harpe-mpi.so"

int harpe_sim_mpi_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        int64_t rank;
        if (text && harpe_parse_int(text, strlen(text), &rank) && rank >= 0 &&
            rank < HARPE_SIM_RANK_MAX)
            return (int)rank;
    }
    return -1;
}

/* ---- The module ------------------------------------------------------------------------------ */

static harpe_status open_module(const harpe_sim_mpi_class **out, harpe_error *error) {
    static const char *const places[] = {"mpi", HARPE_LIBDIR_FROM_BINDIR "/harpe", "../lib/harpe"};
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash) *slash = '\0';
    harpe_sim_mpi_entry entry = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !entry; i++) {
        harpe_text path = {0};
        harpe_text_printf(&path, "%s/%s/" MODULE_NAME, program, places[i]);
        /* MPI libraries load parts of themselves. These parts look for MPI's symbols, so the
         * symbols must be global. */
        void *module = path.failed ? NULL : dlopen(path.data, RTLD_NOW | RTLD_GLOBAL);
        harpe_text_free(&path);
        if (module) *(void **)&entry = dlsym(module, HARPE_SIM_MPI_ENTRY);
    }
    if (!entry)
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "--mpi: " MODULE_NAME " is neither in %s/mpi nor in %s/" //
                          HARPE_LIBDIR_FROM_BINDIR "/harpe; build Harpe where MPI is installed",
                          program, program);
    *out = entry();
    if ((*out)->abi == HARPE_SIM_MPI_ABI) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_SUPPORTED, MODULE_NAME " is of another version");
}

/* ---- The rank -------------------------------------------------------------------------------- */

static bool join_cluster(const harpe_sim_board *board) {
    return setenv("HARPE_NVML_LIBRARY", board->library, 1) == 0 &&
           setenv("HARPE_EMULATOR_CLUSTER", board->cluster, 1) == 0 &&
           setenv("HARPE_EMULATOR_GPUS", board->gpus, 1) == 0 &&
           setenv("HARPE_EMULATOR_TIME_SCALE", board->scale, 1) == 0 &&
           setenv("HARPE_EMULATOR_BLOCKING_POWER", board->blocking, 1) == 0 &&
           setenv("HARPE_EMULATOR_SEED", board->seed, 1) == 0 &&
           setenv("HARPE_EMULATOR_PHYSICS", board->physics, 1) == 0 &&
           setenv("HARPE_EMULATOR_PROFILE", board->profile, 1) == 0;
}

static harpe_status run_on_board(const harpe_sim_options *options, const harpe_sim_mpi_class *mpi,
                                 const char *path, int rank, harpe_error *error) {
    harpe_sim_board *board;
    harpe_sim_plan plan = {0};
    harpe_status status = harpe_sim_board_open(path, &board, error);
    if (status != HARPE_OK) return status;
    if (!join_cluster(board)) status = harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = harpe_sim_plan_load_program(options, board->profile, &plan, error);
    if (status == HARPE_OK) {
        harpe_sim_rank_job job = {.board = board,
                                  .options = options,
                                  .plan = &plan,
                                  .rank = rank,
                                  .transport = mpi->transport(&board->abort)};
        status = harpe_sim_rank_run(&job, error);
    }
    mpi->end();
    harpe_sim_plan_free(&plan);
    harpe_sim_board_close(board);
    return status;
}

harpe_status harpe_sim_mpi_run_rank(const harpe_sim_options *options, const char *board_path,
                                    harpe_error *error) {
    const harpe_sim_mpi_class *mpi = NULL;
    int rank = 0, size = 0;
    char path[HARPE_SIM_TEXT_MAX] = "";
    harpe_status status = open_module(&mpi, error);
    if (status == HARPE_OK) status = mpi->start(&rank, &size, error);
    if (status != HARPE_OK) return status;
    if (rank == 0 && board_path) snprintf(path, sizeof path, "%s", board_path);
    status = mpi->broadcast(NULL, path, sizeof path, error);
    if (status == HARPE_OK && size != harpe_sim_world_size(options))
        status = harpe_fail(error, HARPE_INVALID_ARGUMENT,
                            "mpirun started %d ranks, but --pp, --dp and --tp make %d", size,
                            harpe_sim_world_size(options));
    if (status == HARPE_OK && !*path)
        status = harpe_fail(error, HARPE_INTERRUPTED, "rank 0 could not prepare the run");
    if (status != HARPE_OK) {
        mpi->end();
        return status;
    }
    return run_on_board(options, mpi, path, rank, error);
}
