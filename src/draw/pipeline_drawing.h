/* SPDX-License-Identifier: Apache-2.0 */
/* The layout and the colours of a pipeline picture, for the files that draw it. pipeline_picture.c
 * draws lanes and boxes, pipeline_pixels.c draws large numbers of boxes, and pipeline_key.c draws
 * the key. */
#ifndef HARPE_DRAW_PIPELINE_DRAWING_H
#define HARPE_DRAW_PIPELINE_DRAWING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/format.h"
#include "draw/axis.h"
#include "draw/canvas.h"
#include "draw/draw.h"

typedef struct harpe_box_style {
    const char *letter;
    const char *name;
    harpe_ink ink; /* colour of the strip along the top of a box */
} harpe_box_style;

extern const harpe_box_style harpe_box_styles[HARPE_BOX_KIND_COUNT];

typedef struct harpe_pipeline_drawing {
    const harpe_pipeline_picture *picture;
    harpe_canvas *canvas;
    double width, height;
    double left, right, top; /* edges of the lanes; top is just below the title */
    double pitch;            /* height of a lane with the gap below it */
    double panel_height;
    int lane_step;  /* a lane is drawn for every lane_step-th rank */
    int lane_count; /* lanes drawn */
    size_t box_count;
    bool as_pixels;
    bool has_strips; /* boxes are wide enough for a strip that shows their kind */
    double end_s;    /* right end of the time axis */
    harpe_unit time;
    harpe_range power;
    bool kind_is_present[HARPE_BOX_KIND_COUNT];
    double digit_width, letter_width; /* width of a digit and a letter in a label; 0: not measured
                                       * yet */
} harpe_pipeline_drawing;

double harpe_pipeline_x(const harpe_pipeline_drawing *drawing, double time_s);
uint32_t harpe_pipeline_heat(const harpe_pipeline_drawing *drawing, double power_w);

#endif
