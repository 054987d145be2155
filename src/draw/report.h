/* SPDX-License-Identifier: Apache-2.0 */
/* report.html: one file with the information about a frontier. A browser can open it from a disk
 * without a network. The file is made from plain data and the pictures of draw.h. Only percentages
 * are computed here. If scripts run, the dashboard's components (web/) replace the pictures of
 * frontier and pipelines. */
#ifndef HARPE_DRAW_REPORT_H
#define HARPE_DRAW_REPORT_H

#include "draw/draw.h"

/* A line of a two-column list. */
typedef struct harpe_report_fact {
    const char *name;
    const char *value;
} harpe_report_fact;

/* One written plan: a row of frontier.csv. */
typedef struct harpe_report_plan {
    int number; /* number in the file's name, freqs_pipeline_%05d.py */
    double time_s;
    double energy_j;
    double lower_bound_j;
    double compute_energy_j;
    double blocking_energy_j;
    double average_power_w;
    const int *frequency_mhz; /* frequency of every instruction of the timeline; NULL: not shown */
} harpe_report_plan;

typedef struct harpe_report_point {
    int frequency_mhz;
    double time_s;
    double energy_j;
} harpe_report_point;

/* A (stage, instruction) with the time and energy of one run. */
typedef struct harpe_report_entry {
    int stage;
    const char *instruction;
    const harpe_report_point *points; /* highest frequency first, at least one */
    size_t point_count;
    int gpu_count; /* number of GPUs whose energy is summed in the points; 0 means 1 */
} harpe_report_entry;

typedef struct harpe_report_instruction {
    size_t entry;
    int microbatch;           /* -1: none */
    const int32_t *waits_for; /* instructions of any rank that must end before */
    size_t wait_count;
} harpe_report_instruction;

/* One iteration, from which the page computes the timeline of any plan. Instructions are numbered:
 * first those of rank 0 in the order in which they run, then those of rank 1, and so on. */
typedef struct harpe_report_timeline {
    const harpe_report_entry *entries;
    size_t entry_count;
    const harpe_report_instruction *instructions;
    size_t instruction_count;
    const size_t *rank_offset; /* [rank_count + 1]: first instruction of each rank */
    int rank_count;
} harpe_report_timeline;

/* Initialise with zeros, then set the members that you have. A text may contain any bytes. */
typedef struct harpe_report {
    const char *title;     /* "gpt3-175b_a100.csv, 8 stages, 12 microbatches" */
    const char *version;   /* version of Harpe */
    const char *directory; /* directory of the plan files as the user wrote it; shown in commands */
    const harpe_report_fact *facts; /* schedule, blocking power, cost model, solver time ... */
    size_t fact_count;
    const char *const *arguments; /* the command line, beginning with the program's name */
    size_t argument_count;
    const harpe_report_plan *plans; /* fastest first, at least one */
    size_t plan_count;
    bool has_reference; /* every instruction at its highest frequency */
    harpe_point reference;
    const harpe_point *bound; /* fastest first; may be empty */
    size_t bound_count;
    const harpe_pipeline_picture *pipelines; /* may be empty */
    size_t pipeline_count;
    const harpe_report_timeline *timeline;       /* may be NULL; needs a pipeline picture */
    const harpe_cost_model_picture *cost_models; /* one for each different stage; may be empty */
    size_t cost_model_count;
} harpe_report;

/* Appends the page to `out`. */
harpe_status harpe_report_write(const harpe_report *report, harpe_text *out, harpe_error *error);

/* ---- for report*.c --------------------------------------------------------------------------- */

/* Returns the index of the plan with the least energy among those that take at most `time_s`, or
 * plan_count if no plan does. */
size_t harpe_report_best_within(const harpe_report *report, double time_s);
/* Return how much less energy and how much more time a plan needs than the reference, in percent.
 * Without a reference they return 0. */
double harpe_report_savings(const harpe_report *report, const harpe_report_plan *plan);
double harpe_report_slowdown(const harpe_report *report, const harpe_report_plan *plan);
double harpe_report_gap(const harpe_report_plan *plan); /* energy above the lower bound, in
                                                         * percent */

void harpe_report_put_tables(const harpe_report *report, harpe_text *out);
/* Checks that everything to which the timeline refers exists. */
harpe_status harpe_report_check_timeline(const harpe_report_timeline *timeline, harpe_error *error);
/* Writes JSON for the script. */
harpe_status harpe_report_put_data(const harpe_report *report, harpe_text *out, harpe_error *error);
/* Writes escaped text, and replaces characters that a page must not contain. */
void harpe_report_put_text(harpe_text *out, const char *text);

extern const char *const harpe_report_style; /* CSS, without the colours */
/* JavaScript, and CSS of the dashboard's components. The build makes them from web/. */
extern const unsigned char harpe_report_chart_style[];
extern const size_t harpe_report_chart_style_size;
extern const unsigned char harpe_report_script[];
extern const size_t harpe_report_script_size;

#endif
