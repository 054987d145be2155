/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises and reads an existing plan directory. plan_output.c writes plan directories. */
#ifndef HARPE_CLI_PLAN_PLAN_DIRECTORY_H
#define HARPE_CLI_PLAN_PLAN_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

#include "cli/plan/one_clock_rows.h"
#include "plan/frontier_file.h"

#define HARPE_FRONTIER_FILE_NAME "frontier.csv"
#define HARPE_BOUND_FILE_NAME "bound.csv"
#define HARPE_PLAN_JSON_NAME "plan.json"
#define HARPE_REPORT_NAME "report.html"
/* The value of "program" in plan.json: {"program": "harpe", ...}. */
#define HARPE_PLAN_JSON_PROGRAM "harpe"

typedef struct harpe_plan_directory {
    harpe_frontier_row *rows; /* rows of frontier.csv, at least one */
    size_t row_count;
    harpe_frontier_row all_maximum;
    harpe_one_clock_rows one_clock; /* none in files of older versions */
    double end_power_w; /* of all GPUs, while all of them wait at the end of an iteration */
    bool is_of_graph;   /* the plan files are those of a graph */
    int gpu_count;      /* of all ranks */
    double overhead_power_w;
} harpe_plan_directory;

/* Reads frontier.csv and plan.json; free with harpe_plan_directory_free. */
harpe_status harpe_plan_directory_read(const char *path, harpe_plan_directory *out,
                                       harpe_error *error);
/* Changes the overhead power that the rows count. */
void harpe_plan_directory_set_overhead(harpe_plan_directory *plans, double overhead_w);
void harpe_plan_directory_free(harpe_plan_directory *plans);

/* Returns the path of a file in a directory. The caller frees `*out` with free(). */
harpe_status harpe_plan_directory_join(const char *path, const char *name, char **out,
                                       harpe_error *error);

/* Checks whether --force may replace `path`. It may if `path` does not exist, is empty, or was made
 * by harpe plan. Returns HARPE_ALREADY_EXISTS for every other directory. harpe_directory_open
 * handles a path that is not a directory. */
harpe_status harpe_plan_directory_check_replaceable(const char *path, harpe_error *error);

#endif
