/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: colours, shapes, axes and free places for labels (svg.c),
 * and the parts of report.html (report.c). */
#ifndef HARPE_DRAW_DRAW_INTERNAL_H
#define HARPE_DRAW_DRAW_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/format.h"
#include "base/text.h"
#include "draw/draw.h"

/* ---- Colours --------------------------------------------------------------------------------- */

/* The roles of colours. A role has a light and a dark shade. */
typedef enum harpe_ink {
    HARPE_INK_TEXT = 0,
    HARPE_INK_MUTED, /* less important text */
    HARPE_INK_AXIS,
    HARPE_INK_GRID,
    HARPE_INK_PAPER, /* background, and the halo around labels */
    HARPE_INK_IDLE,
    HARPE_INK_BLUE,
    HARPE_INK_ORANGE,
    HARPE_INK_GREEN,
    HARPE_INK_PURPLE,
    HARPE_INK_SKY,
    HARPE_INK_ROSE,
    HARPE_INK_CRITICAL,
    HARPE_INK_COUNT,
} harpe_ink;

/* 0xRRGGBB, HARPE_INK(role), or no colour. */
typedef uint32_t harpe_color;
#define HARPE_INK_FLAG UINT32_C(0x01000000)
#define HARPE_INK(role) ((harpe_color)(role) | HARPE_INK_FLAG)
#define HARPE_NO_COLOR UINT32_C(0x02000000)

/* Returns the colour of a role as 0xRRGGBB. */
uint32_t harpe_ink_rgb(harpe_ink ink, bool dark);
/* Appends the colours of all roles as custom properties of CSS. */
void harpe_put_inks(harpe_text *out, bool dark);

/* Returns a colour of the heat scale, which is the same in light and dark; `fraction` is between 0
 * (pale) and 1 (deep). Values outside of this range are limited to it. Lightness falls steadily
 * along the scale, so it can be read in grey print and by colour-blind people. */
uint32_t harpe_heat_rgb(double fraction);
/* Returns black or white, whichever has more contrast with `rgb`. */
uint32_t harpe_contrast_rgb(uint32_t rgb);

/* ---- Shapes ---------------------------------------------------------------------------------- */

typedef struct harpe_xy {
    double x, y;
} harpe_xy;

typedef enum harpe_anchor { HARPE_START = 0, HARPE_MIDDLE, HARPE_END } harpe_anchor;

typedef struct harpe_text_style {
    double size;
    harpe_color color;
    harpe_anchor anchor;
    bool bold;
    bool halo;            /* draw a rim in the paper's colour, for text that crosses lines */
    double angle_degrees; /* clockwise, around the anchor */
} harpe_text_style;

typedef struct harpe_stroke {
    harpe_color color;
    double width;
    double dash; /* 0: solid */
} harpe_stroke;

/* A picture that is being written. Places are measured from the top left in points of 1/96 inch.
 * Drawing functions return no status; harpe_svg_end reports the first failure. */
typedef struct harpe_svg {
    harpe_text *out;
    size_t before; /* length of `out` before the picture */
    bool in_page;
    bool has_bad_number;
    int path_points;   /* points of the present path that are written */
    harpe_xy path_end; /* the last point that is written */
    harpe_xy left_out; /* the latest point, if it is not written, because it is too near */
    bool has_left_out;
} harpe_svg;

/* Begins a picture. `description` describes it in one line, for readers who cannot see it. */
harpe_svg harpe_svg_begin(harpe_text *out, bool in_page, double width, double height,
                          const char *description);
/* Ends the picture. After a failure the text is as before the picture. */
harpe_status harpe_svg_end(harpe_svg *svg, harpe_error *error);

/* `tooltip` may be NULL. */
void harpe_svg_rect(harpe_svg *svg, double x, double y, double width, double height,
                    harpe_color fill, const char *tooltip);
void harpe_svg_line(harpe_svg *svg, double x0, double y0, double x1, double y1,
                    harpe_stroke stroke);
void harpe_svg_circle(harpe_svg *svg, double x, double y, double radius, harpe_color fill,
                      harpe_stroke stroke);
/* Draws a text; `y` is its baseline. `text` may contain any bytes. */
void harpe_svg_text(harpe_svg *svg, double x, double y, const harpe_text_style *style,
                    const char *text);
/* Draws a polyline: begin, one or more points, end. A point that is too near to the one before is
 * left out. */
void harpe_svg_path_begin(harpe_svg *svg, harpe_stroke stroke);
void harpe_svg_path_to(harpe_svg *svg, double x, double y);
void harpe_svg_path_end(harpe_svg *svg);
/* Draws level lines with square ends: begin, any number of lines, harpe_svg_path_end. Places count
 * from `origin`, and places and widths count in `unit`, so that they have few digits. */
void harpe_svg_bars_begin(harpe_svg *svg, harpe_color color, double height, harpe_xy origin,
                          harpe_xy unit);
void harpe_svg_bar(harpe_svg *svg, double x, double y, double width);

/* Returns about the width of a text, as in the font DejaVu Sans. */
double harpe_text_width(const harpe_text_style *style, const char *text);

/* ---- Axes ------------------------------------------------------------------------------------ */

/* Round numbers (1, 2 or 5 times a power of ten) in a range. */
typedef struct harpe_ticks {
    double first, step;
    int count; /* 0 .. 50 */
    int decimals;
} harpe_ticks;

harpe_ticks harpe_ticks_make(double low, double high, int wanted);
double harpe_tick_at(const harpe_ticks *ticks, int index);

/* A range that grows as values are added. */
typedef struct harpe_range {
    double low, high;
    bool is_set;
} harpe_range;

void harpe_range_add(harpe_range *range, double value);
/* Adds a margin on both sides. The range is never empty afterwards. */
void harpe_range_pad(harpe_range *range, double fraction);

/* The plot's rectangle, and the range of its data in the units of the ticks. */
typedef struct harpe_frame {
    double left, top, right, bottom;
    harpe_range x, y;
} harpe_frame;

double harpe_frame_x(const harpe_frame *frame, double value);
double harpe_frame_y(const harpe_frame *frame, double value);

typedef enum harpe_side { HARPE_BOTTOM = 0, HARPE_LEFT, HARPE_TOP, HARPE_RIGHT } harpe_side;

/* Draws the axis of one side of a frame, with round numbers of a range and a title, which may be
 * NULL. The lower and the left axis have a grid. The numbers of the upper and the right axis are
 * differences and have a sign. */
void harpe_draw_axis(harpe_svg *svg, const harpe_frame *frame, harpe_side side, harpe_range range,
                     const char *title);

/* ---- Labels ---------------------------------------------------------------------------------- */

typedef struct harpe_area {
    double left, top, right, bottom;
} harpe_area;

/* Rectangles that labels must avoid. Initialise with zeros; free `taken`. A rectangle for which
 * there is no memory is ignored, and labels may then overlap. */
typedef struct harpe_label_field {
    harpe_area bounds; /* labels stay inside of this area */
    harpe_area *taken;
    size_t taken_count, taken_capacity;
} harpe_label_field;

/* Reserves the square around a point. */
void harpe_label_avoid(harpe_label_field *field, harpe_xy at, double half);
/* Reserves the places along a straight line. */
void harpe_label_avoid_line(harpe_label_field *field, harpe_xy from, harpe_xy to);
/* Draws a label at the best place near a point, and a line to the point if it is far away. `detail`
 * is a second line, or NULL. A label that is not needed is left out if it would cover something. */
void harpe_draw_label(harpe_svg *svg, harpe_label_field *field, harpe_xy at,
                      const harpe_text_style *style, const char *name, const char *detail,
                      bool is_needed);

/* ---- Energy over time ------------------------------------------------------------------------ */

typedef struct harpe_plot {
    harpe_svg *svg;
    harpe_frame frame;
    harpe_unit time, energy;
    harpe_label_field labels;
} harpe_plot;

/* Begins a plot whose frame has its sides: sets the units, and the ranges of the frame. Both ranges
 * are in SI units; a margin is added. Free labels.taken. */
void harpe_plot_begin(harpe_plot *plot, harpe_range time_s, harpe_range energy_j);
harpe_xy harpe_plot_place(const harpe_plot *plot, double time_s, double energy_j);
/* Draws the lower and the left axis. The units follow the names. */
void harpe_plot_axes(const harpe_plot *plot, const char *time_name, const char *energy_name);
/* Draws a line that labels avoid. Point i is time_s[i * step] and energy_j[i * step]. */
void harpe_plot_curve(harpe_plot *plot, harpe_stroke stroke, const double *time_s,
                      const double *energy_j, size_t count, size_t step);

/* ---- Report ---------------------------------------------------------------------------------- */

/* JavaScript and CSS of the page. The build makes them from web/. */
extern const unsigned char harpe_report_style[];
extern const size_t harpe_report_style_size;
extern const unsigned char harpe_report_script[];
extern const size_t harpe_report_script_size;

#endif
