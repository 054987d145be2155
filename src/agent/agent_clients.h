/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of the node agent's clients. */
#ifndef HARPE_AGENT_AGENT_CLIENTS_H
#define HARPE_AGENT_AGENT_CLIENTS_H

#include <harpe/status.h>

#include "agent/agent_state.h"

/* Listens on the socket and answers requests. Removes an old socket on which no process listens.
 * Fails with HARPE_ALREADY_EXISTS if the path is in use. */
harpe_status harpe_agent_listen(harpe_agent *agent, harpe_error *error);
/* Closes the listening socket and removes its file. */
void harpe_agent_stop_listening(harpe_agent *agent);
/* Closes a connection to another socket of the agent, whose unread packets have descriptors. `user`
 * is the agent. */
void harpe_agent_drop_socket(void *user, int socket);
/* Closes all connections. Workers close the sockets. */
void harpe_agent_close_clients(harpe_agent *agent);
/* Frees connections whose sockets no worker has closed. Call it when no worker runs. */
void harpe_agent_free_clients(harpe_agent *agent);

#endif
