/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a pipeline as pixels if it has too many boxes to distinguish them. Drawing time and size
 * then depend on the size of the picture, and not on the number of microbatches. */
#include "draw/pipeline_pixels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

#define PIXELS_PER_POINT 2.0

typedef struct lane_sums {
    int columns, lane_count;
    float *covered; /* [lane_count * columns]: share of the pixel with an instruction */
    float *power;   /* [lane_count * columns]: the same share times the power in watts */
} lane_sums;

static void add_box(const harpe_pipeline_drawing *d, lane_sums *lanes,
                    const harpe_pipeline_box *box) {
    double per_second = lanes->columns / d->end_s;
    double from = box->start_s * per_second;
    double to = fmin((box->start_s + box->duration_s) * per_second, lanes->columns);
    /* leaves a gap between neighbours if there is room */
    if (to - from >= 6.0) to -= 1.0;
    size_t row = (size_t)(box->rank / d->lane_step) * (size_t)lanes->columns;
    for (int column = (int)from; column < lanes->columns && column < to; column++) {
        double part = fmin(to, column + 1.0) - fmax(from, column);
        lanes->covered[row + (size_t)column] += (float)part;
        lanes->power[row + (size_t)column] += (float)(part * box->power_w);
    }
}

static uint32_t premultiplied(uint32_t rgb, double alpha) {
    uint32_t a = (uint32_t)lround(alpha * 255.0);
    uint32_t red = (rgb >> 16 & 255) * a / 255;
    uint32_t green = (rgb >> 8 & 255) * a / 255;
    uint32_t blue = (rgb & 255) * a / 255;
    return a << 24 | red << 16 | green << 8 | blue;
}

/* Paints each lane as `rows_per_lane` equal rows. The last `gap_rows` of them stay empty. */
static void paint(const harpe_pipeline_drawing *d, const lane_sums *lanes, harpe_pixels *pixels,
                  int rows_per_lane, int gap_rows) {
    size_t columns = (size_t)lanes->columns;
    for (int lane = 0; lane < lanes->lane_count; lane++) {
        const float *covered = lanes->covered + (size_t)lane * columns;
        const float *power = lanes->power + (size_t)lane * columns;
        uint32_t *first = pixels->argb + (size_t)(lane * rows_per_lane) * columns;
        for (size_t column = 0; column < columns; column++) {
            if (covered[column] <= 0.0f) continue;
            uint32_t rgb = harpe_pipeline_heat(d, (double)(power[column] / covered[column]));
            first[column] = premultiplied(rgb, fmin((double)covered[column], 1.0));
        }
        for (int row = 1; row < rows_per_lane - gap_rows; row++)
            memcpy(first + (size_t)row * columns, first, columns * sizeof *first);
    }
}

harpe_status harpe_pipeline_draw_pixels(harpe_pipeline_drawing *d,
                                        const harpe_pipeline_panel *panel, double panel_top,
                                        harpe_error *error) {
    lane_sums lanes = {.columns = (int)((d->right - d->left) * PIXELS_PER_POINT),
                       .lane_count = d->lane_count};
    int rows_per_lane = (int)fmax(1.0, floor(d->pitch * PIXELS_PER_POINT));
    int gap_rows = d->pitch >= 12.0 ? 6 : d->pitch >= 6.0 ? 2 : d->pitch >= 4.0 ? 1 : 0;
    size_t cells = (size_t)lanes.columns * (size_t)lanes.lane_count;
    harpe_pixels pixels = {.width = lanes.columns, .height = lanes.lane_count * rows_per_lane};
    harpe_status status = HARPE_OK;
    lanes.covered = harpe_calloc(cells, sizeof *lanes.covered);
    lanes.power = harpe_calloc(cells, sizeof *lanes.power);
    pixels.argb = harpe_calloc(cells * (size_t)rows_per_lane, sizeof *pixels.argb);
    if (!lanes.covered || !lanes.power || !pixels.argb) {
        status = harpe_fail_memory(error);
        goto done;
    }
    for (size_t i = 0; i < panel->box_count; i++)
        if (panel->boxes[i].rank % d->lane_step == 0) add_box(d, &lanes, &panel->boxes[i]);
    paint(d, &lanes, &pixels, rows_per_lane, gap_rows);
    harpe_canvas_pixels(d->canvas, d->left, panel_top, d->right - d->left, d->panel_height,
                        &pixels);
done:
    free(lanes.covered);
    free(lanes.power);
    free(pixels.argb);
    return status;
}
