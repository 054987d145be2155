/* SPDX-License-Identifier: Apache-2.0 */
/* The input of `harpe plan` and `harpe evaluate`: a profile, a schedule, a blocking power and more,
 * as flags, and as the problem that is made from the flags. `harpe plan` may get a graph instead.
 * The subcommands solve the problem. */
#ifndef HARPE_CLI_PLAN_PROBLEM_OPTIONS_H
#define HARPE_CLI_PLAN_PROBLEM_OPTIONS_H

#include <argp.h>
#include <jansson.h>
#include <stddef.h>

#include <harpe/graph.h>
#include <harpe/plan.h>

/* Initialise with zeros. The argp parser fills in the first half, and harpe_problem_input_load the
 * second. */
typedef struct harpe_problem_input {
    const char *profile_path;
    int microbatches; /* 0: not given */
    int ranks;        /* --num-stages; 0: not given */
    int chunks;       /* 0: the schedule's default */
    int group_size;   /* --microbatch-group-size; 0: the schedule's default */
    bool overlaps_moe_expert_parallel_comm;
    int gpus_per_stage; /* 0: not given */
    const char *schedule_name;
    bool schedule_is_file;
    char **prologue; /* NULL-terminated, owned; NULL: none */
    char **epilogue;
    double *blocking_power_w; /* owned */
    size_t blocking_power_count;
    const char *wait_powers_path;  /* NULL: each rank has one power */
    const char *switch_table_path; /* NULL: no table of switching latencies */
    double overhead_power_w;
    double transfer_time_s;
    harpe_cost_model cost_model;
    double unit_time_s;
    double noise_factor;
    uint64_t memory_limit_bytes;
    const char *graph_path; /* set by the subcommand; NULL: a profile with a schedule */

    harpe_graph *graph; /* NULL: a profile with a schedule */
    harpe_profile *profile;
    harpe_wait_powers *wait_powers; /* NULL: none */
    harpe_schedule *schedule;
    harpe_problem *problem;
} harpe_problem_input;

/* A child parser whose input is a harpe_problem_input. It checks every value, and checks that no
 * required flag is missing. */
extern const struct argp harpe_problem_argp;

/* Reads the value of --switch-latency: a number of seconds, "profile", or a CSV file, which
 * harpe_problem_input_load reads. The problem's latencies are then those of the file. */
void harpe_flag_switch_latency(const struct argp_state *state, const char *text,
                               harpe_problem_input *input, harpe_clock_switch *change);

/* Reads the profile, builds or reads the schedule, and joins them; or reads the graph. */
harpe_status harpe_problem_input_load(harpe_problem_input *input, harpe_error *error);
void harpe_problem_input_free(harpe_problem_input *input);

/* Do parts of this for a command that reads profiles itself: make the schedule for input->profile,
 * and return the options of a pipeline's problem. */
harpe_status harpe_problem_input_schedule(harpe_problem_input *input, harpe_error *error);
harpe_problem_options harpe_problem_input_options(const harpe_problem_input *input);

/* Returns the flags for programs: one JSON object with flags as keys. */
json_t *harpe_problem_input_arguments(const harpe_problem_input *input);
/* Returns schedule, ranks, stages, microbatches, instructions and blocking power. */
json_t *harpe_problem_input_json(const harpe_problem_input *input);
/* Prints the same values in one line, for people. */
void harpe_problem_input_print(const harpe_problem_input *input);

/* Return the blocking power of one GPU of a rank, and that of all GPUs of all ranks together. If
 * the kinds of waits of a rank have different powers, the highest counts. */
double harpe_problem_input_blocking_power_w(const harpe_problem_input *input, int rank);
double harpe_problem_input_total_blocking_power_w(const harpe_problem_input *input);

#endif
