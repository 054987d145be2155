/* SPDX-License-Identifier: Apache-2.0 */
/* The program `harpe`: the table of subcommands. It calls the subcommand. */
#include <libpq-fe.h>
#include <openssl/crypto.h>
#include <sqlite3.h>

#include "base/file_processes.h"
#include "base/version.h"
#include "cli/cli.h"
#include "client/control.h"
#include "http/client/transport.h"
#include "server/scheduler/hosts.h"
#include "server/server.h"

/* A row without a name is the title of the rows after it. */
static const harpe_command commands[] = {
    {NULL, "Plan", NULL},
    {"plan", "Compute the time-energy frontier and frequency plans", harpe_plan_command},
    {"choose", "Choose a plan from a plan directory", harpe_choose_command},
    {"evaluate", "Real time and energy of plan files", harpe_evaluate_command},
    {"graph", "Make a graph from the traces of a job", harpe_graph_command},
    {NULL, "Measure and tune", NULL},
    {"gpus", "Show the GPUs, and how to solve problems", harpe_gpus_command},
    {"monitor", "Measure a command's energy, or show it live", harpe_monitor_command},
    {"profile", "Measure waits and changes of clock, or convert dumps", harpe_profile_command},
    {"tune", "Find the clock or power limit that suits any program", harpe_tune_command},
    {"power-limit", "Find the GPU power limit that suits a job", harpe_power_limit_command},
    {NULL, "Run a job", NULL},
    {"run", "Run a training script with the adapter that fits it", harpe_run_command},
    {NULL, "Run a cluster", NULL},
    {"serve", "Coordinate jobs: the pipeline frequency optimizer's server", harpe_serve_command},
    {"jobs", "Show the jobs of a server, or evict a job", harpe_jobs_command},
    {"store", "Back up, check or restore the store of a server", harpe_store_command},
    {"fleet", "Split a power budget over many jobs", harpe_fleet_command},
    {"agent", "Lend GPUs to jobs without root, and restore them", harpe_agent_command},
    {NULL, "Try without a GPU", NULL},
    {"synth", "Make a synthetic but plausible profile", harpe_synth_command},
    {"emulate", "Run a command on emulated GPUs", harpe_emulate_command},
    {"train-sim", "Run a training job on emulated GPUs", harpe_train_sim_command},
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

/* ---- Version --------------------------------------------------------------------------------- */

/* Prints the version. The first line is for programs. The second line is for bug reports and
 * contains the versions of the loaded libraries. */
static void print_version(FILE *stream, struct argp_state *state) {
    (void)state;
    fprintf(stream, "harpe %s\n", harpe_build_version());
    int libpq = PQlibVersion();
    fprintf(stream, "With SQLite %s, PostgreSQL (libpq %d.%d), TLS (OpenSSL %s)",
            sqlite3_libversion(), libpq / 10000, libpq % 10000,
            OpenSSL_version(OPENSSL_VERSION_STRING));
    fprintf(stream, "%s\n", harpe_command_sanitizers());
}

/* ---- The table ------------------------------------------------------------------------------- */

static void print_help(FILE *stream) {
    fprintf(stream, "Usage: harpe COMMAND [OPTION...]\n"
                    "Save energy in the training of large models: lower the clocks of GPUs for "
                    "work\nthat nothing waits for.\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const harpe_command *row = &commands[i];
        if (row->name)
            fprintf(stream, "  %-13s %s\n", row->name, row->summary);
        else
            fprintf(stream, "\n%s:\n", row->summary);
    }
    fprintf(stream,
            "\n'harpe COMMAND --help' or 'harpe help COMMAND' describes a command.\n\nOptions:\n  "
            "-?, --help     Give this help list\n      --usage    Give a short usage message\n  "
            "-V, --version  Print the program's version\n\nTo try it without a profile of your "
            "own:\n  harpe synth --stages 8 --output profile.csv\n  harpe plan --inst-profile "
            "profile.csv --num-mbs 32 --p2p-power 84 --output-dir plans\n  harpe choose plans "
            "--max-slowdown 1.05\n\nSee also: man harpe\n");
}

static const struct argp_state program = {.name = "harpe"}; /* for messages */

static int run_command(int argc, char **argv) {
    const char *name = argv[0], *names[COMMAND_COUNT + 1] = {NULL};
    int code = harpe_command_dispatch(commands, COMMAND_COUNT, "harpe", argc, argv);
    if (code >= 0) return code;
    for (size_t i = 0, count = 0; i < COMMAND_COUNT; i++)
        if (commands[i].name) names[count++] = commands[i].name;
    const char *closest = harpe_closest_name(name, names);
    if (closest)
        harpe_flag_fail(&program, "there is no command '%.100s'; did you mean '%s'?", name,
                        closest);
    harpe_flag_fail(&program, "there is no command '%.100s'; try 'harpe --help'", name);
}

static int run_help(int argc, char **argv) {
    if (argc < 2) {
        print_help(stdout);
        return HARPE_EXIT_OK;
    }
    char help[] = "--help";
    char *help_argv[] = {argv[1], help, NULL};
    return run_command(2, help_argv);
}

/* A controller may reach its GPU through zeusd, by HTTP. */
static int run_controller(int argc, char **argv) {
    harpe_connections_begin();
    int code = harpe_controller_main(argc, argv);
    harpe_connections_end();
    return code;
}

static bool is_one_of(const char *text, const char *a, const char *b, const char *c) {
    return strcmp(text, a) == 0 || strcmp(text, b) == 0 || strcmp(text, c) == 0;
}

int main(int argc, char **argv) {
    harpe_command_prepare(print_version);
    if (argc < 2) {
        print_help(stderr);
        return HARPE_EXIT_USAGE;
    }
    const char *first = argv[1];
    if (is_one_of(first, "--help", "-?", "-h")) {
        print_help(stdout);
        return HARPE_EXIT_OK;
    }
    if (is_one_of(first, "--version", "-V", "version")) {
        print_version(stdout, NULL);
        return HARPE_EXIT_OK;
    }
    if (strcmp(first, "--usage") == 0) {
        puts("Usage: harpe [-?V] [--help] [--usage] [--version] COMMAND [OPTION...]");
        return HARPE_EXIT_OK;
    }
    if (strcmp(first, HARPE_CONTROLLER_ARGUMENT) == 0) return run_controller(argc, argv);
    if (strcmp(first, HARPE_FILE_PROCESS_ARGUMENT) == 0)
        return harpe_server_file_process_main(argc, argv);
    if (strcmp(first, HARPE_SUPERVISOR_ARGUMENT) == 0) return harpe_supervisor_main(argc, argv);
    if (strcmp(first, HARPE_LIBRARY_ARGUMENT) == 0) return harpe_library_main(argc, argv);
    if (first[0] == '-')
        harpe_flag_fail(&program, "unknown option '%.100s'; try 'harpe --help'", first);
    if (strcmp(first, "help") == 0) return run_help(argc - 1, argv + 1);
    return run_command(argc - 1, argv + 1);
}
