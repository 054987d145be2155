/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a measured profile, as work needs it. */
#ifndef HARPE_EMULATOR_PROFILE_POINTS_H
#define HARPE_EMULATOR_PROFILE_POINTS_H

#include "physics.h"

/* Fills `points` (ascending clocks) from the profile file's rows of (stage, instruction). What was
 * read is kept for as long as the file does not change. Any thread. Returns 0 or an
 * nvmlReturn_t: NOT_FOUND without a file or rows, INVALID_ARGUMENT for a file that is malformed. */
int emulator_read_points(const char *path, int stage, const char *instruction,
                         emulator_points *points);

/* A GPU that is throttled to a clock at which the work takes `slowdown` times as long as at the
 * highest: above that clock nothing gets faster. */
void emulator_throttle_points(emulator_points *points, double slowdown);

#endif
