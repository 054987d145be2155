/* SPDX-License-Identifier: Apache-2.0 */
/* `harpe monitor` with a command: measures the command from its start to its end. */
#ifndef HARPE_CLI_MONITOR_MONITOR_MEASURE_H
#define HARPE_CLI_MONITOR_MONITOR_MEASURE_H

#include "cli/monitor/monitor_session.h"

/* Measures the command of the request. Returns the program's exit code. */
int harpe_monitor_measure(const harpe_monitor_request *request);

#endif
