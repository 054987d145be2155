/* SPDX-License-Identifier: Apache-2.0 */
/* A plan directory as one finds it: told from any other directory, and read back. Writing one is
 * plan_output.c's. */
#ifndef HARPE_CLI_PLAN_DIRECTORY_H
#define HARPE_CLI_PLAN_DIRECTORY_H

#include <stddef.h>

#include <harpe/status.h>

#include "plan/frontier_file.h"

#define HARPE_FRONTIER_FILE_NAME "frontier.csv"
#define HARPE_BOUND_FILE_NAME "bound.csv"
#define HARPE_PLAN_JSON_NAME "plan.json"
#define HARPE_REPORT_NAME "report.html"
/* What plan.json says of itself: {"program": "harpe", ...}. */
#define HARPE_PLAN_JSON_PROGRAM "harpe"

typedef struct harpe_plan_directory {
    harpe_frontier_row *rows; /* of frontier.csv, at least one */
    size_t row_count;
    harpe_frontier_row all_maximum;
    double total_blocking_power_w;
} harpe_plan_directory;

/* Reads frontier.csv and plan.json; free with harpe_plan_directory_free. */
harpe_status harpe_plan_directory_read(const char *path, harpe_plan_directory *out,
                                       harpe_error *error);
void harpe_plan_directory_free(harpe_plan_directory *plans);

/* The path of a file in a directory; `*out` is to be freed with free(). */
harpe_status harpe_plan_directory_join(const char *path, const char *name, char **out,
                                       harpe_error *error);

/* Whether --force may replace what stands at `path`: nothing, an empty directory, or one that
 * harpe plan has made. HARPE_ALREADY_EXISTS for every other directory. What is no directory is
 * left to harpe_directory_open. */
harpe_status harpe_plan_directory_check_replaceable(const char *path, harpe_error *error);

#endif
