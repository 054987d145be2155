/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of a plan directory into a temporary directory. The command moves the directory
 * to its place when it is complete. */
#ifndef HARPE_CLI_PLAN_PLAN_OUTPUT_H
#define HARPE_CLI_PLAN_PLAN_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/directory.h"
#include "cli/plan/plan_directory.h"
#include "cli/plan/plan_result.h"
#include "cli/plan/problem_options.h"

/* Writes bound.csv. */
harpe_status harpe_plan_output_bound(harpe_directory *directory, const harpe_plan_result *result,
                                     harpe_error *error);
/* Writes frontier.csv and the plan files. */
harpe_status harpe_plan_output_plans(harpe_directory *directory, const harpe_problem_input *input,
                                     const harpe_plan_result *result, harpe_error *error);
/* Writes plan.json. `arguments` contains the command's arguments and is released. */
harpe_status harpe_plan_output_json(harpe_directory *directory, const harpe_problem_input *input,
                                    const harpe_plan_result *result, json_t *arguments,
                                    harpe_error *error);

#endif
