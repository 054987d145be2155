/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands of `harpe agent`, and what they share. */
#ifndef HARPE_CLI_AGENT_AGENT_COMMANDS_H
#define HARPE_CLI_AGENT_AGENT_COMMANDS_H

#include <jansson.h>

#include <harpe/status.h>

int harpe_agent_hold_command(int argc, char **argv);
int harpe_agent_status_command(int argc, char **argv);
int harpe_agent_restore_command(int argc, char **argv);

/* Returns the path of the agent's socket: `given`, or else $HARPE_AGENT_SOCKET, or else the default
 * path. */
const char *harpe_agent_socket(const char *given);

/* Asks the agent for its status. The caller releases `*answer`. */
harpe_status harpe_agent_ask_status(const char *socket, json_t **answer, harpe_error *error);

#endif
