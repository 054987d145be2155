/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe train-sim`: runs a simulated training job (src/sim) and prints the report. Without mpirun
 * this process starts all ranks; under mpirun it is one rank. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/terminal_progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/sim/train_sim_options.h"
#include "cli/sim/train_sim_report.h"
#include "sim/mpi.h"
#include "sim/run.h"

static int launch(const harpe_sim_options *options, int path_fd) {
    harpe_error error;
    harpe_terminal_progress terminal;
    (void)harpe_terminal_progress_start(&terminal, true); /* from here on, signals end the run
                                                           * cleanly */
    harpe_sim_staging staging = {.report = harpe_sim_print_report, .path_fd = path_fd};
    harpe_status status = harpe_sim_run_job(options, &staging, &error);
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("train-sim", &error);
}

/* ---- Under mpirun ---------------------------------------------------------------------------- */

/* Forks the launcher before MPI starts. The launcher runs on the machine of rank 0. Returns the
 * read end of the pipe to which the launcher writes the board's path, or -1. */
static int fork_launcher(const harpe_sim_options *options, pid_t *launcher) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == -1) return -1;
    *launcher = fork();
    if (*launcher == 0) {
        close(ends[0]);
        setsid(); /* mpirun kills the group of rank 0, but the launcher must clean up */
        prctl(PR_SET_PDEATHSIG, SIGHUP); /* a second SIGTERM would kill at once */
        exit(launch(options, ends[1]));
    }
    close(ends[1]);
    return ends[0];
}

static int run_as_mpi_rank(const harpe_sim_options *options) {
    harpe_error error;
    pid_t launcher = 0;
    char path[HARPE_SIM_TEXT_MAX] = "";
    int rank = harpe_sim_mpi_rank();
    if (rank < 0) {
        (void)harpe_fail(&error, HARPE_INVALID_ARGUMENT,
                         "--mpi: start it with mpirun -n %d harpe train-sim --mpi ...",
                         harpe_sim_world_size(options));
        return harpe_command_fail("train-sim", &error);
    }
    if (rank == 0) {
        int fd = fork_launcher(options, &launcher);
        if (fd != -1) {
            (void)!read(fd, path, sizeof path - 1); /* if empty: launcher failed */
            close(fd);
        }
    }
    harpe_status status = harpe_sim_mpi_run_rank(options, path, &error);
    int code = status == HARPE_OK ? HARPE_EXIT_OK : HARPE_EXIT_FAILURE;
    if (status != HARPE_OK && status != HARPE_INTERRUPTED) harpe_command_fail("train-sim", &error);
    if (launcher > 0) {
        int ended;
        if (status != HARPE_OK) kill(launcher, SIGTERM);
        while (waitpid(launcher, &ended, 0) == -1 && errno == EINTR) {
        }
        if (code == HARPE_EXIT_OK) code = WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
    }
    return code;
}

int harpe_train_sim_command(int argc, char **argv) {
    harpe_sim_options options;
    harpe_train_sim_parse_options(argc, argv, &options);
    return options.is_mpi ? run_as_mpi_rank(&options) : launch(&options, -1);
}
