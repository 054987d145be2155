/* SPDX-License-Identifier: Apache-2.0 */
/* The node agent's HTTP server for Prometheus: /metrics and /healthz. Everybody who reaches the
 * address may read them. No request changes anything. */
#ifndef HARPE_AGENT_EXPORTER_H
#define HARPE_AGENT_EXPORTER_H

#include <harpe/status.h>

#include "agent/agent_state.h"

/* Listens on the address and port of the agent's options, and logs the address. The agent's loop,
 * leases, samples and names must outlive the exporter. */
harpe_status harpe_agent_exporter_new(harpe_agent *agent, harpe_agent_exporter **out,
                                      harpe_error *error);
void harpe_agent_exporter_free(harpe_agent_exporter *exporter); /* NULL is allowed */

#endif
