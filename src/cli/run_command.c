/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe run`: runs a training command in whose Python processes Harpe's adapters install
 * themselves. It prepares the environment and becomes the command, so exit status and signals are
 * the command's own. The adapters and the import hook are in python/harpe/_run. */
#include <glob.h>

#include "base/file.h"
#include "base/process.h"
#include "cli/cli.h"

/* ---- The import hook ------------------------------------------------------------------------- */

/* The directory inside the Python package, and the file that Python imports when it starts. */
#define HOOK_DIRECTORY "_run"
#define HOOK_FILE "sitecustomize.py"

/* Returns the directory `package`/_run if it has the hook, and if no other user may write to the
 * directory or the hook. Otherwise returns NULL. The caller frees the path. */
static char *hook_in(const char *package) {
    char *directory = harpe_path_join(package, "/", HOOK_DIRECTORY);
    char *file = directory ? harpe_path_join(directory, "/", HOOK_FILE) : NULL;
    bool is_found = file && access(file, R_OK) == 0 && harpe_file_is_trusted(file) &&
                    harpe_file_is_trusted(directory);
    char *real = is_found ? realpath(directory, NULL) : NULL;
    free(file);
    free(directory);
    return real;
}

/* Returns the hook of the Python package that belongs to this program. In a wheel, the program is
 * _bundled/bin/harpe of the package. Otherwise the package is in the source tree of the build, or
 * installed below the same prefix. Returns NULL if there is no hook. The caller frees the path. */
static char *hook_near_program(void) {
    static const char *const places[] = {"../..", "../../python/harpe",
                                         "../lib/python3*/*-packages/harpe"};
    char *program = realpath("/proc/self/exe", NULL);
    char *folder = program ? harpe_path_parent(program) : NULL;
    char *found = NULL;
    for (size_t i = 0; folder && !found && i < sizeof places / sizeof places[0]; i++) {
        char *pattern = harpe_path_join(folder, "/", places[i]);
        glob_t matches = {0};
        if (pattern && glob(pattern, 0, NULL, &matches) == 0)
            for (size_t j = 0; j < matches.gl_pathc && !found; j++)
                found = hook_in(matches.gl_pathv[j]);
        globfree(&matches);
        free(pattern);
    }
    free(folder);
    free(program);
    return found;
}

/* Puts the hook's directory first in PYTHONPATH. */
static harpe_status set_python_path(const char *hook, harpe_error *error) {
    const char *before = getenv("PYTHONPATH");
    harpe_text path = {0};
    harpe_text_printf(&path, "%s%s%s", hook, before && *before ? ":" : "", before ? before : "");
    bool is_set = path.data && setenv("PYTHONPATH", path.data, 1) == 0;
    free(path.data);
    return is_set ? HARPE_OK : harpe_fail_memory(error);
}

static void report_missing_hook(const char *program, const char *package) {
    if (package)
        fprintf(stderr,
                "%s: HARPE_PYTHON_PACKAGE: %.200s has no " HOOK_DIRECTORY "/" HOOK_FILE
                " that nobody else may change: name the directory harpe of the Python package; the "
                "command runs unchanged\n",
                program, package);
    else
        fprintf(stderr,
                "%s: the Python package harpe is not near this program: install it, or name its "
                "directory in HARPE_PYTHON_PACKAGE; the command runs unchanged\n",
                program);
}

bool harpe_python_hook_install(const char *program) {
    harpe_error error;
    const char *package = harpe_trusted_file_variable("HARPE_PYTHON_PACKAGE", NULL);
    char *hook = package ? hook_in(package) : hook_near_program();
    if (!hook) {
        report_missing_hook(program, package);
        return false;
    }
    bool has_colon = strchr(hook, ':');
    bool is_set = !has_colon && set_python_path(hook, &error) == HARPE_OK;
    if (has_colon)
        fprintf(stderr,
                "%s: the Python package harpe is in '%.200s', and PYTHONPATH cannot contain a path "
                "with a colon: move the package; the command runs unchanged\n",
                program, hook);
    else if (!is_set)
        fprintf(stderr, "%s: %s; the command runs unchanged\n", program, error.message);
    free(hook);
    char *own = is_set ? realpath("/proc/self/exe", NULL) : NULL;
    if (own) (void)setenv("HARPE_PROGRAM", own, 0);
    free(own);
    return is_set;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

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
