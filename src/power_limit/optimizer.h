/* SPDX-License-Identifier: Apache-2.0 */
/* What tests need of a power limit optimizer beyond the public API. Private to src/power_limit. */
#ifndef HARPE_POWER_LIMIT_OPTIMIZER_H
#define HARPE_POWER_LIMIT_OPTIMIZER_H

#include "power_limit/member.h"

/* Works like harpe_power_limit_optimizer_new with other times for the member of a fleet. */
harpe_status harpe_optimizer_new_with(const harpe_power_limit_device *device,
                                      const harpe_power_limit_options *options,
                                      const harpe_power_member_times *times,
                                      harpe_power_limit_optimizer **out, harpe_error *error);

#endif
