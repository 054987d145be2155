/* SPDX-License-Identifier: Apache-2.0 */
/* Draws cost models, with one small panel for each instruction. A panel shows effective energy over
 * time: the measured points (filled if the planner may choose them), and the relaxation's curve as
 * a line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/number_print.h"
#include "draw/axis.h"
#include "draw/canvas.h"

#define PANELS_MAX 24
#define PANEL_WIDTH 430.0
#define PANEL_HEIGHT 320.0
#define POINTS_MAX 100000 /* of one panel */
#define DOTS_MAX 2000     /* points drawn in one panel */
#define LABELS_MAX 7      /* of one panel */

static harpe_status check_panel(const harpe_cost_panel *panel, size_t index, harpe_error *error) {
    if (panel->point_count + panel->curve_count == 0) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "cost model picture: panel %zu has nothing to draw", index);
    }
    if (panel->point_count > POINTS_MAX || panel->curve_count > POINTS_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "cost model picture: panel %zu has over %d points", index, POINTS_MAX);
    }
    for (size_t i = 0; i < panel->point_count; i++) {
        if (!harpe_is_drawable(panel->points[i].time_s) ||
            !harpe_is_drawable(panel->points[i].effective_energy_j)) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "cost model picture: point %zu of panel %zu is not a usable number",
                              i, index);
        }
    }
    for (size_t i = 0; i < panel->curve_count; i++) {
        if (!harpe_is_drawable(panel->curve_time_s[i]) ||
            !harpe_is_drawable(panel->curve_effective_energy_j[i])) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "cost model picture: curve point %zu of panel %zu is not a usable "
                              "number",
                              i, index);
        }
    }
    return HARPE_OK;
}

static harpe_status check_picture(const harpe_cost_model_picture *picture, harpe_error *error) {
    if (picture->panel_count < 1 || picture->panel_count > PANELS_MAX) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "cost model picture: %zu panels, 1 to %d can be drawn",
                          picture->panel_count, PANELS_MAX);
    }
    for (size_t i = 0; i < picture->panel_count; i++) {
        harpe_status status = check_panel(&picture->panels[i], i, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

typedef struct panel_drawing {
    harpe_canvas *canvas;
    const harpe_cost_panel *panel;
    harpe_frame frame;
    harpe_unit time, energy;
    harpe_label_field labels;
} panel_drawing;

static harpe_xy to_picture(const panel_drawing *d, double time_s, double energy_j) {
    return (harpe_xy){harpe_frame_x(&d->frame, time_s * d->time.per_si),
                      harpe_frame_y(&d->frame, energy_j * d->energy.per_si)};
}

static void set_frame(panel_drawing *d, double left, double top) {
    const harpe_cost_panel *panel = d->panel;
    harpe_range time = {0};
    harpe_range energy = {0};
    for (size_t i = 0; i < panel->point_count; i++) {
        harpe_range_add(&time, panel->points[i].time_s);
        harpe_range_add(&energy, panel->points[i].effective_energy_j);
    }
    for (size_t i = 0; i < panel->curve_count; i++) {
        harpe_range_add(&time, panel->curve_time_s[i]);
        harpe_range_add(&energy, panel->curve_effective_energy_j[i]);
    }
    d->time = harpe_time_unit(time.high);
    d->energy = harpe_energy_unit(fmax(fabs(energy.low), fabs(energy.high)));
    harpe_range_pad(&time, 0.06);
    harpe_range_pad(&energy, 0.09);
    d->frame.left = left + 70.0;
    d->frame.right = left + PANEL_WIDTH - 14.0;
    d->frame.top = top + 32.0;
    d->frame.bottom = top + PANEL_HEIGHT - 50.0;
    d->frame.x = (harpe_range){time.low * d->time.per_si, time.high * d->time.per_si, true};
    d->frame.y = (harpe_range){energy.low * d->energy.per_si, energy.high * d->energy.per_si, true};
    d->labels.bounds = (harpe_area){d->frame.left + 3.0, d->frame.top + 2.0, d->frame.right - 3.0,
                                    d->frame.bottom - 3.0};
}

static void avoid(panel_drawing *d, double x, double y) {
    harpe_label_field_add(&d->labels, (harpe_area){x - 5.5, y - 5.5, x + 5.5, y + 5.5});
}

static harpe_status draw_curve(panel_drawing *d, harpe_error *error) {
    const harpe_cost_panel *panel = d->panel;
    if (panel->curve_count == 0) return HARPE_OK;
    harpe_xy *line = harpe_calloc(panel->curve_count, sizeof *line);
    if (!line) return harpe_fail_memory(error);
    size_t kept = 0;
    for (size_t i = 0; i < panel->curve_count; i++) {
        harpe_xy at = to_picture(d, panel->curve_time_s[i], panel->curve_effective_energy_j[i]);
        bool is_end = i == 0 || i + 1 == panel->curve_count;
        if (!is_end && hypot(at.x - line[kept - 1].x, at.y - line[kept - 1].y) < 0.7) continue;
        if (kept > 0) {
            harpe_xy before = line[kept - 1];
            int steps = (int)fmin(hypot(at.x - before.x, at.y - before.y) / 6.0, 100.0);
            for (int k = 1; k < steps; k++) {
                avoid(d, before.x + (at.x - before.x) * k / steps,
                      before.y + (at.y - before.y) * k / steps);
            }
        }
        line[kept++] = at;
    }
    harpe_stroke stroke = {HARPE_INK(HARPE_INK_ORANGE), 1.6, 0.0};
    harpe_canvas_path(d->canvas, line, kept, false, HARPE_NO_COLOR, stroke);
    free(line);
    return HARPE_OK;
}

static void draw_dots(panel_drawing *d, bool options) {
    const harpe_cost_panel *panel = d->panel;
    harpe_stroke hollow = {HARPE_INK(HARPE_INK_AXIS), 1.2, 0.0};
    harpe_stroke solid = {HARPE_INK(HARPE_INK_PAPER), 0.8, 0.0};
    size_t step = panel->point_count / DOTS_MAX + 1;
    for (size_t i = 0; i < panel->point_count; i += step) {
        const harpe_cost_point *point = &panel->points[i];
        if (point->is_option != options) continue;
        harpe_xy at = to_picture(d, point->time_s, point->effective_energy_j);
        avoid(d, at.x, at.y);
        harpe_canvas_circle(d->canvas, at.x, at.y, options ? 3.6 : 3.0,
                            HARPE_INK(options ? HARPE_INK_BLUE : HARPE_INK_PAPER),
                            options ? solid : hollow);
    }
}

/* Labels a point unless the label would cover something. */
static void draw_frequency(panel_drawing *d, const harpe_cost_point *point, bool is_needed) {
    if (point->frequency_mhz <= 0) return;
    harpe_text_style style = {.size = 10.5,
                              .color =
                                  HARPE_INK(point->is_option ? HARPE_INK_TEXT : HARPE_INK_MUTED),
                              .halo = true,
                              .anchor = HARPE_MIDDLE};
    char text[40];
    snprintf(text, sizeof text, is_needed ? "%d MHz" : "%d", point->frequency_mhz);
    harpe_xy at = to_picture(d, point->time_s, point->effective_energy_j);
    double width = harpe_canvas_text_width(d->canvas, &style, text);
    double overlap = 0.0;
    harpe_area area = harpe_label_place(&d->labels, at.x, at.y, width, 12.0, &overlap);
    if (overlap > 0.0 && !is_needed) {
        d->labels.taken_count--; /* the label is not drawn, so its place is free */
        return;
    }
    double middle_x = (area.left + area.right) / 2.0;
    double middle_y = (area.top + area.bottom) / 2.0;
    double near_x = fmin(fmax(at.x, area.left - 2.0), area.right + 2.0);
    double near_y = fmin(fmax(at.y, area.top - 1.0), area.bottom + 1.0);
    if (hypot(near_x - at.x, near_y - at.y) > 9.0) {
        harpe_stroke leader = {HARPE_INK(HARPE_INK_AXIS), 0.8, 0.0};
        harpe_canvas_line(d->canvas, at.x, at.y, near_x, near_y, leader);
    }
    harpe_canvas_text(d->canvas, middle_x, middle_y + 0.36 * style.size, &style, text);
}

/* Labels the fastest and the slowest option, then the highest and the lowest frequency, then some
 * options in between. All but the first two are labelled only if there is room. */
static void draw_frequencies(panel_drawing *d) {
    const harpe_cost_panel *panel = d->panel;
    size_t fastest = SIZE_MAX;
    size_t slowest = SIZE_MAX;
    size_t option_count = 0;
    for (size_t i = 0; i < panel->point_count; i++) {
        if (!panel->points[i].is_option) continue;
        option_count++;
        if (fastest == SIZE_MAX || panel->points[i].time_s < panel->points[fastest].time_s)
            fastest = i;
        if (slowest == SIZE_MAX || panel->points[i].time_s > panel->points[slowest].time_s)
            slowest = i;
    }
    if (fastest != SIZE_MAX) draw_frequency(d, &panel->points[fastest], true);
    if (slowest != fastest) draw_frequency(d, &panel->points[slowest], true);
    size_t last = panel->point_count > 0 ? panel->point_count - 1 : 0;
    for (size_t i = 0; i <= last && panel->point_count > 0; i += last > 0 ? last : 1)
        if (i != fastest && i != slowest) draw_frequency(d, &panel->points[i], false);
    size_t every = option_count / (LABELS_MAX - 2) + 1;
    size_t seen = 0;
    for (size_t i = 0; i < panel->point_count; i++) {
        if (!panel->points[i].is_option || i == 0 || i == last) continue;
        if (++seen % every == 0 && i != fastest && i != slowest)
            draw_frequency(d, &panel->points[i], false);
    }
}

static harpe_status draw_panel(harpe_canvas *canvas, const harpe_cost_panel *panel, double left,
                               double top, harpe_error *error) {
    panel_drawing d = {.canvas = canvas, .panel = panel};
    set_frame(&d, left, top);
    char x_title[64];
    char y_title[64];
    snprintf(x_title, sizeof x_title, "time (%s)", d.time.name);
    snprintf(y_title, sizeof y_title, "effective energy (%s)", d.energy.name);
    harpe_draw_axes(canvas, &d.frame, x_title, y_title);
    harpe_text_style title = {.size = 12.5, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    harpe_canvas_text(canvas, d.frame.left, top + 20.0, &title, panel->title);
    harpe_status status = draw_curve(&d, error);
    if (status == HARPE_OK) {
        draw_dots(&d, false);
        draw_dots(&d, true);
        draw_frequencies(&d);
    }
    harpe_label_field_free(&d.labels);
    return status;
}

static double key_entry(harpe_canvas *canvas, double x, double y, const char *name) {
    harpe_text_style style = {.size = 11.0, .color = HARPE_INK(HARPE_INK_TEXT)};
    harpe_canvas_text(canvas, x + 12.0, y + 4.0, &style, name);
    return x + 12.0 + harpe_canvas_text_width(canvas, &style, name) + 26.0;
}

static void draw_key(const harpe_cost_model_picture *picture, harpe_canvas *canvas, double y) {
    harpe_stroke hollow = {HARPE_INK(HARPE_INK_AXIS), 1.2, 0.0};
    harpe_stroke curve = {HARPE_INK(HARPE_INK_ORANGE), 1.6, 0.0};
    harpe_stroke none = {HARPE_NO_COLOR, 0.0, 0.0};
    double x = 76.0;
    harpe_canvas_circle(canvas, x, y, 3.6, HARPE_INK(HARPE_INK_BLUE), none);
    x = key_entry(canvas, x, y, "option");
    harpe_canvas_circle(canvas, x, y, 3.0, HARPE_INK(HARPE_INK_PAPER), hollow);
    x = key_entry(canvas, x, y, "never worth it");
    harpe_canvas_line(canvas, x - 8.0, y, x + 8.0, y, curve);
    x = key_entry(canvas, x, y, picture->curve_label ? picture->curve_label : "relaxation");
    harpe_text_style note = {.size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED)};
    char number[HARPE_NUMBER_SIZE];
    char text[120];
    snprintf(text, sizeof text, "effective energy = energy \xe2\x88\x92 %s W \xc3\x97 time",
             harpe_format_compact(number, picture->blocking_power_w, 2));
    double below = picture->panel_count == 1 ? 18.0 : 0.0;
    harpe_canvas_text(canvas, below > 0.0 ? 70.0 : x, y + 4.0 + below, &note, text);
}

harpe_status harpe_draw_cost_model(const harpe_cost_model_picture *picture,
                                   harpe_image_format format, harpe_text *out, harpe_error *error) {
    harpe_status status = check_picture(picture, error);
    if (status != HARPE_OK) return status;
    size_t columns = picture->panel_count < 3 ? picture->panel_count : 3;
    if (picture->panel_count == 4) columns = 2;
    size_t rows = (picture->panel_count + columns - 1) / columns;
    double top = picture->title ? 32.0 : 0.0;
    double width = (double)columns * PANEL_WIDTH + 8.0;
    double height = top + (double)rows * PANEL_HEIGHT + (picture->panel_count == 1 ? 46.0 : 30.0);
    harpe_canvas *canvas = NULL;
    status = harpe_canvas_new(format, width, height,
                              picture->title ? picture->title : "Effective energy over time",
                              &canvas, error);
    if (status != HARPE_OK) return status;
    harpe_text_style title = {.size = 15.0, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    if (picture->title) harpe_canvas_text(canvas, 70.0, 26.0, &title, picture->title);
    for (size_t i = 0; i < picture->panel_count && status == HARPE_OK; i++) {
        size_t row = i / columns;
        size_t column = i % columns;
        status = draw_panel(canvas, &picture->panels[i], (double)column * PANEL_WIDTH,
                            top + (double)row * PANEL_HEIGHT, error);
    }
    harpe_text ignored = {0};
    if (status == HARPE_OK) {
        draw_key(picture, canvas, top + (double)rows * PANEL_HEIGHT + 8.0);
        return harpe_canvas_finish(canvas, out, error);
    }
    harpe_canvas_finish(canvas, &ignored, NULL);
    harpe_text_free(&ignored);
    return status;
}
