/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the highest clocks of a profile that the GPU did not reach, usually because of its power
 * limit. The measurements at such a clock are a mixture over the clocks that the GPU really had. */
#ifndef HARPE_PLAN_THROTTLED_CLOCKS_H
#define HARPE_PLAN_THROTTLED_CLOCKS_H

#include <harpe/profile.h>
#include <harpe/status.h>

#include "base/text.h"
#include "plan/profile_rows.h"

/* Sets `throttled_count` of each entry, and appends one sentence about all of them to `line`; none
 * if all clocks were reached. `rows` are of one curve (stage, instruction, rank) after the other,
 * by falling frequency, and `entries` are the aggregated rows in the same order. A clock of an
 * entry was not reached if one of its ranks did not reach it. O(row_count log row_count) */
harpe_status harpe_throttled_clocks_find(const harpe_profile_row *const *rows, size_t row_count,
                                         harpe_profile_entry *entries, const char *file_name,
                                         harpe_text *line, harpe_error *error);

#endif
