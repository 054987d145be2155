/* SPDX-License-Identifier: Apache-2.0 */
/* Reads frontier.csv. Formats a plan file as text, for callers that write it themselves (a plan
 * directory under construction). Reading, matching and writing to a path are public: see
 * harpe/plan.h. */
#ifndef HARPE_PLAN_PLAN_FILE_H
#define HARPE_PLAN_PLAN_FILE_H

#include <stddef.h>

#include <harpe/plan.h>

#include "base/text.h"

/* Format of the file name of plan `number` in a plan directory, for snprintf. */
#define HARPE_PLAN_FILE_NAME_FORMAT "freqs_pipeline_%05d.py"

/* Appends the text of harpe_plan_file_write. Check text->failed afterwards. */
void harpe_plan_file_format(harpe_text *text, const harpe_problem *problem, const harpe_plan *plan,
                            int number, double cost_change_j);

/* One row of frontier.csv. */
typedef struct harpe_frontier_row {
    int plan; /* number in the name of the plan's file; -1: the plan does not belong to a set */
    double time_s;
    double energy_j;
    double lower_bound_j; /* lower bound for any plan of time_s */
    double gap_percent;   /* energy above the lower bound */
    double compute_energy_j;
    double blocking_energy_j;
    double average_power_w;  /* per GPU */
    double slowdown_percent; /* relative to every instruction at its highest frequency */
    double savings_percent;  /* relative to the same reference */
    double overhead_energy_j;
    double peak_power_w;    /* of all GPUs and the overhead; NaN: a file has no such column */
    double swing_w;         /* strongest component from 0.1 to 20 Hz, from peak to peak */
    double swing_hz;        /* its frequency; 0: there is none */
    double change_energy_j; /* of the changes of clock: a part of energy_j and of the bound */
    /* Not in the file. */
    int one_clock_mhz;         /* the clock of all instructions; 0: they differ, or not known */
    double one_clock_energy_j; /* least energy with one clock for all GPUs in the time that the plan
                                * may take, or in that of the highest clocks if it is longer; 0: not
                                * known */
} harpe_frontier_row;

/* Returns the row of a plan whose lower_bound_j is set, without peak and swing. */
harpe_frontier_row harpe_frontier_row_of(const harpe_plan *plan, int number,
                                         const harpe_plan *all_maximum);

/* Changes the overhead power that a row counts to `overhead_w`. `all_maximum` is the reference with
 * the new overhead; it is changed first, with itself as reference. The lower bound stays one,
 * because the overhead of an iteration depends on its time alone. */
void harpe_frontier_row_set_overhead(harpe_frontier_row *row, double overhead_w,
                                     const harpe_frontier_row *all_maximum);

/* Returns the row of least energy among those of at most `most_s`, NULL if there is none. A time is
 * a sum, and another order of addition may make it longer by a share of 1e-9. */
const harpe_frontier_row *harpe_frontier_rows_within(const harpe_frontier_row *rows,
                                                     size_t row_count, double most_s);

/* Append the whole table with its header to `text`. The caller then checks text->failed. */
void harpe_frontier_csv_format(harpe_text *text, const harpe_frontier_row *rows, size_t row_count);
void harpe_bound_csv_format(harpe_text *text, const harpe_frontier_vertex *vertices, size_t count);

/* Reads a frontier.csv with at least one row and columns in any order. Files of older versions may
 * lack the overhead energy and that of changes, which are then 0, and peak and swing, which are
 * then NaN. The caller frees `*rows` with free(). Errors name file:line:column. */
harpe_status harpe_frontier_csv_read(const char *path, harpe_frontier_row **rows, size_t *row_count,
                                     harpe_error *error);

#endif
