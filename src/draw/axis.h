/* SPDX-License-Identifier: Apache-2.0 */
/* A plot's frame: where data lands on the picture, round tick numbers, grid lines, axis titles, and
 * a place for a label where it covers nothing. Knows nothing of what is plotted. */
#ifndef HARPE_DRAW_AXIS_H
#define HARPE_DRAW_AXIS_H

#include <stdbool.h>
#include <stddef.h>

#include "draw/canvas.h"

/* Finite, and small enough to be scaled without overflow. */
bool harpe_is_drawable(double value);

/* Round numbers (1, 2 or 5 times a power of ten) within a range. */
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
/* Adds a margin on both sides; never leaves an empty range. */
void harpe_range_pad(harpe_range *range, double fraction);

/* The plot's rectangle and the data it shows, in the units that the ticks show. */
typedef struct harpe_frame {
    double left, top, right, bottom;
    harpe_range x, y;
} harpe_frame;

double harpe_frame_x(const harpe_frame *frame, double value);
double harpe_frame_y(const harpe_frame *frame, double value);

/* Grid, frame lines, tick numbers and titles of the lower and the left axis. */
void harpe_draw_axes(harpe_canvas *canvas, const harpe_frame *frame, const char *x_title,
                     const char *y_title);

/* Rectangles that labels must keep off. Zero-initialise; free with harpe_label_field_free. When
 * memory runs out, an obstacle is forgotten: the worst that comes of it is an overlap. */
typedef struct harpe_area {
    double left, top, right, bottom;
} harpe_area;

typedef struct harpe_label_field {
    harpe_area bounds; /* labels stay inside */
    harpe_area *taken;
    size_t taken_count, taken_capacity;
} harpe_label_field;

void harpe_label_field_add(harpe_label_field *field, harpe_area area);
void harpe_label_field_free(harpe_label_field *field);
/* Finds room of width x height near (x, y), and takes it. `*overlap` (may be NULL) tells how much
 * of it was taken before: 0 is a free place. */
harpe_area harpe_label_place(harpe_label_field *field, double x, double y, double width,
                             double height, double *overlap);

#endif
