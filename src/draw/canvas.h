/* SPDX-License-Identifier: Apache-2.0 */
/* The surface on which pictures are drawn: a few shapes and text, measured from the top left in
 * points of 1/96 inch. canvas_cairo.c writes PNG and PDF. canvas_svg.c writes SVG with real text,
 * for a file or for a page. Drawing functions return no status. The canvas stores the first
 * failure, and _finish reports it. */
#ifndef HARPE_DRAW_CANVAS_H
#define HARPE_DRAW_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/text.h"
#include "draw/draw.h"
#include "draw/palette.h"

typedef struct harpe_canvas harpe_canvas;

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

/* Makes a canvas. `description` describes the picture in one line, for readers who cannot see
 * it. */
harpe_status harpe_canvas_new(harpe_image_format format, double width, double height,
                              const char *description, harpe_canvas **out, harpe_error *error);
/* Appends the picture to `out` and frees the canvas. After a failure the canvas is also freed, and
 * `out` is unchanged. */
harpe_status harpe_canvas_finish(harpe_canvas *canvas, harpe_text *out, harpe_error *error);

/* Returns true if the format shows tooltips when the pointer hovers over a shape. */
bool harpe_canvas_has_tooltips(const harpe_canvas *canvas);

void harpe_canvas_rect(harpe_canvas *canvas, double x, double y, double width, double height,
                       harpe_color fill, const char *tooltip);
/* Draws a path. The colour HARPE_NO_COLOR omits the fill or the stroke. */
void harpe_canvas_path(harpe_canvas *canvas, const harpe_xy *points, size_t count, bool closed,
                       harpe_color fill, harpe_stroke stroke);
void harpe_canvas_line(harpe_canvas *canvas, double x0, double y0, double x1, double y1,
                       harpe_stroke stroke);
void harpe_canvas_circle(harpe_canvas *canvas, double x, double y, double radius, harpe_color fill,
                         harpe_stroke stroke);
/* Draws a text; `y` is its baseline. `text` may contain any bytes. */
void harpe_canvas_text(harpe_canvas *canvas, double x, double y, const harpe_text_style *style,
                       const char *text);
double harpe_canvas_text_width(harpe_canvas *canvas, const harpe_text_style *style,
                               const char *text);
/* Draws pixels stretched over a rectangle without smoothing. */
void harpe_canvas_pixels(harpe_canvas *canvas, double x, double y, double width, double height,
                         const harpe_pixels *pixels);

/* ---- for canvas_*.c -------------------------------------------------------------------------- */

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
/* Appends `bytes` in base64. */
void harpe_text_base64(harpe_text *text, const void *bytes, size_t length);

#endif
