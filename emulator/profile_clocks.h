/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the clocks of a GPU that follows a measured profile. */
#ifndef HARPE_EMULATOR_PROFILE_CLOCKS_H
#define HARPE_EMULATOR_PROFILE_CLOCKS_H

#include "models.h"

/* Lists the supported graphics clocks, highest first: the clocks of the model at which every
 * instruction of the profile at `path` was measured. If there is no such profile or no such clock,
 * lists all clocks of the model. Returns the number of clocks. `clocks` has room for
 * emulator_clock_count clocks; if it is NULL, they are only counted. The profile is read again only
 * if the file changes. Any thread may call it. */
unsigned int emulator_offered_clocks(const emulator_model *model, const char *path,
                                     unsigned int *clocks);
/* Forgets the profile, so that the file is read again. */
void emulator_forget_clocks(void);

#endif
