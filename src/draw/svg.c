/* SPDX-License-Identifier: Apache-2.0 */
/* Writes shapes and text as SVG. Text is written as text, which is small, can be searched and can
 * be read aloud. No element needs an id. Inside of a page, colours are the page's custom
 * properties, so the same picture fits the light and the dark theme. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/format.h"
#include "draw/draw_internal.h"

#define LABEL_SIZE 256  /* bytes of one text; longer texts are cut */
#define NUMBER_END 1e60 /* larger numbers could overflow when they are scaled */
#define UNSEEN 0.7      /* a point so near to the one before is left out */

/* ---- Colours --------------------------------------------------------------------------------- */

static const struct {
    const char *name; /* in CSS, without the leading "--" */
    uint32_t light;
    uint32_t dark;
} inks[HARPE_INK_COUNT] = {
    [HARPE_INK_TEXT] = {"text", 0x1b2026, 0xe9ecef},
    [HARPE_INK_MUTED] = {"muted", 0x59636e, 0xa4adb7},
    [HARPE_INK_AXIS] = {"axis", 0x98a1ab, 0x6c7680},
    [HARPE_INK_GRID] = {"grid", 0xe7e9ec, 0x2b3138},
    [HARPE_INK_PAPER] = {"paper", 0xffffff, 0x171a1f},
    [HARPE_INK_IDLE] = {"idle", 0xebedf0, 0x2a3037},
    [HARPE_INK_BLUE] = {"blue", 0x1464a8, 0x66b4f0},
    [HARPE_INK_ORANGE] = {"orange", 0xc8500a, 0xf5955a},
    [HARPE_INK_GREEN] = {"green", 0x0b8463, 0x43caa2},
    [HARPE_INK_PURPLE] = {"purple", 0x7a4da0, 0xbb94df},
    [HARPE_INK_SKY] = {"sky", 0x4aa3d8, 0x8fd0f5},
    [HARPE_INK_ROSE] = {"rose", 0xc2608c, 0xe79ac0},
    [HARPE_INK_CRITICAL] = {"critical", 0x12161b, 0xffffff},
};

uint32_t harpe_ink_rgb(harpe_ink ink, bool dark) { return dark ? inks[ink].dark : inks[ink].light; }

void harpe_put_inks(harpe_text *out, bool dark) {
    for (int ink = 0; ink < HARPE_INK_COUNT; ink++)
        harpe_text_printf(out, "--%s:#%06x;", inks[ink].name, harpe_ink_rgb((harpe_ink)ink, dark));
}

/* Between two anchors each channel changes linearly. The anchors are those of web/palette.js, whose
 * lightness falls in equal steps in OKLCH, and the colours halfway between them. Hue runs from
 * yellow through orange to crimson. */
uint32_t harpe_heat_rgb(double fraction) {
    static const uint32_t anchors[] = {0xfaefad, 0xf7d984, 0xf6c159, 0xf5a739, 0xf38c1c, 0xec7119,
                                       0xe15524, 0xd13d30, 0xbf2239, 0xa71440, 0x8e0643};
    const int last = sizeof anchors / sizeof anchors[0] - 1;
    double place = fraction > 0.0 ? fmin(fraction, 1.0) * last : 0.0;
    int index = (int)fmin(place, last - 1);
    uint32_t rgb = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
        double from = anchors[index] >> shift & 255, to = anchors[index + 1] >> shift & 255;
        rgb |= (uint32_t)lround(from + (to - from) * (place - index)) << shift;
    }
    return rgb;
}

static double linear(uint32_t encoded) {
    double value = (double)encoded / 255.0;
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

uint32_t harpe_contrast_rgb(uint32_t rgb) {
    double luminance = 0.2126 * linear(rgb >> 16 & 255) + 0.7152 * linear(rgb >> 8 & 255) +
                       0.0722 * linear(rgb & 255);
    /* at this luminance black and white text have the same contrast ratio as defined by WCAG 2 */
    return luminance > 0.179 ? 0x000000 : 0xffffff;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

/* Formats a number, and notes that the picture has one that cannot be drawn. */
static const char *number_text(harpe_svg *svg, char buffer[HARPE_NUMBER_SIZE], double value) {
    if (fabs(value) < NUMBER_END) return harpe_format_compact(buffer, value, 2);
    svg->has_bad_number = true;
    return "0";
}
#define NUMBER(value) number_text(svg, (char[HARPE_NUMBER_SIZE]){0}, (value))

static const char *color_text(const harpe_svg *svg, char buffer[32], harpe_color color) {
    if (color == HARPE_NO_COLOR) return "none";
    bool is_ink = color & HARPE_INK_FLAG;
    color &= ~HARPE_INK_FLAG;
    if (is_ink && svg->in_page)
        (void)snprintf(buffer, 32, "var(--%s)", inks[color].name);
    else
        (void)snprintf(buffer, 32, "#%06x", is_ink ? inks[color].light : color);
    return buffer;
}
#define COLOR(color) color_text(svg, (char[32]){0}, (color))

static void put_stroke(harpe_svg *svg, harpe_stroke stroke) {
    if (stroke.color == HARPE_NO_COLOR) return;
    harpe_text_printf(svg->out, " stroke=\"%s\" stroke-width=\"%s\"", COLOR(stroke.color),
                      NUMBER(stroke.width));
    if (stroke.dash > 0.0)
        harpe_text_printf(svg->out, " stroke-dasharray=\"%s\"", NUMBER(stroke.dash));
}

/* Writes a text between two pieces of markup. */
static void put_between(harpe_svg *svg, const char *before, const char *text, const char *after) {
    char clean[LABEL_SIZE];
    harpe_text_append(svg->out, before, strlen(before));
    harpe_text_html(svg->out, harpe_clean_text(clean, sizeof clean, text));
    harpe_text_append(svg->out, after, strlen(after));
}

harpe_svg harpe_svg_begin(harpe_text *out, bool in_page, double width, double height,
                          const char *description) {
    harpe_svg made = {.out = out, .before = out->length, .in_page = in_page}, *svg = &made;
    const char *w = NUMBER(width), *h = NUMBER(height);
    if (!in_page) harpe_text_printf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    harpe_text_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\"", w, h);
    if (!in_page) harpe_text_printf(out, " width=\"%s\" height=\"%s\"", w, h);
    /* Verdana has nearly the same widths as DejaVu Sans, for which the layout was made. */
    put_between(svg, " font-family=\"'DejaVu Sans',Verdana,sans-serif\" role=\"img\" aria-label=\"",
                description, "\">\n");
    if (in_page) return made;
    put_between(svg, "<title>", description, "</title>\n");
    harpe_svg_rect(svg, 0, 0, width, height, HARPE_INK(HARPE_INK_PAPER), NULL);
    return made;
}

harpe_status harpe_svg_end(harpe_svg *svg, harpe_error *error) {
    harpe_text_printf(svg->out, "</svg>\n");
    if (!svg->out->failed && !svg->has_bad_number) return HARPE_OK;
    svg->out->length = svg->before;
    if (svg->out->failed) return harpe_fail_memory(error);
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "a number of the picture is not finite, or too large to be drawn");
}

void harpe_svg_rect(harpe_svg *svg, double x, double y, double width, double height,
                    harpe_color fill, const char *tooltip) {
    harpe_text_printf(svg->out, "<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" fill=\"%s\"",
                      NUMBER(x), NUMBER(y), NUMBER(width), NUMBER(height), COLOR(fill));
    if (tooltip)
        put_between(svg, "><title>", tooltip, "</title></rect>\n");
    else
        harpe_text_printf(svg->out, "/>\n");
}

void harpe_svg_line(harpe_svg *svg, double x0, double y0, double x1, double y1,
                    harpe_stroke stroke) {
    harpe_svg_path_begin(svg, stroke);
    harpe_text_printf(svg->out, "M%s %sL%s %s", NUMBER(x0), NUMBER(y0), NUMBER(x1), NUMBER(y1));
    harpe_svg_path_end(svg);
}

void harpe_svg_circle(harpe_svg *svg, double x, double y, double radius, harpe_color fill,
                      harpe_stroke stroke) {
    harpe_text_printf(svg->out, "<circle cx=\"%s\" cy=\"%s\" r=\"%s\" fill=\"%s\"", NUMBER(x),
                      NUMBER(y), NUMBER(radius), COLOR(fill));
    put_stroke(svg, stroke);
    harpe_text_printf(svg->out, "/>\n");
}

void harpe_svg_text(harpe_svg *svg, double x, double y, const harpe_text_style *style,
                    const char *text) {
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    if (style->angle_degrees == 0.0)
        harpe_text_printf(svg->out, "<text x=\"%s\" y=\"%s\"", NUMBER(x), NUMBER(y));
    else
        harpe_text_printf(svg->out, "<text transform=\"translate(%s %s) rotate(%s)\"", NUMBER(x),
                          NUMBER(y), NUMBER(style->angle_degrees));
    harpe_text_printf(svg->out, " font-size=\"%s\" fill=\"%s\"%s%s", NUMBER(style->size),
                      COLOR(style->color), anchors[style->anchor],
                      style->bold ? " font-weight=\"bold\"" : "");
    if (style->halo) {
        put_stroke(svg, (harpe_stroke){HARPE_INK(HARPE_INK_PAPER), 3.0, 0.0});
        harpe_text_printf(svg->out, " paint-order=\"stroke\" stroke-linejoin=\"round\"");
    }
    put_between(svg, ">", text, "</text>\n");
}

void harpe_svg_path_begin(harpe_svg *svg, harpe_stroke stroke) {
    svg->path_points = 0;
    svg->has_left_out = false;
    harpe_text_printf(svg->out, "<path fill=\"none\" stroke-linejoin=\"round\"");
    put_stroke(svg, stroke);
    harpe_text_printf(svg->out, " d=\"");
}

void harpe_svg_path_to(harpe_svg *svg, double x, double y) {
    svg->has_left_out = svg->path_points > 0 && fabs(x - svg->path_end.x) < UNSEEN &&
                        fabs(y - svg->path_end.y) < UNSEEN;
    svg->left_out = (harpe_xy){x, y};
    if (svg->has_left_out) return;
    harpe_text_printf(svg->out, "%s%s %s", svg->path_points++ ? "L" : "M", NUMBER(x), NUMBER(y));
    svg->path_end = svg->left_out;
}

void harpe_svg_path_end(harpe_svg *svg) {
    if (svg->has_left_out)
        harpe_text_printf(svg->out, "L%s %s", NUMBER(svg->left_out.x), NUMBER(svg->left_out.y));
    svg->has_left_out = false;
    harpe_text_printf(svg->out, "\"/>\n");
}

void harpe_svg_bars_begin(harpe_svg *svg, harpe_color color, double height, harpe_xy origin,
                          harpe_xy unit) {
    harpe_text_printf(svg->out,
                      "<path fill=\"none\" stroke=\"%s\" transform=\"translate(%s %s) scale(",
                      COLOR(color), NUMBER(origin.x), NUMBER(origin.y));
    harpe_text_number(svg->out, unit.x);
    harpe_text_printf(svg->out, " ");
    harpe_text_number(svg->out, unit.y);
    harpe_text_printf(svg->out, ")\" stroke-width=\"");
    harpe_text_number(svg->out, height / unit.y);
    harpe_text_printf(svg->out, "\" d=\"");
}

void harpe_svg_bar(harpe_svg *svg, double x, double y, double width) {
    harpe_text_printf(svg->out, "M%s %sh%s", NUMBER(x), NUMBER(y), NUMBER(width));
}

double harpe_text_width(const harpe_text_style *style, const char *text) {
    /* of the characters from the space on, in hundredths of the font's size */
    static const unsigned char widths[] = {
        32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36,  32, 34, 64, 64, 64,
        64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63,
        58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63,  61, 73, 68, 99, 69,
        61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35,  63, 63, 28, 28, 58,
        28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59,  52, 64, 34, 64, 84};
    char clean[LABEL_SIZE];
    double width = 0.0;
    for (const char *at = harpe_clean_text(clean, sizeof clean, text); *at; at++) {
        unsigned char byte = (unsigned char)*at;
        if ((byte & 0xc0) == 0x80) continue; /* the first byte of a character counts */
        width += byte < 0x7f ? widths[byte - ' '] : 84;
    }
    return width / 100.0 * style->size * (style->bold ? 1.15 : 1.0);
}
