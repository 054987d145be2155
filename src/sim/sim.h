/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated training job: its options, the plan of its work, the memory that its processes share,
 * its server, ranks and launcher, and the whole run with its summary. */
#ifndef HARPE_SIM_SIM_H
#define HARPE_SIM_SIM_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <harpe/callback.h>
#include <harpe/plan.h>
#include <harpe/status.h>

#include "world/transport.h"
#include "world/world.h"

/* ---- Options --------------------------------------------------------------------------------- */

/* The options of a simulated training job. Only the GPUs of the job are emulated. Every part of
 * src/sim uses the options; src/cli/sim fills them in from the command line. */

#define HARPE_SIM_IMBALANCE 1.15 /* work of the slowest stage divided by the mean */

enum {
    HARPE_SIM_RANK_MAX = 4096, /* the most GPUs that the emulator has */
    HARPE_SIM_STEP_MAX = 20000,
    HARPE_SIM_TEXT_MAX = 512,
    HARPE_SIM_WARM_UP_STEPS = 3,   /* steps before the optimizer starts; they are not counted */
    HARPE_SIM_BASELINE_STEPS = 10, /* steps of the baseline, about; spread over the run */
    HARPE_SIM_BASELINE_MAX = 32,   /* with steps that run again after a rank was killed */
};

/* An event of the command line, such as RANK@STEP=FACTOR. If the step begins with '+', it counts
 * from the steady state on. */
typedef struct harpe_sim_event {
    bool is_given, is_after_steady;
    int rank;
    int step;
    double factor; /* of a straggler */
} harpe_sim_event;

typedef struct harpe_sim_options {
    const char *profile_path; /* NULL: a synthetic profile */
    const char *gpu_model;
    double imbalance, forward_time_s; /* imbalance is HARPE_SIM_IMBALANCE if the user gave none */
    uint64_t seed;
    const char *physics;     /* of the emulated GPUs; NULL: ideal */
    double blocking_power_w; /* below 0: the blocking power of the emulated GPU */
    const char *schedule_name;
    int chunks;     /* 0: the schedule's default */
    int group_size; /* microbatches of a group; 0: the schedule's default */
    bool overlaps_moe_expert_parallel_comm;
    int microbatches;
    int pp, dp, tp;
    int steps; /* steps in the steady state */
    double time_scale;
    double learning_limit_s; /* limit until the steady state, on the clock of the run */
    const char *scheduler, *scheduler_args; /* NULL: see is_offline, plan_path */
    const char *plan_path;
    bool is_offline;
    bool has_no_report;     /* do not predict the best plan, which takes long */
    bool looks_rarely;      /* ranks read energy and measured steps less often, as in large jobs */
    bool may_anticipate;    /* clocks that change late are set before their instructions begin */
    const char *server_url; /* NULL: start a server */
    harpe_sim_event straggler, kill_rank, restart_server;
    const char *step_log_path; /* a file that gets a line for each step; NULL: none */
    bool is_real_time;         /* true: real processes and HTTP; false: a world (world/world.h) */
    bool is_json, is_quiet;
    harpe_log log; /* receives messages during the run */
} harpe_sim_options;

/* Returns the number of steps with the plan between two steps of the baseline. */
static inline int harpe_sim_turn_steps(const harpe_sim_options *options) {
    return (options->steps + HARPE_SIM_BASELINE_STEPS - 1) / HARPE_SIM_BASELINE_STEPS;
}

static inline int harpe_sim_world_size(const harpe_sim_options *options) {
    return options->pp * options->dp * options->tp;
}

/* ---- Plan ------------------------------------------------------------------------------------ */

/* The work of a simulated job, and the planner's predictions. The work consists of the profile, and
 * of each pipeline rank's instructions and messages. The measurements are compared with the
 * predictions. */

typedef struct harpe_sim_message {
    size_t index; /* among the messages of one pipeline */
    int peer;     /* pipeline rank at the other end */
} harpe_sim_message;

typedef struct harpe_sim_instruction {
    const char *name;
    int stage;
    int wait_count, send_count;
    harpe_sim_message waits[2], sends[2];
} harpe_sim_instruction;

/* A prediction for the whole job, with all of its pipelines. */
typedef struct harpe_sim_prediction {
    double time_s, energy_j;
} harpe_sim_prediction;

typedef struct harpe_sim_plan {
    harpe_profile *profile;
    harpe_schedule *schedule;
    harpe_problem *problem;
    double blocking_power_w;
    harpe_sim_instruction *instructions; /* rank by rank */
    size_t *rank_start;                  /* [pp + 1] */
    size_t message_count;                /* of one pipeline */
    harpe_sim_prediction all_maximum, fastest,
        slowed;                /* predictions with the straggler, if there is one */
    harpe_plan_set *one_clock; /* the plans with one clock for all GPUs, of one pipeline */
} harpe_sim_plan;

/* Predicts the job if all GPUs run at one clock. An iteration at this clock takes at most
 * `slowdown` (1 or more) times as long as at the highest clocks, and needs the least energy of all
 * clocks that fulfil this. `*clock_mhz` receives the clock; 0: no clock is better than the highest
 * clocks. */
harpe_sim_prediction harpe_sim_predict_one_clock(const harpe_sim_options *options,
                                                 const harpe_sim_plan *plan, double slowdown,
                                                 int *clock_mhz);

/* Makes the plan. `directory` receives profile.csv, and plan.py with --offline. */
harpe_status harpe_sim_plan_load(const harpe_sim_options *options, const char *directory,
                                 harpe_sim_plan *out, harpe_error *error);
void harpe_sim_plan_free(harpe_sim_plan *plan);

/* ---- Board ----------------------------------------------------------------------------------- */

/* The memory that the launcher and the ranks share, and the functions with which ranks communicate:
 * messages between stages, and a meeting of all ranks. Messages and the meeting contain emulated
 * times, so that work starts at the emulated time at which it was ready. */

/* One step of one rank, written by this rank. Times are emulated. */
typedef struct harpe_sim_step {
    int64_t begin_ns, end_ns; /* the same for all ranks */
    double ended_at_s;        /* real time at the end of the step, seconds since 1970 */
    double energy_j;          /* energy of the rank's GPU */
    int64_t round;            /* round of the schedule that it ran; -1: none */
    uint64_t clock_writes;    /* number of changes of clock of the rank's GPU */
    int64_t host_late_ns; /* the longest delay with which this machine woke the rank, as GPU time */
} harpe_sim_step;

/* The meeting of all ranks. It computes a maximum, like an all-reduce. */
typedef struct harpe_sim_meeting {
    _Atomic uint32_t arrived;
    _Atomic uint32_t over; /* a futex: number of meetings held */
    _Atomic int64_t latest_ns, stop;
    int64_t agreed_ns, agreed_stop; /* written by the last rank to arrive */
} harpe_sim_meeting;

typedef struct harpe_sim_rank_state {
    _Atomic uint32_t bell; /* a futex: number of messages for this rank */
    _Atomic uint64_t mismatches, reconnects;
} harpe_sim_rank_state;

typedef struct harpe_sim_board {
    /* Set before ranks start. */
    int world_size;
    double time_scale;
    size_t message_count;
    char library[HARPE_SIM_TEXT_MAX]; /* of the emulator */
    char server_url[HARPE_SIM_TEXT_MAX];
    char job_key[64]; /* "": the ranks receive the job's id by a broadcast */
    /* Written by the launcher at any time. */
    _Atomic int32_t stop;           /* stop after the current step */
    _Atomic int32_t abort;          /* stop at once */
    _Atomic int32_t is_steady;      /* the plan runs, so the baseline may be measured */
    _Atomic int64_t straggler_step; /* applies from this training step on */
    int straggler_rank;
    double straggler_factor;
    /* Written by the ranks. */
    _Atomic uint32_t steps; /* a futex: steps that all ranks have finished, with the warm-up */
    _Atomic int32_t baseline_count; /* steps of the baseline that all ranks have finished */
    _Atomic int64_t turns_step;     /* the step after the baseline's first step; -1: none */
    char job_id[256];               /* set by rank 0 before job_id_is_known */
    _Atomic int32_t job_id_is_known;
    char shared[256]; /* data that rank 0 broadcasts, between two meetings */
    harpe_sim_meeting meeting;
    harpe_sim_rank_state rank[HARPE_SIM_RANK_MAX];
    /* For each message, the time at which its work was done; see rank.c. After the messages follow
     * HARPE_SIM_BASELINE_MAX and then HARPE_SIM_STEP_MAX rows of steps. A row gets memory when it
     * is written. */
    _Atomic int64_t message_ns[];
} harpe_sim_board;

/* These functions return the records of all ranks in a step. Steps of the baseline run at the
 * highest clocks, in turns with the steps of the plan. */
static inline harpe_sim_step *harpe_sim_baseline_at(const harpe_sim_board *board, int index) {
    return (harpe_sim_step *)(void *)&board->message_ns[board->message_count] +
           (size_t)index * (size_t)board->world_size;
}
static inline harpe_sim_step *harpe_sim_step_at(const harpe_sim_board *board, int step) {
    return harpe_sim_baseline_at(board, HARPE_SIM_BASELINE_MAX + step);
}

/* Returns the size of a board in bytes. */
size_t harpe_sim_board_size(int world_size, size_t message_count);

/* Makes a board for this process and its children. */
harpe_status harpe_sim_board_create(int world_size, size_t message_count, harpe_sim_board **out,
                                    harpe_error *error);
void harpe_sim_board_close(harpe_sim_board *board);

/* Sends a message to a rank. `message` is the message's index on the board. In each step, each
 * message is sent once, by one rank to one other rank. */
void harpe_sim_send(harpe_sim_board *board, int to, size_t message, int64_t time_ns);
/* Waits for a message to `rank` whose time is later than `after_ns`, the start of the step. Returns
 * false if the run is aborted. */
bool harpe_sim_receive(harpe_sim_board *board, int rank, size_t message, int64_t after_ns,
                       int64_t *time_ns);
/* Waits until all ranks have called this function. `*time_ns` then receives the latest time of all
 * ranks, and `*stop` tells whether any rank wants to stop. Returns false if the run is aborted. */
bool harpe_sim_meet(harpe_sim_board *board, int64_t *time_ns, bool *stop);

void harpe_sim_wake(_Atomic uint32_t *futex);
/* Waits until the value differs from `seen`, or until `milliseconds` have passed. May return
 * early. */
void harpe_sim_wait(_Atomic uint32_t *futex, uint32_t seen, int milliseconds);

/* ---- Server ---------------------------------------------------------------------------------- */

/* The coordination server of a simulated job, and the launcher's requests to the server. The server
 * is `harpe serve` in a separate process on a free port, or an existing server. */

typedef struct harpe_sim_server {
    bool is_in_world;
    int ranks;
    pid_t pid;                    /* 0: not started here, or not running */
    struct harpe_server *running; /* only in a world */
    struct harpe_disk *disk;      /* disk of the store, only in a world; owned */
    harpe_log log;
    int port;
    char url[HARPE_SIM_TEXT_MAX];
    char store[HARPE_SIM_TEXT_MAX];
    const char *scheduler;
    char *scheduler_args; /* owned */
    bool is_published;    /* the server of Zeus, which returns its first plan and has no pages */
} harpe_sim_server;

/* Starts a server with its store in `directory`, and waits until the server answers. With --server,
 * only stores the server's address and waits. */
harpe_status harpe_sim_server_start(const harpe_sim_options *options, double blocking_power_w,
                                    const char *directory, harpe_sim_server *server,
                                    harpe_error *error);
/* Kills the server and starts it again with the same store and port. */
harpe_status harpe_sim_server_restart(harpe_sim_server *server, harpe_error *error);
void harpe_sim_server_stop(harpe_sim_server *server);

/* Makes one request, which takes a few seconds at most: GET if `body` is NULL, otherwise POST. The
 * caller releases `*answer`, which may be NULL. Returns the HTTP status. Without an answer, returns
 * 0, and `*error` gives the reason. */
long harpe_sim_server_ask(const harpe_sim_server *server, const char *path, const char *body,
                          json_t **answer, harpe_error *error);

/* ---- Rank ------------------------------------------------------------------------------------ */

/* A rank of a simulated job, and its steps. */

/* One step of all ranks together. */
typedef struct harpe_sim_step_sum {
    bool is_whole;   /* all ranks have finished the step */
    int64_t round;   /* the earliest round that a rank ran; -1: none */
    double time_s;   /* of the emulated GPUs */
    double energy_j; /* of all GPUs */
    uint64_t clock_writes;
    double host_late_s; /* the longest delay with which this machine woke a rank, as GPU time */
    double ended_at_s;  /* real time at the end of the step, seconds since 1970 */
} harpe_sim_step_sum;

/* `ranks` is a row of the board. */
harpe_sim_step_sum harpe_sim_sum_step(const harpe_sim_board *board, const harpe_sim_step *ranks);
/* Returns a step as a JSON object, a new reference; NULL if memory runs out. */
json_t *harpe_sim_show_step(const harpe_sim_board *board, const harpe_sim_step *ranks);

/* ---- Launcher -------------------------------------------------------------------------------- */

/* The launcher of a simulated job. It does the work of torchrun, a cluster monitor and an observer
 * with a power meter. */

enum { HARPE_SIM_CHANGES = 32 };

/* A change of what the job does from a round on: it learns, or it runs plans. */
typedef struct harpe_sim_change {
    int64_t round;
    bool is_learned;
} harpe_sim_change;

/* The times of events. Steps are numbered as on the board, with the warm-up and without the
 * baseline; -1: the event has not happened. */
typedef struct harpe_sim_story {
    /* Before the first change, the job learns. If a server discards its plans, the job learns
     * again. If there are more changes than entries, the last entry is the newest change. */
    harpe_sim_change changes[HARPE_SIM_CHANGES];
    int change_count;
    int steady_step;    /* the first step in which all ranks ran plans */
    int straggler_step; /* step at which the server learned of the straggler */
    int answered_step;  /* the first step in which all ranks ran the plan for the straggler */
    int64_t straggler_round;
    int kill_step, restart_step;
    double gpu_back_s;    /* real time from the kill until the GPU's clocks were reset */
    double downtime_s;    /* real time until the ranks trained again */
    double server_gone_s; /* real time until the server answered again */
    int step_count;       /* number of steps that all ranks finished */
    json_t *frontier;     /* the server's last frontier, owned; NULL: none */
    json_t *job;          /* the server's page of the job at the end, owned; NULL: none */
} harpe_sim_story;

/* Returns the round of the first change to plans, or -1. */
int64_t harpe_sim_planned_round(const harpe_sim_story *story);

typedef struct harpe_sim_run {
    const harpe_sim_options *options;
    const harpe_sim_plan *plan;
    harpe_sim_board *board;
    harpe_sim_server *server;
    harpe_sim_story story;
} harpe_sim_run;

/* Runs one rank. The rank first trains without the optimizer; this part is left out if an earlier
 * start of the rank has done it. Then the rank trains with the optimizer until the board requests a
 * stop. Ranks are numbered by tensor parallel index first, then by data parallel index, then by
 * stage. */
harpe_status harpe_sim_rank_run(const harpe_sim_run *job, int rank, harpe_error *error);

/* Starts the ranks, plays all events, and returns when all ranks are gone. */
harpe_status harpe_sim_launch(harpe_sim_run *run, harpe_error *error);

/* ---- Ranks ----------------------------------------------------------------------------------- */

/* The processes of a job's ranks: real processes, or processes of a world (world/world.h). */

#define HARPE_SIM_END_LIMIT_S 60.0 /* time in which ranks must end by themselves */

typedef struct harpe_sim_ranks {
    const harpe_sim_run *run;
    struct harpe_sim_rank_process *processes; /* one for each rank */
} harpe_sim_ranks;

/* Prepares the ranks without starting them. */
harpe_status harpe_sim_ranks_init(const harpe_sim_run *run, harpe_sim_ranks *out,
                                  harpe_error *error);
void harpe_sim_ranks_free(harpe_sim_ranks *ranks);

/* Starts all ranks. */
harpe_status harpe_sim_ranks_start(harpe_sim_ranks *ranks, harpe_error *error);
/* Returns the number of ranks that have not ended. `*failed` receives a rank that has ended in an
 * unexpected way since the last call; -1: none. */
int harpe_sim_ranks_left(harpe_sim_ranks *ranks, int *failed);
void harpe_sim_ranks_kill(harpe_sim_ranks *ranks, int rank);
/* Ends the ranks. A rank ends when it next waits for a message. If a rank does not end within
 * HARPE_SIM_END_LIMIT_S, calls `late` and kills the rank. */
void harpe_sim_ranks_end(harpe_sim_ranks *ranks, void (*late)(void *user, int rank), void *user);

/* ---- Run ------------------------------------------------------------------------------------- */

/* A run is a whole simulated job, from the temporary directory to the report. */

/* Reports a run. During the call, the run's board, server and files still exist. */
typedef harpe_status harpe_sim_report(const harpe_sim_run *run, harpe_error *error);

/* How a run is staged. With zeros, the run is that of `harpe train-sim`. */
typedef struct harpe_sim_staging {
    /* Runs the ranks and returns when all are gone. NULL: harpe_sim_launch. */
    harpe_status (*launch)(harpe_sim_run *run, harpe_error *error);
    harpe_sim_report *report; /* called if the job succeeded; NULL: none */
    /* For a run in a world. harpe_sim_run_job sets the programs and the time of the world. NULL:
     * the order of the threads is fixed, and the seed is the job's. */
    const harpe_world_options *world;
    const harpe_transport_options *messages; /* NULL: without faults */
} harpe_sim_staging;

/* Runs the job, and removes all files, GPUs and processes of the run, even if this process is
 * killed. The caller records signals (base/terminal_progress.h), which end the run. */
harpe_status harpe_sim_run_job(const harpe_sim_options *options, const harpe_sim_staging *staging,
                               harpe_error *error);

/* ---- Groups of steps ------------------------------------------------------------------------- */

/* The times and energies of the steps of a simulated run, grouped by the plan that ran in them. */

typedef enum harpe_sim_kind {
    HARPE_SIM_HIGHEST_CLOCKS, /* the baseline, in turns with the plan */
    HARPE_SIM_NO_SCHEDULE,    /* before the server's first schedule */
    HARPE_SIM_LEARNING,
    HARPE_SIM_PLANNED,
    HARPE_SIM_UNANSWERED, /* with a straggler, and still with the plan from before the straggler */
    HARPE_SIM_ANSWERED,   /* with a straggler and the server's plan for it */
    HARPE_SIM_KINDS,
} harpe_sim_kind;

/* Steps of one group. Times are those of the emulated GPUs, and energies are sums over all GPUs.
 * The typical time and energy of a step are medians, so that a delay of this machine has little
 * influence. */
typedef struct harpe_sim_stretch {
    const char *name; /* for people */
    int steps;
    int64_t first_round, last_round;       /* -1: none */
    double total_s, total_j, clock_writes; /* sums */
    double time_s, energy_j;               /* medians */
    double deviation_j;                    /* standard deviation, estimated from the median
                                            * absolute deviation */
    double *times_s;                       /* of each step, sorted */
    double *energies_j;                    /* used only while the summary is made */
} harpe_sim_stretch;

/* The slowness of steps, compared with the typical step at the highest clocks. Steps with a
 * straggler do not count. */
typedef struct harpe_sim_slow {
    int steps;        /* steps that were compared */
    int slowest;      /* number of the slowest step; -1: none */
    double slowest_s; /* time of the slowest step */
    double late_s;    /* how late this machine woke a rank in the slowest step */
    int slow_steps;   /* steps that were slower by more than HARPE_SIM_SLOW_SHARE */
    int late_steps;   /* slow steps in which a rank woke up late by more than that share */
} harpe_sim_slow;

#define HARPE_SIM_SLOW_SHARE 0.01

typedef struct harpe_sim_summary {
    harpe_sim_stretch kinds[HARPE_SIM_KINDS];
    harpe_sim_slow slow;
} harpe_sim_summary;

/* Sums up the steps that all ranks have finished. Two kinds of steps are a warm-up and do not
 * count: those before the optimizer starts, and those of the plan before the first step of the
 * baseline. */
harpe_status harpe_sim_summary_make(const harpe_sim_run *run, harpe_sim_summary *out,
                                    harpe_error *error);
/* Returns the half-width of the 95 % interval of the energy that these steps save, in percent of
 * the energy of the baseline. The interval covers the noise of these steps and the noise of the
 * baseline. Returns INFINITY if there are fewer than two of these steps, or of the baseline's. */
double harpe_sim_summary_uncertainty(const harpe_sim_summary *summary, harpe_sim_kind kind);
void harpe_sim_summary_free(harpe_sim_summary *summary);

/* ---- Emulated GPUs --------------------------------------------------------------------------- */

/* Prepares emulated GPUs for a command or a simulation: finds the emulator's library, makes a
 * cluster, sets the environment variables that name it, and removes the cluster. The library
 * (emulator/) implements the GPUs. Also runs measured workloads on such GPUs. */

/* Values of the environment variables HARPE_EMULATOR_...; NULL: not set. */
typedef struct harpe_emulated_options {
    const char *gpus;
    const char *time_scale;
    const char *blocking_power;
    const char *noise;
    const char *seed;
    const char *physics; /* a file's path is made absolute */
    const char *faults;
    const char *faults_file;
    const char *profile;
    const char *workload; /* the workload of harpe_emulator_workload_step */
    const char *torch;    /* "1": PyTorch counts the GPUs as CUDA devices */
    const char *cluster;  /* NULL: a new cluster */
} harpe_emulated_options;

typedef struct harpe_emulated_cluster {
    void *library; /* handle of dlopen */
    bool is_own;
    char name[128];
} harpe_emulated_cluster;

/* A function of the emulator's library. A row without a name ends a list. */
typedef struct harpe_emulated_symbol {
    const char *name;
    void **function;
} harpe_emulated_symbol;

/* Opens the emulator's library without a cluster, and finds the functions. The caller calls dlclose
 * if `*library` is not NULL, also after a failure. */
harpe_status harpe_emulated_library_load(const char *path, const harpe_emulated_symbol *symbols,
                                         void **library, harpe_error *error);

/* Changes the environment of this process and of the processes that it starts, and joins the
 * cluster, so that it exists until _close. Signals that would kill the process must be blocked or
 * handled. */
harpe_status harpe_emulated_cluster_open(const harpe_emulated_options *options,
                                         harpe_emulated_cluster *out, harpe_error *error);
/* Leaves the cluster, and waits at most `wait_s` seconds for other processes to leave. A cluster
 * that this process has made for itself is always removed. A shared cluster stays while other
 * processes use it. */
void harpe_emulated_cluster_close(harpe_emulated_cluster *cluster, double wait_s);

/* ---- Workload -------------------------------------------------------------------------------- */

/* A workload is a program that behaves like a measured program (emulator/harpe_emulator.h). It runs
 * iterations on an emulated GPU, and marks each iteration as a step for `harpe power-limit run`. In
 * tests of the code that measures and steers programs, it stands for a user's program. */

typedef struct harpe_workload_options {
    int64_t steps;        /* 0: without end */
    double noise_share;   /* relative standard deviation of the time of a step */
    double phase_s;       /* GPU time until the next workload of a list begins */
    double drift_share_h; /* relative growth of the time of a step in an hour of GPU time */
    bool prints_steps;    /* prints a line "step N" at the end of each step */
} harpe_workload_options;

typedef struct harpe_workload_result {
    double step_s, step_j; /* means; emulated time, energy of the GPU */
} harpe_workload_result;

/* Returns true if this process runs on GPUs that another process has made. */
bool harpe_workload_has_gpus(void);

/* Runs the workloads of HARPE_EMULATOR_WORKLOAD one after the other, and begins with the first
 * again after the last. They run on the first GPU of CUDA_VISIBLE_DEVICES if that is an index,
 * otherwise on GPU 0. HARPE_EMULATOR_SEED is the seed of the noise. */
harpe_status harpe_workload_run(const harpe_workload_options *options,
                                harpe_workload_result *result, harpe_error *error);

/* Prints the names of the workloads. */
harpe_status harpe_workload_list(harpe_error *error);

#endif
