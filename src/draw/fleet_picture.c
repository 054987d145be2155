/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the power of a fleet over time: its budget as a stepped line, the power under one or more
 * policies, and events as bands. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "draw/axis.h"
#include "draw/canvas.h"

#define SAMPLES_MAX 10000000 /* of one line */
#define LINES_MAX 4
#define BANDS_MAX 10000

typedef struct drawing {
    const harpe_fleet_picture *picture;
    harpe_canvas *canvas;
    harpe_frame frame;
    double width, height;
    double s_per_unit, w_per_unit;
} drawing;

static const harpe_ink line_inks[LINES_MAX] = {HARPE_INK_BLUE, HARPE_INK_ORANGE, HARPE_INK_GREEN,
                                               HARPE_INK_PURPLE};

static harpe_status check_line(const harpe_fleet_line *line, harpe_error *error) {
    if (line->count < 1 || line->count > SAMPLES_MAX) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "fleet picture: a line must have 1 to %d samples", SAMPLES_MAX);
    }
    for (size_t i = 0; i < line->count; i++) {
        if (!harpe_is_drawable(line->at_s[i]) || !harpe_is_drawable(line->power_w[i])) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "fleet picture: sample %zu of '%s' is not a usable number", i,
                              line->label);
        }
    }
    return HARPE_OK;
}

static harpe_status check_picture(const harpe_fleet_picture *picture, harpe_error *error) {
    if (picture->line_count < 1 || picture->line_count > LINES_MAX ||
        picture->band_count > BANDS_MAX || !(picture->end_s > 0) ||
        !harpe_is_drawable(picture->end_s))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "fleet picture: it needs 1 to %d lines and an end above 0", LINES_MAX);
    harpe_status status = HARPE_OK;
    for (size_t l = 0; l < picture->line_count && status == HARPE_OK; l++)
        status = check_line(&picture->lines[l], error);
    if (status == HARPE_OK && picture->budget) status = check_line(picture->budget, error);
    return status;
}

static void add_line(harpe_range *range, const harpe_fleet_line *line) {
    for (size_t i = 0; i < line->count; i++)
        harpe_range_add(range, line->power_w[i]);
}

static void set_frame(drawing *d) {
    const harpe_fleet_picture *picture = d->picture;
    harpe_range power = {0};
    harpe_range_add(&power, 0);
    for (size_t l = 0; l < picture->line_count; l++)
        add_line(&power, &picture->lines[l]);
    if (picture->budget) add_line(&power, picture->budget);
    d->s_per_unit = picture->end_s >= 7200 ? 3600 : picture->end_s >= 120 ? 60 : 1;
    d->w_per_unit = power.high >= 2e6 ? 1e6 : power.high >= 2e3 ? 1e3 : 1;
    d->frame = (harpe_frame){.left = 82,
                             .top = picture->title ? 66 : 40,
                             .right = d->width - 24,
                             .bottom = d->height - 52,
                             .x = {0, picture->end_s / d->s_per_unit, true},
                             .y = {0, power.high * 1.08 / d->w_per_unit, true}};
    if (!(d->frame.y.high > 0)) d->frame.y.high = 1;
}

static double x_of(const drawing *d, double at_s) {
    return harpe_frame_x(&d->frame, fmin(fmax(at_s, 0), d->picture->end_s) / d->s_per_unit);
}

static double y_of(const drawing *d, double power_w) {
    return harpe_frame_y(&d->frame, power_w / d->w_per_unit);
}

static void draw_bands(drawing *d) {
    for (size_t b = 0; b < d->picture->band_count; b++) {
        const harpe_fleet_band *band = &d->picture->bands[b];
        double left = x_of(d, band->from_s), right = x_of(d, band->to_s);
        if (right <= left) continue;
        harpe_canvas_rect(d->canvas, left, d->frame.top, fmax(right - left, 1),
                          d->frame.bottom - d->frame.top, HARPE_INK(HARPE_INK_IDLE), band->label);
    }
}

/* Draws steps. Several steps within a pixel become one vertical line from the lowest to the
 * highest, so that short peaks stay visible. */
static harpe_status draw_steps(drawing *d, const harpe_fleet_line *line, harpe_stroke stroke,
                               harpe_error *error) {
    size_t count = 0, capacity = 0;
    harpe_xy *points = NULL;
    for (size_t i = 0; i < line->count;) {
        double x = x_of(d, line->at_s[i]), low = line->power_w[i], high = low, last = low;
        size_t next = i + 1;
        for (; next < line->count && x_of(d, line->at_s[next]) - x < 0.5; next++) {
            last = line->power_w[next];
            low = fmin(low, last);
            high = fmax(high, last);
        }
        double end = next < line->count ? x_of(d, line->at_s[next]) : d->frame.right;
        if (!HARPE_ARRAY_RESERVE(points, capacity, count + 5)) {
            free(points);
            return harpe_fail_memory(error);
        }
        points[count++] = (harpe_xy){x, y_of(d, line->power_w[i])};
        points[count++] = (harpe_xy){x, y_of(d, high)};
        points[count++] = (harpe_xy){x, y_of(d, low)};
        points[count++] = (harpe_xy){x, y_of(d, last)};
        points[count++] = (harpe_xy){end, y_of(d, last)};
        i = next;
    }
    harpe_canvas_path(d->canvas, points, count, false, HARPE_NO_COLOR, stroke);
    free(points);
    return HARPE_OK;
}

static double draw_key_entry(drawing *d, double x, harpe_stroke stroke, const char *label) {
    harpe_text_style style = {.size = 11.5, .color = HARPE_INK(HARPE_INK_TEXT)};
    double y = d->frame.top - 14;
    harpe_canvas_line(d->canvas, x, y - 4, x + 22, y - 4, stroke);
    harpe_canvas_text(d->canvas, x + 28, y, &style, label);
    return x + 28 + harpe_canvas_text_width(d->canvas, &style, label) + 20;
}

/* Returns the stroke of a line. The first is the thickest. */
static harpe_stroke stroke_of(size_t line) {
    return (harpe_stroke){HARPE_INK(line_inks[line]), line == 0 ? 2.2 : 1.3, 0};
}

static void draw_key(drawing *d, harpe_stroke budget) {
    double x = d->frame.left;
    if (d->picture->budget) x = draw_key_entry(d, x, budget, d->picture->budget->label);
    for (size_t l = 0; l < d->picture->line_count; l++)
        x = draw_key_entry(d, x, stroke_of(l), d->picture->lines[l].label);
    if (d->picture->band_count == 0) return;
    harpe_text_style style = {.size = 11.5, .color = HARPE_INK(HARPE_INK_TEXT)};
    harpe_canvas_rect(d->canvas, x, d->frame.top - 24, 22, 12, HARPE_INK(HARPE_INK_IDLE), NULL);
    harpe_canvas_text(d->canvas, x + 28, d->frame.top - 14, &style, "event");
}

static harpe_status draw_all(drawing *d, harpe_error *error) {
    const harpe_fleet_picture *picture = d->picture;
    harpe_text_style title = {.size = 15, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    if (picture->title) harpe_canvas_text(d->canvas, d->frame.left, 26, &title, picture->title);
    char x_title[32], y_title[32];
    (void)snprintf(x_title, sizeof x_title, "time (%s)",
                   d->s_per_unit == 3600 ? "h"
                   : d->s_per_unit == 60 ? "min"
                                         : "s");
    (void)snprintf(y_title, sizeof y_title, "power (%s)",
                   d->w_per_unit == 1e6   ? "MW"
                   : d->w_per_unit == 1e3 ? "kW"
                                          : "W");
    draw_bands(d);
    harpe_draw_axes(d->canvas, &d->frame, x_title, y_title);
    harpe_stroke budget = {HARPE_INK(HARPE_INK_TEXT), 1.4, 5};
    harpe_status status = HARPE_OK;
    for (size_t l = picture->line_count; l-- > 0 && status == HARPE_OK;)
        status = draw_steps(d, &picture->lines[l], stroke_of(l), error);
    if (status == HARPE_OK && picture->budget)
        status = draw_steps(d, picture->budget, budget, error);
    if (status == HARPE_OK) draw_key(d, budget);
    return status;
}

harpe_status harpe_draw_fleet(const harpe_fleet_picture *picture, harpe_image_format format,
                              harpe_text *out, harpe_error *error) {
    harpe_status status = check_picture(picture, error);
    if (status != HARPE_OK) return status;
    drawing d = {.picture = picture, .width = 860, .height = 420};
    set_frame(&d);
    const char *description = picture->title ? picture->title : "Power of a fleet over time";
    status = harpe_canvas_new(format, d.width, d.height, description, &d.canvas, error);
    if (status != HARPE_OK) return status;
    status = draw_all(&d, error);
    harpe_text ignored = {0};
    if (status == HARPE_OK) return harpe_canvas_finish(d.canvas, out, error);
    (void)harpe_canvas_finish(d.canvas, &ignored, NULL);
    harpe_text_free(&ignored);
    return status;
}
