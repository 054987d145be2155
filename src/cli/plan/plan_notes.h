/* SPDX-License-Identifier: Apache-2.0 */
/* Notes about a problem that can be planned but may not be the problem that the user has in mind.
 */
#ifndef HARPE_CLI_PLAN_PLAN_NOTES_H
#define HARPE_CLI_PLAN_PLAN_NOTES_H

#include "cli/plan/problem_options.h"

/* Returns the notes about a loaded problem, as a JSON array of sentences. */
json_t *harpe_plan_notes(const harpe_problem_input *input);

/* Returns these notes and one more, if it is not NULL. */
json_t *harpe_plan_notes_and(const harpe_problem_input *input, const char *more);

/* Prints the notes, and one more if it is not NULL, to stderr, each as
 * "harpe <command>: <note>". */
void harpe_plan_notes_print(const char *command, const harpe_problem_input *input,
                            const char *more);

#endif
