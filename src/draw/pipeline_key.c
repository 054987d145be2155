/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the row below a pipeline that explains the colours. */
#include "draw/pipeline_key.h"

#include <math.h>
#include <stdio.h>

#include "base/number_print.h"

#define SCALE_WIDTH 230.0
#define SCALE_STEPS 46

static const harpe_text_style key_text = {.size = 11.0, .color = HARPE_INK(HARPE_INK_TEXT)};

/* The place of the next entry. It moves to a second row when the first is full. */
typedef struct key_pen {
    double x, y;
    double right; /* right end of all entries */
} key_pen;

static harpe_xy key_entry(harpe_pipeline_drawing *d, key_pen *pen, const char *name) {
    double width = 24.0 + harpe_canvas_text_width(d->canvas, &key_text, name);
    if (pen->x + width > pen->right && pen->x > d->left) {
        pen->x = d->left;
        pen->y += 21.0;
    }
    harpe_xy at = {pen->x, pen->y};
    harpe_canvas_text(d->canvas, at.x + 24.0, at.y + 4.0, &key_text, name);
    pen->x += width + 18.0;
    return at;
}

static void draw_kinds(harpe_pipeline_drawing *d, key_pen *pen) {
    uint32_t body = harpe_heat_rgb(0.25);
    for (int kind = 0; kind < HARPE_BOX_KIND_COUNT; kind++) {
        if (!d->kind_is_present[kind]) continue;
        const harpe_box_style *style = &harpe_box_styles[kind];
        char name[64];
        snprintf(name, sizeof name, "%s%s%s", style->letter, style->letter[0] ? "  " : "",
                 style->name);
        harpe_xy at = key_entry(d, pen, name);
        harpe_canvas_rect(d->canvas, at.x, at.y - 7.0, 17.0, 14.0, body, NULL);
        harpe_canvas_rect(d->canvas, at.x, at.y - 7.0, 17.0, 4.0, HARPE_INK(style->ink), NULL);
    }
}

static void draw_idle_and_path(harpe_pipeline_drawing *d, key_pen *pen) {
    char name[64] = "waiting";
    double watts = d->picture->blocking_power_w;
    if (watts >= 0.0) {
        char number[HARPE_NUMBER_SIZE];
        snprintf(name, sizeof name, "waiting, %s W", harpe_format_compact(number, watts, 1));
    }
    harpe_xy at = key_entry(d, pen, name);
    harpe_canvas_rect(d->canvas, at.x, at.y - 7.0, 17.0, 14.0, HARPE_INK(HARPE_INK_IDLE), NULL);
    bool has_path = d->picture->panels[0].critical_count > 0 ||
                    (d->picture->panel_count == 2 && d->picture->panels[1].critical_count > 0);
    if (!has_path) return;
    harpe_stroke ink = {HARPE_INK(HARPE_INK_CRITICAL), 2.0, 0.0};
    at = key_entry(d, pen, "a critical path");
    harpe_canvas_line(d->canvas, at.x, at.y, at.x + 17.0, at.y, ink);
}

static void draw_scale(harpe_pipeline_drawing *d, double x, double y) {
    harpe_text_style number = {
        .size = 10.5, .color = HARPE_INK(HARPE_INK_MUTED), .anchor = HARPE_MIDDLE};
    harpe_text_style name = {.size = 11.0, .color = HARPE_INK(HARPE_INK_TEXT), .anchor = HARPE_END};
    harpe_stroke mark = {HARPE_INK(HARPE_INK_AXIS), 1.0, 0.0};
    double step = SCALE_WIDTH / SCALE_STEPS;
    for (int i = 0; i < SCALE_STEPS; i++) {
        double overlap = i + 1 < SCALE_STEPS ? 0.5 : 0.0; /* no visible gap between steps */
        harpe_canvas_rect(d->canvas, x + i * step, y - 7.0, step + overlap, 14.0,
                          harpe_heat_rgb((i + 0.5) / SCALE_STEPS), NULL);
    }
    harpe_canvas_text(d->canvas, x - 10.0, y + 4.0, &name, "power (W)");
    harpe_ticks ticks = harpe_ticks_make(d->power.low, d->power.high, 4);
    for (int i = 0; i < ticks.count; i++) {
        double value = harpe_tick_at(&ticks, i);
        double at = x + (value - d->power.low) / (d->power.high - d->power.low) * SCALE_WIDTH;
        char text[HARPE_NUMBER_SIZE];
        harpe_canvas_line(d->canvas, at, y + 7.0, at, y + 10.0, mark);
        harpe_canvas_text(d->canvas, at, y + 20.0, &number,
                          harpe_format_fixed(text, value, ticks.decimals));
    }
}

void harpe_pipeline_draw_key(harpe_pipeline_drawing *d, double y) {
    key_pen pen = {d->left, y, d->right - SCALE_WIDTH - 80.0};
    if (d->has_strips) draw_kinds(d, &pen);
    draw_idle_and_path(d, &pen);
    if (d->lane_step > 1) {
        char text[64];
        harpe_text_style note = {.size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED)};
        snprintf(text, sizeof text, "one %s in %d is shown",
                 d->picture->lane_names ? "resource" : "rank", d->lane_step);
        harpe_canvas_text(d->canvas, d->left, y + 22.0, &note, text);
    }
    draw_scale(d, d->right - SCALE_WIDTH, y);
}
