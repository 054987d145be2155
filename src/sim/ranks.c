/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "sim/rank.h"
#include "world/world.h"

#define LOOK_NS 2000000

typedef struct harpe_sim_rank_process {
    const harpe_sim_ranks *ranks;
    int rank;
    pid_t number; /* 0: ended, or not started by this process */
} rank_process;

/* ---- One rank -------------------------------------------------------------------------------- */

static int run_rank(void *user) {
    const rank_process *self = user;
    const harpe_sim_ranks *ranks = self->ranks;
    harpe_sim_memory_transport memory = {.board = ranks->board, .rank = self->rank};
    harpe_sim_rank_job job = {.board = ranks->board,
                              .options = ranks->options,
                              .plan = ranks->plan,
                              .rank = self->rank,
                              .transport = harpe_sim_memory(&memory)};
    harpe_error error;
    harpe_status status = harpe_sim_rank_run(&job, &error);
    if (status != HARPE_OK && status != HARPE_INTERRUPTED)
        harpe_log_line(&ranks->options->log, HARPE_LOG_ERROR, "rank %d: %s", self->rank,
                       error.message);
    return status == HARPE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

static _Noreturn void become_rank(rank_process *self) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN); /* the launcher handles it */
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    _exit(run_rank(self));
}

/* Returns the number of the new process, or -1 with errno. */
static pid_t start(rank_process *self) {
    if (!self->ranks->options->is_real_time) return harpe_world_start("rank", run_rank, self);
    pid_t started = fork();
    if (started == 0) become_rank(self);
    return started;
}

/* Returns true if the process has ended. Sets `*is_well` to false if it ended in an unexpected way.
 */
static bool has_ended(const rank_process *self, bool *is_well) {
    int status;
    if (!self->ranks->options->is_real_time) {
        bool is_alive = harpe_world_is_alive(self->number);
        *is_well = is_alive || harpe_world_exit_status(self->number) == EXIT_SUCCESS;
        return !is_alive;
    }
    if (waitpid(self->number, &status, WNOHANG) != self->number) return false;
    *is_well = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
    return true;
}

/* ---- All of them ----------------------------------------------------------------------------- */

harpe_status harpe_sim_ranks_init(const harpe_sim_options *options, const harpe_sim_plan *plan,
                                  harpe_sim_board *board, harpe_sim_ranks *out,
                                  harpe_error *error) {
    *out = (harpe_sim_ranks){.options = options, .plan = plan, .board = board};
    out->processes = harpe_calloc((size_t)board->world_size, sizeof *out->processes);
    return out->processes ? HARPE_OK : harpe_fail_memory(error);
}

void harpe_sim_ranks_free(harpe_sim_ranks *ranks) {
    free(ranks->processes);
    ranks->processes = NULL;
}

harpe_status harpe_sim_ranks_start(harpe_sim_ranks *ranks, harpe_error *error) {
    if (ranks->options->is_mpi) return HARPE_OK;
    harpe_sim_board_reset(ranks->board);
    for (int r = 0; r < ranks->board->world_size; r++) {
        rank_process *one = &ranks->processes[r];
        *one = (rank_process){.ranks = ranks, .rank = r};
        pid_t number = start(one);
        if (number < 0) return harpe_fail_errno(error, errno, "starting rank %d", r);
        one->number = number;
    }
    return HARPE_OK;
}

/* Counts the ranks that run under mpirun. They are not children of this process. A rank reports its
 * end, unless mpirun has killed it. */
static int count_mpi_ranks(harpe_sim_board *board) {
    int left = 0, said = board->world_size - atomic_load(&board->gone);
    for (int r = 0; r < board->world_size; r++) {
        pid_t pid = atomic_load(&board->rank[r].pid);
        left += pid > 0 ? kill(pid, 0) == 0 : !atomic_load(&board->abort);
    }
    return left < said ? left : said;
}

int harpe_sim_ranks_left(harpe_sim_ranks *ranks, int *failed) {
    int left = 0;
    *failed = -1;
    if (ranks->options->is_mpi) return count_mpi_ranks(ranks->board);
    for (int r = 0; r < ranks->board->world_size; r++) {
        rank_process *one = &ranks->processes[r];
        bool is_well = true;
        if (one->number > 0 && has_ended(one, &is_well)) one->number = 0;
        if (!is_well) *failed = r;
        left += one->number > 0;
    }
    return left;
}

pid_t harpe_sim_ranks_process(const harpe_sim_ranks *ranks, int rank) {
    return ranks->processes[rank].number;
}

void harpe_sim_ranks_kill(harpe_sim_ranks *ranks, int rank) {
    pid_t number = harpe_sim_ranks_process(ranks, rank);
    if (number <= 0) return;
    if (ranks->options->is_real_time)
        (void)kill(number, SIGKILL);
    else
        harpe_world_kill(number);
}

void harpe_sim_ranks_end(harpe_sim_ranks *ranks, void (*late)(void *user, int rank), void *user) {
    double until_s = harpe_clock_s() + HARPE_SIM_END_LIMIT_S;
    bool is_late = false;
    int failed;
    atomic_store(&ranks->board->abort, 1);
    while (harpe_sim_ranks_left(ranks, &failed) > 0) {
        bool was_late = is_late;
        is_late = harpe_clock_s() > until_s;
        if (is_late && ranks->options->is_mpi) return;
        for (int r = 0; is_late && !was_late && r < ranks->board->world_size; r++) {
            if (harpe_sim_ranks_process(ranks, r) <= 0) continue;
            late(user, r);
            harpe_sim_ranks_kill(ranks, r);
        }
        harpe_sleep_ns(LOOK_NS);
    }
}
