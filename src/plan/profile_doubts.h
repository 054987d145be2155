/* SPDX-License-Identifier: Apache-2.0 */
/* Finds rows of a profile that are probably wrong: in another unit, or with a wrong digit. */
#ifndef HARPE_PLAN_PROFILE_DOUBTS_H
#define HARPE_PLAN_PROFILE_DOUBTS_H

#include <harpe/status.h>

#include "base/arena.h"
#include "plan/profile_rows.h"

#define HARPE_PROFILE_DOUBTS_MAX 3

/* Describes the first doubtful rows, in the order of the rows, and how many more there are. Each
 * line names its row, as the errors of harpe_profile_rows_finish do. The lines are in the arena; a
 * place that is not used is NULL. The rows must be sorted by stage, name, falling frequency and
 * rank. O(n log n) */
harpe_status harpe_profile_doubts_find(const harpe_profile_rows *rows, const char *file_name,
                                       harpe_arena *arena,
                                       const char *lines[HARPE_PROFILE_DOUBTS_MAX],
                                       harpe_error *error);

#endif
