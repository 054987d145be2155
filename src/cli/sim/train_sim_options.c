/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `harpe train-sim`. docs/simulation.md describes the values. */
#include "cli/sim/train_sim_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/profile.h>

#include "base/number.h"
#include "cli/command.h"

#define REAL_LIMIT_S 600.0
#define VIRTUAL_LIMIT_S 20000.0 /* of the GPUs' time */

enum flag {
    FLAG_PROFILE = 'i',
    FLAG_QUIET = 'q',
    FLAG_GPU = 0x100,
    FLAG_IMBALANCE,
    FLAG_PHYSICS,
    FLAG_ANTICIPATE,
    FLAG_FORWARD_TIME,
    FLAG_SEED,
    FLAG_POWER,
    FLAG_SCHEDULE,
    FLAG_CHUNKS,
    FLAG_GROUP_SIZE,
    FLAG_OVERLAP,
    FLAG_MICROBATCHES,
    FLAG_PP,
    FLAG_DP,
    FLAG_TP,
    FLAG_STEPS,
    FLAG_REAL_TIME,
    FLAG_TIME_SCALE,
    FLAG_LEARNING_LIMIT,
    FLAG_SCHEDULER,
    FLAG_SCHEDULER_ARGS,
    FLAG_PLAN,
    FLAG_OFFLINE,
    FLAG_SERVER,
    FLAG_CA_FILE,
    FLAG_STRAGGLER,
    FLAG_KILL_RANK,
    FLAG_RESTART_SERVER,
    FLAG_MPI,
    FLAG_JSON,
    FLAG_LOG_STEPS,
};

static const struct argp_option flags[] = {
    {NULL, 0, NULL, 0, "The job:", 1},
    {"inst-profile", FLAG_PROFILE, "FILE", 0,
     "Measured profile that the GPUs follow (default: a synthesised one)", 1},
    {"p2p-power", FLAG_POWER, "W", 0,
     "Power of a GPU that waits for a peer (default: the GPU model's own)", 1},
    {"pp", FLAG_PP, "N", 0, "Ranks of a pipeline (4)", 1},
    {"stages", FLAG_PP, "N", OPTION_ALIAS, NULL, 1},
    {"dp", FLAG_DP, "N", 0, "Pipelines that share the data (1)", 1},
    {"tp", FLAG_TP, "N", 0, "GPUs that share a stage (1)", 1},
    {"num-mbs", FLAG_MICROBATCHES, "N", 0, "Microbatches of a step (8)", 1},
    {"schedule", FLAG_SCHEDULE, "NAME", 0, "Pipeline schedule (1f1b); see harpe plan --help", 1},
    {"chunks", FLAG_CHUNKS, "N", 0, "Stages per rank, if the schedule has several", 1},
    {"microbatch-group-size", FLAG_GROUP_SIZE, "N", 0, "interleaved-1f1b: see harpe plan --help",
     1},
    {"overlap-moe-expert-parallel-comm", FLAG_OVERLAP, NULL, 0,
     "interleaved-1f1b and 1f1b: see harpe plan --help", 1},
    {"gpu", FLAG_GPU, "MODEL", 0, "Emulated GPU: V100, A40, A100 or H100 (A100)", 1},
    {"physics", FLAG_PHYSICS, "ideal|real|FILE", 0,
     "How the GPUs differ from ideal ones; see harpe emulate --help (ideal)", 1},
    {"imbalance", FLAG_IMBALANCE, "X", 0, "Synthesised: slowest stage divided by the mean (1.15)",
     1},
    {"forward-time", FLAG_FORWARD_TIME, "S", 0, "Synthesised: mean forward time (0.05)", 1},
    {"seed", FLAG_SEED, "N", 0, "Seed of the synthesised profile and of the physics (1)", 1},
    {NULL, 0, NULL, 0, "The optimizer:", 2},
    {"anticipate", FLAG_ANTICIPATE, NULL, 0,
     "Set clocks that change late before their instructions begin", 2},
    {"offline", FLAG_OFFLINE, NULL, 0,
     "Serve the plan of T_min made from the profile, instead of learning it online", 2},
    {"plan", FLAG_PLAN, "FILE.py", 0, "Serve this plan", 2},
    {"scheduler", FLAG_SCHEDULER, "NAME", 0, "The server's scheduler (Perseus without a profile)",
     2},
    {"scheduler-args", FLAG_SCHEDULER_ARGS, "JSON", 0, "Its arguments", 2},
    {"server", FLAG_SERVER, "URL", 0,
     "Use a running server, with its own scheduler; implies --real-time", 2},
    {"ca-file", FLAG_CA_FILE, "FILE", 0, "Trust these certificate authorities (PEM)", 2},
    {NULL, 0, NULL, 0, "The run:", 3},
    {"steps", FLAG_STEPS, "N", 0, "Steps to measure after the plan has started (10)", 3},
    {"real-time", FLAG_REAL_TIME, NULL, 0,
     "Run in real processes that wait for real time, and over HTTP", 3},
    {"time-scale", FLAG_TIME_SCALE, "X", 0,
     "In real time: the GPUs' time runs X times as fast (10); implies --real-time", 3},
    {"learning-limit", FLAG_LEARNING_LIMIT, "S", 0,
     "Give up if there is no plan after S seconds (in real time 600, otherwise 20000)", 3},
    {"straggler", FLAG_STRAGGLER, "RANK@STEP=FACTOR", 0,
     "Throttle the rank's GPU from this step on, and report it to the server", 3},
    {"kill-rank", FLAG_KILL_RANK, "RANK@STEP", 0, "Kill the rank, and restart the job", 3},
    {"restart-server", FLAG_RESTART_SERVER, "STEP", 0,
     "Kill the server, and restart it with its store", 3},
    {"mpi", FLAG_MPI, NULL, 0, "Run as a rank of mpirun, and communicate through MPI", 3},
    {NULL, 0, NULL, 0, "Output:", 4},
    {"json", FLAG_JSON, NULL, 0, "Print the result as JSON", 4},
    {"log-steps", FLAG_LOG_STEPS, "FILE", 0, "Write a line of JSON to FILE after each step", 4},
    {"quiet", FLAG_QUIET, NULL, 0, "Show no progress and no warnings", 4},
    {0},
};

/* Parses an event, "[RANK@][+]STEP[=FACTOR]". */
static void parse_event(const struct argp_state *state, const char *flag, const char *text,
                        bool has_rank, bool has_factor, harpe_sim_event *event) {
    const char *at = has_rank ? strchr(text, '@') : NULL;
    const char *equals = has_factor ? strchr(text, '=') : NULL;
    const char *step = at ? at + 1 : text;
    bool is_after_steady = *step == '+';
    step += is_after_steady;
    size_t step_length = equals && equals > step ? (size_t)(equals - step) : strlen(step);
    int64_t rank = 0, number = 0;
    double factor = 1;
    bool is_good =
        harpe_parse_int(step, step_length, &number) && number >= 0 && number < HARPE_SIM_STEP_MAX;
    if (has_rank)
        is_good = is_good && at && harpe_parse_int(text, (size_t)(at - text), &rank) && rank >= 0 &&
                  rank < HARPE_SIM_RANK_MAX;
    if (has_factor)
        is_good = is_good && equals &&
                  harpe_parse_double(equals + 1, strlen(equals + 1), &factor) && factor >= 1 &&
                  factor <= 100;
    if (!is_good)
        harpe_flag_fail(state,
                        "%s: expected %s%s%s, found '%s'; a step such as +5 counts from the "
                        "steady state",
                        flag, has_rank ? "RANK@" : "", "STEP", has_factor ? "=FACTOR" : "", text);
    *event = (harpe_sim_event){.is_given = true,
                               .is_after_steady = is_after_steady,
                               .rank = (int)rank,
                               .step = (int)number,
                               .factor = factor};
}

static error_t parse_job_flag(int key, char *argument, struct argp_state *state) {
    harpe_sim_options *options = state->input;
    switch (key) {
    case FLAG_PROFILE: options->profile_path = argument; return 0;
    case FLAG_POWER:
        options->blocking_power_w =
            harpe_flag_double_above(state, "--p2p-power", argument, 0, 1000);
        return 0;
    case FLAG_PP:
        options->pp = harpe_flag_int(state, "--pp", argument, 1, HARPE_SIM_RANK_MAX);
        return 0;
    case FLAG_DP:
        options->dp = harpe_flag_int(state, "--dp", argument, 1, HARPE_SIM_RANK_MAX);
        return 0;
    case FLAG_TP:
        options->tp = harpe_flag_int(state, "--tp", argument, 1, HARPE_SIM_RANK_MAX);
        return 0;
    case FLAG_MICROBATCHES:
        options->microbatches = harpe_flag_int(state, "--num-mbs", argument, 1, 10000);
        return 0;
    case FLAG_SCHEDULE: options->schedule_name = argument; return 0;
    case FLAG_CHUNKS:
        options->chunks = harpe_flag_int(state, "--chunks", argument, 1, 64);
        return 0;
    case FLAG_GROUP_SIZE:
        options->group_size = harpe_flag_int(state, "--microbatch-group-size", argument, 1, 10000);
        return 0;
    case FLAG_OVERLAP: options->overlaps_moe_expert_parallel_comm = true; return 0;
    case FLAG_GPU:
        options->gpu_model = harpe_synth_gpu_models()[harpe_flag_choice(state, "--gpu", argument,
                                                                        harpe_synth_gpu_models())];
        return 0;
    case FLAG_PHYSICS: options->physics = argument; return 0;
    case FLAG_IMBALANCE:
        options->imbalance = harpe_flag_double(state, "--imbalance", argument, 1, 10);
        return 0;
    case FLAG_FORWARD_TIME:
        options->forward_time_s = harpe_flag_double(state, "--forward-time", argument, 0.001, 100);
        return 0;
    case FLAG_SEED:
        options->seed = (uint64_t)harpe_flag_int(state, "--seed", argument, 0, INT32_MAX);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void check_json(const struct argp_state *state, const char *text) {
    json_t *value = json_loads(text, 0, NULL);
    bool is_object = json_is_object(value);
    json_decref(value);
    if (!is_object)
        harpe_flag_fail(state, "--scheduler-args: expected a JSON object, found '%s'", text);
}

static void check_together(const struct argp_state *state, const harpe_sim_options *options) {
    int ranks = harpe_sim_world_size(options);
    int ways = options->is_offline + (options->plan_path != NULL) + (options->scheduler != NULL) +
               (options->server_url != NULL);
    if (ranks > HARPE_SIM_RANK_MAX)
        harpe_flag_fail(state, "--pp, --dp and --tp: %d ranks are more than the emulator's %d GPUs",
                        ranks, HARPE_SIM_RANK_MAX);
    if (ways > 1)
        harpe_flag_fail(state, "--offline, --plan, --scheduler and --server exclude each other");
    if (options->straggler.rank >= ranks || options->kill_rank.rank >= ranks)
        harpe_flag_fail(state, "--straggler, --kill-rank: ranks are 0 to %d", ranks - 1);
    if (options->restart_server.is_given && options->server_url)
        harpe_flag_fail(state, "--restart-server: the server at --server is not ours");
    if (options->kill_rank.is_given && options->is_mpi)
        harpe_flag_fail(state, "--kill-rank: mpirun would end the whole job");
}

/* Other programs need real time: mpirun, a running server, and schedulers that are not Harpe's own.
 */
static void choose_time(harpe_sim_options *options) {
    const char *scheduler = options->scheduler ? options->scheduler : "";
    if (options->is_mpi || options->server_url || strpbrk(scheduler, ":/."))
        options->is_real_time = true;
    if (!options->is_real_time) options->time_scale = 1;
    if (options->learning_limit_s == 0)
        options->learning_limit_s = options->is_real_time ? REAL_LIMIT_S : VIRTUAL_LIMIT_S;
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    harpe_sim_options *options = state->input;
    switch (key) {
    case FLAG_STEPS:
        options->steps = harpe_flag_int(state, "--steps", argument, 1, HARPE_SIM_STEP_MAX / 2);
        return 0;
    case FLAG_REAL_TIME: options->is_real_time = true; return 0;
    case FLAG_TIME_SCALE:
        options->is_real_time = true;
        options->time_scale = harpe_flag_double(state, "--time-scale", argument, 0.1, 1000);
        return 0;
    case FLAG_LEARNING_LIMIT:
        options->learning_limit_s =
            harpe_flag_double_above(state, "--learning-limit", argument, 0, 1e6);
        return 0;
    case FLAG_SCHEDULER: options->scheduler = argument; return 0;
    case FLAG_PLAN: options->plan_path = argument; return 0;
    case FLAG_ANTICIPATE: options->may_anticipate = true; return 0;
    case FLAG_OFFLINE: options->is_offline = true; return 0;
    case FLAG_SERVER: options->server_url = argument; return 0;
    case FLAG_CA_FILE: /* for the processes of the ranks, too */
        return setenv("HARPE_CA_FILE", argument, 1) == 0 ? 0 : errno;
    case FLAG_STRAGGLER:
        parse_event(state, "--straggler", argument, true, true, &options->straggler);
        return 0;
    case FLAG_KILL_RANK:
        parse_event(state, "--kill-rank", argument, true, false, &options->kill_rank);
        return 0;
    case FLAG_RESTART_SERVER:
        parse_event(state, "--restart-server", argument, false, false, &options->restart_server);
        return 0;
    case FLAG_MPI: options->is_mpi = true; return 0;
    case FLAG_JSON: options->is_json = true; return 0;
    case FLAG_LOG_STEPS: options->step_log_path = argument; return 0;
    case FLAG_QUIET: options->is_quiet = true; return 0;
    case ARGP_KEY_ARG: harpe_flag_fail(state, "train-sim takes no arguments, got '%s'", argument);
    case FLAG_SCHEDULER_ARGS:
        options->scheduler_args = argument;
        check_json(state, argument);
        return 0;
    case ARGP_KEY_END:
        check_together(state, options);
        choose_time(options);
        return 0;
    default: return parse_job_flag(key, argument, state);
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .doc = "Train on emulated GPUs with everything else real: the optimizer of each rank, its "
           "controller, the coordination server. They run in virtual time, in one process, and "
           "print the same figures on every machine; --real-time runs them in processes of their "
           "own. Prints the time and energy at the "
           "highest clocks, the predictions of the plan, and the time and energy with the "
           "optimizer.\vExamples:\n  harpe train-sim\n  harpe train-sim --inst-profile gpt3.csv "
           "--p2p-power 84 --pp 8 --num-mbs 32 \\\n      --offline\n\n"
           "See also: man harpe-train-sim",
};

void harpe_train_sim_parse_options(int argc, char **argv, harpe_sim_options *options) {
    *options = (harpe_sim_options){.gpu_model = "A100",
                                   .imbalance = HARPE_SIM_IMBALANCE,
                                   .seed = 1,
                                   .blocking_power_w = -1,
                                   .schedule_name = "1f1b",
                                   .microbatches = 8,
                                   .pp = 4,
                                   .dp = 1,
                                   .tp = 1,
                                   .steps = 10,
                                   .time_scale = 10,
                                   .log = harpe_command_log("harpe train-sim")};
    argp_parse(&argument_parser, argc, argv, 0, NULL, options);
}
