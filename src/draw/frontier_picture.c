/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a frontier: energy per iteration over iteration time, the lower bound as a line, and plans
 * as dots. The fastest plan, the plan of least energy and the all-maximum point have labels. The
 * upper and the right axis show slowdown and savings. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/number_print.h"
#include "draw/axis.h"
#include "draw/canvas.h"

#define POINTS_MAX 10000000 /* of one series */

typedef struct drawing {
    const harpe_frontier_picture *picture;
    harpe_canvas *canvas;
    harpe_frame frame;
    harpe_unit time, energy;
    harpe_label_field labels;
    double width, height;
} drawing;

static harpe_status check_points(const harpe_point *points, size_t count, const char *what,
                                 harpe_error *error) {
    if (count > POINTS_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "frontier picture: %zu points in the %s, at most %d can be drawn", count,
                          what, POINTS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        if (!harpe_is_drawable(points[i].time_s) || !harpe_is_drawable(points[i].energy_j)) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "frontier picture: point %zu of the %s is not a usable number", i,
                              what);
        }
    }
    return HARPE_OK;
}

static harpe_status check_picture(const harpe_frontier_picture *picture, harpe_error *error) {
    if (picture->bound_count == 0 && picture->plan_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "frontier picture: nothing to draw");
    harpe_status status = check_points(picture->bound, picture->bound_count, "bound", error);
    if (status == HARPE_OK)
        status = check_points(picture->plans, picture->plan_count, "plans", error);
    if (status == HARPE_OK)
        status = check_points(picture->one_clock, picture->one_clock_count, "plans with one clock",
                              error);
    if (status == HARPE_OK && picture->has_reference)
        status = check_points(&picture->reference, 1, "reference", error);
    return status;
}

static void add_to_range(const harpe_point *points, size_t count, harpe_range *time,
                         harpe_range *energy) {
    for (size_t i = 0; i < count; i++) {
        harpe_range_add(time, points[i].time_s);
        harpe_range_add(energy, points[i].energy_j);
    }
}

static void set_frame(drawing *d) {
    const harpe_frontier_picture *picture = d->picture;
    harpe_range time = {0};
    harpe_range energy = {0};
    add_to_range(picture->bound, picture->bound_count, &time, &energy);
    add_to_range(picture->plans, picture->plan_count, &time, &energy);
    add_to_range(picture->one_clock, picture->one_clock_count, &time, &energy);
    if (picture->has_reference) add_to_range(&picture->reference, 1, &time, &energy);
    d->time = harpe_time_unit(time.high);
    d->energy = harpe_energy_unit(energy.high);
    double title_rows = (picture->title ? 26.0 : 0.0) + (picture->subtitle ? 18.0 : 0.0);
    d->frame.left = 82.0;
    d->frame.right = d->width - (picture->has_reference ? 68.0 : 24.0);
    d->frame.top = 12.0 + title_rows + (picture->has_reference ? 46.0 : 8.0);
    d->frame.bottom = d->height - 52.0;
    harpe_range_pad(&time, 0.045);
    harpe_range_pad(&energy, 0.07);
    d->frame.x = (harpe_range){time.low * d->time.per_si, time.high * d->time.per_si, true};
    d->frame.y = (harpe_range){energy.low * d->energy.per_si, energy.high * d->energy.per_si, true};
    d->labels.bounds = (harpe_area){d->frame.left + 4.0, d->frame.top + 2.0, d->frame.right - 4.0,
                                    d->frame.bottom - 4.0};
}

static harpe_xy to_picture(const drawing *d, harpe_point point) {
    return (harpe_xy){harpe_frame_x(&d->frame, point.time_s * d->time.per_si),
                      harpe_frame_y(&d->frame, point.energy_j * d->energy.per_si)};
}

static void draw_titles(drawing *d) {
    harpe_text_style title = {.size = 15.0, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    harpe_text_style subtitle = {.size = 11.5, .color = HARPE_INK(HARPE_INK_MUTED)};
    double y = 26.0;
    if (d->picture->title) {
        harpe_canvas_text(d->canvas, d->frame.left, y, &title, d->picture->title);
        y += 20.0;
    }
    if (d->picture->subtitle)
        harpe_canvas_text(d->canvas, d->frame.left, y, &subtitle, d->picture->subtitle);
}

/* Writes the label of a tick, such as "+5": the difference from the reference in percent. */
static void format_tick_percent(char text[HARPE_NUMBER_SIZE + 4], double value, int decimals) {
    char number[HARPE_NUMBER_SIZE];
    harpe_format_fixed(number, fabs(value), decimals);
    const char *sign = value > 0.0 ? "+" : value < 0.0 ? "\xe2\x88\x92" : "";
    snprintf(text, HARPE_NUMBER_SIZE + 4, "%s%s", sign, number);
}

static void draw_slowdown_axis(drawing *d) {
    harpe_frame *frame = &d->frame;
    double reference = d->picture->reference.time_s * d->time.per_si;
    if (reference <= 0.0) return;
    harpe_stroke axis = {HARPE_INK(HARPE_INK_AXIS), 1.0, 0.0};
    harpe_text_style number = {
        .size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED), .anchor = HARPE_MIDDLE};
    double low = (frame->x.low / reference - 1.0) * 100.0;
    double high = (frame->x.high / reference - 1.0) * 100.0;
    harpe_ticks ticks = harpe_ticks_make(low, high, (int)((frame->right - frame->left) / 68.0));
    char text[HARPE_NUMBER_SIZE + 4];
    for (int i = 0; i < ticks.count; i++) {
        double percent = harpe_tick_at(&ticks, i);
        double x = harpe_frame_x(frame, reference * (1.0 + percent / 100.0));
        format_tick_percent(text, percent, ticks.decimals);
        harpe_canvas_line(d->canvas, x, frame->top, x, frame->top - 4.0, axis);
        harpe_canvas_text(d->canvas, x, frame->top - 9.0, &number, text);
    }
    harpe_canvas_line(d->canvas, frame->left, frame->top, frame->right, frame->top, axis);
    number.size = 11.5;
    harpe_canvas_text(d->canvas, (frame->left + frame->right) / 2.0, frame->top - 27.0, &number,
                      "time against all-maximum (%)");
}

static void draw_savings_axis(drawing *d) {
    harpe_frame *frame = &d->frame;
    double reference = d->picture->reference.energy_j * d->energy.per_si;
    if (reference <= 0.0) return;
    harpe_stroke axis = {HARPE_INK(HARPE_INK_AXIS), 1.0, 0.0};
    harpe_text_style number = {.size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED)};
    double low = (frame->y.low / reference - 1.0) * 100.0;
    double high = (frame->y.high / reference - 1.0) * 100.0;
    harpe_ticks ticks = harpe_ticks_make(low, high, (int)((frame->bottom - frame->top) / 45.0));
    char text[HARPE_NUMBER_SIZE + 4];
    for (int i = 0; i < ticks.count; i++) {
        double percent = harpe_tick_at(&ticks, i);
        double y = harpe_frame_y(frame, reference * (1.0 + percent / 100.0));
        format_tick_percent(text, percent, ticks.decimals);
        harpe_canvas_line(d->canvas, frame->right, y, frame->right + 4.0, y, axis);
        harpe_canvas_text(d->canvas, frame->right + 8.0, y + 4.0, &number, text);
    }
    harpe_canvas_line(d->canvas, frame->right, frame->top, frame->right, frame->bottom, axis);
    harpe_text_style name = {.size = 11.5,
                             .color = HARPE_INK(HARPE_INK_MUTED),
                             .anchor = HARPE_MIDDLE,
                             .angle_degrees = 90.0};
    harpe_canvas_text(d->canvas, d->width - 14.0, (frame->top + frame->bottom) / 2.0, &name,
                      "energy against all-maximum (%)");
}

/* Copies the points that can be distinguished on the picture; NULL when out of memory. */
static harpe_xy *visible_points(const drawing *d, const harpe_point *points, size_t count,
                                double distance, size_t *visible_count) {
    size_t capacity = 0;
    size_t kept = 0;
    harpe_xy *visible = NULL;
    for (size_t i = 0; i < count; i++) {
        harpe_xy at = to_picture(d, points[i]);
        bool is_end = i == 0 || i + 1 == count;
        if (!is_end && fabs(at.x - visible[kept - 1].x) < distance &&
            fabs(at.y - visible[kept - 1].y) < distance)
            continue;
        if (!HARPE_ARRAY_RESERVE(visible, capacity, kept + 1)) {
            free(visible);
            return NULL;
        }
        visible[kept++] = at;
    }
    *visible_count = kept;
    return visible;
}

/* Reserves the places along a polyline, so that labels do not cover it. */
static void avoid_line(drawing *d, const harpe_xy *points, size_t count) {
    for (size_t i = 0; i + 1 < count; i++) {
        double length = hypot(points[i + 1].x - points[i].x, points[i + 1].y - points[i].y);
        int steps = 1 + (int)fmin(length / 5.0, 400.0);
        for (int k = 0; k <= steps; k++) {
            double t = (double)k / steps;
            double x = points[i].x * (1.0 - t) + points[i + 1].x * t;
            double y = points[i].y * (1.0 - t) + points[i + 1].y * t;
            harpe_label_field_add(&d->labels, (harpe_area){x - 3.0, y - 3.0, x + 3.0, y + 3.0});
        }
    }
}

static harpe_status draw_bound(drawing *d, harpe_error *error) {
    if (d->picture->bound_count == 0) return HARPE_OK;
    size_t count = 0;
    harpe_xy *line = visible_points(d, d->picture->bound, d->picture->bound_count, 0.7, &count);
    if (!line) return harpe_fail_memory(error);
    avoid_line(d, line, count);
    harpe_stroke thin = {HARPE_INK(HARPE_INK_TEXT), 1.2, 0.0};
    harpe_canvas_path(d->canvas, line, count, false, HARPE_NO_COLOR, thin);
    free(line);
    return HARPE_OK;
}

static harpe_status draw_dots(drawing *d, const harpe_point *points, size_t count, double radius,
                              harpe_color color, harpe_error *error) {
    if (count == 0) return HARPE_OK;
    size_t visible_count = 0;
    harpe_xy *dots = visible_points(d, points, count, 2.0, &visible_count);
    if (!dots) return harpe_fail_memory(error);
    harpe_stroke rim = {HARPE_INK(HARPE_INK_PAPER), 0.6, 0.0};
    for (size_t i = 0; i < visible_count; i++) {
        double x = dots[i].x;
        double y = dots[i].y;
        harpe_label_field_add(&d->labels, (harpe_area){x - 3.0, y - 3.0, x + 3.0, y + 3.0});
        harpe_canvas_circle(d->canvas, x, y, radius, color, rim);
    }
    free(dots);
    return HARPE_OK;
}

static bool is_narrow(const drawing *d) { return d->width < 600.0; }

static double key_row(drawing *d, double y, int kind, const char *label) {
    harpe_text_style style = {
        .size = 11.0, .color = HARPE_INK(HARPE_INK_TEXT), .anchor = HARPE_END, .halo = true};
    double x = d->frame.right - 34.0;
    double width = harpe_canvas_text_width(d->canvas, &style, label);
    harpe_stroke none = {HARPE_NO_COLOR, 0.0, 0.0};
    harpe_stroke thin = {HARPE_INK(HARPE_INK_TEXT), 1.2, 0.0};
    harpe_canvas_text(d->canvas, x, y + 4.0, &style, label);
    if (kind == 0) {
        harpe_canvas_line(d->canvas, x + 7.0, y, x + 25.0, y, thin);
    } else {
        harpe_canvas_circle(d->canvas, x + 16.0, y, kind == 1 ? 3.0 : 2.4,
                            HARPE_INK(kind == 1 ? HARPE_INK_BLUE : HARPE_INK_ROSE), none);
    }
    harpe_label_field_add(&d->labels, (harpe_area){x - width - 4.0, y - 9.0, x + 30.0, y + 9.0});
    return y + 18.0;
}

/* Draws the key in the upper right corner, which is free because the frontier falls from upper
 * left to lower right. */
static void draw_key(drawing *d) {
    const harpe_frontier_picture *picture = d->picture;
    bool narrow = is_narrow(d);
    double y = d->frame.top + 18.0;
    if (picture->plan_count > 0)
        y = key_row(d, y, 1, narrow ? "plan" : "frequency plan, at measured time and energy");
    if (picture->bound_count > 0)
        y = key_row(d, y, 0, narrow ? "lower bound" : "lower bound: no plan can be below");
    if (picture->one_clock_count > 0)
        key_row(d, y, 2, narrow ? "one clock" : "one clock for all GPUs");
}

static void draw_label(drawing *d, harpe_xy at, const char *name, const char *detail) {
    harpe_text_style bold = {
        .size = 11.5, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true, .halo = true};
    harpe_text_style plain = {.size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED), .halo = true};
    double width = fmax(harpe_canvas_text_width(d->canvas, &bold, name),
                        harpe_canvas_text_width(d->canvas, &plain, detail));
    harpe_area area = harpe_label_place(&d->labels, at.x, at.y, width, 28.0, NULL);
    bool is_left = area.right < at.x;
    bool is_right = area.left > at.x;
    double x = is_left ? area.right : is_right ? area.left : (area.left + area.right) / 2.0;
    bold.anchor = plain.anchor = is_left ? HARPE_END : is_right ? HARPE_START : HARPE_MIDDLE;
    double near_x = fmin(fmax(at.x, area.left - 3.0), area.right + 3.0);
    double near_y = fmin(fmax(at.y, area.top - 2.0), area.bottom + 2.0);
    double distance = hypot(near_x - at.x, near_y - at.y);
    if (distance > 12.0) {
        harpe_stroke leader = {HARPE_INK(HARPE_INK_AXIS), 0.8, 0.0};
        double skip = 6.0 / distance;
        harpe_canvas_line(d->canvas, at.x + (near_x - at.x) * skip, at.y + (near_y - at.y) * skip,
                          near_x, near_y, leader);
    }
    harpe_canvas_text(d->canvas, x, area.top + 11.0, &bold, name);
    harpe_canvas_text(d->canvas, x, area.top + 25.0, &plain, detail);
}

/* Writes "4.331 s, 45.2 kJ" or, against the reference, "4.331 s (+1.0 %), 45.2 kJ (-13.1 %)". */
static void describe(const drawing *d, harpe_point point, harpe_text *text) {
    char number[HARPE_NUMBER_SIZE];
    const harpe_point *reference = &d->picture->reference;
    bool compare = d->picture->has_reference && !is_narrow(d) && reference->time_s > 0.0 &&
                   reference->energy_j > 0.0;
    double slower = compare ? (point.time_s / reference->time_s - 1.0) * 100.0 : 0.0;
    double dearer = compare ? (point.energy_j / reference->energy_j - 1.0) * 100.0 : 0.0;
    harpe_text_printf(text, "%s", harpe_format_time(number, point.time_s));
    if (compare && fabs(slower) >= 0.005) {
        harpe_text_printf(text, " (%s", slower < 0.0 ? "\xe2\x88\x92" : "+");
        harpe_text_printf(text, "%s)", harpe_format_percent(number, slower));
    }
    harpe_text_printf(text, ", %s", harpe_format_energy(number, point.energy_j));
    if (compare && fabs(dearer) >= 0.005) {
        harpe_text_printf(text, " (%s", dearer < 0.0 ? "\xe2\x88\x92" : "+");
        harpe_text_printf(text, "%s)", harpe_format_percent(number, dearer));
    }
}

static void draw_mark(drawing *d, harpe_point point, harpe_color color, const char *name) {
    harpe_xy at = to_picture(d, point);
    harpe_text detail = {0};
    describe(d, point, &detail);
    harpe_stroke ring = {color, 2.0, 0.0};
    harpe_canvas_circle(d->canvas, at.x, at.y, 5.2, HARPE_INK(HARPE_INK_PAPER), ring);
    draw_label(d, at, name, detail.data ? detail.data : "");
    harpe_text_free(&detail);
}

static void draw_marks(drawing *d) {
    const harpe_frontier_picture *picture = d->picture;
    bool has_plans = picture->plan_count > 0;
    const harpe_point *points = has_plans ? picture->plans : picture->bound;
    size_t count = has_plans ? picture->plan_count : picture->bound_count;
    size_t least = 0;
    for (size_t i = 1; i < count; i++)
        if (points[i].energy_j < points[least].energy_j) least = i;
    if (picture->has_reference) {
        harpe_xy at = to_picture(d, picture->reference);
        harpe_label_field_add(&d->labels,
                              (harpe_area){at.x - 7.0, at.y - 7.0, at.x + 7.0, at.y + 7.0});
    }
    harpe_xy first = to_picture(d, points[0]), reference = to_picture(d, picture->reference);
    /* Two labels at the same point would hide the curve. */
    bool is_reference =
        picture->has_reference && hypot(first.x - reference.x, first.y - reference.y) < 2.0;
    const char *first_name = least == 0     ? "fastest, least energy"
                             : is_reference ? "fastest plan, all at maximum frequency"
                             : has_plans    ? "fastest plan"
                                            : "shortest time";
    const char *least_name = has_plans ? "least energy" : "least energy (bound)";
    draw_mark(d, points[0], HARPE_INK(HARPE_INK_BLUE), first_name);
    if (least != 0) draw_mark(d, points[least], HARPE_INK(HARPE_INK_GREEN), least_name);
    if (picture->has_reference && (!is_reference || least == 0))
        draw_mark(d, picture->reference, HARPE_INK(HARPE_INK_ORANGE), "all at maximum frequency");
}

static harpe_status draw_all(drawing *d, harpe_error *error) {
    const harpe_frontier_picture *picture = d->picture;
    char x_title[64];
    char y_title[64];
    snprintf(x_title, sizeof x_title, "iteration time (%s)", d->time.name);
    snprintf(y_title, sizeof y_title, "energy per iteration (%s)", d->energy.name);
    draw_titles(d);
    harpe_draw_axes(d->canvas, &d->frame, x_title, y_title);
    if (picture->has_reference) {
        draw_slowdown_axis(d);
        draw_savings_axis(d);
    }
    harpe_status status = draw_bound(d, error);
    if (status == HARPE_OK) {
        status = draw_dots(d, picture->one_clock, picture->one_clock_count, 2.2,
                           HARPE_INK(HARPE_INK_ROSE), error);
    }
    if (status == HARPE_OK) {
        status = draw_dots(d, picture->plans, picture->plan_count, 2.7, HARPE_INK(HARPE_INK_BLUE),
                           error);
    }
    if (status != HARPE_OK) return status;
    draw_key(d);
    draw_marks(d);
    return HARPE_OK;
}

harpe_status harpe_draw_frontier(const harpe_frontier_picture *picture, harpe_image_format format,
                                 harpe_text *out, harpe_error *error) {
    harpe_status status = check_picture(picture, error);
    if (status != HARPE_OK) return status;
    drawing d = {.picture = picture};
    d.width = picture->width > 0.0 ? fmin(fmax(picture->width, 320.0), 4000.0) : 860.0;
    d.height = picture->height > 0.0 ? fmin(fmax(picture->height, 240.0), 4000.0) : 500.0;
    set_frame(&d);
    const char *description = picture->title ? picture->title : "Energy over iteration time";
    status = harpe_canvas_new(format, d.width, d.height, description, &d.canvas, error);
    if (status != HARPE_OK) return status;
    status = draw_all(&d, error);
    harpe_label_field_free(&d.labels);
    harpe_text ignored = {0};
    if (status == HARPE_OK) return harpe_canvas_finish(d.canvas, out, error);
    harpe_canvas_finish(d.canvas, &ignored, NULL);
    harpe_text_free(&ignored);
    return status;
}
