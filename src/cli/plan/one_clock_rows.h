/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the plans with one clock for all GPUs, with which every saving is compared. */
#ifndef HARPE_CLI_PLAN_ONE_CLOCK_ROWS_H
#define HARPE_CLI_PLAN_ONE_CLOCK_ROWS_H

#include <jansson.h>

#include "cli/rows.h"

/* Zero-initialise. */
typedef struct harpe_one_clock_rows {
    harpe_frontier_row *rows; /* fastest first, without peak and swing */
    size_t count;             /* 0: none, as for a graph */
    double highest_s;         /* time at the highest clocks */
} harpe_one_clock_rows;

/* Makes the rows. A problem of a graph has none. Free with harpe_one_clock_rows_free. */
harpe_status harpe_one_clock_rows_make(const harpe_problem *problem, const harpe_frontier *frontier,
                                       const harpe_plan *all_maximum, harpe_one_clock_rows *out,
                                       harpe_error *error);
void harpe_one_clock_rows_free(harpe_one_clock_rows *of);

/* Returns the row of least energy within a time, or within that of the highest clocks if it is
 * longer. NULL: there are no rows. */
const harpe_frontier_row *harpe_one_clock_row_within(const harpe_one_clock_rows *of, double most_s);

/* Fills in the row's one_clock_energy_j for a plan that may take `most_s`, and returns the row that
 * it is compared with; NULL: there are none. */
const harpe_frontier_row *harpe_one_clock_compare(const harpe_one_clock_rows *of, double most_s,
                                                  harpe_frontier_row *row);

/* Copies a row for a table. It is labelled with its clock. */
harpe_labelled_row harpe_one_clock_labelled(const harpe_frontier_row *row);

#endif
