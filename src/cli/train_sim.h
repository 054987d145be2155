/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe train-sim`: a training job that is real but for its GPUs. What its parts share: what the
 * user asked for, and the memory that the launcher and the ranks have in common. The launcher
 * (train_sim_launcher.c) starts a server and the ranks, makes things go wrong and keeps the record;
 * a rank (train_sim_rank.c) runs its pipeline schedule on an emulated GPU, with the optimizer as a
 * real training process has it. */
#ifndef HARPE_CLI_TRAIN_SIM_H
#define HARPE_CLI_TRAIN_SIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/plan.h>
#include <harpe/status.h>

#define HARPE_SIM_IMBALANCE 1.15 /* the slowest stage over the mean */

enum {
    HARPE_SIM_RANK_MAX = 64, /* as many GPUs as the emulator has */
    HARPE_SIM_STEP_MAX = 20000,
    HARPE_SIM_TEXT_MAX = 512,
    HARPE_SIM_BASELINE_STEPS = 3, /* at the highest clocks; the first one is not counted */
};

/* ---- What was asked for -----------------------------------------------------------------------
 */

/* RANK@STEP=FACTOR and the like. A step with '+' counts from the steady state. */
typedef struct harpe_sim_event {
    bool is_given, is_after_steady;
    int rank;
    int step;
    double factor; /* of a straggler */
} harpe_sim_event;

typedef struct harpe_sim_options {
    const char *profile_path; /* NULL: synthesised */
    const char *gpu_model;
    double imbalance, forward_time_s; /* HARPE_SIM_IMBALANCE: nobody named one */
    uint64_t seed;
    double blocking_power_w; /* below 0: the emulated GPU's own */
    const char *schedule_name;
    int chunks; /* 0: the schedule's default */
    int microbatches;
    int pp, dp, tp;
    int steps; /* in the steady state */
    double time_scale;
    double learning_limit_s;                /* real time until the steady state */
    const char *scheduler, *scheduler_args; /* NULL: see is_offline, plan_path */
    const char *plan_path;
    bool is_offline;
    const char *server_url; /* NULL: a server of its own */
    harpe_sim_event straggler, kill_rank, restart_server;
    bool is_mpi, is_json, is_quiet;
} harpe_sim_options;

static inline int harpe_sim_world_size(const harpe_sim_options *options) {
    return options->pp * options->dp * options->tp;
}

/* Parses the command line; prints and exits where it makes no sense. */
void harpe_sim_parse_options(int argc, char **argv, harpe_sim_options *options);

/* ---- What launcher and ranks share ------------------------------------------------------------
 */

/* One rank's step, written by the rank. Emulated time. */
typedef struct harpe_sim_step {
    int64_t begin_ns, end_ns; /* the same for all ranks */
    double energy_j;          /* of its GPU */
    int64_t round;            /* of the schedule that it ran; -1: none */
    uint64_t clock_writes;    /* that its GPU obeyed */
} harpe_sim_step;

/* Where everybody meets: an all-reduce (maximum). */
typedef struct harpe_sim_meeting {
    _Atomic uint32_t arrived;
    _Atomic uint32_t over; /* a futex: how many have been held */
    _Atomic int64_t latest_ns, stop;
    int64_t agreed_ns, agreed_stop; /* written by the last to arrive */
} harpe_sim_meeting;

typedef struct harpe_sim_rank_state {
    _Atomic int32_t pid;
    _Atomic uint32_t bell; /* a futex: messages for this rank */
    _Atomic uint64_t misfits, reconnects;
} harpe_sim_rank_state;

typedef struct harpe_sim_board {
    /* Set before there are ranks. */
    int world_size;
    double time_scale;
    size_t message_count;
    char library[HARPE_SIM_TEXT_MAX], cluster[HARPE_SIM_TEXT_MAX], profile[HARPE_SIM_TEXT_MAX];
    char gpus[HARPE_SIM_TEXT_MAX], scale[64], blocking[64];
    char server_url[HARPE_SIM_TEXT_MAX];
    char job_key[64]; /* "": the ranks meet by a broadcast */
    /* By the launcher, at any time. */
    _Atomic int32_t stop;           /* after this step */
    _Atomic int32_t abort;          /* at once */
    _Atomic int64_t straggler_step; /* from this training step on */
    int straggler_rank;
    double straggler_factor;
    /* By the ranks. */
    _Atomic int32_t gone;   /* ranks that ended */
    _Atomic uint32_t steps; /* a futex: steps that all ranks have finished, baseline too */
    char job_id[256];       /* by rank 0, before job_id_is_known */
    _Atomic int32_t job_id_is_known;
    char shared[256]; /* what rank 0 broadcasts, between two meetings */
    harpe_sim_meeting meeting;
    harpe_sim_rank_state rank[HARPE_SIM_RANK_MAX];
    harpe_sim_step step[HARPE_SIM_STEP_MAX][HARPE_SIM_RANK_MAX];
    _Atomic int64_t message_ns[]; /* when the work was done that somebody waits for; see rank.c */
} harpe_sim_board;

#endif
