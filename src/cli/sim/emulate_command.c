/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe emulate`: makes a cluster of emulated GPUs, runs a command on it, and removes the cluster
 * when the command has ended. Without a command it runs a measured workload: in this process if
 * another `harpe emulate` has made the GPUs, otherwise as a command that is a process of its own.
 */
#include <inttypes.h>
#include <limits.h>

#include <harpe/profile.h>

#include "cli/cli.h"
#include "sim/sim.h"

typedef struct emulate_arguments {
    harpe_emulated_options options;
    harpe_workload_options workload;
    bool makes_gpus; /* an option says what the GPUs are */
    char **command;  /* NULL: the workload */
} emulate_arguments;

/* Checks a whole number that stays a text. */
static void read_seed(void *into, struct argp_state *state, const char *flag, char *text) {
    (void)harpe_flag_int(state, flag, text, 0, INT_MAX);
    *(const char **)into = text;
}

static void show_to_torch(void *into, struct argp_state *state, const char *flag, char *text) {
    (void)state, (void)flag, (void)text;
    *(const char **)into = "1";
}

static const harpe_flag flags[] = {
    {"gpus", 'g', "LIST",
     "GPUs of the machine: 4xA100, or a mixture such as 2xA100,1xV100 (default 1xA100; models "
     "V100, A40, A100, A100-PCIe, H100, GH200; at most 4096)",
     1, HARPE_INTO(emulate_arguments, options.gpus),
     .given = offsetof(emulate_arguments, makes_gpus)},
    {"time-scale", 's', "X", "The GPUs' time runs X times as fast (default 1)", 1,
     HARPE_INTO(emulate_arguments, options.time_scale), 0.001, 1e6},
    {"profile", 'p', "FILE", "Measured profile that simulated instructions follow", 1,
     HARPE_INTO(emulate_arguments, options.profile)},
    {"faults", 'f', "LIST", "Faults, such as no_permission,slow_set=200 (the manual lists all)", 1,
     HARPE_INTO(emulate_arguments, options.faults)},
    {"faults-file", 0, "FILE", "Faults from a file, which may change while the command runs", 1,
     HARPE_INTO(emulate_arguments, options.faults_file)},
    {"physics", 0, "ideal|real|FILE",
     "How GPUs differ from ideal ones: late clocks, variability and more (default ideal)", 1,
     HARPE_INTO(emulate_arguments, options.physics)},
    {"noise", 0, "PERCENT",
     "Standard deviation of the noise of power sensors; 0: no noise (default 0.5)", 1,
     HARPE_INTO(emulate_arguments, options.noise), 0, 20},
    {"seed", 0, "N", "Seed of the noise and of the physics (default 1)", 1,
     HARPE_READ(read_seed, emulate_arguments, options.seed)},
    {"cluster", 'c', "NAME",
     "Share the GPUs with other commands that give this name (default: separate GPUs)", 1,
     HARPE_INTO(emulate_arguments, options.cluster)},
    {"visible-to-torch", 0, NULL,
     "PyTorch counts the GPUs as CUDA devices, although it cannot compute on them", 1,
     HARPE_READ(show_to_torch, emulate_arguments, options.torch)},
    {"workload", 0, "NAME[,NAME...]|list",
     "Workloads that were measured on an A100. Without COMMAND, run a program like them", 2,
     HARPE_INTO(emulate_arguments, options.workload)},
    {"steps", 0, "N", "Iterations of the workload; 0: without end (default 100)", 2,
     HARPE_INTO(emulate_arguments, workload.steps), 0, INT_MAX},
    {"step-noise", 0, "PERCENT", "Standard deviation of the time of an iteration (default 0)", 2,
     HARPE_INTO(emulate_arguments, workload.noise_share), 0, 20, .divisor = 100},
    {"phase", 0, "S",
     "The next workload of the list begins after this time of the GPUs (default 30)", 2,
     HARPE_INTO(emulate_arguments, workload.phase_s), 0.001, 1e6},
    {"drift", 0, "PERCENT", "The time of an iteration grows by this in an hour (default 0)", 2,
     HARPE_INTO(emulate_arguments, workload.drift_share_h), -90, 1000, .divisor = 100},
    {"print-steps", 0, NULL, "Print a line after each iteration", 2,
     HARPE_INTO(emulate_arguments, workload.prints_steps)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .command = offsetof(emulate_arguments, command),
    .forms = "COMMAND [ARGUMENT...]\n--workload NAME",
    .about = "Run a command on emulated GPUs: programs that load NVIDIA's management library "
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
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    if (!arguments.command && !arguments.options.workload && !getenv("HARPE_EMULATOR_WORKLOAD"))
        harpe_flag_fail(
            &state,
            "the command is missing; for example: harpe emulate --gpus 4xA100 -- harpe gpus");
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
