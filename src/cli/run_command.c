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

static const harpe_flag flags[] = {
    {"server", 's', "URL",
     "Server that plans for pipeline-parallel jobs, such as http://head-node:7787 (default: "
     "$HARPE_SERVER)",
     1, HARPE_INTO(run_arguments, server)},
    {"job", 'j', "NAME",
     "Name by which the ranks of a pipeline-parallel job find each other (default: they use "
     "torch.distributed)",
     1, HARPE_INTO(run_arguments, job)},
    {"measure-only", 'm', NULL, "Only measure, and change no GPU", 1,
     HARPE_INTO(run_arguments, only_measures)},
    {"power-limit", 'p', NULL,
     "Find and keep the best power limit in the Trainers of Transformers and Lightning", 1,
     HARPE_INTO(run_arguments, sets_power_limit)},
    {0},
};

static const harpe_command_line command_line = {
    .parts = {{.flags = flags}},
    .command = offsetof(run_arguments, command),
    .forms = "COMMAND [ARGUMENT...]",
    .about = "Run a training command, and install in its Python processes the adapter of the "
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
    struct argp_state state = harpe_command_line_read(&command_line, argc, argv, &arguments);
    if (!arguments.command)
        harpe_flag_fail(&state, "the command is missing; for example: harpe run -- torchrun "
                                "--nproc-per-node 2 train.py");
    if (arguments.only_measures && arguments.sets_power_limit)
        harpe_flag_fail(&state, "--measure-only and --power-limit exclude each other");
    if (harpe_python_hook_install("harpe run")) set_options(&arguments);
    signal(SIGPIPE, SIG_DFL); /* main() ignores these signals */
    signal(SIGXFSZ, SIG_DFL);
    execvp(arguments.command[0], arguments.command);
    return harpe_command_fail_to_run("run", arguments.command[0], errno);
}
