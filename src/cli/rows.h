/* SPDX-License-Identifier: Apache-2.0 */
/* Prints plans for people and programs: as rows of a small table, and as JSON objects with the
 * same numbers. Every subcommand that shows plans uses it. */
#ifndef HARPE_CLI_ROWS_H
#define HARPE_CLI_ROWS_H

#include <jansson.h>
#include <stddef.h>

#include "plan/frontier_file.h"

typedef struct harpe_labelled_row {
    char label[64];
    harpe_frontier_row row;
} harpe_labelled_row;

/* Prints a table with a heading on stdout. If there is overhead energy, the table has a column for
 * the energy of the GPUs alone. If one_clock_energy_j is known, it has a column for the savings
 * against it. */
void harpe_rows_print(const harpe_labelled_row *rows, size_t count);
/* Prints a table with peak and swing of the plans' power. Leaves out rows without a peak. */
void harpe_rows_print_power(const harpe_labelled_row *rows, size_t count);

/* Returns one row as an object with frontier.csv's column names as keys. Omits "plan" if the number
 * is -1. If the row is a lower bound, omits the parts of the energy, peak and swing. Also omits
 * peak and swing if they are not known. Adds one_clock_savings_percent and frequency_mhz (of a plan
 * with one clock) if they are known. */
json_t *harpe_row_json(const harpe_frontier_row *row);

/* Returns the number of decimals that gives about `digits` significant digits. */
int harpe_row_decimals(double value, int digits);
/* Formats seconds with about four digits ("3.478", "0.04215"). */
void harpe_row_format_time(char *buffer, size_t size, double time_s);

#endif
