/* SPDX-License-Identifier: Apache-2.0 */
/* Writes shapes and text as SVG. Text is written as text, which is small, can be searched and can
 * be read aloud. No element needs an id. Inside of a page, colours are the page's custom
 * properties, so the same picture fits the light and the dark theme. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
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

/* ---- Plots ----------------------------------------------------------------------------------- */

/* The frame of a plot: the mapping from data to the picture, round numbers along its sides, and
 * free places for labels. The last section has what plots of energy over time share. */

#define TICKS_MAX 50

harpe_ticks harpe_ticks_make(double low, double high, int wanted) {
    harpe_ticks ticks = {low, 1.0, 0, 0};
    double span = high - low;
    if (!(span > 0.0) || !isfinite(span)) return ticks;
    double raw = span / (wanted > 1 ? wanted : 1);
    double magnitude = pow(10.0, floor(log10(raw)));
    double ratio = raw / magnitude;
    double factor = ratio <= 1.0001 ? 1.0 : ratio <= 2.0001 ? 2.0 : ratio <= 5.0001 ? 5.0 : 10.0;
    ticks.step = factor * magnitude;
    if (!(ticks.step > 0.0) || !isfinite(ticks.step)) return ticks;
    double slack = span * 1e-9;
    double first = ceil((low - slack) / ticks.step);
    double last = floor((high + slack) / ticks.step);
    ticks.first = first * ticks.step;
    if (last >= first)
        ticks.count = last - first + 1.0 > TICKS_MAX ? TICKS_MAX : (int)(last - first + 1.0);
    double exponent = floor(log10(ticks.step) + 1e-9);
    ticks.decimals = exponent < 0.0 ? (int)fmin(-exponent, 9.0) : 0;
    return ticks;
}

double harpe_tick_at(const harpe_ticks *ticks, int index) {
    double value = ticks->first + ticks->step * index;
    return fabs(value) < ticks->step * 1e-6 ? 0.0 : value;
}

void harpe_range_add(harpe_range *range, double value) {
    if (!range->is_set || value < range->low) range->low = value;
    if (!range->is_set || value > range->high) range->high = value;
    range->is_set = true;
}

void harpe_range_pad(harpe_range *range, double fraction) {
    double size = fmax(fabs(range->low), fabs(range->high));
    double span = range->high - range->low;
    double margin = span > size * 1e-7 ? span * fraction : size > 0.0 ? size * 0.05 : 1.0;
    range->low -= margin;
    range->high += margin;
    range->is_set = true;
}

static double place(harpe_range range, double value, double from, double to) {
    return from + (value - range.low) / (range.high - range.low) * (to - from);
}

double harpe_frame_x(const harpe_frame *frame, double value) {
    return place(frame->x, value, frame->left, frame->right);
}

double harpe_frame_y(const harpe_frame *frame, double value) {
    return place(frame->y, value, frame->bottom, frame->top);
}

/* Formats a tick's number: "5", or "+5" if it is a difference. */
static void format_tick(char text[HARPE_NUMBER_SIZE + 4], double value, int decimals,
                        bool is_difference) {
    char number[HARPE_NUMBER_SIZE];
    harpe_format_fixed(number, is_difference ? fabs(value) : value, decimals);
    const char *sign = !is_difference || value == 0.0 ? "" : value > 0.0 ? "+" : "\xe2\x88\x92";
    (void)snprintf(text, HARPE_NUMBER_SIZE + 4, "%s%s", sign, number);
}

/* Draws the tick at `at` along an axis whose other coordinate is `edge`. `outwards` is 1 or -1. */
static void draw_tick(harpe_svg *svg, const harpe_frame *frame, harpe_side side, double at,
                      double edge, double outwards, const harpe_text_style *style,
                      const char *text) {
    harpe_stroke grid = {HARPE_INK(HARPE_INK_GRID), 1.0, 0.0};
    harpe_stroke mark = {HARPE_INK(HARPE_INK_AXIS), 1.0, 0.0};
    double end = edge + 4.0 * outwards;
    if (side == HARPE_BOTTOM && frame->top < frame->bottom)
        harpe_svg_line(svg, at, frame->top, at, frame->bottom, grid);
    if (side == HARPE_LEFT) harpe_svg_line(svg, frame->left, at, frame->right, at, grid);
    if (side == HARPE_BOTTOM || side == HARPE_TOP) {
        harpe_svg_line(svg, at, edge, at, end, mark);
        harpe_svg_text(svg, at, edge + (outwards > 0 ? 17.0 : -9.0), style, text);
    } else {
        harpe_svg_line(svg, edge, at, end, at, mark);
        harpe_svg_text(svg, edge + 8.0 * outwards, at + 4.0, style, text);
    }
}

void harpe_draw_axis(harpe_svg *svg, const harpe_frame *frame, harpe_side side, harpe_range range,
                     const char *title) {
    bool is_level = side == HARPE_BOTTOM || side == HARPE_TOP;
    bool is_difference = side == HARPE_TOP || side == HARPE_RIGHT;
    double outwards = side == HARPE_BOTTOM || side == HARPE_RIGHT ? 1.0 : -1.0;
    double low = is_level ? frame->left : frame->bottom;
    double high = is_level ? frame->right : frame->top;
    double edge = side == HARPE_BOTTOM ? frame->bottom
                  : side == HARPE_TOP  ? frame->top
                  : side == HARPE_LEFT ? frame->left
                                       : frame->right;
    harpe_text_style number = {.size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED)};
    number.anchor = is_level ? HARPE_MIDDLE : side == HARPE_LEFT ? HARPE_END : HARPE_START;
    harpe_text_style name = {.size = 12.0,
                             .color = HARPE_INK(is_difference ? HARPE_INK_MUTED : HARPE_INK_TEXT),
                             .anchor = HARPE_MIDDLE,
                             .angle_degrees = is_level ? 0.0 : 90.0 * outwards};
    int wanted = (int)(fabs(high - low) / (is_level ? 56.0 : 45.0));
    harpe_ticks ticks = harpe_ticks_make(range.low, range.high, wanted);
    double widest = 0.0;
    for (int i = 0; i < ticks.count; i++) {
        double value = harpe_tick_at(&ticks, i);
        char text[HARPE_NUMBER_SIZE + 4];
        format_tick(text, value, ticks.decimals, is_difference);
        draw_tick(svg, frame, side, place(range, value, low, high), edge, outwards, &number, text);
        widest = fmax(widest, harpe_text_width(&number, text));
    }
    harpe_stroke axis = {HARPE_INK(HARPE_INK_AXIS), 1.0, 0.0};
    double middle = (low + high) / 2.0;
    if (is_level) {
        harpe_svg_line(svg, low, edge, high, edge, axis);
        if (title) harpe_svg_text(svg, middle, edge + (outwards > 0 ? 38.0 : -27.0), &name, title);
    } else {
        harpe_svg_line(svg, edge, low, edge, high, axis);
        if (title) harpe_svg_text(svg, edge + outwards * (widest + 17.0), middle, &name, title);
    }
}

/* ---- Labels ---------------------------------------------------------------------------------- */

static void take(harpe_label_field *field, harpe_area area) {
    if (HARPE_ARRAY_RESERVE(field->taken, field->taken_capacity, field->taken_count + 1))
        field->taken[field->taken_count++] = area;
}

void harpe_label_avoid(harpe_label_field *field, harpe_xy at, double half) {
    take(field, (harpe_area){at.x - half, at.y - half, at.x + half, at.y + half});
}

void harpe_label_avoid_line(harpe_label_field *field, harpe_xy from, harpe_xy to) {
    int steps = 1 + (int)fmin(hypot(to.x - from.x, to.y - from.y) / 5.0, 400.0);
    for (int k = 0; k <= steps; k++) {
        double t = (double)k / steps;
        harpe_xy at = {from.x * (1.0 - t) + to.x * t, from.y * (1.0 - t) + to.y * t};
        harpe_label_avoid(field, at, 3.0);
    }
}

static double shared_area(const harpe_area *a, const harpe_area *b) {
    double width = fmin(a->right, b->right) - fmax(a->left, b->left);
    double height = fmin(a->bottom, b->bottom) - fmax(a->top, b->top);
    return width > 0.0 && height > 0.0 ? width * height : 0.0;
}

/* Returns 0 if an area is free. The number grows with the part of the area that is taken or outside
 * of the bounds. */
static double covered(const harpe_label_field *field, const harpe_area *area) {
    double sum = 0.0;
    for (size_t i = 0; i < field->taken_count; i++)
        sum += shared_area(area, &field->taken[i]);
    const harpe_area *bounds = &field->bounds;
    double outside = fmax(0.0, bounds->left - area->left) + fmax(0.0, area->right - bounds->right) +
                     fmax(0.0, bounds->top - area->top) + fmax(0.0, area->bottom - bounds->bottom);
    return sum + outside * 1000.0;
}

/* Returns the best place for a label near a point, and how much of it is covered. */
static harpe_area find_place(const harpe_label_field *field, harpe_xy at, double width,
                             double height, double *hidden) {
    /* the sides in the order of preference: right, left, above, below, the corners, then level */
    static const double sides[][2] = {{1, -0.6}, {-1, -0.6}, {0, -1},  {0, 1}, {1, 1},
                                      {-1, 1},   {1, -1},    {-1, -1}, {1, 0}, {-1, 0}};
    static const double distances[] = {9.0, 18.0, 32.0, 50.0, 75.0};
    harpe_area best = {0};
    double best_score = INFINITY;
    for (size_t ring = 0; ring < sizeof distances / sizeof distances[0]; ring++) {
        for (size_t side = 0; side < sizeof sides / sizeof sides[0]; side++) {
            double x = at.x + sides[side][0] * (distances[ring] + width / 2.0);
            double y = at.y + sides[side][1] * (distances[ring] + height / 2.0);
            harpe_area area = {x - width / 2.0, y - height / 2.0, x + width / 2.0,
                               y + height / 2.0};
            double cover = covered(field, &area);
            double score = cover + distances[ring] * 2.0 + (double)side * 0.5;
            if (score >= best_score) continue;
            best = area;
            best_score = score;
            *hidden = cover;
        }
    }
    return best;
}

void harpe_draw_label(harpe_svg *svg, harpe_label_field *field, harpe_xy at,
                      const harpe_text_style *style, const char *name, const char *detail,
                      bool is_needed) {
    harpe_text_style first = *style, second = {.size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED)};
    first.halo = second.halo = true;
    double width = harpe_text_width(&first, name), hidden = 0.0;
    if (detail) width = fmax(width, harpe_text_width(&second, detail));
    harpe_area area = find_place(field, at, width, detail ? 28.0 : 12.0, &hidden);
    if (hidden > 0.0 && !is_needed) return;
    take(field, area);
    bool is_left = area.right<at.x, is_right = area.left> at.x;
    double x = is_left ? area.right : is_right ? area.left : (area.left + area.right) / 2.0;
    first.anchor = second.anchor = is_left ? HARPE_END : is_right ? HARPE_START : HARPE_MIDDLE;
    harpe_xy near = {fmin(fmax(at.x, area.left - 3.0), area.right + 3.0),
                     fmin(fmax(at.y, area.top - 2.0), area.bottom + 2.0)};
    double distance = hypot(near.x - at.x, near.y - at.y);
    if (distance > 10.0) {
        harpe_stroke leader = {HARPE_INK(HARPE_INK_AXIS), 0.8, 0.0};
        double skip = 6.0 / distance;
        harpe_svg_line(svg, at.x + (near.x - at.x) * skip, at.y + (near.y - at.y) * skip, near.x,
                       near.y, leader);
    }
    harpe_svg_text(svg, x, area.top + 10.5, &first, name);
    if (detail) harpe_svg_text(svg, x, area.top + 25.0, &second, detail);
}

/* ---- Energy over time ------------------------------------------------------------------------ */

void harpe_plot_begin(harpe_plot *plot, harpe_range time_s, harpe_range energy_j) {
    harpe_frame *frame = &plot->frame;
    plot->time = harpe_time_unit(time_s.high);
    plot->energy = harpe_energy_unit(fmax(fabs(energy_j.low), fabs(energy_j.high)));
    harpe_range_pad(&time_s, 0.05);
    harpe_range_pad(&energy_j, 0.08);
    double x = plot->time.per_si, y = plot->energy.per_si;
    frame->x = (harpe_range){time_s.low * x, time_s.high * x, true};
    frame->y = (harpe_range){energy_j.low * y, energy_j.high * y, true};
    plot->labels.bounds =
        (harpe_area){frame->left + 3.0, frame->top + 2.0, frame->right - 3.0, frame->bottom - 3.0};
}

harpe_xy harpe_plot_place(const harpe_plot *plot, double time_s, double energy_j) {
    return (harpe_xy){harpe_frame_x(&plot->frame, time_s * plot->time.per_si),
                      harpe_frame_y(&plot->frame, energy_j * plot->energy.per_si)};
}

void harpe_plot_axes(const harpe_plot *plot, const char *time_name, const char *energy_name) {
    char title[64];
    (void)snprintf(title, sizeof title, "%s (%s)", time_name, plot->time.name);
    harpe_draw_axis(plot->svg, &plot->frame, HARPE_BOTTOM, plot->frame.x, title);
    (void)snprintf(title, sizeof title, "%s (%s)", energy_name, plot->energy.name);
    harpe_draw_axis(plot->svg, &plot->frame, HARPE_LEFT, plot->frame.y, title);
}

void harpe_plot_curve(harpe_plot *plot, harpe_stroke stroke, const double *time_s,
                      const double *energy_j, size_t count, size_t step) {
    if (count == 0) return;
    harpe_svg_path_begin(plot->svg, stroke);
    harpe_xy before = {0};
    for (size_t i = 0; i < count; i++) {
        harpe_xy at = harpe_plot_place(plot, time_s[i * step], energy_j[i * step]);
        harpe_svg_path_to(plot->svg, at.x, at.y);
        if (i > 0 && hypot(at.x - before.x, at.y - before.y) < 5.0) continue;
        if (i > 0) harpe_label_avoid_line(&plot->labels, before, at);
        before = at;
    }
    harpe_svg_path_end(plot->svg);
}
