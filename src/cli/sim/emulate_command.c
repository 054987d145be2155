/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe emulate`: makes a cluster of emulated GPUs, runs a command on it, and removes the cluster
 * when the command has ended. Without a command it runs a measured workload: in this process if
 * another `harpe emulate` has made the GPUs, otherwise as a command that is a process of its own.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/profile.h>

#include "base/error.h"
#include "cli/commands.h"
#include "sim/cluster.h"

typedef struct emulate_arguments {
    harpe_emulated_options options;
    harpe_workload_options workload;
    bool makes_gpus; /* an option says what the GPUs are */
    char **command;  /* NULL: the workload */
} emulate_arguments;

enum flag {
    FLAG_GPUS = 'g',
    FLAG_TIME_SCALE = 's',
    FLAG_FAULTS = 'f',
    FLAG_PROFILE = 'p',
    FLAG_CLUSTER = 'c',
    FLAG_FAULTS_FILE = 0x400,
    FLAG_NOISE,
    FLAG_PHYSICS,
    FLAG_SEED,
    FLAG_VISIBLE_TO_TORCH,
    FLAG_WORKLOAD,
    FLAG_STEPS,
    FLAG_STEP_NOISE,
    FLAG_PHASE,
    FLAG_DRIFT,
    FLAG_PRINT_STEPS,
};

static const struct argp_option flags[] = {
    {"gpus", FLAG_GPUS, "LIST", 0,
     "GPUs of the machine: 4xA100, or a mixture such as 2xA100,1xV100 (default 1xA100; models "
     "V100, A40, A100, A100-PCIe, H100, GH200; at most 4096)",
     1},
    {"time-scale", FLAG_TIME_SCALE, "X", 0, "The GPUs' time runs X times as fast (default 1)", 1},
    {"profile", FLAG_PROFILE, "FILE", 0, "Measured profile that simulated instructions follow", 1},
    {"faults", FLAG_FAULTS, "LIST", 0,
     "Faults, such as no_permission,slow_set=200 (the manual lists all)", 1},
    {"faults-file", FLAG_FAULTS_FILE, "FILE", 0,
     "Faults from a file, which may change while the command runs", 1},
    {"physics", FLAG_PHYSICS, "ideal|real|FILE", 0,
     "How GPUs differ from ideal ones: late clocks, variability and more (default ideal)", 1},
    {"noise", FLAG_NOISE, "PERCENT", 0,
     "Standard deviation of the noise of power sensors; 0: no noise (default 0.5)", 1},
    {"seed", FLAG_SEED, "N", 0, "Seed of the noise and of the physics (default 1)", 1},
    {"cluster", FLAG_CLUSTER, "NAME", 0,
     "Share the GPUs with other commands that give this name (default: separate GPUs)", 1},
    {"visible-to-torch", FLAG_VISIBLE_TO_TORCH, NULL, 0,
     "PyTorch counts the GPUs as CUDA devices, although it cannot compute on them", 1},
    {"workload", FLAG_WORKLOAD, "NAME[,NAME...]|list", 0,
     "Workloads that were measured on an A100. Without COMMAND, run a program like them", 2},
    {"steps", FLAG_STEPS, "N", 0, "Iterations of the workload; 0: without end (default 100)", 2},
    {"step-noise", FLAG_STEP_NOISE, "PERCENT", 0,
     "Standard deviation of the time of an iteration (default 0)", 2},
    {"phase", FLAG_PHASE, "S", 0,
     "The next workload of the list begins after this time of the GPUs (default 30)", 2},
    {"drift", FLAG_DRIFT, "PERCENT", 0,
     "The time of an iteration grows by this in an hour (default 0)", 2},
    {"print-steps", FLAG_PRINT_STEPS, NULL, 0, "Print a line after each iteration", 2},
    {0},
};

/* Handles the options of the workload that runs without a command. */
static error_t parse_workload_flag(int key, char *argument, struct argp_state *state) {
    emulate_arguments *arguments = state->input;
    harpe_workload_options *workload = &arguments->workload;
    switch (key) {
    case FLAG_WORKLOAD: arguments->options.workload = argument; return 0;
    case FLAG_STEPS:
        workload->steps = harpe_flag_int(state, "--steps", argument, 0, INT_MAX);
        return 0;
    case FLAG_STEP_NOISE:
        workload->noise_share = harpe_flag_double(state, "--step-noise", argument, 0, 20) / 100;
        return 0;
    case FLAG_PHASE:
        workload->phase_s = harpe_flag_double(state, "--phase", argument, 0.001, 1e6);
        return 0;
    case FLAG_DRIFT:
        workload->drift_share_h = harpe_flag_double(state, "--drift", argument, -90, 1000) / 100;
        return 0;
    case FLAG_PRINT_STEPS: workload->prints_steps = true; return 0;
    case ARGP_KEY_NO_ARGS:
        if (arguments->options.workload || getenv("HARPE_EMULATOR_WORKLOAD")) return 0;
        harpe_flag_fail(
            state,
            "the command is missing; for example: harpe emulate --gpus 4xA100 -- harpe gpus");
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    emulate_arguments *arguments = state->input;
    switch (key) {
    case FLAG_GPUS:
        arguments->options.gpus = argument;
        arguments->makes_gpus = true;
        return 0;
    case FLAG_TIME_SCALE:
        (void)harpe_flag_double(state, "--time-scale", argument, 0.001, 1e6);
        arguments->options.time_scale = argument;
        return 0;
    case FLAG_NOISE:
        (void)harpe_flag_double(state, "--noise", argument, 0, 20);
        arguments->options.noise = argument;
        return 0;
    case FLAG_SEED:
        (void)harpe_flag_int(state, "--seed", argument, 0, INT_MAX);
        arguments->options.seed = argument;
        return 0;
    case FLAG_PHYSICS: arguments->options.physics = argument; return 0;
    case FLAG_PROFILE: arguments->options.profile = argument; return 0;
    case FLAG_FAULTS: arguments->options.faults = argument; return 0;
    case FLAG_FAULTS_FILE: arguments->options.faults_file = argument; return 0;
    case FLAG_CLUSTER: arguments->options.cluster = argument; return 0;
    case FLAG_VISIBLE_TO_TORCH: arguments->options.torch = "1"; return 0;
    case ARGP_KEY_ARGS: arguments->command = state->argv + state->next; return 0;
    default: return parse_workload_flag(key, argument, state);
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc = "COMMAND [ARGUMENT...]\n--workload NAME",
    .doc = "Run a command on emulated GPUs: programs that load NVIDIA's management library "
           "(libnvidia-ml.so.1) find the emulator in its place.\vExamples:\n"
           "  harpe emulate --gpus 4xA100 -- harpe gpus\n"
           "  harpe emulate --gpus A100-PCIe --workload gpt2-bf16-b8-s128\n\nSee also: man "
           "harpe-emulate",
};

/* ---- The command ----------------------------------------------------------------------------- */

/* Blocks signals while the cluster exists, so that no signal ends this process before it has
 * removed the cluster. */
static harpe_status emulate(const harpe_emulated_options *options, char **command, int *exit_code,
                            harpe_error *error) {
    static const int held[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                               SIGUSR2, SIGCONT, SIGCHLD, 0};
    sigset_t signals, before;
    harpe_command_block(held, &signals, &before);
    harpe_emulated_cluster cluster;
    harpe_status status = harpe_emulated_cluster_open(options, &cluster, error);
    if (status == HARPE_OK) {
        *exit_code = harpe_command_run("emulate", command, &signals, &before);
        harpe_emulated_cluster_close(&cluster, 0);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* Refuses a bad profile. The emulator reads the profile when the first instruction runs, and cannot
 * refuse it then. */
static harpe_status check_profile(const char *path, harpe_error *error) {
    harpe_profile *profile;
    if (!path) return HARPE_OK;
    harpe_status status = harpe_profile_read_csv(path, &profile, error);
    if (status != HARPE_OK) return status;
    const char *warning;
    for (size_t i = 0; (warning = harpe_profile_warning_at(profile, i)); i++)
        fprintf(stderr, "harpe emulate: warning: %s\n", warning);
    harpe_profile_free(profile);
    return HARPE_OK;
}

/* Runs the workload on GPUs that exist, and prints what an iteration took. */
static harpe_status run_workload(const emulate_arguments *arguments, harpe_error *error) {
    harpe_workload_result result;
    const char *name = arguments->options.workload;
    if (name && setenv("HARPE_EMULATOR_WORKLOAD", name, 1) != 0) return harpe_fail_memory(error);
    harpe_status status = harpe_workload_run(&arguments->workload, &result, error);
    if (status == HARPE_OK)
        printf("%s: %" PRId64 " iterations of %.3f ms and %.4f J\n",
               getenv("HARPE_EMULATOR_WORKLOAD"), arguments->workload.steps, result.step_s * 1e3,
               result.step_j);
    return status;
}

/* Runs the workload as a command: this program once more, with the options of the workload. */
static harpe_status emulate_workload(const emulate_arguments *arguments, int *exit_code,
                                     harpe_error *error) {
    const harpe_workload_options *workload = &arguments->workload;
    char steps[32], noise[32], phase[32], drift[32];
    snprintf(steps, sizeof steps, "--steps=%" PRId64, workload->steps);
    snprintf(noise, sizeof noise, "--step-noise=%.9g", workload->noise_share * 100);
    snprintf(phase, sizeof phase, "--phase=%.9g", workload->phase_s);
    snprintf(drift, sizeof drift, "--drift=%.9g", workload->drift_share_h * 100);
    char *print = workload->prints_steps ? "--print-steps" : NULL;
    char *command[] = {"/proc/self/exe", "emulate", steps, noise, phase, drift, print, NULL};
    return emulate(&arguments->options, command, exit_code, error);
}

int harpe_emulate_command(int argc, char **argv) {
    emulate_arguments arguments = {.workload = {.steps = 100, .phase_s = 30}};
    argp_parse(&argument_parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments);
    harpe_error error;
    int exit_code = HARPE_EXIT_OK;
    harpe_status status = check_profile(arguments.options.profile, &error);
    const char *workload = arguments.options.workload;
    if (status != HARPE_OK) return harpe_command_fail("emulate", &error);
    if (workload && strcmp(workload, "list") == 0)
        status = harpe_workload_list(&error);
    else if (arguments.command)
        status = emulate(&arguments.options, arguments.command, &exit_code, &error);
    else if (!arguments.makes_gpus && harpe_workload_has_gpus())
        status = run_workload(&arguments, &error);
    else
        status = emulate_workload(&arguments, &exit_code, &error);
    return status == HARPE_OK ? exit_code : harpe_command_fail("emulate", &error);
}
