/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the rules of the node agent with the GPUs of this machine. */
#ifndef HARPE_AGENT_POLICY_CHECK_H
#define HARPE_AGENT_POLICY_CHECK_H

#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

#include "agent/policy.h"

/* Checks the rules against the GPUs of this machine. Logs a warning for each rule that has no
 * effect or forbids everything on a GPU. Fails with HARPE_INVALID_INPUT if the device directory is
 * not a directory. */
harpe_status harpe_agent_policy_check(const harpe_agent_policy *policy, harpe_gpus *gpus,
                                      const harpe_log *log, harpe_error *error);

#endif
