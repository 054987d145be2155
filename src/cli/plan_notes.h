/* SPDX-License-Identifier: Apache-2.0 */
/* Notes about a problem that can be planned but may not be the intended one. */
#ifndef HARPE_CLI_PLAN_NOTES_H
#define HARPE_CLI_PLAN_NOTES_H

#include "base/text.h"
#include "cli/problem_options.h"

/* Appends to `text` one sentence, without its full stop, about rows that were averaged, if there
 * are any. `path` is that of the profile. */
void harpe_plan_note_repeats(const harpe_profile *profile, const char *path, harpe_text *text);

/* The notes about a loaded problem, as a JSON array of sentences. */
json_t *harpe_plan_notes(const harpe_problem_input *input);

/* Prints the notes to stderr, each as "harpe <command>: <note>". */
void harpe_plan_notes_print(const char *command, const harpe_problem_input *input);

#endif
