/* SPDX-License-Identifier: Apache-2.0 */
/* A power limit device that replays a recorded log, so that the optimizer can run again on old
 * measurements. Private to src/power_limit, the program and tests. */
#ifndef HARPE_POWER_LIMIT_REPLAY_H
#define HARPE_POWER_LIMIT_REPLAY_H

#include <stddef.h>

#include <harpe/power_limit.h>
#include <harpe/status.h>

typedef struct harpe_power_limit_replay harpe_power_limit_replay;

/* Reads a monitor's log. The device's range and number of GPUs come from its rows named
 * __GlobalPowerLimitOptimizer_<watts>; other windows are ignored. If a limit has several rows (a
 * log of several runs), the last row is used, because a limit is measured again only if the earlier
 * measurement was discarded. */
harpe_status harpe_power_limit_replay_open(const char *path, harpe_power_limit_replay **out,
                                           harpe_error *error);
harpe_status harpe_power_limit_replay_parse(const char *text, size_t length, const char *name,
                                            harpe_power_limit_replay **out, harpe_error *error);
void harpe_power_limit_replay_free(harpe_power_limit_replay *replay);

const harpe_power_limit_device *harpe_power_limit_replay_device(harpe_power_limit_replay *replay);

/* Fails with HARPE_INVALID_INPUT if the limits in steps of `step_w` watts include a limit that the
 * log does not have. The message names the limit. */
harpe_status harpe_power_limit_replay_check(const harpe_power_limit_replay *replay, int step_w,
                                            harpe_error *error);

/* Returns the limits set so far, in W. Each set applies to all GPUs. Valid until the next set. */
const int *harpe_power_limit_replay_sets(const harpe_power_limit_replay *replay, size_t *count);

#endif
