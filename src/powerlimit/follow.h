/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer in a fleet, on the training thread: after the measurements it runs the power limit
 * that the server asks for. */
#ifndef HARPE_POWERLIMIT_FOLLOW_H
#define HARPE_POWERLIMIT_FOLLOW_H

#include "powerlimit/optimizer_internal.h"

/* Lets the job join the fleet, if it shall, on the rank that talks to the server. If that fails,
 * the log says why, and the job trains without a fleet. */
void harpe_follow_join(harpe_power_limit_optimizer *optimizer,
                       const harpe_power_member_times *times);
/* Called when the optimizer has reached the state Done: makes the plans. */
void harpe_follow_begin(harpe_power_limit_optimizer *optimizer);
/* Called at the beginning of each step in the state Done. */
void harpe_follow_step(harpe_power_limit_optimizer *optimizer);

#endif
