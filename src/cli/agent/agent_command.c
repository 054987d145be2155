/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe agent`: becomes the program of the node agent, or calls the subcommands, which are clients
 * of the agent. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_internal.h"
#include "base/text.h"
#include "cli/agent/agent_commands.h"
#include "cli/command.h"
#include "cli/commands.h"

static const harpe_command subcommands[] = {
    {"hold", "Run a command while GPUs have a clock or power limit", harpe_agent_hold_command},
    {"status", "Show the leases of the agent", harpe_agent_status_command},
    {"restore", "End leases, which restores their GPUs", harpe_agent_restore_command},
};
enum { SUBCOMMAND_COUNT = sizeof subcommands / sizeof subcommands[0] };

static int run_subcommand(const harpe_command *command, int argc, char **argv) {
    char full_name[64];
    snprintf(full_name, sizeof full_name, "harpe agent %s", command->name);
    argv[1] = full_name;
    return command->run(argc - 1, argv + 1);
}

/* Finds the program of the agent: beside this program in a build folder, or at the place of
 * installation. The caller frees the path. */
static char *find_program(harpe_error *error) {
    static const char *const places[] = {"", HARPE_LIBEXECDIR_FROM_BINDIR "/harpe/"};
    char *own = realpath("/proc/self/exe", NULL);
    char *folder = own ? harpe_path_parent(own) : NULL;
    char *found = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && folder && !found; i++) {
        harpe_text path = {0};
        harpe_text_printf(&path, "%s/%sharpe-agent", folder, places[i]);
        if (!path.failed && access(path.data, X_OK) == 0)
            found = path.data;
        else
            harpe_text_free(&path);
    }
    if (!found)
        (void)harpe_fail(error, HARPE_NOT_FOUND,
                         "the program harpe-agent is neither in %.300s nor in %.300s/" //
                         HARPE_LIBEXECDIR_FROM_BINDIR "/harpe: build or install Harpe whole",
                         folder ? folder : "?", folder ? folder : "?");
    free(folder);
    free(own);
    return found;
}

/* Replaces this process by the agent, which prints its own help and messages. */
static int become_agent(char **argv) {
    char name[] = "harpe-agent";
    harpe_error error;
    char *program = find_program(&error);
    if (!program) return harpe_command_fail("agent", &error);
    argv[0] = name;
    (void)execv(program, argv);
    int code = harpe_command_fail_to_run("agent", program, errno);
    free(program);
    return code;
}

int harpe_agent_command(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < SUBCOMMAND_COUNT; i++)
        if (strcmp(subcommands[i].name, argv[1]) == 0)
            return run_subcommand(&subcommands[i], argc, argv);
    return become_agent(argv);
}
