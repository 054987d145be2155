/* SPDX-License-Identifier: Apache-2.0 */
/* Finds rows of a profile that are probably wrong: in another unit, with a wrong digit, or measured
 * at a clock that the GPU did not reach. */
#ifndef HARPE_PLAN_PROFILE_DOUBTS_H
#define HARPE_PLAN_PROFILE_DOUBTS_H

#include <harpe/profile.h>
#include <harpe/status.h>

#include "base/array.h"
#include "base/text.h"
#include "plan/profile_rows.h"

#define HARPE_PROFILE_DOUBTS_MAX 3 /* lines about single rows */
#define HARPE_PROFILE_LINES_MAX (HARPE_PROFILE_DOUBTS_MAX + 1)

/* Describes the first doubtful rows, in the order of the rows, and how many more there are. Each
 * line names its row, as the errors of harpe_profile_rows_finish do. If rows are of a file, finds
 * the clocks that were not reached, sets `throttled_count` of the entries, and adds one line about
 * them. The lines are in the arena; those that are not used follow as NULL. The rows must be sorted
 * by stage, name, falling frequency and rank, and `entries` are these rows after aggregation. O(n
 * log n) */
harpe_status harpe_profile_doubts_find(const harpe_profile_rows *rows, const char *file_name,
                                       harpe_profile_entry *entries, harpe_arena *arena,
                                       const char *lines[HARPE_PROFILE_LINES_MAX],
                                       harpe_error *error);

/* If rows were averaged, appends one sentence about them to `text`, without a full stop. `path` is
 * the path of the profile. */
void harpe_profile_note_repeats(const harpe_profile *profile, const char *path, harpe_text *text);

#endif
