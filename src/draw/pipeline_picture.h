/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that draw a pipeline share: its layout and its colours. Lanes and boxes are drawn
 * by pipeline_picture.c, crowds of boxes by pipeline_pixels.c, the key by pipeline_key.c. */
#ifndef HARPE_DRAW_PIPELINE_PICTURE_H
#define HARPE_DRAW_PIPELINE_PICTURE_H

#include "base/format.h"
#include "draw/axis.h"
#include "draw/canvas.h"
#include "draw/draw.h"

typedef struct harpe_box_style {
    const char *letter;
    const char *name;
    harpe_ink ink; /* of the strip along a box's head */
} harpe_box_style;

extern const harpe_box_style harpe_box_styles[HARPE_BOX_KIND_COUNT];

typedef struct harpe_pipeline_drawing {
    const harpe_pipeline_picture *picture;
    harpe_canvas *canvas;
    double width, height;
    double left, right, top; /* of the lanes; top of everything below the title */
    double pitch;            /* a lane with the gap below it */
    double panel_height;
    int lane_step;  /* every how many ranks a lane is drawn */
    int lane_count; /* lanes drawn */
    size_t box_count;
    bool as_pixels;
    bool has_strips; /* boxes are wide enough for a strip that tells their kind */
    double end_s;    /* right end of the time axis */
    harpe_unit time;
    harpe_range power;
    bool kind_is_present[HARPE_BOX_KIND_COUNT];
    double digit_width, letter_width; /* of a box's label; 0: not measured yet */
} harpe_pipeline_drawing;

double harpe_pipeline_x(const harpe_pipeline_drawing *drawing, double time_s);
uint32_t harpe_pipeline_heat(const harpe_pipeline_drawing *drawing, double power_w);

/* All boxes of a panel as one image: a pixel shows the mean power of what runs within it, and is as
 * opaque as the part of it in which something runs. O(boxes + pixels). */
harpe_status harpe_pipeline_draw_pixels(harpe_pipeline_drawing *drawing,
                                        const harpe_pipeline_panel *panel, double panel_top,
                                        harpe_error *error);

/* What the strips, grey and the line mean, and the power scale; its middle at height y. */
void harpe_pipeline_draw_key(harpe_pipeline_drawing *drawing, double y);

#endif
