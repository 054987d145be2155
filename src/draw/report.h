/* SPDX-License-Identifier: Apache-2.0 */
/* report.html: one file with everything a reader wants to know of a frontier, to be opened from a
 * disk without a network. Takes plain data and the pictures of draw.h; computes only percents.
 * Where scripts run, the dashboard's components (web/) take the place of frontier and pipeline
 * pictures. */
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
    int number; /* in its file's name, freqs_pipeline_%05d.py */
    double time_s;
    double energy_j;
    double lower_bound_j;
    double compute_energy_j;
    double blocking_energy_j;
    double average_power_w;
    const int *frequency_mhz; /* of every instruction of the timeline; NULL: not told */
} harpe_report_plan;

typedef struct harpe_report_point {
    int frequency_mhz;
    double time_s;
    double energy_j;
} harpe_report_point;

/* A (stage, instruction) and what one run of it takes. */
typedef struct harpe_report_entry {
    int stage;
    const char *instruction;
    const harpe_report_point *points; /* highest frequency first, at least one */
    size_t point_count;
    int gpu_count; /* whose energy the points add up; 0 stands for 1 */
} harpe_report_entry;

typedef struct harpe_report_instruction {
    size_t entry;
    int microbatch;           /* -1: none */
    const int32_t *waits_for; /* instructions that must end before it starts, whatever their rank */
    size_t wait_count;
} harpe_report_instruction;

/* One iteration, from which the page lays out any plan in time. Instructions are numbered rank 0's
 * in the order of running, then rank 1's, and so on. */
typedef struct harpe_report_timeline {
    const harpe_report_entry *entries;
    size_t entry_count;
    const harpe_report_instruction *instructions;
    size_t instruction_count;
    const size_t *rank_offset; /* [rank_count + 1]: first instruction of each rank */
    int rank_count;
} harpe_report_timeline;

/* Zero-initialise, then set what there is. Any text may hold anything. */
typedef struct harpe_report {
    const char *title;     /* "gpt3-175b_a100.csv, 8 stages, 12 microbatches" */
    const char *version;   /* of Harpe */
    const char *directory; /* where the plan files are, as the user named it; shown in commands */
    const harpe_report_fact *facts; /* schedule, blocking power, cost model, solver time ... */
    size_t fact_count;
    const char *const *arguments; /* the command line, program first */
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
    const harpe_cost_model_picture *cost_models; /* one per stage that differs; may be empty */
    size_t cost_model_count;
} harpe_report;

/* Appends the page to `out`. */
harpe_status harpe_report_write(const harpe_report *report, harpe_text *out, harpe_error *error);

/* ---- for report*.c ------------------------------------------------------------------------ */

/* Index of the plan of least energy that takes at most `time_s`, or plan_count. */
size_t harpe_report_best_within(const harpe_report *report, double time_s);
/* Energy saved and time lost against the reference, in percent (0 without a reference). */
double harpe_report_savings(const harpe_report *report, const harpe_report_plan *plan);
double harpe_report_slowdown(const harpe_report *report, const harpe_report_plan *plan);
double harpe_report_gap(const harpe_report_plan *plan); /* above the lower bound, in percent */

void harpe_report_put_tables(const harpe_report *report, harpe_text *out);
/* Whether what the timeline names is there. */
harpe_status harpe_report_check_timeline(const harpe_report_timeline *timeline, harpe_error *error);
/* JSON for the script. */
harpe_status harpe_report_put_data(const harpe_report *report, harpe_text *out, harpe_error *error);
/* Escaped text, with what no page may hold replaced. */
void harpe_report_put_text(harpe_text *out, const char *text);

extern const char *const harpe_report_style; /* CSS, without the colours */
/* Made from web/ by the build: CSS of the dashboard's components, JavaScript. */
extern const unsigned char harpe_report_chart_style[];
extern const size_t harpe_report_chart_style_size;
extern const unsigned char harpe_report_script[];
extern const size_t harpe_report_script_size;

#endif
