/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a canvas, which canvas.c, canvas_cairo.c and canvas_svg.c share. Private to these
 * files. */
#ifndef HARPE_DRAW_CANVAS_INTERNAL_H
#define HARPE_DRAW_CANVAS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "draw/canvas_types.h"
#include "draw/draw.h"

typedef struct harpe_canvas harpe_canvas;

typedef struct harpe_canvas_operations {
    void (*rect)(harpe_canvas *, double, double, double, double, harpe_color, const char *);
    void (*path)(harpe_canvas *, const harpe_xy *, size_t, bool, harpe_color, harpe_stroke);
    void (*circle)(harpe_canvas *, double, double, double, harpe_color, harpe_stroke);
    void (*text)(harpe_canvas *, double, double, const harpe_text_style *, const char *);
    void (*pixels)(harpe_canvas *, double, double, double, double, const harpe_pixels *);
    void (*finish)(harpe_canvas *, harpe_text *); /* appends everything; may set failure flags */
} harpe_canvas_operations;

typedef struct _cairo cairo_t;

struct harpe_canvas {
    const harpe_canvas_operations *operations;
    harpe_image_format format;
    double width, height;
    cairo_t *cairo;  /* draws PNG and PDF; SVG uses it only to measure text */
    harpe_text body; /* bytes made so far */
    char description[400];
};

extern const harpe_canvas_operations harpe_canvas_cairo;
extern const harpe_canvas_operations harpe_canvas_svg;

/* Makes the context on which `canvas` draws: the pixels of a PNG, the page of a PDF, or for SVG a
 * surface that only measures text. Never returns NULL; cairo_status() of the context returns a
 * failure. The caller destroys the context. */
cairo_t *harpe_canvas_make_cairo(harpe_canvas *canvas);

/* Appends the pixels as a PNG file. Returns false when out of memory; the length of `out` is then
 * unchanged. The same pixels give the same bytes. */
bool harpe_pixels_to_png(const harpe_pixels *pixels, harpe_text *out);

#endif
