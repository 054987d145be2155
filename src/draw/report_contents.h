/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a report, as plain data. */
#ifndef HARPE_DRAW_REPORT_CONTENTS_H
#define HARPE_DRAW_REPORT_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "draw/draw.h"

/* A line of a two-column list. */
typedef struct harpe_report_fact {
    const char *name;
    const char *value;
} harpe_report_fact;

/* One written plan: a row of frontier.csv. */
typedef struct harpe_report_plan {
    int number; /* number in the file's name: freqs_pipeline_%05d.py, or plan_%05d.json of a graph
                 */
    double time_s;
    double energy_j;
    double lower_bound_j;
    double compute_energy_j;
    double blocking_energy_j;
    double average_power_w;
    double overhead_energy_j;
    double peak_power_w;
    double swing_w;           /* from peak to peak, 0.1 to 20 Hz */
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
    double lag_s; /* the instructions of other ranks must end so many seconds before */
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
    bool is_of_graph;      /* resources and activities, not ranks and instructions */
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
    const harpe_report_point *one_clock; /* plans with one clock for all GPUs; may be empty. A clock
                                          * of 0: the highest clocks, which differ */
    size_t one_clock_count;
    const harpe_point *bound; /* fastest first; may be empty */
    size_t bound_count;
    const harpe_pipeline_picture *pipelines; /* may be empty */
    size_t pipeline_count;
    const harpe_report_timeline *timeline;       /* may be NULL; needs a pipeline picture */
    const harpe_cost_model_picture *cost_models; /* one for each different stage; may be empty */
    size_t cost_model_count;
} harpe_report;

#endif
