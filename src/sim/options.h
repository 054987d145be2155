/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a simulated training job. Only its GPUs are emulated. Every part of src/sim uses
 * the options; src/cli/sim fills them in from the command line. */
#ifndef HARPE_SIM_OPTIONS_H
#define HARPE_SIM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/callback.h>

#define HARPE_SIM_IMBALANCE 1.15 /* work of the slowest stage divided by the mean */

enum {
    HARPE_SIM_RANK_MAX = 4096, /* the number of GPUs of the emulator */
    HARPE_SIM_STEP_MAX = 20000,
    HARPE_SIM_TEXT_MAX = 512,
    HARPE_SIM_PATH_MAX = 4096,
    HARPE_SIM_WARM_UP_STEPS = 3,   /* before the optimizer starts; they are not counted */
    HARPE_SIM_BASELINE_STEPS = 10, /* about so many are spread over the steps with the plan */
    HARPE_SIM_BASELINE_MAX = 32,   /* also those that run again after a rank was killed */
};

/* An event of the command line, such as RANK@STEP=FACTOR. A step with '+' counts from the steady
 * state. */
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
    bool has_no_report;  /* nobody asks for the prediction of the best plan, which takes long */
    bool looks_rarely;   /* ranks look less often at energy and measured steps, as in large jobs */
    bool may_anticipate; /* clocks that change late are set before their instructions begin */
    const char *server_url; /* NULL: start a server */
    harpe_sim_event straggler, kill_rank, restart_server;
    const char *step_log_path; /* a file that gets a line for each step; NULL: none */
    bool is_real_time; /* real processes and HTTP; otherwise all run in a world (world/world.h) */
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

#endif
