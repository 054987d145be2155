/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a measured profile, as work needs it. */
#ifndef HARPE_EMULATOR_PROFILE_POINTS_H
#define HARPE_EMULATOR_PROFILE_POINTS_H

#include "physics.h"

/* Fills `points` (ascending clocks) from the profile file's rows of (stage, instruction). The file
 * is read again at each call: a few milliseconds at most, and never stale. Returns 0 or an
 * nvmlReturn_t: NOT_FOUND without a file or rows, INVALID_ARGUMENT for a file that is malformed. */
int emulator_read_points(const char *path, int stage, const char *instruction,
                         emulator_points *points);

#endif
