/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the state of the service to systemd, if systemd started it and asked for reports. */
#ifndef HARPE_AGENT_NOTIFY_H
#define HARPE_AGENT_NOTIFY_H

#include <stdint.h>

/* Reports a state: "READY=1", "STOPPING=1" or "WATCHDOG=1". */
void harpe_agent_notify(const char *state);
/* Returns the time between two "WATCHDOG=1" in ms; 0: systemd does not ask for them. */
int64_t harpe_agent_watchdog_ms(void);

#endif
