/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all canvases: making a canvas, measuring text, removing invalid characters
 * from texts, and reporting failures at the end. */
#include "draw/canvas.h"
#include "draw/canvas_internal.h"

#include <cairo.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "draw/fonts.h"

#define LABEL_SIZE 256 /* bytes of one text; longer texts are cut */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_LEAK_CHECK 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_LEAK_CHECK 1
#endif

#ifdef HAS_LEAK_CHECK
/* fontconfig keeps about 1 KiB until the process ends, no matter how much is drawn */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libfontconfig\n"; }
#endif

harpe_status harpe_canvas_new(harpe_image_format format, double width, double height,
                              const char *description, harpe_canvas **out, harpe_error *error) {
    harpe_canvas *canvas = harpe_calloc(1, sizeof *canvas);
    if (!canvas) return harpe_fail_memory(error);
    harpe_fonts_prepare();
    bool is_svg = format == HARPE_IMAGE_SVG || format == HARPE_IMAGE_HTML;
    canvas->operations = is_svg ? &harpe_canvas_svg : &harpe_canvas_cairo;
    canvas->format = format;
    canvas->width = width;
    canvas->height = height;
    harpe_clean_text(canvas->description, sizeof canvas->description, description);
    canvas->cairo = harpe_canvas_make_cairo(canvas);
    if (format != HARPE_IMAGE_HTML)
        harpe_canvas_rect(canvas, 0, 0, width, height, HARPE_INK(HARPE_INK_PAPER), NULL);
    *out = canvas;
    return HARPE_OK;
}

harpe_status harpe_canvas_finish(harpe_canvas *canvas, harpe_text *out, harpe_error *error) {
    harpe_text made = {0};
    canvas->operations->finish(canvas, &made);
    cairo_status_t status = cairo_status(canvas->cairo);
    bool failed = made.failed || canvas->body.failed;
    cairo_destroy(canvas->cairo);
    harpe_text_free(&canvas->body);
    free(canvas);
    harpe_status result = HARPE_OK;
    if (failed || status == CAIRO_STATUS_NO_MEMORY) {
        result = harpe_fail_memory(error);
    } else if (status != CAIRO_STATUS_SUCCESS) {
        result =
            harpe_fail(error, HARPE_INTERNAL, "drawing failed: %s", cairo_status_to_string(status));
    } else {
        size_t before = out->length;
        harpe_text_append(out, made.data, made.length);
        if (out->failed) {
            out->length = before;
            result = harpe_fail_memory(error);
        }
    }
    harpe_text_free(&made);
    return result;
}

bool harpe_canvas_has_tooltips(const harpe_canvas *canvas) {
    return canvas->format == HARPE_IMAGE_HTML || canvas->format == HARPE_IMAGE_SVG;
}

void harpe_canvas_rect(harpe_canvas *canvas, double x, double y, double width, double height,
                       harpe_color fill, const char *tooltip) {
    canvas->operations->rect(canvas, x, y, width, height, fill, tooltip);
}

void harpe_canvas_path(harpe_canvas *canvas, const harpe_xy *points, size_t count, bool closed,
                       harpe_color fill, harpe_stroke stroke) {
    if (count > 0) canvas->operations->path(canvas, points, count, closed, fill, stroke);
}

void harpe_canvas_line(harpe_canvas *canvas, double x0, double y0, double x1, double y1,
                       harpe_stroke stroke) {
    harpe_xy points[2] = {{x0, y0}, {x1, y1}};
    canvas->operations->path(canvas, points, 2, false, HARPE_NO_COLOR, stroke);
}

void harpe_canvas_circle(harpe_canvas *canvas, double x, double y, double radius, harpe_color fill,
                         harpe_stroke stroke) {
    canvas->operations->circle(canvas, x, y, radius, fill, stroke);
}

void harpe_canvas_text(harpe_canvas *canvas, double x, double y, const harpe_text_style *style,
                       const char *text) {
    char clean[LABEL_SIZE];
    canvas->operations->text(canvas, x, y, style, harpe_clean_text(clean, sizeof clean, text));
}

double harpe_canvas_text_width(harpe_canvas *canvas, const harpe_text_style *style,
                               const char *text) {
    char clean[LABEL_SIZE];
    cairo_text_extents_t extents;
    cairo_select_font_face(canvas->cairo, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           style->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(canvas->cairo, style->size);
    cairo_text_extents(canvas->cairo, harpe_clean_text(clean, sizeof clean, text), &extents);
    return extents.x_advance;
}

void harpe_canvas_pixels(harpe_canvas *canvas, double x, double y, double width, double height,
                         const harpe_pixels *pixels) {
    canvas->operations->pixels(canvas, x, y, width, height, pixels);
}

void harpe_text_base64(harpe_text *text, const void *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    char group[4];
    for (size_t i = 0; i < length; i += 3) {
        size_t have = length - i < 3 ? length - i : 3;
        uint32_t bits = (uint32_t)from[i] << 16;
        if (have > 1) bits |= (uint32_t)from[i + 1] << 8;
        if (have > 2) bits |= from[i + 2];
        for (size_t k = 0; k < 4; k++)
            group[k] = k <= have ? digits[bits >> (18 - 6 * k) & 63] : '=';
        harpe_text_append(text, group, sizeof group);
    }
}
