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
#include "draw/canvas_types.h"
#include "draw/draw.h"
#include "draw/palette.h"

typedef struct harpe_canvas harpe_canvas;

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

/* Appends `bytes` in base64. */
void harpe_text_base64(harpe_text *text, const void *bytes, size_t length);

#endif
