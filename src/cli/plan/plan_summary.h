/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the result of `harpe plan` for people, and converts it to JSON. */
#ifndef HARPE_CLI_PLAN_PLAN_SUMMARY_H
#define HARPE_CLI_PLAN_PLAN_SUMMARY_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/plan/plan_result.h"

/* Prints the summary for people on stdout. `directory` may be NULL: nothing was written. */
void harpe_plan_summary_print(const harpe_problem_input *input, const harpe_plan_result *result,
                              const char *directory, bool has_report);
/* Returns key rows, counts and gaps, and the solver's work. */
json_t *harpe_plan_summary_json(const harpe_plan_result *result);
json_t *harpe_plan_work_json(const harpe_plan_result *result);

#endif
