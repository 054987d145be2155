/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe train-sim`: puts a simulated training job together and takes it apart again: a temporary
 * directory, the plan, the emulated GPUs, the server, the board, the ranks. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <curl/curl.h>

#include "base/error.h"
#include "base/terminal_progress.h"
#include "cli/command.h"
#include "cli/emulated_cluster.h"
#include "cli/janitor.h"
#include "cli/train_sim_launcher.h"
#include "cli/train_sim_mpi.h"
#include "cli/train_sim_report.h"

#define CONTROLLERS_LIMIT_S 5.0 /* for them to leave the cluster */

/* ---- The directory ----------------------------------------------------------------------------
 */

static harpe_status make_directory(char *path, size_t size, harpe_error *error) {
    const char *parent = getenv("TMPDIR");
    snprintf(path, size, "%s/harpe-train-sim-XXXXXX", parent && *parent ? parent : "/tmp");
    return mkdtemp(path) ? HARPE_OK : harpe_fail_errno(error, errno, "%s", path);
}

/* ---- The parts --------------------------------------------------------------------------------
 */

static harpe_status open_cluster(const harpe_sim_options *options, const harpe_sim_plan *plan,
                                 const char *directory, harpe_emulated_cluster *cluster,
                                 harpe_error *error) {
    char gpus[64], scale[64], blocking[64], profile[HARPE_SIM_TEXT_MAX + 16];
    snprintf(gpus, sizeof gpus, "%dx%s", harpe_sim_world_size(options), options->gpu_model);
    snprintf(scale, sizeof scale, "%.17g", options->time_scale);
    snprintf(blocking, sizeof blocking, "%.17g", plan->blocking_power_w);
    snprintf(profile, sizeof profile, "%s/profile.csv", directory);
    harpe_emulated_options emulated = {
        .gpus = gpus, .time_scale = scale, .blocking_power = blocking, .profile = profile};
    return harpe_emulated_cluster_open(&emulated, cluster, error);
}

static void copy_text(char *to, size_t size, const char *from) {
    snprintf(to, size, "%s", from ? from : "");
}

/* What ranks that are not forked from here need to know, too. */
static void fill_board(const harpe_sim_run *run, harpe_sim_board *board) {
    uint64_t random = 0;
    (void)!getrandom(&random, sizeof random, 0);
    board->world_size = harpe_sim_world_size(run->options);
    copy_text(board->library, sizeof board->library, getenv("HARPE_NVML_LIBRARY"));
    copy_text(board->cluster, sizeof board->cluster, getenv("HARPE_EMULATOR_CLUSTER"));
    copy_text(board->profile, sizeof board->profile, getenv("HARPE_EMULATOR_PROFILE"));
    copy_text(board->gpus, sizeof board->gpus, getenv("HARPE_EMULATOR_GPUS"));
    copy_text(board->scale, sizeof board->scale, getenv("HARPE_EMULATOR_TIME_SCALE"));
    copy_text(board->blocking, sizeof board->blocking, getenv("HARPE_EMULATOR_BLOCKING_POWER"));
    copy_text(board->server_url, sizeof board->server_url, run->server->url);
    /* With a key, ranks that are restarted go on in their job. The published server does not know
     * keys.
     */
    if (!run->server->is_published)
        snprintf(board->job_key, sizeof board->job_key, "train-sim-%016llx",
                 (unsigned long long)random);
}

/* To rank 0, which tells the others. */
static void tell_path(int fd, const char *path) {
    (void)!write(fd, path, strlen(path));
    close(fd);
}

static harpe_status run_on_board(harpe_sim_run *run, const char *directory, harpe_error *error) {
    char path[HARPE_SIM_TEXT_MAX + 16];
    size_t pipelines = (size_t)run->options->dp * (size_t)run->options->tp;
    snprintf(path, sizeof path, "%s/board", directory);
    harpe_status status =
        harpe_sim_board_create(path, pipelines * run->plan->message_count, &run->board, error);
    if (status != HARPE_OK) return status;
    fill_board(run, run->board);
    if (run->options->is_mpi) tell_path(run->path_fd, path);
    status = harpe_sim_launch(run, error);
    if (status == HARPE_OK) status = harpe_sim_report(run, error);
    json_decref(run->story.frontier);
    harpe_sim_board_close(run->board);
    return status;
}

static harpe_status run_in_directory(const harpe_sim_options *options, const char *directory,
                                     int path_fd, harpe_error *error) {
    harpe_sim_plan plan = {0};
    harpe_sim_server server = {0};
    harpe_emulated_cluster cluster = {0};
    harpe_status status = harpe_sim_plan_load(options, directory, &plan, error);
    if (status == HARPE_OK) status = open_cluster(options, &plan, directory, &cluster, error);
    if (status == HARPE_OK)
        status = harpe_sim_server_start(options, plan.blocking_power_w, directory, &server, error);
    if (status == HARPE_OK) {
        harpe_sim_run run = {
            .options = options, .plan = &plan, .server = &server, .path_fd = path_fd};
        status = run_on_board(&run, directory, error);
    }
    harpe_sim_server_stop(&server);
    harpe_emulated_cluster_close(&cluster, CONTROLLERS_LIMIT_S);
    harpe_sim_plan_free(&plan);
    return status;
}

static int launch(const harpe_sim_options *options, int path_fd) {
    harpe_error error;
    char directory[HARPE_SIM_TEXT_MAX];
    harpe_terminal_progress terminal;
    (void)harpe_terminal_progress_start(&terminal, true); /* from here on signals end it cleanly */
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    int janitor = -1;
    harpe_status status = make_directory(directory, sizeof directory, &error);
    if (status == HARPE_OK) {
        status = harpe_janitor_start(directory, &janitor, &error);
        if (status == HARPE_OK) status = run_in_directory(options, directory, path_fd, &error);
        harpe_remove_flat_directory(directory);
        if (janitor >= 0) close(janitor);
    }
    curl_global_cleanup();
    return status == HARPE_OK ? HARPE_EXIT_OK : harpe_command_fail("train-sim", &error);
}

/* ---- Under mpirun -----------------------------------------------------------------------------
 */

/* The launcher is a process of its own beside rank 0, started before there is any MPI. Returns the
 * end of a pipe that tells where the board is, or -1. */
static int fork_launcher(const harpe_sim_options *options, pid_t *launcher) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == -1) return -1;
    *launcher = fork();
    if (*launcher == 0) {
        close(ends[0]);
        setsid(); /* mpirun kills rank 0's group; this one has to clean up first */
        prctl(PR_SET_PDEATHSIG, SIGHUP); /* no second SIGTERM, which would kill at once */
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
            (void)!read(fd, path, sizeof path - 1); /* nothing: the launcher has said why */
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
    harpe_sim_parse_options(argc, argv, &options);
    return options.is_mpi ? run_as_mpi_rank(&options) : launch(&options, -1);
}
