/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe emulate`: makes a cluster of emulated GPUs, runs a command on it, and removes the cluster
 * when the command has ended. */
#include <limits.h>

#include <harpe/profile.h>

#include "base/error.h"
#include "cli/commands.h"
#include "sim/cluster.h"

typedef struct emulate_arguments {
    harpe_emulated_options options;
    char **command;
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
};

static const struct argp_option flags[] = {
    {"gpus", FLAG_GPUS, "LIST", 0,
     "GPUs of the machine: 4xA100, or a mixture such as 2xA100,1xV100 (default 1xA100; models "
     "V100, A40, A100, H100, GH200; at most 4096)",
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
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    emulate_arguments *arguments = state->input;
    switch (key) {
    case FLAG_GPUS: arguments->options.gpus = argument; return 0;
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
    case ARGP_KEY_NO_ARGS:
        harpe_flag_fail(
            state,
            "the command is missing; for example: harpe emulate --gpus 4xA100 -- harpe gpus");
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc = "COMMAND [ARGUMENT...]",
    .doc = "Run a command on emulated GPUs: programs that load NVIDIA's management library "
           "(libnvidia-ml.so.1) find the emulator in its place.\vExample:\n"
           "  harpe emulate --gpus 4xA100 -- harpe gpus\n\nSee also: man harpe-emulate",
};

/* ---- The command ----------------------------------------------------------------------------- */

/* Blocks signals while the cluster exists, so that no signal ends this process before it has
 * removed the cluster. */
static harpe_status emulate(const emulate_arguments *arguments, int *exit_code,
                            harpe_error *error) {
    static const int held[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                               SIGUSR2, SIGCONT, SIGCHLD, 0};
    sigset_t signals, before;
    harpe_command_block(held, &signals, &before);
    harpe_emulated_cluster cluster;
    harpe_status status = harpe_emulated_cluster_open(&arguments->options, &cluster, error);
    if (status == HARPE_OK) {
        *exit_code = harpe_command_run("emulate", arguments->command, &signals, &before);
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

int harpe_emulate_command(int argc, char **argv) {
    emulate_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments);
    harpe_error error;
    int exit_code = HARPE_EXIT_OK;
    harpe_status status = check_profile(arguments.options.profile, &error);
    if (status == HARPE_OK) status = emulate(&arguments, &exit_code, &error);
    return status == HARPE_OK ? exit_code : harpe_command_fail("emulate", &error);
}
