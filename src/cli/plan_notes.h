/* SPDX-License-Identifier: Apache-2.0 */
/* What `harpe plan` was given that it could use, but that looks like a slip: told on stderr, and
 * never a failure. */
#ifndef HARPE_CLI_PLAN_NOTES_H
#define HARPE_CLI_PLAN_NOTES_H

#include "cli/problem_options.h"

/* At most one line for each kind of slip. `input` has been loaded. */
void harpe_plan_notes_print(const harpe_problem_input *input);

#endif
