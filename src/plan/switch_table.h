/* SPDX-License-Identifier: Apache-2.0 */
/* A table of switching latencies by new clock, for all ranks of a problem: the CSV file that
 * `harpe profile switch` writes. Private to src/plan and src/cli. */
#ifndef HARPE_PLAN_SWITCH_TABLE_H
#define HARPE_PLAN_SWITCH_TABLE_H

#include <stddef.h>

#include <harpe/plan.h>

#define HARPE_SWITCH_TABLE_ROWS_MAX ((size_t)4096)
#define HARPE_SWITCH_LATENCY_MAX_S 3600

typedef struct harpe_switch_row {
    int frequency_mhz; /* the new clock, 1 to HARPE_FREQUENCY_MAX_MHZ */
    int line;          /* of the file */
    double latency_s;  /* from the request to the new clock, 0 to HARPE_SWITCH_LATENCY_MAX_S */
} harpe_switch_row;

/* Sorted by rising frequency; each frequency once; at least one row after a successful read. */
typedef struct harpe_switch_table {
    harpe_switch_row *rows; /* free it with harpe_switch_table_clear */
    size_t count, capacity;
} harpe_switch_table;

/* Reads a CSV file with the columns frequency and latency_s. If it has the column gpu, all rows
 * must have the same one. Other columns are ignored. At most 1 MiB and HARPE_SWITCH_TABLE_ROWS_MAX
 * rows. Fails with HARPE_INVALID_INPUT or HARPE_LIMIT_EXCEEDED, names file, line and column, and
 * leaves the table empty. */
harpe_status harpe_switch_table_read_csv(const char *path, harpe_switch_table *out,
                                         harpe_error *error);
harpe_status harpe_switch_table_parse_csv(const char *text, size_t length, const char *name,
                                          harpe_switch_table *out, harpe_error *error);
void harpe_switch_table_clear(harpe_switch_table *table);

/* Returns the latency of a change to a frequency: linear between two rows, that of the nearest row
 * outside of them, and 0 for 0 MHz, which asks for no clock. */
double harpe_switch_table_latency_s(const harpe_switch_table *table, int frequency_mhz);

/* Replaces the switching latencies of a problem, which is not that of a graph, with those of the
 * table, for all ranks. */
harpe_status harpe_switch_table_apply(const harpe_switch_table *table, harpe_problem *problem,
                                      harpe_error *error);

#endif
