/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a row of a measured profile and converts it to emulator_points. */
#ifndef HARPE_EMULATOR_PROFILE_POINTS_H
#define HARPE_EMULATOR_PROFILE_POINTS_H

#include "physics.h"

/* Fills `points` (in order of rising clocks) from the rows of (stage, instruction) in the profile.
 * The rows are kept as long as the file does not change, and in a world in any case. Any thread may
 * call it. Returns 0 or an nvmlReturn_t: NOT_FOUND without a file or rows, INVALID_ARGUMENT for a
 * malformed file. */
int emulator_read_points(const char *path, int stage, const char *instruction,
                         emulator_points *points);
/* Forgets the rows, so that the file is read again. */
void emulator_forget_points(void);

/* Copies the points that there are; the others have no value. */
void emulator_copy_points(emulator_points *to, const emulator_points *from);

/* Emulates a GPU that is throttled to a clock at which the work takes `slowdown` times as long as
 * at the highest clock: higher clocks do not make the work faster. */
void emulator_throttle_points(emulator_points *points, double slowdown);

#endif
