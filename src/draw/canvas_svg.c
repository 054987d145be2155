/* SPDX-License-Identifier: Apache-2.0 */
/* A canvas that writes SVG without cairo. Text is written as text, which is small, can be searched
 * and can be read aloud. No element needs an id. Inside of a page, colours are the page's custom
 * properties, so the same picture fits the light and the dark theme. */
#include "base/format.h"
#include "base/number_print.h"
#include "draw/canvas.h"
#include "draw/canvas_internal.h"

static void put_number(harpe_text *text, double value) {
    char number[HARPE_NUMBER_SIZE];
    harpe_text_printf(text, "%s", harpe_format_compact(number, value, 2));
}

static void put_attribute(harpe_text *text, const char *name, double value) {
    harpe_text_printf(text, " %s=\"", name);
    put_number(text, value);
    harpe_text_printf(text, "\"");
}

static void put_color(harpe_canvas *canvas, const char *name, harpe_color color) {
    if (color == HARPE_NO_COLOR) {
        harpe_text_printf(&canvas->body, " %s=\"none\"", name);
        return;
    }
    if (!(color & HARPE_INK_FLAG)) {
        harpe_text_printf(&canvas->body, " %s=\"#%06x\"", name, color);
        return;
    }
    harpe_ink ink = (harpe_ink)(color & ~HARPE_INK_FLAG);
    if (canvas->format == HARPE_IMAGE_HTML)
        harpe_text_printf(&canvas->body, " %s=\"var(--%s)\"", name, harpe_ink_name(ink));
    else
        harpe_text_printf(&canvas->body, " %s=\"#%06x\"", name, harpe_ink_rgb(ink, false));
}

static void put_stroke(harpe_canvas *canvas, harpe_stroke stroke) {
    if (stroke.color == HARPE_NO_COLOR || stroke.width <= 0.0) return;
    put_color(canvas, "stroke", stroke.color);
    put_attribute(&canvas->body, "stroke-width", stroke.width);
    if (stroke.dash > 0.0) put_attribute(&canvas->body, "stroke-dasharray", stroke.dash);
}

static void draw_rect(harpe_canvas *canvas, double x, double y, double width, double height,
                      harpe_color fill, const char *tooltip) {
    harpe_text *body = &canvas->body;
    harpe_text_printf(body, "<rect");
    put_attribute(body, "x", x);
    put_attribute(body, "y", y);
    put_attribute(body, "width", width);
    put_attribute(body, "height", height);
    put_color(canvas, "fill", fill);
    if (tooltip) {
        char clean[256];
        harpe_text_printf(body, "><title>");
        harpe_text_html(body, harpe_clean_text(clean, sizeof clean, tooltip));
        harpe_text_printf(body, "</title></rect>\n");
    } else {
        harpe_text_printf(body, "/>\n");
    }
}

static void draw_path(harpe_canvas *canvas, const harpe_xy *points, size_t count, bool closed,
                      harpe_color fill, harpe_stroke stroke) {
    harpe_text *body = &canvas->body;
    harpe_text_printf(body, "<path d=\"");
    for (size_t i = 0; i < count; i++) {
        harpe_text_printf(body, i == 0 ? "M" : "L");
        put_number(body, points[i].x);
        harpe_text_printf(body, " ");
        put_number(body, points[i].y);
    }
    harpe_text_printf(body, closed ? "Z\"" : "\"");
    put_color(canvas, "fill", fill);
    put_stroke(canvas, stroke);
    harpe_text_printf(body, " stroke-linejoin=\"round\"/>\n");
}

static void draw_circle(harpe_canvas *canvas, double x, double y, double radius, harpe_color fill,
                        harpe_stroke stroke) {
    harpe_text *body = &canvas->body;
    harpe_text_printf(body, "<circle");
    put_attribute(body, "cx", x);
    put_attribute(body, "cy", y);
    put_attribute(body, "r", radius);
    put_color(canvas, "fill", fill);
    put_stroke(canvas, stroke);
    harpe_text_printf(body, "/>\n");
}

static void draw_text(harpe_canvas *canvas, double x, double y, const harpe_text_style *style,
                      const char *text) {
    static const char *const anchors[] = {NULL, "middle", "end"};
    harpe_text *body = &canvas->body;
    harpe_text_printf(body, "<text");
    if (style->angle_degrees == 0.0) {
        put_attribute(body, "x", x);
        put_attribute(body, "y", y);
    } else {
        harpe_text_printf(body, " transform=\"translate(");
        put_number(body, x);
        harpe_text_printf(body, " ");
        put_number(body, y);
        harpe_text_printf(body, ") rotate(");
        put_number(body, style->angle_degrees);
        harpe_text_printf(body, ")\"");
    }
    put_attribute(body, "font-size", style->size);
    put_color(canvas, "fill", style->color);
    if (anchors[style->anchor])
        harpe_text_printf(body, " text-anchor=\"%s\"", anchors[style->anchor]);
    if (style->bold) harpe_text_printf(body, " font-weight=\"bold\"");
    if (style->halo) {
        put_stroke(canvas, (harpe_stroke){HARPE_INK(HARPE_INK_PAPER), 3.0, 0.0});
        harpe_text_printf(body, " paint-order=\"stroke\" stroke-linejoin=\"round\"");
    }
    harpe_text_printf(body, ">");
    harpe_text_html(body, text);
    harpe_text_printf(body, "</text>\n");
}

static void draw_pixels(harpe_canvas *canvas, double x, double y, double width, double height,
                        const harpe_pixels *pixels) {
    harpe_text png = {0};
    if (!harpe_pixels_to_png(pixels, &png)) canvas->body.failed = true;
    harpe_text *body = &canvas->body;
    harpe_text_printf(body, "<image");
    put_attribute(body, "x", x);
    put_attribute(body, "y", y);
    put_attribute(body, "width", width);
    put_attribute(body, "height", height);
    harpe_text_printf(body, " preserveAspectRatio=\"none\""
                            " xlink:href=\"data:image/png;base64,");
    harpe_text_base64(body, png.data, png.length);
    harpe_text_printf(body, "\"/>\n");
    harpe_text_free(&png);
}

static void finish(harpe_canvas *canvas, harpe_text *out) {
    bool in_page = canvas->format == HARPE_IMAGE_HTML;
    if (!in_page) harpe_text_printf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    harpe_text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\""
                           " xmlns:xlink=\"http://www.w3.org/1999/xlink\"");
    if (!in_page) {
        put_attribute(out, "width", canvas->width);
        put_attribute(out, "height", canvas->height);
    }
    harpe_text_printf(out, " viewBox=\"0 0 ");
    put_number(out, canvas->width);
    harpe_text_printf(out, " ");
    put_number(out, canvas->height);
    /* Verdana has nearly the same widths as DejaVu Sans, for which the layout was made */
    harpe_text_printf(out, "\" font-family=\"'DejaVu Sans',Verdana,sans-serif\" role=\"img\""
                           " aria-label=\"");
    harpe_text_html(out, canvas->description);
    harpe_text_printf(out, "\"");
    harpe_text_printf(out, ">\n");
    if (!in_page) {
        harpe_text_printf(out, "<title>");
        harpe_text_html(out, canvas->description);
        harpe_text_printf(out, "</title>\n");
    }
    if (canvas->body.length > 0) harpe_text_append(out, canvas->body.data, canvas->body.length);
    harpe_text_printf(out, "</svg>\n");
}

const harpe_canvas_operations harpe_canvas_svg = {
    .rect = draw_rect,
    .path = draw_path,
    .circle = draw_circle,
    .text = draw_text,
    .pixels = draw_pixels,
    .finish = finish,
};
