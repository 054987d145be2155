/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the pictures and the report of a plan directory. */
#ifndef HARPE_CLI_PLAN_PLAN_PICTURES_H
#define HARPE_CLI_PLAN_PLAN_PICTURES_H

#include "base/directory.h"
#include "cli/plan/plan_result.h"
#include "cli/plan/problem_options.h"

/* The names of the directory and of the command in the report. */
typedef struct harpe_plan_output_names {
    const char *directory;
    const char *const *arguments; /* the command line, beginning with the program's name */
    size_t argument_count;
} harpe_plan_output_names;

/* Writes pictures and, if there are plans, report.html. */
harpe_status harpe_plan_output_pictures(harpe_directory *directory,
                                        const harpe_plan_output_names *names,
                                        const harpe_problem_input *input,
                                        const harpe_plan_result *result, harpe_error *error);

#endif
