/* SPDX-License-Identifier: Apache-2.0 */
/* The path of the agent's socket, for the agent and for its clients. */
#include <stdlib.h>

#include "cli/agent/agent_commands.h"
#include "lease/lease.h"

const char *harpe_agent_socket(const char *given) {
    const char *variable = secure_getenv("HARPE_AGENT_SOCKET");
    if (given) return given;
    return variable && *variable ? variable : HARPE_AGENT_SOCKET_PATH;
}
