/* SPDX-License-Identifier: Apache-2.0 */
/* A power limit device made of a recorded log, so that the optimizer can be run again on what was
 * measured. Private to src/powerlimit, the program and tests. */
#ifndef HARPE_POWERLIMIT_REPLAY_H
#define HARPE_POWERLIMIT_REPLAY_H

#include <stddef.h>

#include <harpe/power_limit.h>
#include <harpe/status.h>

typedef struct harpe_power_limit_replay harpe_power_limit_replay;

/* Reads a monitor's log. Range and GPU count of the device are those of its rows named
 * __GlobalPowerLimitOptimizer_<watts>; other windows are passed over. Where a limit has several
 * rows (a log of several runs), the last one answers: a limit is measured again because what came
 * before did not count. */
harpe_status harpe_power_limit_replay_open(const char *path, harpe_power_limit_replay **out,
                                           harpe_error *error);
harpe_status harpe_power_limit_replay_parse(const char *text, size_t length, const char *name,
                                            harpe_power_limit_replay **out, harpe_error *error);
void harpe_power_limit_replay_free(harpe_power_limit_replay *replay);

const harpe_power_limit_device *harpe_power_limit_replay_device(harpe_power_limit_replay *replay);

/* HARPE_INVALID_INPUT, naming the limit, when trying every `step_w` watts asks for one that the log
 * does not have. */
harpe_status harpe_power_limit_replay_check(const harpe_power_limit_replay *replay, int step_w,
                                            harpe_error *error);

/* The limits set so far, in W; one for all GPUs. Valid until the next set. */
const int *harpe_power_limit_replay_sets(const harpe_power_limit_replay *replay, size_t *count);

#endif
