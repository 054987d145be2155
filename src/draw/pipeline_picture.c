/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a pipeline: a lane for each rank, and a box for each instruction from its start to its
 * end, coloured by its power. Waiting is grey, and a line through the boxes shows one critical
 * path. Two panels compare two plans on one time axis. Details too small to be seen are merged
 * (pipeline_pixels.c) or left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/number_print.h"
#include "draw/pipeline_drawing.h"
#include "draw/pipeline_key.h"
#include "draw/pipeline_pixels.h"

#define LEFT_MARGIN 74.0
#define LANE_NAME_SIZE 11 /* bytes of a lane's name that fit into the margin, and a NUL */
#define BOX_NAME_SIZE 100 /* of a box's name in a tooltip */
#define RIGHT_MARGIN 26.0
#define PANEL_HEIGHT_MAX 760.0
#define PANEL_TITLE_HEIGHT 30.0
#define AXIS_HEIGHT 46.0
#define KEY_HEIGHT 50.0
#define BOXES_DRAWN_MAX 4500 /* if there are more boxes, they are drawn as pixels */
#define TOOLTIPS_MAX 1500    /* limit for the number of boxes with a tooltip */
#define BOXES_MAX 20000000

static harpe_status check_panel(const harpe_pipeline_panel *panel, int rank_count,
                                harpe_error *error) {
    if (panel->box_count > BOXES_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "pipeline picture: %zu instructions, at most %d can be drawn",
                          panel->box_count, BOXES_MAX);
    }
    for (size_t i = 0; i < panel->box_count; i++) {
        const harpe_pipeline_box *box = &panel->boxes[i];
        bool is_placed =
            box->rank >= 0 && box->rank < rank_count && (unsigned)box->kind < HARPE_BOX_KIND_COUNT;
        bool has_numbers = harpe_is_drawable(box->start_s) && harpe_is_drawable(box->power_w) &&
                           harpe_is_drawable(box->duration_s) && box->duration_s >= 0.0 &&
                           box->start_s >= 0.0;
        if (!is_placed || !has_numbers) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "pipeline picture: box %zu has no usable rank, kind or number", i);
        }
    }
    for (size_t i = 0; i < panel->critical_count; i++) {
        if (panel->critical[i] >= panel->box_count) {
            return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                              "pipeline picture: the critical path names box %zu of %zu",
                              panel->critical[i], panel->box_count);
        }
    }
    if (!harpe_is_drawable(panel->time_s))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "pipeline picture: no usable time");
    return HARPE_OK;
}

static harpe_status check_picture(const harpe_pipeline_picture *picture, harpe_error *error) {
    if (picture->rank_count < 1 || picture->panel_count < 1 || picture->panel_count > 2) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "pipeline picture: needs a rank and one or two panels, not %d and %d",
                          picture->rank_count, picture->panel_count);
    }
    for (int i = 0; i < picture->panel_count; i++) {
        harpe_status status = check_panel(&picture->panels[i], picture->rank_count, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static double panel_end(const harpe_pipeline_panel *panel) {
    double end = panel->time_s;
    for (size_t i = 0; i < panel->box_count; i++)
        end = fmax(end, panel->boxes[i].start_s + panel->boxes[i].duration_s);
    return end;
}

/* Returns the number of boxes in the fullest lane, which determines the width of the picture. */
static size_t longest_lane(const harpe_pipeline_picture *picture) {
    size_t longest = 1;
    for (int p = 0; p < picture->panel_count; p++) {
        size_t share = picture->panels[p].box_count / (size_t)picture->rank_count;
        longest = share > longest ? share : longest;
    }
    return longest;
}

static void set_scales(harpe_pipeline_drawing *d) {
    const harpe_pipeline_picture *picture = d->picture;
    harpe_range power = {0};
    double end_s = 0.0;
    size_t box_count = 0;
    for (int p = 0; p < picture->panel_count; p++) {
        const harpe_pipeline_panel *panel = &picture->panels[p];
        end_s = fmax(end_s, panel_end(panel));
        box_count += panel->box_count;
        for (size_t i = 0; i < panel->box_count; i++) {
            harpe_range_add(&power, panel->boxes[i].power_w);
            d->kind_is_present[panel->boxes[i].kind] = true;
        }
    }
    d->end_s = end_s > 0.0 ? end_s : 1.0;
    if (!power.is_set) harpe_range_add(&power, 0.0);
    if (power.high - power.low < fabs(power.high) * 1e-3) harpe_range_pad(&power, 0.05);
    d->power = power;
    d->box_count = box_count;
}

static double narrowest_box(const harpe_pipeline_drawing *d) {
    double narrowest = INFINITY;
    for (int p = 0; p < d->picture->panel_count; p++)
        for (size_t i = 0; i < d->picture->panels[p].box_count; i++)
            narrowest = fmin(narrowest, d->picture->panels[p].boxes[i].duration_s);
    return narrowest / d->end_s * (d->right - d->left);
}

static void set_layout(harpe_pipeline_drawing *d) {
    const harpe_pipeline_picture *picture = d->picture;
    double ranks = (double)picture->rank_count;
    double per_panel = PANEL_HEIGHT_MAX / picture->panel_count;
    d->lane_step = 1;
    d->pitch = ranks <= 4 ? 38.0 : ranks <= 8 ? 32.0 : ranks <= 16 ? 25.0 : 18.0;
    if (d->pitch * ranks > per_panel) d->pitch = per_panel / ranks;
    if (d->pitch < 2.0) {
        d->lane_step = (int)ceil(2.0 * ranks / per_panel);
        d->pitch = 2.0;
    }
    d->lane_count = (picture->rank_count + d->lane_step - 1) / d->lane_step;
    d->panel_height = d->pitch * d->lane_count;
    double slots = (double)longest_lane(picture) + 2.0 * (ranks - 1.0);
    double plot = fmin(fmax(slots * 30.0, 920.0), 1600.0);
    d->width = LEFT_MARGIN + plot + RIGHT_MARGIN;
    d->top = picture->title ? 40.0 : 14.0;
    double panels = picture->panel_count * (d->panel_height + PANEL_TITLE_HEIGHT);
    if (picture->panel_count == 2) panels += 10.0;
    int kind_count = 0;
    for (int kind = 0; kind < HARPE_BOX_KIND_COUNT; kind++)
        kind_count += d->kind_is_present[kind];
    double more_key_rows = kind_count > 4 ? 22.0 : 0.0;
    d->height = d->top + panels + AXIS_HEIGHT + KEY_HEIGHT + more_key_rows;
    d->time = harpe_time_unit(d->end_s);
    d->left = LEFT_MARGIN;
    d->right = LEFT_MARGIN + plot;
    d->as_pixels = d->box_count > BOXES_DRAWN_MAX || d->pitch < 6.0;
    d->has_strips = !d->as_pixels && d->pitch >= 12.0 && narrowest_box(d) >= 5.0 &&
                    !picture->lane_names; /* activities are all of one kind */
}

static double lane_top(const harpe_pipeline_drawing *d, double panel_top, int rank) {
    int lane = rank / d->lane_step;
    return panel_top + d->pitch * lane;
}

static double lane_gap(const harpe_pipeline_drawing *d) {
    return d->pitch >= 12.0 ? 3.0 : d->pitch >= 6.0 ? 1.0 : 0.0;
}

static void describe_box(const harpe_pipeline_box *box, char *text, size_t size) {
    char time[HARPE_NUMBER_SIZE];
    char start[HARPE_NUMBER_SIZE];
    char power[HARPE_NUMBER_SIZE];
    char clock[32] = "";
    char microbatch[32] = "";
    if (box->frequency_mhz > 0) snprintf(clock, sizeof clock, ", %d MHz", box->frequency_mhz);
    if (box->microbatch >= 0) snprintf(microbatch, sizeof microbatch, " %d", box->microbatch);
    if (box->name) {
        char name[BOX_NAME_SIZE];
        snprintf(text, size, "%s: %s from %s%s, %s W",
                 harpe_clean_text(name, sizeof name, box->name),
                 harpe_format_time(time, box->duration_s), harpe_format_time(start, box->start_s),
                 clock, harpe_format_fixed(power, box->power_w, 0));
        return;
    }
    snprintf(text, size, "%s%s on rank %d: %s from %s%s, %s W", harpe_box_styles[box->kind].name,
             microbatch, box->rank, harpe_format_time(time, box->duration_s),
             harpe_format_time(start, box->start_s), clock,
             harpe_format_fixed(power, box->power_w, 0));
}

/* The form of the labels. All boxes of a kind use the longest form that fits into each of them. */
typedef enum label_mode { LABEL_NONE = 0, LABEL_NUMBER, LABEL_LETTER_AND_NUMBER } label_mode;

static void box_label(const harpe_pipeline_box *box, label_mode mode, char text[32]) {
    text[0] = '\0';
    if (mode == LABEL_NONE || box->microbatch < 0) return;
    snprintf(text, 32, "%s%d",
             mode == LABEL_LETTER_AND_NUMBER ? harpe_box_styles[box->kind].letter : "",
             box->microbatch);
}

static harpe_text_style label_style(const harpe_pipeline_drawing *d) {
    return (harpe_text_style){.size = d->pitch >= 30.0   ? 11.0
                                      : d->pitch >= 22.0 ? 10.0
                                                         : 8.5,
                              .anchor = HARPE_MIDDLE};
}

/* Returns the width of a label. All digits count as equally wide, because measuring every box
 * would be slow. */
static double label_width(harpe_pipeline_drawing *d, const char *text) {
    harpe_text_style style = label_style(d);
    if (d->digit_width <= 0.0) {
        d->digit_width = harpe_canvas_text_width(d->canvas, &style, "0");
        d->letter_width = harpe_canvas_text_width(d->canvas, &style, "W");
    }
    double width = 0.0;
    for (; *text; text++)
        width += *text >= '0' && *text <= '9' ? d->digit_width : d->letter_width;
    return width;
}

static void choose_labels(harpe_pipeline_drawing *d, label_mode modes[HARPE_BOX_KIND_COUNT]) {
    for (int kind = 0; kind < HARPE_BOX_KIND_COUNT; kind++)
        modes[kind] = d->pitch >= 15.0 ? LABEL_LETTER_AND_NUMBER : LABEL_NONE;
    for (int p = 0; p < d->picture->panel_count; p++) {
        const harpe_pipeline_panel *panel = &d->picture->panels[p];
        for (size_t i = 0; i < panel->box_count; i++) {
            const harpe_pipeline_box *box = &panel->boxes[i];
            double room = box->duration_s / d->end_s * (d->right - d->left) - 3.0;
            char text[32];
            box_label(box, modes[box->kind], text);
            while (modes[box->kind] != LABEL_NONE && label_width(d, text) > room) {
                modes[box->kind]--;
                box_label(box, modes[box->kind], text);
            }
        }
    }
}

static void draw_box(harpe_pipeline_drawing *d, const harpe_pipeline_box *box, double panel_top,
                     label_mode mode, bool explains) {
    double left = harpe_pipeline_x(d, box->start_s);
    double width = harpe_pipeline_x(d, box->start_s + box->duration_s) - left;
    double top = lane_top(d, panel_top, box->rank);
    double height = d->pitch - lane_gap(d);
    double seam = width >= 5.0 ? 0.8 : width >= 2.0 ? 0.4 : 0.0;
    uint32_t fill = harpe_pipeline_heat(d, box->power_w);
    char text[200];
    if (explains) describe_box(box, text, sizeof text);
    harpe_canvas_rect(d->canvas, left, top, width - seam, height, fill, explains ? text : NULL);
    if (d->has_strips) {
        double strip = d->pitch >= 22.0 ? 4.0 : 3.0;
        harpe_canvas_rect(d->canvas, left, top, width - seam, strip,
                          HARPE_INK(harpe_box_styles[box->kind].ink), NULL);
    }
    char label[32];
    box_label(box, mode, label);
    if (box->name && d->pitch >= 15.0) {
        harpe_clean_text(label, sizeof label, box->name);
        if (label_width(d, label) > width - 3.0) label[0] = '\0';
    }
    if (!label[0]) return;
    harpe_text_style style = label_style(d);
    style.color = harpe_contrast_rgb(fill);
    harpe_canvas_text(d->canvas, left + (width - seam) / 2.0,
                      top + height * 0.45 + 0.45 * style.size, &style, label);
}

/* Draws a line along the lower edge of the boxes, so that it does not cross the numbers. */
static harpe_status draw_critical_path(harpe_pipeline_drawing *d, const harpe_pipeline_panel *panel,
                                       double panel_top, harpe_error *error) {
    if (panel->critical_count == 0) return HARPE_OK;
    harpe_xy *line = harpe_calloc(panel->critical_count, 2 * sizeof *line);
    if (!line) return harpe_fail_memory(error);
    double foot = (d->pitch - lane_gap(d)) * (d->pitch >= 12.0 ? 0.84 : 0.5);
    size_t count = 0;
    for (size_t i = 0; i < panel->critical_count; i++) {
        const harpe_pipeline_box *box = &panel->boxes[panel->critical[i]];
        double y = lane_top(d, panel_top, box->rank) + foot;
        double start = harpe_pipeline_x(d, box->start_s);
        double end = harpe_pipeline_x(d, box->start_s + box->duration_s);
        bool goes_on = count > 0 && line[count - 1].y == y && fabs(line[count - 1].x - start) < 0.5;
        if (goes_on) {
            line[count - 1].x = end;
            continue;
        }
        line[count++] = (harpe_xy){start, y};
        line[count++] = (harpe_xy){end, y};
    }
    bool is_fine = d->pitch < 12.0;
    harpe_stroke rim = {HARPE_INK(HARPE_INK_PAPER), is_fine ? 2.6 : 4.0, 0.0};
    harpe_stroke ink = {HARPE_INK(HARPE_INK_CRITICAL), is_fine ? 1.1 : 2.0, 0.0};
    harpe_canvas_path(d->canvas, line, count, false, HARPE_NO_COLOR, rim);
    harpe_canvas_path(d->canvas, line, count, false, HARPE_NO_COLOR, ink);
    free(line);
    return HARPE_OK;
}

static void draw_lanes(harpe_pipeline_drawing *d, double panel_top, double end_s) {
    harpe_text_style name = {.size = d->pitch >= 22.0 ? 11.0 : 9.5,
                             .color = HARPE_INK(HARPE_INK_MUTED),
                             .anchor = HARPE_END};
    int name_step = (int)ceil((name.size + 3.0) / d->pitch);
    double height = d->pitch - lane_gap(d);
    double width = harpe_pipeline_x(d, end_s) - d->left;
    if (lane_gap(d) == 0.0) {
        harpe_canvas_rect(d->canvas, d->left, panel_top, width, d->panel_height,
                          HARPE_INK(HARPE_INK_IDLE), NULL);
    }
    for (int lane = 0; lane < d->lane_count; lane++) {
        double top = panel_top + d->pitch * lane;
        if (lane_gap(d) > 0.0) {
            harpe_canvas_rect(d->canvas, d->left, top, width, height, HARPE_INK(HARPE_INK_IDLE),
                              NULL);
        }
        if (lane % name_step != 0) continue;
        char text[40];
        if (d->picture->lane_names)
            harpe_clean_text(text, LANE_NAME_SIZE, d->picture->lane_names[lane * d->lane_step]);
        else
            snprintf(text, sizeof text, "rank %d", lane * d->lane_step);
        harpe_canvas_text(d->canvas, d->left - 9.0, top + height / 2.0 + 0.36 * name.size, &name,
                          text);
    }
}

static void draw_panel_title(harpe_pipeline_drawing *d, const harpe_pipeline_panel *panel,
                             double y) {
    harpe_text_style title = {.size = 12.5, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    harpe_text_style detail = {.size = 11.5, .color = HARPE_INK(HARPE_INK_MUTED)};
    double x = d->left;
    if (panel->title) {
        harpe_canvas_text(d->canvas, x, y, &title, panel->title);
        x += harpe_canvas_text_width(d->canvas, &title, panel->title) + 12.0;
    }
    if (panel->detail) harpe_canvas_text(d->canvas, x, y, &detail, panel->detail);
}

static harpe_status draw_panel(harpe_pipeline_drawing *d, const harpe_pipeline_panel *panel,
                               double top, const label_mode modes[HARPE_BOX_KIND_COUNT],
                               harpe_error *error) {
    double end_s = panel_end(panel);
    double panel_top = top + PANEL_TITLE_HEIGHT;
    draw_panel_title(d, panel, top + 19.0);
    draw_lanes(d, panel_top, end_s);
    harpe_status status = HARPE_OK;
    if (d->as_pixels) {
        status = harpe_pipeline_draw_pixels(d, panel, panel_top, error);
    } else {
        bool explains = harpe_canvas_has_tooltips(d->canvas) && d->box_count <= TOOLTIPS_MAX;
        for (size_t i = 0; i < panel->box_count; i++)
            if (panel->boxes[i].rank % d->lane_step == 0)
                draw_box(d, &panel->boxes[i], panel_top, modes[panel->boxes[i].kind], explains);
    }
    if (status == HARPE_OK) status = draw_critical_path(d, panel, panel_top, error);
    harpe_stroke finish = {HARPE_INK(HARPE_INK_TEXT), 1.0, 3.0};
    double x = harpe_pipeline_x(d, end_s);
    harpe_canvas_line(d->canvas, x, panel_top - 4.0, x, panel_top + d->panel_height, finish);
    return status;
}

static void draw_time_axis(harpe_pipeline_drawing *d, double y) {
    harpe_stroke axis = {HARPE_INK(HARPE_INK_AXIS), 1.0, 0.0};
    harpe_text_style number = {
        .size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED), .anchor = HARPE_MIDDLE};
    harpe_text_style name = {
        .size = 12.0, .color = HARPE_INK(HARPE_INK_TEXT), .anchor = HARPE_MIDDLE};
    harpe_ticks ticks =
        harpe_ticks_make(0.0, d->end_s * d->time.per_si, (int)((d->right - d->left) / 90.0));
    harpe_canvas_line(d->canvas, d->left, y, d->right, y, axis);
    char text[HARPE_NUMBER_SIZE];
    for (int i = 0; i < ticks.count; i++) {
        double value = harpe_tick_at(&ticks, i);
        double x = harpe_pipeline_x(d, value / d->time.per_si);
        harpe_canvas_line(d->canvas, x, y, x, y + 4.0, axis);
        harpe_canvas_text(d->canvas, x, y + 17.0, &number,
                          harpe_format_fixed(text, value, ticks.decimals));
    }
    char title[40];
    snprintf(title, sizeof title, "time (%s)", d->time.name);
    harpe_canvas_text(d->canvas, (d->left + d->right) / 2.0, y + 36.0, &name, title);
}

static harpe_status draw_all(harpe_pipeline_drawing *d, harpe_error *error) {
    const harpe_pipeline_picture *picture = d->picture;
    harpe_text_style title = {.size = 15.0, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    label_mode modes[HARPE_BOX_KIND_COUNT];
    if (picture->title) harpe_canvas_text(d->canvas, d->left, 27.0, &title, picture->title);
    if (d->as_pixels)
        memset(modes, 0, sizeof modes);
    else
        choose_labels(d, modes);
    double y = d->top;
    for (int p = 0; p < picture->panel_count; p++) {
        harpe_status status = draw_panel(d, &picture->panels[p], y, modes, error);
        if (status != HARPE_OK) return status;
        y += PANEL_TITLE_HEIGHT + d->panel_height + (p + 1 < picture->panel_count ? 10.0 : 0.0);
    }
    draw_time_axis(d, y + 3.0);
    harpe_pipeline_draw_key(d, y + AXIS_HEIGHT + 14.0);
    return HARPE_OK;
}

harpe_status harpe_draw_pipeline(const harpe_pipeline_picture *picture, harpe_image_format format,
                                 harpe_text *out, harpe_error *error) {
    harpe_status status = check_picture(picture, error);
    if (status != HARPE_OK) return status;
    harpe_pipeline_drawing d = {.picture = picture};
    set_scales(&d);
    set_layout(&d);
    const char *description =
        picture->title ? picture->title : "What each rank runs over the time of one iteration";
    status = harpe_canvas_new(format, d.width, d.height, description, &d.canvas, error);
    if (status != HARPE_OK) return status;
    status = draw_all(&d, error);
    harpe_text ignored = {0};
    if (status == HARPE_OK) return harpe_canvas_finish(d.canvas, out, error);
    harpe_canvas_finish(d.canvas, &ignored, NULL);
    harpe_text_free(&ignored);
    return status;
}
