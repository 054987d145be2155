/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as people and programs see them: rows of a small table, and JSON objects with the same
 * numbers. Used by every subcommand that shows plans. */
#ifndef HARPE_CLI_ROWS_H
#define HARPE_CLI_ROWS_H

#include <jansson.h>
#include <stddef.h>

#include "plan/frontier_file.h"

typedef struct harpe_labelled_row {
    char label[64];
    harpe_frontier_row row;
} harpe_labelled_row;

/* Prints a table with a heading on stdout. */
void harpe_rows_print(const harpe_labelled_row *rows, size_t count);

/* One row as an object with frontier.csv's column names as keys; no "plan" where it is -1, and no
 * compute and blocking energy where the row is a lower bound. */
json_t *harpe_row_json(const harpe_frontier_row *row);

/* Seconds with about four digits ("3.478", "0.04215"). */
void harpe_row_format_time(char *buffer, size_t size, double time_s);

#endif
