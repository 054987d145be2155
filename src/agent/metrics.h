/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the node agent's /metrics. docs/agent-metrics.md lists the metrics. */
#ifndef HARPE_AGENT_METRICS_H
#define HARPE_AGENT_METRICS_H

#include "agent/agent_state.h"

/* Starts to look up the names of the leases' users, which the text contains. */
void harpe_agent_metrics_prepare(harpe_agent *agent);
/* Makes the text from the last samples and the present leases. The caller frees it with free().
 * Returns NULL if memory runs out. */
char *harpe_agent_metrics_format(harpe_agent *agent);

#endif
