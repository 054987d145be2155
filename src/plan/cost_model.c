/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the lower convex hull of an instruction's options. It is the default cost model: the
 * relaxation may choose any duration along this curve. options.c makes the options, and
 * cost_model_exponential.c fits curves. */
#include "plan/cost_model.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

/* Rounding moves a point by about 1e-16 of the energies from which it was computed. A point that
 * lies below the chord of its neighbours by more than this share of the energies is a real corner:
 * the slopes on its two sides differ by more than their rounding errors. */
#define COLLINEAR_SHARE 1e-12

static double slope(const harpe_option *from, const harpe_option *to) {
    return (to->effective_energy_j - from->effective_energy_j) / (to->time_s - from->time_s);
}

static bool is_corner(const harpe_option *a, const harpe_option *b, const harpe_option *c,
                      double tolerance_j) {
    double share = (b->time_s - a->time_s) / (c->time_s - a->time_s);
    double chord_j =
        a->effective_energy_j + share * (c->effective_energy_j - a->effective_energy_j);
    return chord_j - b->effective_energy_j > tolerance_j && slope(a, b) < slope(b, c);
}

static double collinear_tolerance_j(const harpe_option *options, size_t option_count) {
    double largest_j = 0;
    for (size_t i = 0; i < option_count; i++) {
        double waiting_j = options[i].energy_j - options[i].effective_energy_j;
        largest_j = fmax(largest_j, fabs(options[i].energy_j) + fabs(waiting_j));
    }
    return COLLINEAR_SHARE * largest_j;
}

/* Finds the corners with the lower half of Andrew's monotone chain. */
size_t harpe_hull_corners(const harpe_option *options, size_t option_count, size_t *corners) {
    double tolerance_j = collinear_tolerance_j(options, option_count);
    size_t count = 0;
    for (size_t i = 0; i < option_count; i++) {
        while (count >= 2 && !is_corner(&options[corners[count - 2]], &options[corners[count - 1]],
                                        &options[i], tolerance_j))
            count--;
        corners[count++] = i;
    }
    return count;
}

harpe_status harpe_curve_from_hull(const harpe_option *options, size_t option_count,
                                   harpe_curve *out, harpe_error *error) {
    if (option_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "a curve needs at least one option");
    harpe_curve curve = {0};
    size_t *corners = harpe_calloc(option_count, sizeof *corners);
    if (!corners) return harpe_fail_memory(error);
    curve.count = harpe_hull_corners(options, option_count, corners);
    curve.time_s = harpe_calloc(curve.count, sizeof *curve.time_s);
    curve.effective_energy_j = harpe_calloc(curve.count, sizeof *curve.effective_energy_j);
    if (!curve.time_s || !curve.effective_energy_j) {
        harpe_curve_clear(&curve);
        free(corners);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < curve.count; i++) {
        curve.time_s[i] = options[corners[i]].time_s;
        curve.effective_energy_j[i] = options[corners[i]].effective_energy_j;
    }
    free(corners);
    *out = curve;
    return HARPE_OK;
}

void harpe_curve_clear(harpe_curve *curve) {
    if (!curve) return;
    free(curve->time_s);
    free(curve->effective_energy_j);
    *curve = (harpe_curve){0};
}
