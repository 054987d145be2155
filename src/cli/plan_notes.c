/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the profile that the schedule has no use for, and a blocking power that no work of this
 * GPU draws: both are allowed, and both are mostly slips of the hand. */
#include "cli/plan_notes.h"

#include <stdio.h>
#include <stdlib.h>

#include <harpe/schedule.h>

#include "base/array.h"

/* A mark for each of the profile's entries that the schedule runs; the caller frees it. */
static bool *mark_used(const harpe_problem_input *input) {
    const harpe_profile *profile = input->profile;
    const harpe_profile_entry *first = harpe_profile_entry_at(profile, 0);
    bool *is_used = harpe_calloc(harpe_profile_entry_count(profile) + 1, sizeof *is_used);
    for (size_t i = 0; is_used && i < harpe_problem_option_list_count(input->problem); i++) {
        const harpe_option_list *list = harpe_problem_option_list_at(input->problem, i);
        const harpe_profile_entry *entry =
            harpe_profile_find(profile, list->stage, list->instruction);
        if (entry) is_used[entry - first] = true;
    }
    return is_used;
}

static void note_left_out(const harpe_problem_input *input) {
    const harpe_profile_entry *left_out = NULL;
    size_t count = 0;
    bool *is_used = mark_used(input);
    for (size_t i = 0; is_used && i < harpe_profile_entry_count(input->profile); i++) {
        if (is_used[i]) continue;
        if (!left_out) left_out = harpe_profile_entry_at(input->profile, i);
        count++;
    }
    free(is_used);
    if (count == 0) return;
    char more[40] = "";
    if (count > 1) (void)snprintf(more, sizeof more, " and %zu more", count - 1);
    fprintf(stderr, "harpe plan: %s: stage %d '%s'%s %s not in schedule %s: left out\n",
            input->profile_path, left_out->stage, left_out->instruction, more,
            count > 1 ? "are" : "is", input->schedule_name);
}

static double highest_power_w(const harpe_profile *profile) {
    double highest_w = 0;
    for (size_t i = 0; i < harpe_profile_entry_count(profile); i++) {
        const harpe_profile_entry *entry = harpe_profile_entry_at(profile, i);
        for (size_t p = 0; p < entry->point_count; p++) {
            double power_w = entry->points[p].energy_j / entry->points[p].time_s;
            if (power_w > highest_w) highest_w = power_w;
        }
    }
    return highest_w;
}

/* A GPU that waits draws less than one that works. */
static void note_blocking_power(const harpe_problem_input *input) {
    double highest_w = highest_power_w(input->profile);
    for (size_t i = 0; i < input->blocking_power_count; i++) {
        if (input->blocking_power_w[i] <= highest_w) continue;
        fprintf(stderr,
                "harpe plan: warning: --p2p-power %g: no instruction of %s draws more than %.4g W; "
                "is it the watts of one GPU that waits?\n",
                input->blocking_power_w[i], input->profile_path, highest_w);
        return;
    }
}

void harpe_plan_notes_print(const harpe_problem_input *input) {
    note_left_out(input);
    note_blocking_power(input);
}
