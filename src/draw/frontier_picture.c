/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a frontier: energy per iteration over iteration time, the lower bound as a line, and plans
 * as dots. The fastest plan, the plan of least energy and the all-maximum point have labels. The
 * upper and the right axis show slowdown and savings. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/format.h"
#include "draw/draw_internal.h"

#define WIDTH 860.0
#define HEIGHT 500.0

typedef struct drawing {
    const harpe_frontier_picture *picture;
    harpe_svg svg;
    harpe_plot plot;
} drawing;

static void add_rows(const harpe_frontier_row *rows, size_t count, harpe_range *time,
                     harpe_range *energy) {
    for (size_t i = 0; i < count; i++) {
        harpe_range_add(time, rows[i].time_s);
        harpe_range_add(energy, rows[i].energy_j);
    }
}

static void set_frame(drawing *d) {
    const harpe_frontier_picture *picture = d->picture;
    harpe_range time = {0}, energy = {0};
    for (size_t i = 0; i < picture->bound_count; i++) {
        harpe_range_add(&time, picture->bound[i].time_s);
        harpe_range_add(&energy, picture->bound[i].lower_bound_j);
    }
    add_rows(picture->plans, picture->plan_count, &time, &energy);
    add_rows(picture->one_clock, picture->one_clock_count, &time, &energy);
    add_rows(&picture->reference, 1, &time, &energy);
    double title_rows = (picture->title ? 26.0 : 0.0) + (picture->subtitle ? 18.0 : 0.0);
    d->plot.frame = (harpe_frame){
        .left = 82.0, .right = WIDTH - 68.0, .top = 58.0 + title_rows, .bottom = HEIGHT - 52.0};
    harpe_plot_begin(&d->plot, time, energy);
}

static harpe_xy place_of(const drawing *d, const harpe_frontier_row *row) {
    return harpe_plot_place(&d->plot, row->time_s, row->energy_j);
}

static void draw_titles(drawing *d) {
    harpe_text_style title = {.size = 15.0, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    harpe_text_style subtitle = {.size = 11.5, .color = HARPE_INK(HARPE_INK_MUTED)};
    if (d->picture->title)
        harpe_svg_text(&d->svg, d->plot.frame.left, 26.0, &title, d->picture->title);
    if (d->picture->subtitle)
        harpe_svg_text(&d->svg, d->plot.frame.left, d->picture->title ? 46.0 : 26.0, &subtitle,
                       d->picture->subtitle);
}

/* Returns a range as differences from a reference in percent. */
static harpe_range in_percent(harpe_range range, double reference) {
    return (harpe_range){(range.low / reference - 1.0) * 100.0,
                         (range.high / reference - 1.0) * 100.0, true};
}

static void draw_axes(drawing *d) {
    const harpe_frame *frame = &d->plot.frame;
    harpe_plot_axes(&d->plot, "iteration time", "energy per iteration");
    double time = d->picture->reference.time_s * d->plot.time.per_si;
    double energy = d->picture->reference.energy_j * d->plot.energy.per_si;
    if (time > 0.0)
        harpe_draw_axis(&d->svg, frame, HARPE_TOP, in_percent(frame->x, time),
                        "time against all-maximum (%)");
    if (energy > 0.0)
        harpe_draw_axis(&d->svg, frame, HARPE_RIGHT, in_percent(frame->y, energy),
                        "energy against all-maximum (%)");
}

/* Draws the rows that can be distinguished. */
static void draw_dots(drawing *d, const harpe_frontier_row *rows, size_t count, double radius,
                      harpe_color color) {
    harpe_stroke rim = {HARPE_INK(HARPE_INK_PAPER), 0.6, 0.0};
    harpe_xy before = {0};
    for (size_t i = 0; i < count; i++) {
        harpe_xy at = place_of(d, &rows[i]);
        bool is_end = i == 0 || i + 1 == count;
        if (!is_end && fabs(at.x - before.x) < 2.0 && fabs(at.y - before.y) < 2.0) continue;
        harpe_label_avoid(&d->plot.labels, at, 3.0);
        harpe_svg_circle(&d->svg, at.x, at.y, radius, color, rim);
        before = at;
    }
}

/* Draws a line of the key, and returns the place of the next. A radius of 0 stands for a line. */
static double key_row(drawing *d, double y, double radius, harpe_color color, const char *label) {
    harpe_text_style style = {
        .size = 11.0, .color = HARPE_INK(HARPE_INK_TEXT), .anchor = HARPE_END, .halo = true};
    harpe_xy from = {d->plot.frame.right - 34.0 - harpe_text_width(&style, label), y};
    harpe_xy to = {d->plot.frame.right - 4.0, y};
    harpe_stroke none = {HARPE_NO_COLOR, 0.0, 0.0}, thin = {color, 1.2, 0.0};
    harpe_svg_text(&d->svg, to.x - 30.0, y + 4.0, &style, label);
    if (radius > 0.0)
        harpe_svg_circle(&d->svg, to.x - 14.0, y, radius, color, none);
    else
        harpe_svg_line(&d->svg, to.x - 23.0, y, to.x - 5.0, y, thin);
    harpe_label_avoid_line(&d->plot.labels, from, to);
    return y + 18.0;
}

/* Draws the key in the upper right corner, which is free because the frontier falls from upper
 * left to lower right. */
static void draw_key(drawing *d) {
    const harpe_frontier_picture *picture = d->picture;
    double y = d->plot.frame.top + 18.0;
    if (picture->plan_count > 0)
        y = key_row(d, y, 3.0, HARPE_INK(HARPE_INK_BLUE),
                    "frequency plan, at measured time and energy");
    if (picture->bound_count > 0)
        y = key_row(d, y, 0.0, HARPE_INK(HARPE_INK_TEXT), "lower bound: no plan can be below");
    if (picture->one_clock_count > 0)
        key_row(d, y, 2.4, HARPE_INK(HARPE_INK_ROSE), "one clock for all GPUs");
}

/* Appends a difference from the reference: " (+1.0 %)". */
static void put_difference(harpe_text *text, double value, double reference) {
    double percent = reference > 0.0 ? (value / reference - 1.0) * 100.0 : 0.0;
    if (fabs(percent) < 0.005) return;
    char number[HARPE_NUMBER_SIZE];
    harpe_text_printf(text, " (%s%s)", percent < 0.0 ? "\xe2\x88\x92" : "+",
                      harpe_format_percent(number, percent));
}

/* Draws a ring with a label such as "4.331 s (+1.0 %), 45.2 kJ (-13.1 %)". */
static void draw_mark(drawing *d, double time_s, double energy_j, harpe_ink ink, const char *name) {
    harpe_text_style bold = {.size = 11.5, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    harpe_xy at = harpe_plot_place(&d->plot, time_s, energy_j);
    harpe_text detail = {0};
    harpe_text_printf(&detail, "%s", HARPE_TIME(time_s));
    put_difference(&detail, time_s, d->picture->reference.time_s);
    harpe_text_printf(&detail, ", %s", HARPE_ENERGY(energy_j));
    put_difference(&detail, energy_j, d->picture->reference.energy_j);
    harpe_stroke ring = {HARPE_INK(ink), 2.0, 0.0};
    harpe_svg_circle(&d->svg, at.x, at.y, 5.2, HARPE_INK(HARPE_INK_PAPER), ring);
    harpe_draw_label(&d->svg, &d->plot.labels, at, &bold, name, detail.data ? detail.data : "",
                     true);
    harpe_text_free(&detail);
}

static void mark_plans(drawing *d) {
    const harpe_frontier_picture *picture = d->picture;
    const harpe_frontier_row *plans = picture->plans, *reference = &picture->reference;
    size_t least = 0;
    for (size_t i = 1; i < picture->plan_count; i++)
        if (plans[i].energy_j < plans[least].energy_j) least = i;
    harpe_xy first = place_of(d, &plans[0]), highest = place_of(d, reference);
    /* Two labels at the same point would hide the curve. */
    bool is_reference = hypot(first.x - highest.x, first.y - highest.y) < 2.0;
    draw_mark(d, plans[0].time_s, plans[0].energy_j, HARPE_INK_BLUE,
              least == 0     ? "fastest, least energy"
              : is_reference ? "fastest plan, all at maximum frequency"
                             : "fastest plan");
    if (least != 0)
        draw_mark(d, plans[least].time_s, plans[least].energy_j, HARPE_INK_GREEN, "least energy");
    if (!is_reference || least == 0)
        draw_mark(d, reference->time_s, reference->energy_j, HARPE_INK_ORANGE,
                  "all at maximum frequency");
}

static void mark_bound(drawing *d) {
    const harpe_frontier_vertex *first = d->picture->bound;
    const harpe_frontier_vertex *last = first + d->picture->bound_count - 1;
    draw_mark(d, first->time_s, first->lower_bound_j, HARPE_INK_BLUE, "shortest time");
    if (last != first)
        draw_mark(d, last->time_s, last->lower_bound_j, HARPE_INK_GREEN, "least energy (bound)");
    draw_mark(d, d->picture->reference.time_s, d->picture->reference.energy_j, HARPE_INK_ORANGE,
              "all at maximum frequency");
}

harpe_status harpe_draw_frontier(const harpe_frontier_picture *picture, bool in_page,
                                 harpe_text *out, harpe_error *error) {
    drawing d = {.picture = picture};
    set_frame(&d);
    d.svg = harpe_svg_begin(out, in_page, WIDTH, HEIGHT,
                            picture->title ? picture->title : "Energy over iteration time");
    d.plot.svg = &d.svg;
    draw_titles(&d);
    draw_axes(&d);
    harpe_plot_curve(&d.plot, (harpe_stroke){HARPE_INK(HARPE_INK_TEXT), 1.2, 0.0},
                     &picture->bound->time_s, &picture->bound->lower_bound_j, picture->bound_count,
                     sizeof *picture->bound / sizeof(double));
    draw_dots(&d, picture->one_clock, picture->one_clock_count, 2.2, HARPE_INK(HARPE_INK_ROSE));
    draw_dots(&d, picture->plans, picture->plan_count, 2.7, HARPE_INK(HARPE_INK_BLUE));
    draw_key(&d);
    harpe_label_avoid(&d.plot.labels, place_of(&d, &picture->reference), 7.0);
    if (picture->plan_count > 0)
        mark_plans(&d);
    else
        mark_bound(&d);
    free(d.plot.labels.taken);
    return harpe_svg_end(&d.svg, error);
}
