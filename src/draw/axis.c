/* SPDX-License-Identifier: Apache-2.0 */
/* Ticks, grid and label placement for plots. */
#include "draw/axis.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/format.h"
#include "base/number_print.h"

#define TICK_FONT 11.0
#define TITLE_FONT 12.0
#define MAX_TICKS 50

bool harpe_is_drawable(double value) { return fabs(value) < 1e60; }

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
        ticks.count = last - first + 1.0 > MAX_TICKS ? MAX_TICKS : (int)(last - first + 1.0);
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

static double place(const harpe_range *range, double value, double from, double to) {
    return from + (value - range->low) / (range->high - range->low) * (to - from);
}

double harpe_frame_x(const harpe_frame *frame, double value) {
    return place(&frame->x, value, frame->left, frame->right);
}

double harpe_frame_y(const harpe_frame *frame, double value) {
    return place(&frame->y, value, frame->bottom, frame->top);
}

static void draw_x_axis(harpe_canvas *canvas, const harpe_frame *frame, const char *title) {
    harpe_stroke grid = {HARPE_INK(HARPE_INK_GRID), 1.0, 0.0};
    harpe_text_style number = {
        .size = TICK_FONT, .color = HARPE_INK(HARPE_INK_MUTED), .anchor = HARPE_MIDDLE};
    harpe_text_style name = {
        .size = TITLE_FONT, .color = HARPE_INK(HARPE_INK_TEXT), .anchor = HARPE_MIDDLE};
    int wanted = (int)((frame->right - frame->left) / 68.0);
    harpe_ticks ticks = harpe_ticks_make(frame->x.low, frame->x.high, wanted);
    char text[HARPE_NUMBER_SIZE];
    for (int i = 0; i < ticks.count; i++) {
        double value = harpe_tick_at(&ticks, i);
        double x = harpe_frame_x(frame, value);
        harpe_canvas_line(canvas, x, frame->top, x, frame->bottom, grid);
        harpe_canvas_text(canvas, x, frame->bottom + 17.0, &number,
                          harpe_format_fixed(text, value, ticks.decimals));
    }
    harpe_canvas_text(canvas, (frame->left + frame->right) / 2.0, frame->bottom + 38.0, &name,
                      title);
}

static void draw_y_axis(harpe_canvas *canvas, const harpe_frame *frame, const char *title) {
    harpe_stroke grid = {HARPE_INK(HARPE_INK_GRID), 1.0, 0.0};
    harpe_text_style number = {
        .size = TICK_FONT, .color = HARPE_INK(HARPE_INK_MUTED), .anchor = HARPE_END};
    harpe_text_style name = {.size = TITLE_FONT,
                             .color = HARPE_INK(HARPE_INK_TEXT),
                             .anchor = HARPE_MIDDLE,
                             .angle_degrees = -90.0};
    int wanted = (int)((frame->bottom - frame->top) / 45.0);
    harpe_ticks ticks = harpe_ticks_make(frame->y.low, frame->y.high, wanted);
    char text[HARPE_NUMBER_SIZE];
    double widest = 0.0;
    for (int i = 0; i < ticks.count; i++) {
        double value = harpe_tick_at(&ticks, i);
        double y = harpe_frame_y(frame, value);
        harpe_format_fixed(text, value, ticks.decimals);
        harpe_canvas_line(canvas, frame->left, y, frame->right, y, grid);
        harpe_canvas_text(canvas, frame->left - 7.0, y + 0.36 * TICK_FONT, &number, text);
        widest = fmax(widest, harpe_canvas_text_width(canvas, &number, text));
    }
    harpe_canvas_text(canvas, frame->left - 7.0 - widest - 9.0, (frame->top + frame->bottom) / 2.0,
                      &name, title);
}

void harpe_draw_axes(harpe_canvas *canvas, const harpe_frame *frame, const char *x_title,
                     const char *y_title) {
    harpe_stroke axis = {HARPE_INK(HARPE_INK_AXIS), 1.0, 0.0};
    draw_x_axis(canvas, frame, x_title);
    draw_y_axis(canvas, frame, y_title);
    harpe_xy corner[3] = {
        {frame->left, frame->top}, {frame->left, frame->bottom}, {frame->right, frame->bottom}};
    harpe_canvas_path(canvas, corner, 3, false, HARPE_NO_COLOR, axis);
}

void harpe_label_field_add(harpe_label_field *field, harpe_area area) {
    if (HARPE_ARRAY_RESERVE(field->taken, field->taken_capacity, field->taken_count + 1))
        field->taken[field->taken_count++] = area;
}

void harpe_label_field_free(harpe_label_field *field) {
    free(field->taken);
    field->taken = NULL;
    field->taken_count = field->taken_capacity = 0;
}

static double shared_area(const harpe_area *a, const harpe_area *b) {
    double width = fmin(a->right, b->right) - fmax(a->left, b->left);
    double height = fmin(a->bottom, b->bottom) - fmax(a->top, b->top);
    return width > 0.0 && height > 0.0 ? width * height : 0.0;
}

static double covered(const harpe_label_field *field, const harpe_area *area) {
    double sum = 0.0;
    for (size_t i = 0; i < field->taken_count; i++)
        sum += shared_area(area, &field->taken[i]);
    const harpe_area *bounds = &field->bounds;
    double outside = fmax(0.0, bounds->left - area->left) + fmax(0.0, area->right - bounds->right) +
                     fmax(0.0, bounds->top - area->top) + fmax(0.0, area->bottom - bounds->bottom);
    return sum + outside * 1000.0;
}

harpe_area harpe_label_place(harpe_label_field *field, double x, double y, double width,
                             double height, double *overlap) {
    /* the sides in the order of preference: right, left, above, below, the corners, then level */
    static const double sides[][2] = {{1, -0.6}, {-1, -0.6}, {0, -1},  {0, 1}, {1, 1},
                                      {-1, 1},   {1, -1},    {-1, -1}, {1, 0}, {-1, 0}};
    static const double distances[] = {9.0, 18.0, 32.0, 50.0, 75.0};
    harpe_area best = {0};
    double best_score = INFINITY;
    double best_covered = 0.0;
    for (size_t ring = 0; ring < sizeof distances / sizeof distances[0]; ring++) {
        for (size_t side = 0; side < sizeof sides / sizeof sides[0]; side++) {
            double middle_x = x + sides[side][0] * (distances[ring] + width / 2.0);
            double middle_y = y + sides[side][1] * (distances[ring] + height / 2.0);
            harpe_area area = {middle_x - width / 2.0, middle_y - height / 2.0,
                               middle_x + width / 2.0, middle_y + height / 2.0};
            double hidden = covered(field, &area);
            double score = hidden + distances[ring] * 2.0 + (double)side * 0.5;
            if (score < best_score) {
                best = area;
                best_score = score;
                best_covered = hidden;
            }
        }
    }
    harpe_label_field_add(field, best);
    if (overlap) *overlap = best_covered;
    return best;
}
