/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a sentence about rows of a profile that repeat a measurement and were averaged. Such rows
 * are allowed, but are often a mistake. */
#include "plan/profile_notes.h"

void harpe_profile_note_repeats(const harpe_profile *profile, const char *path, harpe_text *text) {
    size_t count = harpe_profile_repeat_count(profile);
    if (count == 0) return;
    const harpe_profile_repeat *first = harpe_profile_repeat_at(profile, 0);
    harpe_text_printf(text, "%s: %zu rows (lines %zu %s %zu) measure stage %d '%s' at %d MHz", path,
                      first->row_count, first->first_row, first->row_count > 2 ? "to" : "and",
                      first->last_row, first->stage, first->instruction, first->frequency_mhz);
    if (first->rank >= 0) harpe_text_printf(text, " on rank %d", first->rank);
    if (count > 1) harpe_text_printf(text, ", and so for %zu more points", count - 1);
    harpe_text_printf(text, ": averaged");
}
