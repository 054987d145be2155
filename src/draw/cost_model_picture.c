/* SPDX-License-Identifier: Apache-2.0 */
/* Draws cost models, with one small panel for each instruction. A panel shows effective energy over
 * time: the measured points (filled if the planner may choose them), and the relaxation's curve as
 * a line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/format.h"
#include "draw/draw_internal.h"

#define PANEL_WIDTH 430.0
#define PANEL_HEIGHT 320.0
#define DOTS_MAX 2000 /* points drawn in one panel */
#define LABELS_MAX 7  /* of one panel */

typedef struct panel_drawing {
    const harpe_cost_panel *panel;
    const harpe_choice *choice;
    harpe_plot plot;
} panel_drawing;

static double effective_energy_j(const harpe_choice *choice, const harpe_profile_point *point) {
    return point->energy_j - choice->blocking_power_w * point->time_s;
}

/* Returns true if the planner may choose a point. */
static bool is_option(const harpe_choice *choice, const harpe_profile_point *point) {
    for (size_t i = 0; i < choice->list.option_count; i++)
        if (choice->list.options[i].frequency_mhz == point->frequency_mhz) return true;
    return false;
}

static harpe_xy place_of(const panel_drawing *d, const harpe_profile_point *point) {
    return harpe_plot_place(&d->plot, point->time_s, effective_energy_j(d->choice, point));
}

static void set_frame(panel_drawing *d, double left, double top) {
    const harpe_choice *choice = d->choice;
    harpe_range time = {0}, energy = {0};
    for (size_t i = 0; i < choice->point_count; i++) {
        harpe_range_add(&time, choice->points[i].time_s);
        harpe_range_add(&energy, effective_energy_j(choice, &choice->points[i]));
    }
    for (size_t i = 0; i < choice->list.curve_count; i++) {
        harpe_range_add(&time, choice->list.curve_time_s[i]);
        harpe_range_add(&energy, choice->list.curve_effective_energy_j[i]);
    }
    d->plot.frame = (harpe_frame){.left = left + 70.0,
                                  .right = left + PANEL_WIDTH - 14.0,
                                  .top = top + 32.0,
                                  .bottom = top + PANEL_HEIGHT - 50.0};
    harpe_plot_begin(&d->plot, time, energy);
}

static void draw_dots(panel_drawing *d, bool options) {
    const harpe_choice *choice = d->choice;
    harpe_stroke hollow = {HARPE_INK(HARPE_INK_AXIS), 1.2, 0.0};
    harpe_stroke solid = {HARPE_INK(HARPE_INK_PAPER), 0.8, 0.0};
    size_t step = choice->point_count / DOTS_MAX + 1;
    for (size_t i = 0; i < choice->point_count; i += step) {
        if (is_option(choice, &choice->points[i]) != options) continue;
        harpe_xy at = place_of(d, &choice->points[i]);
        harpe_label_avoid(&d->plot.labels, at, 5.5);
        harpe_svg_circle(d->plot.svg, at.x, at.y, options ? 3.6 : 3.0,
                         HARPE_INK(options ? HARPE_INK_BLUE : HARPE_INK_PAPER),
                         options ? solid : hollow);
    }
}

/* Labels a point. */
static void draw_frequency(panel_drawing *d, size_t i, bool is_needed) {
    const harpe_profile_point *point = &d->choice->points[i];
    double mhz = d->panel->frequency_mhz ? d->panel->frequency_mhz[i] : point->frequency_mhz;
    if (!(mhz > 0.0)) return;
    harpe_text_style style = {.size = 10.5};
    style.color = HARPE_INK(is_option(d->choice, point) ? HARPE_INK_TEXT : HARPE_INK_MUTED);
    char text[40];
    snprintf(text, sizeof text, is_needed ? "%.0f MHz" : "%.0f", mhz);
    harpe_draw_label(d->plot.svg, &d->plot.labels, place_of(d, point), &style, text, NULL,
                     is_needed);
}

/* Labels the fastest and the slowest option, then the highest and the lowest frequency, then some
 * options in between. All but the first two are labelled only if there is room. */
static void draw_frequencies(panel_drawing *d) {
    const harpe_choice *choice = d->choice;
    size_t fastest = SIZE_MAX, slowest = SIZE_MAX, option_count = 0;
    for (size_t i = 0; i < choice->point_count; i++) {
        if (!is_option(choice, &choice->points[i])) continue;
        option_count++;
        double time_s = choice->points[i].time_s;
        if (fastest == SIZE_MAX || time_s < choice->points[fastest].time_s) fastest = i;
        if (slowest == SIZE_MAX || time_s > choice->points[slowest].time_s) slowest = i;
    }
    if (fastest != SIZE_MAX) draw_frequency(d, fastest, true);
    if (slowest != fastest) draw_frequency(d, slowest, true);
    size_t last = choice->point_count - 1, seen = 0, every = option_count / (LABELS_MAX - 2) + 1;
    for (size_t i = 0; i <= last; i += last > 0 ? last : 1)
        if (i != fastest && i != slowest) draw_frequency(d, i, false);
    for (size_t i = 1; i < last; i++)
        if (is_option(choice, &choice->points[i]) && ++seen % every == 0 && i != fastest &&
            i != slowest)
            draw_frequency(d, i, false);
}

static void draw_panel(harpe_svg *svg, const harpe_cost_panel *panel, double left, double top) {
    panel_drawing d = {.panel = panel, .choice = panel->choice, .plot.svg = svg};
    set_frame(&d, left, top);
    harpe_plot_axes(&d.plot, "time", "effective energy");
    harpe_text_style title = {.size = 12.5, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    const harpe_option_list *list = &d.choice->list;
    harpe_svg_text(svg, d.plot.frame.left, top + 20.0, &title, list->instruction);
    harpe_plot_curve(&d.plot, (harpe_stroke){HARPE_INK(HARPE_INK_ORANGE), 1.6, 0.0},
                     list->curve_time_s, list->curve_effective_energy_j, list->curve_count, 1);
    draw_dots(&d, false);
    draw_dots(&d, true);
    draw_frequencies(&d);
    free(d.plot.labels.taken);
}

static double key_entry(harpe_svg *svg, double x, double y, const char *name) {
    harpe_text_style style = {.size = 11.0, .color = HARPE_INK(HARPE_INK_TEXT)};
    harpe_svg_text(svg, x + 12.0, y + 4.0, &style, name);
    return x + 12.0 + harpe_text_width(&style, name) + 26.0;
}

static void draw_key(const harpe_cost_model_picture *picture, harpe_svg *svg, double y) {
    harpe_stroke hollow = {HARPE_INK(HARPE_INK_AXIS), 1.2, 0.0};
    harpe_stroke curve = {HARPE_INK(HARPE_INK_ORANGE), 1.6, 0.0};
    harpe_stroke none = {HARPE_NO_COLOR, 0.0, 0.0};
    double x = 76.0;
    harpe_svg_circle(svg, x, y, 3.6, HARPE_INK(HARPE_INK_BLUE), none);
    x = key_entry(svg, x, y, "option");
    harpe_svg_circle(svg, x, y, 3.0, HARPE_INK(HARPE_INK_PAPER), hollow);
    x = key_entry(svg, x, y, "never worth it");
    harpe_svg_line(svg, x - 8.0, y, x + 8.0, y, curve);
    x = key_entry(svg, x, y, picture->curve_label ? picture->curve_label : "relaxation");
    harpe_text_style note = {.size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED)};
    char number[HARPE_NUMBER_SIZE], text[120];
    snprintf(text, sizeof text, "effective energy = energy \xe2\x88\x92 %s W \xc3\x97 time",
             harpe_format_compact(number, picture->panels[0].choice->blocking_power_w, 2));
    bool is_narrow = picture->panel_count == 1;
    harpe_svg_text(svg, is_narrow ? 70.0 : x, y + (is_narrow ? 22.0 : 4.0), &note, text);
}

harpe_status harpe_draw_cost_model(const harpe_cost_model_picture *picture, bool in_page,
                                   harpe_text *out, harpe_error *error) {
    size_t columns = picture->panel_count < 3 ? picture->panel_count : 3;
    if (picture->panel_count == 4) columns = 2;
    size_t rows = (picture->panel_count + columns - 1) / columns;
    double top = picture->title ? 32.0 : 0.0;
    double bottom = top + (double)rows * PANEL_HEIGHT;
    harpe_svg svg = harpe_svg_begin(out, in_page, (double)columns * PANEL_WIDTH + 8.0,
                                    bottom + (picture->panel_count == 1 ? 46.0 : 30.0),
                                    picture->title ? picture->title : "Effective energy over time");
    harpe_text_style title = {.size = 15.0, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    if (picture->title) harpe_svg_text(&svg, 70.0, 26.0, &title, picture->title);
    for (size_t i = 0; i < picture->panel_count; i++) {
        size_t row = i / columns;
        draw_panel(&svg, &picture->panels[i], (double)(i % columns) * PANEL_WIDTH,
                   top + (double)row * PANEL_HEIGHT);
    }
    draw_key(picture, &svg, bottom + 8.0);
    return harpe_svg_end(&svg, error);
}
