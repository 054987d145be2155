/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe monitor` without a command: shows live values. */
#ifndef HARPE_CLI_MONITOR_MONITOR_LIVE_H
#define HARPE_CLI_MONITOR_MONITOR_LIVE_H

#include "cli/monitor/monitor_session.h"

/* Shows live values until the end of the request's time, or until a signal arrives. Returns the
 * program's exit code. */
int harpe_monitor_live(const harpe_monitor_request *request);

#endif
