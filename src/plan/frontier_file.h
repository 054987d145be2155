/* SPDX-License-Identifier: Apache-2.0 */
/* frontier.csv and bound.csv: a plan directory's two tables, written and read back. A row is a plan
 * with everything that people compare plans by. Which files a directory holds is not decided here.
 */
#ifndef HARPE_PLAN_FRONTIER_FILE_H
#define HARPE_PLAN_FRONTIER_FILE_H

#include <stddef.h>

#include <harpe/plan.h>

#include "base/text.h"

/* One row of frontier.csv. */
typedef struct harpe_frontier_row {
    int plan; /* the number in its file's name; -1: not one of a set */
    double time_s;
    double energy_j;
    double lower_bound_j; /* of any plan that takes time_s */
    double gap_percent;   /* energy above the lower bound */
    double compute_energy_j;
    double blocking_energy_j;
    double average_power_w;  /* per GPU */
    double slowdown_percent; /* against every instruction at its highest frequency */
    double savings_percent;  /* likewise */
} harpe_frontier_row;

/* The row of a plan whose lower_bound_j is set. */
harpe_frontier_row harpe_frontier_row_of(const harpe_plan *plan, int number,
                                         const harpe_plan *all_maximum);

/* Append the whole table with its header; check text->failed after. */
void harpe_frontier_csv_format(harpe_text *text, const harpe_frontier_row *rows, size_t row_count);
void harpe_bound_csv_format(harpe_text *text, const harpe_frontier_vertex *vertices, size_t count);

/* Reads a frontier.csv of at least one row; columns in any order. `*rows` is to be freed with
 * free(). Errors name file:line:column. */
harpe_status harpe_frontier_csv_read(const char *path, harpe_frontier_row **rows, size_t *row_count,
                                     harpe_error *error);

#endif
