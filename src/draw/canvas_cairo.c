/* SPDX-License-Identifier: Apache-2.0 */
/* A canvas that draws with cairo: PNG with two device pixels per point, or PDF. It always uses the
 * light shades of colours. */
#include <cairo-pdf.h>
#include <cairo.h>
#include <math.h>
#include <stdint.h>

#include "draw/canvas.h"
#include "draw/canvas_internal.h"

#define PNG_SCALE 2.0
#define POINTS_PER_PIXEL 0.75 /* the unit of PDF is 1/72 inch */

static cairo_status_t write_bytes(void *closure, const unsigned char *bytes, unsigned int length) {
    harpe_text *text = closure;
    harpe_text_append(text, (const char *)bytes, length);
    return text->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static cairo_surface_t *make_surface(harpe_canvas *canvas) {
    if (canvas->format == HARPE_IMAGE_PNG) {
        return cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)ceil(canvas->width * PNG_SCALE),
                                          (int)ceil(canvas->height * PNG_SCALE));
    }
    if (canvas->format != HARPE_IMAGE_PDF) return cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1);
    cairo_surface_t *surface = cairo_pdf_surface_create_for_stream(
        write_bytes, &canvas->body, canvas->width * POINTS_PER_PIXEL,
        canvas->height * POINTS_PER_PIXEL);
    /* The same picture always gives the same bytes. */
    cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_CREATE_DATE, "2000-01-01T00:00:00Z");
    cairo_pdf_surface_set_metadata(surface, CAIRO_PDF_METADATA_TITLE, canvas->description);
    return surface;
}

cairo_t *harpe_canvas_make_cairo(harpe_canvas *canvas) {
    double scale = canvas->format == HARPE_IMAGE_PNG   ? PNG_SCALE
                   : canvas->format == HARPE_IMAGE_PDF ? POINTS_PER_PIXEL
                                                       : 1.0;
    cairo_surface_t *surface = make_surface(canvas);
    cairo_t *cairo = cairo_create(surface);
    cairo_surface_destroy(surface); /* the context keeps a reference to it */
    cairo_scale(cairo, scale, scale);
    cairo_font_options_t *font = cairo_font_options_create();
    cairo_font_options_set_antialias(font, CAIRO_ANTIALIAS_GRAY);
    cairo_font_options_set_hint_style(font, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(font, CAIRO_HINT_METRICS_OFF);
    cairo_set_font_options(cairo, font);
    cairo_font_options_destroy(font);
    cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND);
    return cairo;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static void set_color(cairo_t *cairo, harpe_color color) {
    uint32_t rgb =
        color & HARPE_INK_FLAG ? harpe_ink_rgb((harpe_ink)(color & ~HARPE_INK_FLAG), false) : color;
    cairo_set_source_rgb(cairo, (double)(rgb >> 16 & 255) / 255.0, (double)(rgb >> 8 & 255) / 255.0,
                         (double)(rgb & 255) / 255.0);
}

static void fill_and_stroke(cairo_t *cairo, harpe_color fill, harpe_stroke stroke) {
    if (fill != HARPE_NO_COLOR) {
        set_color(cairo, fill);
        cairo_fill_preserve(cairo);
    }
    if (stroke.color != HARPE_NO_COLOR && stroke.width > 0.0) {
        set_color(cairo, stroke.color);
        cairo_set_line_width(cairo, stroke.width);
        cairo_set_dash(cairo, &stroke.dash, stroke.dash > 0.0 ? 1 : 0, 0.0);
        cairo_stroke_preserve(cairo);
    }
    cairo_new_path(cairo);
}

static void draw_rect(harpe_canvas *canvas, double x, double y, double width, double height,
                      harpe_color fill, const char *tooltip) {
    (void)tooltip;
    cairo_rectangle(canvas->cairo, x, y, width, height);
    fill_and_stroke(canvas->cairo, fill, (harpe_stroke){HARPE_NO_COLOR, 0, 0});
}

static void draw_path(harpe_canvas *canvas, const harpe_xy *points, size_t count, bool closed,
                      harpe_color fill, harpe_stroke stroke) {
    cairo_move_to(canvas->cairo, points[0].x, points[0].y);
    for (size_t i = 1; i < count; i++)
        cairo_line_to(canvas->cairo, points[i].x, points[i].y);
    if (closed) cairo_close_path(canvas->cairo);
    fill_and_stroke(canvas->cairo, fill, stroke);
}

static void draw_circle(harpe_canvas *canvas, double x, double y, double radius, harpe_color fill,
                        harpe_stroke stroke) {
    cairo_new_sub_path(canvas->cairo);
    cairo_arc(canvas->cairo, x, y, radius, 0.0, 2.0 * 3.14159265358979323846);
    cairo_close_path(canvas->cairo);
    fill_and_stroke(canvas->cairo, fill, stroke);
}

static void draw_text(harpe_canvas *canvas, double x, double y, const harpe_text_style *style,
                      const char *text) {
    cairo_t *cairo = canvas->cairo;
    double width = harpe_canvas_text_width(canvas, style, text);
    double shift = style->anchor == HARPE_END      ? -width
                   : style->anchor == HARPE_MIDDLE ? -width / 2.0
                                                   : 0.0;
    cairo_save(cairo);
    cairo_translate(cairo, x, y);
    cairo_rotate(cairo, style->angle_degrees * 3.14159265358979323846 / 180.0);
    if (style->halo) {
        cairo_move_to(cairo, shift, 0.0);
        cairo_text_path(cairo, text);
        harpe_stroke rim = {HARPE_INK(HARPE_INK_PAPER), 3.0, 0.0};
        fill_and_stroke(cairo, HARPE_NO_COLOR, rim);
    }
    set_color(cairo, style->color);
    cairo_move_to(cairo, shift, 0.0);
    cairo_show_text(cairo, text);
    cairo_new_path(cairo);
    cairo_restore(cairo);
}

static cairo_surface_t *make_image(const harpe_pixels *pixels) {
    return cairo_image_surface_create_for_data((unsigned char *)pixels->argb, CAIRO_FORMAT_ARGB32,
                                               pixels->width, pixels->height, pixels->width * 4);
}

static void draw_pixels(harpe_canvas *canvas, double x, double y, double width, double height,
                        const harpe_pixels *pixels) {
    cairo_t *cairo = canvas->cairo;
    cairo_surface_t *image = make_image(pixels);
    cairo_save(cairo);
    cairo_translate(cairo, x, y);
    cairo_scale(cairo, width / pixels->width, height / pixels->height);
    cairo_set_source_surface(cairo, image, 0.0, 0.0);
    cairo_pattern_set_filter(cairo_get_source(cairo), CAIRO_FILTER_NEAREST);
    cairo_rectangle(cairo, 0.0, 0.0, pixels->width, pixels->height);
    cairo_fill(cairo);
    cairo_restore(cairo);
    cairo_surface_finish(image); /* copies the caller's pixels if it needs them later */
    cairo_surface_destroy(image);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static bool write_png(cairo_surface_t *surface, harpe_text *out) {
    size_t before = out->length;
    bool ok = cairo_surface_write_to_png_stream(surface, write_bytes, out) == CAIRO_STATUS_SUCCESS;
    if (!ok && out->data) out->length = before;
    return ok;
}

bool harpe_pixels_to_png(const harpe_pixels *pixels, harpe_text *out) {
    cairo_surface_t *image = make_image(pixels);
    bool ok = write_png(image, out);
    cairo_surface_destroy(image);
    return ok;
}

static void finish(harpe_canvas *canvas, harpe_text *out) {
    cairo_surface_t *surface = cairo_get_target(canvas->cairo);
    if (cairo_status(canvas->cairo) != CAIRO_STATUS_SUCCESS) return;
    if (canvas->format == HARPE_IMAGE_PNG) {
        out->failed = !write_png(surface, out) || out->failed;
        return;
    }
    cairo_surface_finish(surface);
    harpe_text_append(out, canvas->body.data, canvas->body.length);
}

const harpe_canvas_operations harpe_canvas_cairo = {
    .rect = draw_rect,
    .path = draw_path,
    .circle = draw_circle,
    .text = draw_text,
    .pixels = draw_pixels,
    .finish = finish,
};
