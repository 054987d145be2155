/* SPDX-License-Identifier: Apache-2.0 */
/* Draws frontiers, pipelines, fleets and cost models from plain arrays, without the planner. Times
 * are in seconds, energies in joules, powers in watts. The caller owns all input. A picture is
 * appended to a harpe_text, from which it can be written to a file. The same input gives the same
 * bytes. Several threads may draw at the same time. All numbers must be finite. Drawing time and
 * size of the picture are limited for every input, because details that are too small to be seen
 * are not drawn. */
#ifndef HARPE_DRAW_DRAW_H
#define HARPE_DRAW_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/text.h"

typedef enum harpe_image_format {
    HARPE_IMAGE_PNG = 0, /* two device pixels per point */
    HARPE_IMAGE_SVG = 1,
    HARPE_IMAGE_PDF = 2,
    HARPE_IMAGE_HTML = 3, /* an <svg> element for a page that defines the colours (report.c) */
} harpe_image_format;

/* ---- Frontier -------------------------------------------------------------------------------- */

typedef struct harpe_point {
    double time_s;
    double energy_j;
} harpe_point;

/* Initialise with zeros, then set the members that you have. */
typedef struct harpe_frontier_picture {
    const char *title;        /* may be NULL */
    const char *subtitle;     /* may be NULL */
    const harpe_point *bound; /* the lower bound, fastest first; a line */
    size_t bound_count;
    const harpe_point *plans; /* dots, fastest first; the fastest plan and the plan with the least
                                 energy get labels */
    size_t plan_count;
    bool has_reference; /* every instruction at its highest frequency; the reference for savings */
    harpe_point reference;
    const harpe_point *one_clock; /* plans with one clock for all GPUs */
    size_t one_clock_count;
    double width, height; /* 0: 860 x 500 */
} harpe_frontier_picture;

/* Draws a frontier. `bound` or `plans` must have at least one point. */
harpe_status harpe_draw_frontier(const harpe_frontier_picture *picture, harpe_image_format format,
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
    int rank;
    harpe_box_kind kind;
    int microbatch;    /* -1: none */
    const char *name;  /* of an activity; NULL: the kind and the microbatch name the box */
    int frequency_mhz; /* 0: not known */
    double start_s;
    double duration_s;
    double power_w; /* energy / duration */
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
    int rank_count;                /* >= 1; every box has a lower rank */
    const char *const *lane_names; /* [rank_count]; NULL: "rank 0", "rank 1", ... */
    double blocking_power_w;       /* shown in the key; < 0: not shown */
    int panel_count; /* 1 or 2, one below the other, with the same time axis and power scale */
    harpe_pipeline_panel panels[2];
} harpe_pipeline_picture;

harpe_status harpe_draw_pipeline(const harpe_pipeline_picture *picture, harpe_image_format format,
                                 harpe_text *out, harpe_error *error);

/* Finds one critical path of boxes placed by an earliest-first schedule. The search begins at a box
 * that ends last, and goes back to a box that ends exactly when the current box starts. It prefers
 * a box of the same rank, then a box with the same microbatch. `*path` contains box indices by
 * time; free it with free(). O(boxes * log boxes). */
harpe_status harpe_pipeline_critical_path(const harpe_pipeline_box *boxes, size_t box_count,
                                          size_t **path, size_t *path_count, harpe_error *error);

/* ---- Fleets ---------------------------------------------------------------------------------- */

/* A power that is constant from each sample to the next. */
typedef struct harpe_fleet_line {
    const char *label;
    size_t count;
    const double *at_s; /* rising */
    const double *power_w;
} harpe_fleet_line;

typedef struct harpe_fleet_band {
    double from_s, to_s;
    const char *label; /* shown by formats with tooltips; may be NULL */
} harpe_fleet_band;

typedef struct harpe_fleet_picture {
    const char *title;              /* may be NULL */
    double end_s;                   /* the picture shows the time from 0 to here */
    const harpe_fleet_line *budget; /* NULL: none */
    const harpe_fleet_line *lines;  /* 1 to 4; the first is drawn on top */
    size_t line_count;
    const harpe_fleet_band *bands;
    size_t band_count;
} harpe_fleet_picture;

/* Draws the power of a fleet over time against its budget. */
harpe_status harpe_draw_fleet(const harpe_fleet_picture *picture, harpe_image_format format,
                              harpe_text *out, harpe_error *error);

/* ---- Cost models ----------------------------------------------------------------------------- */

typedef struct harpe_cost_point {
    int frequency_mhz; /* 0: measured without a set clock */
    double time_s;
    double effective_energy_j; /* energy - blocking power * time */
    bool is_option;            /* Pareto-optimal, so the planner may choose it */
} harpe_cost_point;

/* One (stage, instruction). */
typedef struct harpe_cost_panel {
    const char *title; /* the instruction's name */
    const harpe_cost_point *points;
    size_t point_count;
    const double *curve_time_s; /* the relaxation's curve, fastest first; may be empty */
    const double *curve_effective_energy_j;
    size_t curve_count;
} harpe_cost_panel;

typedef struct harpe_cost_model_picture {
    const char *title;              /* "Stage 3"; may be NULL */
    const char *curve_label;        /* "lower convex hull", "a*exp(b*t)+c" */
    const harpe_cost_panel *panels; /* drawn side by side, up to three in a row; at most 24 */
    size_t panel_count;
    double blocking_power_w;
} harpe_cost_model_picture;

harpe_status harpe_draw_cost_model(const harpe_cost_model_picture *picture,
                                   harpe_image_format format, harpe_text *out, harpe_error *error);

#endif
