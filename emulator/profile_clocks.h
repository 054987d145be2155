/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks that a GPU offers which follows a measured profile. */
#ifndef HARPE_EMULATOR_PROFILE_CLOCKS_H
#define HARPE_EMULATOR_PROFILE_CLOCKS_H

#include "models.h"

/* The supported graphics clocks, highest first: those of the model at which every instruction of
 * the profile at `path` was measured. All of the model's where there is no such profile or no such
 * clock. `clocks` (NULL: only counted) has room for emulator_clock_count. What was read is kept for
 * as long as the file does not change. Any thread. */
unsigned int emulator_offered_clocks(const emulator_model *model, const char *path,
                                     unsigned int *clocks);

#endif
