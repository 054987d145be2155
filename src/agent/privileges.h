/* SPDX-License-Identifier: Apache-2.0 */
/* The privileges of the agent's process. */
#ifndef HARPE_AGENT_PRIVILEGES_H
#define HARPE_AGENT_PRIVILEGES_H

#include <stdint.h>

#include <harpe/status.h>

/* Gives up all capabilities that the agent does not need, for this process and for those that it
 * starts. `*before` receives the effective capabilities until now, a bit for each. Call it before
 * any other thread is started. */
harpe_status harpe_privileges_drop(uint64_t *before, harpe_error *error);

#endif
