/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a plan directory: which there are, and filling a directory under construction with
 * them. Making the directory visible is the command's. */
#ifndef HARPE_CLI_PLAN_OUTPUT_H
#define HARPE_CLI_PLAN_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/file.h"
#include "cli/plan_directory.h"
#include "cli/plan_result.h"
#include "cli/problem_options.h"

/* bound.csv. */
harpe_status harpe_plan_output_bound(harpe_directory *directory, const harpe_plan_result *result,
                                     harpe_error *error);
/* frontier.csv and the plan files. */
harpe_status harpe_plan_output_plans(harpe_directory *directory, const harpe_problem_input *input,
                                     const harpe_plan_result *result, harpe_error *error);
/* plan.json; `arguments` is what the command was asked, taken over. */
harpe_status harpe_plan_output_json(harpe_directory *directory, const harpe_problem_input *input,
                                    const harpe_plan_result *result, json_t *arguments,
                                    harpe_error *error);
/* How the report calls the directory and the command that made it. */
typedef struct harpe_plan_output_names {
    const char *directory;
    const char *const *arguments; /* the command line, program first */
    size_t argument_count;
} harpe_plan_output_names;

/* Pictures and, where there are plans, report.html (plan_images.c). */
harpe_status harpe_plan_output_pictures(harpe_directory *directory,
                                        const harpe_plan_output_names *names,
                                        const harpe_problem_input *input,
                                        const harpe_plan_result *result, harpe_error *error);

#endif
