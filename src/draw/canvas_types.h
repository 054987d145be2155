/* SPDX-License-Identifier: Apache-2.0 */
/* The small types of a canvas: points, styles of texts and lines, and images. */
#ifndef HARPE_DRAW_CANVAS_TYPES_H
#define HARPE_DRAW_CANVAS_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "draw/palette.h"

typedef struct harpe_xy {
    double x, y;
} harpe_xy;

typedef enum harpe_anchor { HARPE_START = 0, HARPE_MIDDLE, HARPE_END } harpe_anchor;

typedef struct harpe_text_style {
    double size;
    harpe_color color;
    harpe_anchor anchor;
    bool bold;
    bool halo;            /* draw a rim in the paper's colour, for text that crosses lines */
    double angle_degrees; /* clockwise, around the anchor */
} harpe_text_style;

typedef struct harpe_stroke {
    harpe_color color;
    double width;
    double dash; /* 0: solid */
} harpe_stroke;

/* An image with transparency. Each pixel is 0xAARRGGBB, with premultiplied colours. */
typedef struct harpe_pixels {
    uint32_t *argb;
    int width, height;
} harpe_pixels;

#endif
