/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the power of a fleet over time: its budget as a stepped line, the power under one or more
 * policies, and events as bands. */
#include <math.h>

#include "draw/draw_internal.h"

#define LINES_MAX 4
#define WIDTH 860.0
#define HEIGHT 420.0

typedef struct drawing {
    const harpe_fleet_picture *picture;
    harpe_svg svg;
    harpe_frame frame;
    double s_per_unit, w_per_unit;
} drawing;

static const harpe_ink line_inks[LINES_MAX] = {HARPE_INK_BLUE, HARPE_INK_ORANGE, HARPE_INK_GREEN,
                                               HARPE_INK_PURPLE};

static void add_line(harpe_range *range, const harpe_fleet_line *line) {
    for (size_t i = 0; i < line->count; i++)
        harpe_range_add(range, line->power_w[i * line->step]);
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
                             .right = WIDTH - 24,
                             .bottom = HEIGHT - 52,
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
        harpe_svg_rect(&d->svg, left, d->frame.top, fmax(right - left, 1),
                       d->frame.bottom - d->frame.top, HARPE_INK(HARPE_INK_IDLE), band->label);
    }
}

/* Draws steps. Several steps within a pixel become one vertical line from the lowest to the
 * highest, so that short peaks stay visible. */
static void draw_steps(drawing *d, const harpe_fleet_line *line, harpe_stroke stroke) {
    harpe_svg_path_begin(&d->svg, stroke);
    for (size_t i = 0, next; i < line->count; i = next) {
        double x = x_of(d, line->at_s[i * line->step]), first = line->power_w[i * line->step];
        double low = first, high = first, last = first, end = x;
        for (next = i + 1; next < line->count; next++) {
            end = x_of(d, line->at_s[next * line->step]);
            if (end - x >= 0.5) break;
            last = line->power_w[next * line->step];
            low = fmin(low, last);
            high = fmax(high, last);
        }
        if (next == line->count) end = d->frame.right;
        const double powers[] = {first, high, low, last};
        for (size_t k = 0; k < 4; k++)
            harpe_svg_path_to(&d->svg, x, y_of(d, powers[k]));
        harpe_svg_path_to(&d->svg, end, y_of(d, last));
    }
    harpe_svg_path_end(&d->svg);
}

static double draw_key_entry(drawing *d, double x, harpe_stroke stroke, const char *label) {
    harpe_text_style style = {.size = 11.5, .color = HARPE_INK(HARPE_INK_TEXT)};
    double y = d->frame.top - 14;
    harpe_svg_line(&d->svg, x, y - 4, x + 22, y - 4, stroke);
    harpe_svg_text(&d->svg, x + 28, y, &style, label);
    return x + 28 + harpe_text_width(&style, label) + 20;
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
    harpe_svg_rect(&d->svg, x, d->frame.top - 24, 22, 12, HARPE_INK(HARPE_INK_IDLE), NULL);
    harpe_svg_text(&d->svg, x + 28, d->frame.top - 14, &style, "event");
}

harpe_status harpe_draw_fleet(const harpe_fleet_picture *picture, harpe_text *out,
                              harpe_error *error) {
    drawing d = {.picture = picture};
    set_frame(&d);
    d.svg = harpe_svg_begin(out, false, WIDTH, HEIGHT,
                            picture->title ? picture->title : "Power of a fleet over time");
    harpe_text_style title = {.size = 15, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    if (picture->title) harpe_svg_text(&d.svg, d.frame.left, 26, &title, picture->title);
    draw_bands(&d);
    harpe_draw_axis(&d.svg, &d.frame, HARPE_BOTTOM, d.frame.x,
                    d.s_per_unit == 3600 ? "time (h)"
                    : d.s_per_unit == 60 ? "time (min)"
                                         : "time (s)");
    harpe_draw_axis(&d.svg, &d.frame, HARPE_LEFT, d.frame.y,
                    d.w_per_unit == 1e6   ? "power (MW)"
                    : d.w_per_unit == 1e3 ? "power (kW)"
                                          : "power (W)");
    harpe_stroke budget = {HARPE_INK(HARPE_INK_TEXT), 1.4, 5};
    for (size_t l = picture->line_count; l-- > 0;)
        draw_steps(&d, &picture->lines[l], stroke_of(l));
    if (picture->budget) draw_steps(&d, picture->budget, budget);
    draw_key(&d, budget);
    return harpe_svg_end(&d.svg, error);
}
