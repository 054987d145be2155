/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe run`: runs a training command in whose Python processes Harpe's adapters install
 * themselves. It prepares the environment and becomes the command, so exit status and signals are
 * the command's own. The adapters and the import hook are in python/harpe/_run. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/python_hook.h"

typedef struct run_arguments {
    const char *server;
    const char *job;
    bool only_measures;
    bool sets_power_limit;
    char **command;
} run_arguments;

enum flag {
    FLAG_SERVER = 's',
    FLAG_JOB = 'j',
    FLAG_MEASURE_ONLY = 'm',
    FLAG_POWER_LIMIT = 'p',
};

static const struct argp_option flags[] = {
    {"server", FLAG_SERVER, "URL", 0,
     "Server that plans for pipeline-parallel jobs, such as http://head-node:7787 (default: "
     "$HARPE_SERVER)",
     1},
    {"job", FLAG_JOB, "NAME", 0,
     "Name by which the ranks of a pipeline-parallel job find each other (default: they use "
     "torch.distributed)",
     1},
    {"measure-only", FLAG_MEASURE_ONLY, NULL, 0, "Only measure, and change no GPU", 1},
    {"power-limit", FLAG_POWER_LIMIT, NULL, 0,
     "Find and keep the best power limit in the Trainers of Transformers and Lightning", 1},
    {0},
};

static error_t parse_flag(int key, char *argument, struct argp_state *state) {
    run_arguments *arguments = state->input;
    switch (key) {
    case FLAG_SERVER: arguments->server = argument; return 0;
    case FLAG_JOB: arguments->job = argument; return 0;
    case FLAG_MEASURE_ONLY: arguments->only_measures = true; return 0;
    case FLAG_POWER_LIMIT: arguments->sets_power_limit = true; return 0;
    case ARGP_KEY_ARGS: arguments->command = state->argv + state->next; return 0;
    case ARGP_KEY_NO_ARGS:
        harpe_flag_fail(state, "the command is missing; for example: harpe run -- torchrun "
                               "--nproc-per-node 2 train.py");
    case ARGP_KEY_SUCCESS:
        if (arguments->only_measures && arguments->sets_power_limit)
            harpe_flag_fail(state, "--measure-only and --power-limit exclude each other");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argument_parser = {
    .options = flags,
    .parser = parse_flag,
    .args_doc = "COMMAND [ARGUMENT...]",
    .doc = "Run a training command, and install in its Python processes the adapter of the "
           "framework that they use: torch.distributed.pipelining, Megatron-LM, DeepSpeed, "
           "Transformers or Lightning. The script stays unchanged.\vExample:\n"
           "  harpe run --server http://head-node:7787 -- \\\n"
           "      torchrun --nproc-per-node 4 train.py\n\n"
           "See also: man harpe-run",
};

/* ---- The environment ------------------------------------------------------------------------- */

static void set_or_unset(const char *name, const char *value) {
    if (value)
        (void)setenv(name, value, 1);
    else
        (void)unsetenv(name);
}

/* The variables are read by python/harpe/_run. */
static void set_options(const run_arguments *arguments) {
    char process[32];
    snprintf(process, sizeof process, "%ld", (long)harpe_process_self());
    set_or_unset("HARPE_RUN_PROCESS", process);
    if (arguments->server) set_or_unset("HARPE_SERVER", arguments->server);
    set_or_unset("HARPE_RUN_JOB", arguments->job);
    set_or_unset("HARPE_RUN_MEASURE_ONLY", arguments->only_measures ? "1" : NULL);
    set_or_unset("HARPE_TUNE", NULL); /* its hook only counts */
    set_or_unset("HARPE_RUN_POWER_LIMIT", arguments->sets_power_limit ? "1" : NULL);
}

int harpe_run_command(int argc, char **argv) {
    run_arguments arguments = {0};
    argp_parse(&argument_parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments);
    if (harpe_python_hook_install("harpe run")) set_options(&arguments);
    signal(SIGPIPE, SIG_DFL); /* main() ignores these signals */
    signal(SIGXFSZ, SIG_DFL);
    execvp(arguments.command[0], arguments.command);
    return harpe_command_fail_to_run("run", arguments.command[0], errno);
}
