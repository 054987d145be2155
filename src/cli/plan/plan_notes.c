/* SPDX-License-Identifier: Apache-2.0 */
/* Makes notes about rows that are probably wrong, rows that were averaged, rows that the schedule
 * does not use, and a blocking power above the power of every instruction. All of these are
 * allowed, but they are often mistakes. */
#include "cli/plan/plan_notes.h"

#include <stdio.h>
#include <stdlib.h>

#include <harpe/schedule.h>

#include "base/array.h"
#include "base/format.h"
#include "base/possible.h"
#include "base/text.h"
#include "cli/command.h"
#include "plan/profile_notes.h"

/* Marks each entry of the profile that the schedule runs. The caller frees the marks. */
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

static void note_left_out(const harpe_problem_input *input, harpe_text *text) {
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
    harpe_text_printf(text, "%s: stage %d '%s'%s %s not in schedule %s: left out",
                      input->profile_path, left_out->stage, left_out->instruction, more,
                      count > 1 ? "are" : "is", input->schedule_name);
}

/* Returns the highest power of one GPU in the profile. */
static double highest_power_w(const harpe_problem_input *input) {
    double highest_w = 0;
    for (size_t i = 0; i < harpe_problem_option_list_count(input->problem); i++) {
        const harpe_option_list *list = harpe_problem_option_list_at(input->problem, i);
        const harpe_profile_entry *entry =
            harpe_profile_find(input->profile, list->stage, list->instruction);
        int gpus = harpe_problem_gpu_count(input->problem, list->rank);
        for (size_t p = 0; entry && p < entry->point_count; p++) {
            double power_w = entry->points[p].energy_j / (entry->points[p].time_s * gpus);
            if (power_w > highest_w) highest_w = power_w;
        }
    }
    return highest_w;
}

/* Notes a blocking power that is too high to be plausible. A GPU that waits draws less power than a
 * GPU that works. */
static void note_blocking_power(const harpe_problem_input *input, harpe_text *text) {
    double highest_w = highest_power_w(input);
    if (highest_w < HARPE_GPU_LOWEST_W) return; /* the profile is wrong */
    for (size_t i = 0; i < input->blocking_power_count; i++) {
        if (input->blocking_power_w[i] <= highest_w) continue;
        harpe_text_printf(text,
                          "warning: --p2p-power %g: no instruction of %s draws more than %s W on "
                          "a GPU; is it the watts of one GPU that waits?",
                          input->blocking_power_w[i], input->profile_path,
                          HARPE_DIGITS(highest_w, 4));
        return;
    }
}

/* ---- All notes ------------------------------------------------------------------------------- */

static void append(json_t *notes, harpe_text *text) {
    if (text->length > 0 && !text->failed)
        json_array_append_new(notes, harpe_command_json_text(text->data));
    harpe_text_free(text);
    *text = (harpe_text){0};
}

json_t *harpe_plan_notes(const harpe_problem_input *input) {
    json_t *notes = json_array();
    if (input->graph_path) return notes;
    harpe_text text = {0};
    const char *warning;
    for (size_t i = 0; (warning = harpe_profile_warning_at(input->profile, i)); i++) {
        harpe_text_printf(&text, "warning: %s", warning);
        append(notes, &text);
    }
    harpe_profile_note_repeats(input->profile, input->profile_path, &text);
    append(notes, &text);
    note_left_out(input, &text);
    append(notes, &text);
    note_blocking_power(input, &text);
    append(notes, &text);
    return notes;
}

json_t *harpe_plan_notes_and(const harpe_problem_input *input, const char *more) {
    json_t *notes = harpe_plan_notes(input);
    if (more) json_array_append_new(notes, harpe_command_json_text(more));
    return notes;
}

void harpe_plan_notes_print(const char *command, const harpe_problem_input *input,
                            const char *more) {
    json_t *notes = harpe_plan_notes_and(input, more);
    for (size_t i = 0; i < json_array_size(notes); i++)
        fprintf(stderr, "harpe %s: %s\n", command, json_string_value(json_array_get(notes, i)));
    json_decref(notes);
}
