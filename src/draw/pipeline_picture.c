/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a pipeline: a lane for each rank, and a box for each instruction from its start to its
 * end, coloured by its power. Waiting is grey, and a line through the boxes shows one critical
 * path. Two panels compare two plans on one time axis. If there are too many boxes to distinguish
 * them, bars show the mean power in each step of time. Drawing time and size then depend on the
 * size of the picture, and not on the number of microbatches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/format.h"
#include "draw/draw_internal.h"

#define LEFT_MARGIN 74.0
#define LANE_NAME_SIZE 11 /* bytes of a lane's name that fit into the margin, and a NUL */
#define BOX_NAME_SIZE 100 /* of a box's name in a tooltip */
#define RIGHT_MARGIN 26.0
#define PANEL_HEIGHT_MAX 760.0
#define PANEL_TITLE_HEIGHT 30.0
#define AXIS_HEIGHT 46.0
#define KEY_HEIGHT 50.0
#define BOXES_DRAWN_MAX 4500 /* if there are more boxes, they are drawn as bars */
#define TOOLTIPS_MAX 1500    /* if there are more boxes, they have no tooltips */
#define STEPS_MAX 60000      /* steps of time of all lanes of a panel that is drawn as bars */
#define HEAT_LEVELS 32       /* different colours of bars */
#define SCALE_WIDTH 230.0
#define SCALE_STEPS 46

static const struct {
    const char *letter;
    const char *name;
    harpe_ink ink; /* colour of the strip along the top of a box */
} kinds[HARPE_BOX_KIND_COUNT] = {
    [HARPE_BOX_FORWARD] = {"F", "forward", HARPE_INK_BLUE},
    [HARPE_BOX_BACKWARD] = {"B", "backward", HARPE_INK_GREEN},
    [HARPE_BOX_BACKWARD_INPUT] = {"I", "backward, input", HARPE_INK_GREEN},
    [HARPE_BOX_BACKWARD_WEIGHT] = {"W", "backward, weight", HARPE_INK_PURPLE},
    [HARPE_BOX_RECOMPUTATION] = {"R", "recomputation", HARPE_INK_SKY},
    [HARPE_BOX_FORWARD_BACKWARD] = {"FB", "forward + backward", HARPE_INK_ROSE},
    [HARPE_BOX_STANDALONE] = {"", "other", HARPE_INK_MUTED},
    [HARPE_BOX_OVERLAPPED] = {"FB", "overlapped pair", HARPE_INK_TEXT},
};

typedef struct drawing {
    const harpe_pipeline_picture *picture;
    harpe_svg svg;
    double width, height;
    double left, right, top; /* edges of the lanes; top is just below the title */
    double pitch;            /* height of a lane with the gap below it */
    double panel_height;
    int lane_step;  /* a lane is drawn for every lane_step-th rank */
    int lane_count; /* lanes drawn */
    size_t box_count;
    double longest_lane; /* boxes of a lane, the mean of the fuller panel; decides on the width */
    double shortest_s;   /* duration of the shortest box */
    bool as_bars;
    bool has_strips; /* boxes are wide enough for a strip that shows their kind */
    double end_s;    /* right end of the time axis */
    harpe_unit time;
    harpe_range power;
    bool kind_is_present[HARPE_BOX_KIND_COUNT];
} drawing;

static double x_of(const drawing *d, double time_s) {
    return d->left + time_s / d->end_s * (d->right - d->left);
}

static double power_fraction(const drawing *d, double power_w) {
    return (power_w - d->power.low) / (d->power.high - d->power.low);
}

static double panel_end(const harpe_pipeline_panel *panel) {
    double end = panel->time_s;
    for (size_t i = 0; i < panel->box_count; i++)
        end = fmax(end, panel->boxes[i].start_s + panel->boxes[i].duration_s);
    return end;
}

static void set_scales(drawing *d) {
    const harpe_pipeline_picture *picture = d->picture;
    d->shortest_s = INFINITY;
    for (int p = 0; p < picture->panel_count; p++) {
        const harpe_pipeline_panel *panel = &picture->panels[p];
        d->end_s = fmax(d->end_s, panel_end(panel));
        d->box_count += panel->box_count;
        size_t lane_boxes = panel->box_count / (size_t)picture->rank_count;
        d->longest_lane = fmax(d->longest_lane, (double)lane_boxes);
        for (size_t i = 0; i < panel->box_count; i++) {
            harpe_range_add(&d->power, panel->boxes[i].power_w);
            d->shortest_s = fmin(d->shortest_s, panel->boxes[i].duration_s);
            d->kind_is_present[panel->boxes[i].kind] = true;
        }
    }
    if (!(d->end_s > 0.0)) d->end_s = 1.0;
    if (!d->power.is_set) harpe_range_add(&d->power, 0.0);
    if (d->power.high - d->power.low < fabs(d->power.high) * 1e-3) harpe_range_pad(&d->power, 0.05);
}

static void set_layout(drawing *d) {
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
    double slots = fmax(d->longest_lane, 1.0) + 2.0 * (ranks - 1.0);
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
    d->as_bars = d->box_count > BOXES_DRAWN_MAX || d->pitch < 6.0;
    d->has_strips = !d->as_bars && d->pitch >= 12.0 && d->shortest_s / d->end_s * plot >= 5.0 &&
                    !picture->lane_names; /* activities are all of one kind */
}

static double lane_top(const drawing *d, double panel_top, int rank) {
    int lane = rank / d->lane_step;
    return panel_top + d->pitch * lane;
}

static double lane_gap(const drawing *d) {
    return d->pitch >= 12.0 ? 3.0 : d->pitch >= 6.0 ? 1.0 : 0.0;
}

/* ---- Bars ------------------------------------------------------------------------------------ */

/* A step of time of a lane. */
typedef struct step {
    float covered; /* share of the step with an instruction */
    float power_w; /* the same share times the power */
} step;

static void add_box(const drawing *d, const harpe_pipeline_box *box, int columns, step *steps) {
    double from = box->start_s / d->end_s * columns;
    double to = fmin((box->start_s + box->duration_s) / d->end_s * columns, columns);
    if (!(from >= 0.0 && from < columns)) return;
    if (to - from >= 6.0) to -= 1.0; /* leaves a gap between neighbours */
    step *lane = steps + (size_t)(box->rank / d->lane_step) * (size_t)columns;
    for (int column = (int)from; column < columns && column < to; column++) {
        double part = fmin(to, column + 1.0) - fmax(from, column);
        lane[column].covered += (float)part;
        lane[column].power_w += (float)(part * box->power_w);
    }
}

/* Returns the colour of a step, or -1 if no instruction runs in it. */
static int level_of(const drawing *d, const step *at) {
    if (!(at->covered > 0.0f)) return -1;
    double fraction = power_fraction(d, (double)(at->power_w / at->covered));
    return (int)lround(fmin(fmax(fraction, 0.0), 1.0) * (HEAT_LEVELS - 1));
}

/* Draws the bars of one colour in a lane. Neighbouring steps become one bar, and a step in which
 * instructions run only for a part becomes shorter by the rest. */
static void draw_bars(drawing *d, const step *steps, int columns, int level, int lane) {
    for (int first = 0, next; first < columns; first = next) {
        next = first + 1;
        if (level_of(d, &steps[first]) != level) continue;
        double length = fmin((double)steps[first].covered, 1.0);
        while (next < columns && length > next - first - 0.01 && level_of(d, &steps[next]) == level)
            length += fmin((double)steps[next++].covered, 1.0);
        harpe_svg_bar(&d->svg, first, lane, length);
    }
}

/* Draws all boxes of a panel as bars. O(boxes + steps). */
static void draw_as_bars(drawing *d, const harpe_pipeline_panel *panel, double panel_top) {
    int most = STEPS_MAX / d->lane_count;
    int columns = (int)fmin(2.0 * (d->right - d->left), most);
    step *steps = harpe_calloc((size_t)columns * (size_t)d->lane_count, sizeof *steps);
    if (!steps) {
        d->svg.out->failed = true;
        return;
    }
    for (size_t i = 0; i < panel->box_count; i++)
        if (panel->boxes[i].rank % d->lane_step == 0) add_box(d, &panel->boxes[i], columns, steps);
    double height = d->pitch - lane_gap(d);
    harpe_xy origin = {d->left, panel_top + height / 2.0};
    harpe_xy unit = {(d->right - d->left) / columns, d->pitch};
    for (int level = 0; level < HEAT_LEVELS; level++) {
        uint32_t rgb = harpe_heat_rgb((double)level / (HEAT_LEVELS - 1));
        harpe_svg_bars_begin(&d->svg, rgb, height, origin, unit);
        for (int lane = 0; lane < d->lane_count; lane++)
            draw_bars(d, steps + (size_t)(lane * columns), columns, level, lane);
        harpe_svg_path_end(&d->svg);
    }
    free(steps);
}

/* ---- Boxes ----------------------------------------------------------------------------------- */

static void describe_box(const harpe_pipeline_box *box, char text[200]) {
    char name[BOX_NAME_SIZE], microbatch[32] = "", clock[32] = "";
    if (box->frequency_mhz > 0) snprintf(clock, sizeof clock, ", %d MHz", box->frequency_mhz);
    if (box->microbatch >= 0) snprintf(microbatch, sizeof microbatch, " %d", box->microbatch);
    if (box->name)
        harpe_clean_text(name, sizeof name, box->name);
    else
        snprintf(name, sizeof name, "%s%s on rank %d", kinds[box->kind].name, microbatch,
                 box->rank);
    char power[HARPE_NUMBER_SIZE];
    snprintf(text, 200, "%s: %s from %s%s, %s W", name, HARPE_TIME(box->duration_s),
             HARPE_TIME(box->start_s), clock, harpe_format_fixed(power, box->power_w, 0));
}

/* The form of the labels. All boxes of a kind use the longest form that fits into each of them. */
typedef enum label_mode { LABEL_NONE = 0, LABEL_NUMBER, LABEL_LETTER_AND_NUMBER } label_mode;

static void box_label(const harpe_pipeline_box *box, label_mode mode, char text[32]) {
    text[0] = '\0';
    if (mode == LABEL_NONE || box->microbatch < 0) return;
    snprintf(text, 32, "%s%d", mode == LABEL_LETTER_AND_NUMBER ? kinds[box->kind].letter : "",
             box->microbatch);
}

static harpe_text_style label_style(const drawing *d) {
    return (harpe_text_style){.size = d->pitch >= 30.0   ? 11.0
                                      : d->pitch >= 22.0 ? 10.0
                                                         : 8.5,
                              .anchor = HARPE_MIDDLE};
}

static void choose_labels(drawing *d, label_mode modes[HARPE_BOX_KIND_COUNT]) {
    harpe_text_style style = label_style(d);
    for (int kind = 0; kind < HARPE_BOX_KIND_COUNT; kind++)
        modes[kind] = d->pitch >= 15.0 ? LABEL_LETTER_AND_NUMBER : LABEL_NONE;
    for (int p = 0; p < d->picture->panel_count; p++) {
        const harpe_pipeline_panel *panel = &d->picture->panels[p];
        for (size_t i = 0; i < panel->box_count; i++) {
            const harpe_pipeline_box *box = &panel->boxes[i];
            double room = box->duration_s / d->end_s * (d->right - d->left) - 3.0;
            char text[32];
            box_label(box, modes[box->kind], text);
            while (modes[box->kind] != LABEL_NONE && harpe_text_width(&style, text) > room) {
                modes[box->kind]--;
                box_label(box, modes[box->kind], text);
            }
        }
    }
}

static void draw_box(drawing *d, const harpe_pipeline_box *box, double panel_top, label_mode mode,
                     bool explains) {
    double left = x_of(d, box->start_s);
    double width = x_of(d, box->start_s + box->duration_s) - left;
    double top = lane_top(d, panel_top, box->rank);
    double height = d->pitch - lane_gap(d);
    double seam = width >= 5.0 ? 0.8 : width >= 2.0 ? 0.4 : 0.0;
    uint32_t fill = harpe_heat_rgb(power_fraction(d, box->power_w));
    harpe_text_style style = label_style(d);
    style.color = harpe_contrast_rgb(fill);
    char text[200];
    if (explains) describe_box(box, text);
    harpe_svg_rect(&d->svg, left, top, width - seam, height, fill, explains ? text : NULL);
    if (d->has_strips) {
        double strip = d->pitch >= 22.0 ? 4.0 : 3.0;
        harpe_svg_rect(&d->svg, left, top, width - seam, strip, HARPE_INK(kinds[box->kind].ink),
                       NULL);
    }
    char label[32];
    box_label(box, mode, label);
    if (box->name && d->pitch >= 15.0) {
        harpe_clean_text(label, sizeof label, box->name);
        if (harpe_text_width(&style, label) > width - 3.0) label[0] = '\0';
    }
    if (label[0])
        harpe_svg_text(&d->svg, left + (width - seam) / 2.0,
                       top + height * 0.45 + 0.45 * style.size, &style, label);
}

/* Draws a line along the lower edge of the boxes, so that it does not cross the numbers. */
static void draw_critical_path(drawing *d, const harpe_pipeline_panel *panel, double panel_top,
                               harpe_stroke stroke) {
    if (panel->critical_count == 0) return;
    double foot = (d->pitch - lane_gap(d)) * (d->pitch >= 12.0 ? 0.84 : 0.5);
    harpe_svg_path_begin(&d->svg, stroke);
    for (size_t i = 0; i < panel->critical_count; i++) {
        const harpe_pipeline_box *box = &panel->boxes[panel->critical[i]];
        double y = lane_top(d, panel_top, box->rank) + foot;
        harpe_svg_path_to(&d->svg, x_of(d, box->start_s), y);
        harpe_svg_path_to(&d->svg, x_of(d, box->start_s + box->duration_s), y);
    }
    harpe_svg_path_end(&d->svg);
}

static void draw_lanes(drawing *d, double panel_top, double end_s) {
    harpe_text_style name = {.size = d->pitch >= 22.0 ? 11.0 : 9.5,
                             .color = HARPE_INK(HARPE_INK_MUTED),
                             .anchor = HARPE_END};
    int name_step = (int)ceil((name.size + 3.0) / d->pitch);
    double height = d->pitch - lane_gap(d);
    double width = x_of(d, end_s) - d->left;
    if (lane_gap(d) == 0.0) {
        harpe_svg_rect(&d->svg, d->left, panel_top, width, d->panel_height,
                       HARPE_INK(HARPE_INK_IDLE), NULL);
    }
    for (int lane = 0; lane < d->lane_count; lane++) {
        double top = panel_top + d->pitch * lane;
        if (lane_gap(d) > 0.0)
            harpe_svg_rect(&d->svg, d->left, top, width, height, HARPE_INK(HARPE_INK_IDLE), NULL);
        if (lane % name_step != 0) continue;
        char text[40];
        if (d->picture->lane_names)
            harpe_clean_text(text, LANE_NAME_SIZE, d->picture->lane_names[lane * d->lane_step]);
        else
            snprintf(text, sizeof text, "rank %d", lane * d->lane_step);
        harpe_svg_text(&d->svg, d->left - 9.0, top + height / 2.0 + 0.36 * name.size, &name, text);
    }
}

static void draw_panel_title(drawing *d, const harpe_pipeline_panel *panel, double y) {
    harpe_text_style title = {.size = 12.5, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    harpe_text_style detail = {.size = 11.5, .color = HARPE_INK(HARPE_INK_MUTED)};
    double x = d->left;
    if (panel->title) {
        harpe_svg_text(&d->svg, x, y, &title, panel->title);
        x += harpe_text_width(&title, panel->title) + 12.0;
    }
    if (panel->detail) harpe_svg_text(&d->svg, x, y, &detail, panel->detail);
}

/* ---- Key ------------------------------------------------------------------------------------- */

static const harpe_text_style key_text = {.size = 11.0, .color = HARPE_INK(HARPE_INK_TEXT)};

/* Writes the name of the next entry of the key, and returns the place of its sign. `pen` moves on,
 * to a second row when the first is full. */
static harpe_xy key_entry(drawing *d, harpe_xy *pen, const char *name) {
    double width = 24.0 + harpe_text_width(&key_text, name);
    if (pen->x + width > d->right - SCALE_WIDTH - 80.0 && pen->x > d->left)
        *pen = (harpe_xy){d->left, pen->y + 21.0};
    harpe_xy at = *pen;
    harpe_svg_text(&d->svg, at.x + 24.0, at.y + 4.0, &key_text, name);
    pen->x += width + 18.0;
    return at;
}

static void draw_kinds(drawing *d, harpe_xy *pen) {
    for (int kind = 0; kind < HARPE_BOX_KIND_COUNT; kind++) {
        if (!d->kind_is_present[kind]) continue;
        char name[64];
        snprintf(name, sizeof name, "%s%s%s", kinds[kind].letter, kinds[kind].letter[0] ? "  " : "",
                 kinds[kind].name);
        harpe_xy at = key_entry(d, pen, name);
        harpe_svg_rect(&d->svg, at.x, at.y - 7.0, 17.0, 14.0, harpe_heat_rgb(0.25), NULL);
        harpe_svg_rect(&d->svg, at.x, at.y - 7.0, 17.0, 4.0, HARPE_INK(kinds[kind].ink), NULL);
    }
}

static void draw_idle_and_path(drawing *d, harpe_xy *pen) {
    char name[64] = "waiting";
    double watts = d->picture->blocking_power_w;
    if (watts >= 0.0) {
        char number[HARPE_NUMBER_SIZE];
        snprintf(name, sizeof name, "waiting, %s W", harpe_format_compact(number, watts, 1));
    }
    harpe_xy at = key_entry(d, pen, name);
    harpe_svg_rect(&d->svg, at.x, at.y - 7.0, 17.0, 14.0, HARPE_INK(HARPE_INK_IDLE), NULL);
    if (d->picture->panels[0].critical_count + d->picture->panels[1].critical_count == 0) return;
    harpe_stroke ink = {HARPE_INK(HARPE_INK_CRITICAL), 2.0, 0.0};
    at = key_entry(d, pen, "a critical path");
    harpe_svg_line(&d->svg, at.x, at.y, at.x + 17.0, at.y, ink);
}

static void draw_scale(drawing *d, double y) {
    harpe_text_style name = {.size = 11.0, .color = HARPE_INK(HARPE_INK_TEXT), .anchor = HARPE_END};
    harpe_frame frame = {.left = d->right - SCALE_WIDTH, .top = y + 7.0, .right = d->right};
    frame.bottom = frame.top;
    double width = SCALE_WIDTH / SCALE_STEPS;
    for (int i = 0; i < SCALE_STEPS; i++) {
        double overlap = i + 1 < SCALE_STEPS ? 0.5 : 0.0; /* no visible gap between steps */
        harpe_svg_rect(&d->svg, frame.left + i * width, y - 7.0, width + overlap, 14.0,
                       harpe_heat_rgb((i + 0.5) / SCALE_STEPS), NULL);
    }
    harpe_svg_text(&d->svg, frame.left - 10.0, y + 4.0, &name, "power (W)");
    harpe_draw_axis(&d->svg, &frame, HARPE_BOTTOM, d->power, NULL);
}

/* Draws the row that explains the strips, the grey of waiting, the line of the critical path and
 * the power scale. `y` is its middle. */
static void draw_key(drawing *d, double y) {
    harpe_xy pen = {d->left, y};
    if (d->has_strips) draw_kinds(d, &pen);
    draw_idle_and_path(d, &pen);
    if (d->lane_step > 1) {
        char text[64];
        harpe_text_style note = {.size = 11.0, .color = HARPE_INK(HARPE_INK_MUTED)};
        snprintf(text, sizeof text, "one %s in %d is shown",
                 d->picture->lane_names ? "resource" : "rank", d->lane_step);
        harpe_svg_text(&d->svg, d->left, y + 22.0, &note, text);
    }
    draw_scale(d, y);
}

/* ---- The picture ----------------------------------------------------------------------------- */

static void draw_panel(drawing *d, const harpe_pipeline_panel *panel, double top,
                       const label_mode modes[HARPE_BOX_KIND_COUNT]) {
    double end_s = panel_end(panel);
    double panel_top = top + PANEL_TITLE_HEIGHT;
    draw_panel_title(d, panel, top + 19.0);
    draw_lanes(d, panel_top, end_s);
    if (d->as_bars) draw_as_bars(d, panel, panel_top);
    for (size_t i = 0; i < panel->box_count && !d->as_bars; i++)
        if (panel->boxes[i].rank % d->lane_step == 0)
            draw_box(d, &panel->boxes[i], panel_top, modes[panel->boxes[i].kind],
                     d->box_count <= TOOLTIPS_MAX);
    bool is_fine = d->pitch < 12.0;
    harpe_stroke rim = {HARPE_INK(HARPE_INK_PAPER), is_fine ? 2.6 : 4.0, 0.0};
    harpe_stroke ink = {HARPE_INK(HARPE_INK_CRITICAL), is_fine ? 1.1 : 2.0, 0.0};
    draw_critical_path(d, panel, panel_top, rim);
    draw_critical_path(d, panel, panel_top, ink);
    harpe_stroke finish = {HARPE_INK(HARPE_INK_TEXT), 1.0, 3.0};
    double x = x_of(d, end_s);
    harpe_svg_line(&d->svg, x, panel_top - 4.0, x, panel_top + d->panel_height, finish);
}

static void draw_time_axis(drawing *d, double y) {
    char title[40];
    snprintf(title, sizeof title, "time (%s)", d->time.name);
    harpe_range range = {0.0, d->end_s * d->time.per_si, true};
    harpe_frame frame = {.left = d->left, .top = y, .right = d->right, .bottom = y};
    harpe_draw_axis(&d->svg, &frame, HARPE_BOTTOM, range, title);
}

harpe_status harpe_draw_pipeline(const harpe_pipeline_picture *picture, bool in_page,
                                 harpe_text *out, harpe_error *error) {
    drawing d = {.picture = picture};
    set_scales(&d);
    set_layout(&d);
    d.svg = harpe_svg_begin(out, in_page, d.width, d.height,
                            picture->title ? picture->title
                                           : "What each rank runs over the time of one iteration");
    harpe_text_style title = {.size = 15.0, .color = HARPE_INK(HARPE_INK_TEXT), .bold = true};
    if (picture->title) harpe_svg_text(&d.svg, d.left, 27.0, &title, picture->title);
    label_mode modes[HARPE_BOX_KIND_COUNT] = {0};
    if (!d.as_bars) choose_labels(&d, modes);
    double y = d.top;
    for (int p = 0; p < picture->panel_count; p++) {
        draw_panel(&d, &picture->panels[p], y, modes);
        y += PANEL_TITLE_HEIGHT + d.panel_height + (p + 1 < picture->panel_count ? 10.0 : 0.0);
    }
    draw_time_axis(&d, y + 3.0);
    draw_key(&d, y + AXIS_HEIGHT + 14.0);
    return harpe_svg_end(&d.svg, error);
}
