/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe power-limit`: calls its subcommands replay and run, or runs the guard process that the
 * library starts. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/power_limit/power_limit_commands.h"
#include "powerlimit/guard.h"
#include "powerlimit/guard_process.h"

static const harpe_command subcommands[] = {
    {"replay", "Run the optimizer against a recorded log", harpe_power_limit_replay_command},
    {"run", "Find and hold the best power limit for a command", harpe_power_limit_run_command},
};
enum { SUBCOMMAND_COUNT = sizeof subcommands / sizeof subcommands[0] };

static void print_help(FILE *stream) {
    fprintf(stream, "Usage: harpe power-limit SUBCOMMAND [OPTION...]\nFind the GPU power limit "
                    "that suits a training job best, while it trains.\n\n");
    for (size_t i = 0; i < SUBCOMMAND_COUNT; i++)
        fprintf(stream, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
    fprintf(stream, "\nExamples:\n"
                    "  harpe power-limit replay log.csv --selector zeus-cost --eta 0.5\n"
                    "  harpe emulate --gpus 1xV100 -- harpe power-limit run -- ./train\n\n"
                    "See also: man harpe-power-limit\n");
}

static int unknown_subcommand(const char *name) {
    harpe_error error; /* makes one line of any name */
    (void)harpe_fail(&error, HARPE_INVALID_ARGUMENT,
                     "there is no '%.100s'; it is replay or run: try 'harpe power-limit --help'",
                     name);
    return harpe_command_fail("power-limit", &error);
}

int harpe_power_limit_command(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return HARPE_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-?") == 0) {
        print_help(stdout);
        return HARPE_EXIT_OK;
    }
    if (strcmp(name, "--usage") == 0) {
        puts("Usage: harpe power-limit [-?] [--help] [--usage] replay|run [OPTION...]");
        return HARPE_EXIT_OK;
    }
    if (strcmp(name, HARPE_GUARD_ARGUMENT) == 0)
        return harpe_power_limit_guard_main(argc - 1, argv + 1);
    for (size_t i = 0; i < SUBCOMMAND_COUNT; i++) {
        if (strcmp(subcommands[i].name, name) == 0) {
            char full_name[64];
            snprintf(full_name, sizeof full_name, "harpe power-limit %s", name);
            argv[1] = full_name;
            return subcommands[i].run(argc - 1, argv + 1);
        }
    }
    return unknown_subcommand(name);
}
