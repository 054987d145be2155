/* SPDX-License-Identifier: Apache-2.0 */
/* Notes about a problem that can be planned but may not be what was meant. */
#ifndef HARPE_CLI_PLAN_NOTES_H
#define HARPE_CLI_PLAN_NOTES_H

#include "base/text.h"
#include "cli/problem_options.h"

/* Rows that were averaged, in one sentence without a final point, appended to `text`; nothing where
 * there are none. `path` is the profile's. */
void harpe_plan_note_repeats(const harpe_profile *profile, const char *path, harpe_text *text);

/* What is to be noted about a problem that was loaded, as a JSON array of sentences. */
json_t *harpe_plan_notes(const harpe_problem_input *input);

/* Prints the notes to stderr, each as "harpe <command>: <note>". */
void harpe_plan_notes_print(const char *command, const harpe_problem_input *input);

#endif
