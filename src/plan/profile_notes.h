/* SPDX-License-Identifier: Apache-2.0 */
/* Notes for the user about a profile that was read. */
#ifndef HARPE_PLAN_PROFILE_NOTES_H
#define HARPE_PLAN_PROFILE_NOTES_H

#include <harpe/profile.h>

#include "base/text.h"

/* If rows were averaged, appends one sentence about them to `text`, without a full stop. `path` is
 * the path of the profile. */
void harpe_profile_note_repeats(const harpe_profile *profile, const char *path, harpe_text *text);

#endif
