/* SPDX-License-Identifier: Apache-2.0 */
/* Draws frontiers, pipelines, fleets and cost models as SVG, and writes report.html. Times are in
 * seconds, energies in joules, powers in watts. The caller owns all input. A picture is appended to
 * a harpe_text, from which it can be written to a file; after a failure the text is unchanged. The
 * same input gives the same bytes. Several threads may draw at the same time. If a place in a
 * picture is not a finite number, or is too large, the picture is refused with
 * HARPE_INVALID_ARGUMENT. Drawing time and size of a picture are limited for every input, because
 * details that are too small to be seen are not drawn.
 *
 * A picture is drawn for a file, or for a page (`in_page`), which defines the colours. */
#ifndef HARPE_DRAW_DRAW_H
#define HARPE_DRAW_DRAW_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/plan.h>

#include "base/text.h"
#include "plan/plan_file.h"
#include "plan/problem.h"

/* ---- Frontier -------------------------------------------------------------------------------- */

/* Initialise with zeros, then set the members that you have. */
typedef struct harpe_frontier_picture {
    const char *title;                  /* may be NULL */
    const char *subtitle;               /* may be NULL */
    const harpe_frontier_vertex *bound; /* the lower bound, fastest first; a line */
    size_t bound_count;
    const harpe_frontier_row *plans; /* dots, fastest first; the fastest plan and the plan with the
                                        least energy get labels */
    size_t plan_count;
    harpe_frontier_row reference; /* every instruction at its highest frequency; time and energy */
    const harpe_frontier_row *one_clock; /* plans with one clock for all GPUs */
    size_t one_clock_count;
} harpe_frontier_picture;

/* Draws a frontier. `bound` or `plans` must have at least one point. */
harpe_status harpe_draw_frontier(const harpe_frontier_picture *picture, bool in_page,
                                 harpe_text *out, harpe_error *error);

/* ---- Pipeline -------------------------------------------------------------------------------- */

/* The kind of a box. Kinds that also exist in harpe_operation have the same numbers there. */
typedef enum harpe_box_kind {
    HARPE_BOX_FORWARD = 0,
    HARPE_BOX_BACKWARD = 1,
    HARPE_BOX_BACKWARD_INPUT = 2,
    HARPE_BOX_BACKWARD_WEIGHT = 3,
    HARPE_BOX_RECOMPUTATION = 4,
    HARPE_BOX_FORWARD_BACKWARD = 5,
    HARPE_BOX_STANDALONE = 6,
    HARPE_BOX_OVERLAPPED = 7, /* a forward and a backward of two microbatches, run as one
                               * instruction */
    HARPE_BOX_KIND_COUNT = 8,
} harpe_box_kind;

/* One instruction in time. */
typedef struct harpe_pipeline_box {
    int rank; /* below the picture's rank_count */
    harpe_box_kind kind;
    int microbatch;    /* -1: none */
    const char *name;  /* of an activity; NULL: the kind and the microbatch name the box */
    int frequency_mhz; /* 0: not known */
    double start_s;    /* >= 0 */
    double duration_s; /* >= 0 */
    double power_w;    /* energy / duration */
} harpe_pipeline_box;

typedef struct harpe_pipeline_panel {
    const char *title;  /* "Every instruction at its highest frequency", "Plan 37"; may be NULL */
    const char *detail; /* "4.331 s, 45.2 kJ"; may be NULL */
    const harpe_pipeline_box *boxes; /* in any order */
    size_t box_count;
    double time_s;          /* the iteration's length; 0: the end of the last box */
    const size_t *critical; /* indices of the boxes of one critical path, by time; may be NULL */
    size_t critical_count;
} harpe_pipeline_panel;

typedef struct harpe_pipeline_picture {
    const char *title;             /* may be NULL */
    int rank_count;                /* >= 1 */
    const char *const *lane_names; /* [rank_count]; NULL: "rank 0", "rank 1", ... */
    double blocking_power_w;       /* shown in the key; < 0: not shown */
    int panel_count; /* 1 or 2, one below the other, with the same time axis and power scale */
    harpe_pipeline_panel panels[2];
} harpe_pipeline_picture;

harpe_status harpe_draw_pipeline(const harpe_pipeline_picture *picture, bool in_page,
                                 harpe_text *out, harpe_error *error);

/* ---- Fleets ---------------------------------------------------------------------------------- */

/* A power that is constant from each sample to the next. */
typedef struct harpe_fleet_line {
    const char *label;
    size_t count;
    size_t step;           /* sample i is at_s[i * step] and power_w[i * step] */
    const double *at_s;    /* rising */
    const double *power_w; /* same count */
} harpe_fleet_line;

typedef struct harpe_fleet_band {
    double from_s, to_s;
    const char *label; /* a tooltip; may be NULL */
} harpe_fleet_band;

typedef struct harpe_fleet_picture {
    const char *title;              /* may be NULL */
    double end_s;                   /* > 0; the picture shows the time from 0 to here */
    const harpe_fleet_line *budget; /* NULL: none */
    const harpe_fleet_line *lines;  /* 1 to 4; the first is drawn on top */
    size_t line_count;
    const harpe_fleet_band *bands;
    size_t band_count;
} harpe_fleet_picture;

/* Draws the power of a fleet over time against its budget, for a file. */
harpe_status harpe_draw_fleet(const harpe_fleet_picture *picture, harpe_text *out,
                              harpe_error *error);

/* ---- Cost models ----------------------------------------------------------------------------- */

/* The options of one instruction of a stage, or of one activity. */
typedef struct harpe_cost_panel {
    const harpe_choice *choice;  /* measured points, options and curve */
    const double *frequency_mhz; /* [point_count] of the points; NULL: those in the points */
} harpe_cost_panel;

typedef struct harpe_cost_model_picture {
    const char *title;              /* "Stage 3"; may be NULL */
    const char *curve_label;        /* "lower convex hull", "a*exp(b*t)+c" */
    const harpe_cost_panel *panels; /* drawn side by side, up to three in a row */
    size_t panel_count;             /* >= 1 */
} harpe_cost_model_picture;

harpe_status harpe_draw_cost_model(const harpe_cost_model_picture *picture, bool in_page,
                                   harpe_text *out, harpe_error *error);

/* ---- Report ---------------------------------------------------------------------------------- */

/* A line of a two-column list. */
typedef struct harpe_report_fact {
    const char *name;
    const char *value;
} harpe_report_fact;

/* Initialise with zeros, then set the members that you have. A text may contain any bytes. */
typedef struct harpe_report {
    const char *title;     /* "gpt3.csv: 8 stages x 12 microbatches, schedule 1f1b" */
    const char *version;   /* version of Harpe */
    const char *directory; /* directory of the plan files as the user wrote it; shown in commands */
    const harpe_report_fact *facts; /* schedule, blocking power, cost model, solver time ... */
    size_t fact_count;
    const char *const *arguments; /* the command line, beginning with the program's name */
    size_t argument_count;
    harpe_frontier_picture frontier; /* without titles; at least one plan */
    const harpe_problem *problem;    /* of the plans */
    const int *const *frequency_mhz; /* [plan_count] of all instructions, for timelines; NULL: none,
                                      * as for a graph */
    const harpe_pipeline_picture *pipelines; /* may be empty */
    size_t pipeline_count;
    const harpe_cost_model_picture *cost_models; /* one for each different stage; may be empty */
    size_t cost_model_count;
} harpe_report;

/* Appends report.html: one file with the information about a frontier, which a browser can open
 * from a disk without a network. If scripts run, the dashboard's components (web/) replace the
 * pictures of frontier and pipelines. */
harpe_status harpe_report_write(const harpe_report *report, harpe_text *out, harpe_error *error);

#endif
