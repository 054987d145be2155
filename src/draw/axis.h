/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a plot: the mapping from data to the picture, round tick numbers, grid lines, axis
 * titles, and free places for labels. It does not depend on the kind of data. */
#ifndef HARPE_DRAW_AXIS_H
#define HARPE_DRAW_AXIS_H

#include <stdbool.h>
#include <stddef.h>

#include "draw/canvas.h"

/* Returns true if the value is finite, and small enough to be scaled without overflow. */
bool harpe_is_drawable(double value);

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

/* Draws the grid, the frame, and the tick numbers and titles of the lower and the left axis. */
void harpe_draw_axes(harpe_canvas *canvas, const harpe_frame *frame, const char *x_title,
                     const char *y_title);

/* Rectangles that labels must avoid. Initialise with zeros; free with harpe_label_field_free. A
 * rectangle for which there is no memory is ignored, and labels may then overlap. */
typedef struct harpe_area {
    double left, top, right, bottom;
} harpe_area;

typedef struct harpe_label_field {
    harpe_area bounds; /* labels stay inside of this area */
    harpe_area *taken;
    size_t taken_count, taken_capacity;
} harpe_label_field;

void harpe_label_field_add(harpe_label_field *field, harpe_area area);
void harpe_label_field_free(harpe_label_field *field);
/* Finds the best place for a label of width x height near (x, y), and reserves it. `*overlap` (may
 * be NULL) receives 0 if the place was free. It grows with the part of the place that was already
 * taken or is outside of the bounds. */
harpe_area harpe_label_place(harpe_label_field *field, double x, double y, double width,
                             double height, double *overlap);

#endif
