/* SPDX-License-Identifier: Apache-2.0 */
/* Makes options from measured points: subtracts from each point the energy of waiting for the same
 * time (effective energy), and keeps the points that no other point beats. */
#include "plan/options.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/cost_model.h"

#define BLOCKING_POWER_MAX_W 1e9

/* Orders options by time, then by energy, then by frequency. */
static int compare_options(const void *left, const void *right) {
    const harpe_option *a = left, *b = right;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    if (a->effective_energy_j != b->effective_energy_j)
        return a->effective_energy_j < b->effective_energy_j ? -1 : 1;
    return (a->frequency_mhz > b->frequency_mhz) - (a->frequency_mhz < b->frequency_mhz);
}

/* Moves the options that are cheaper than every faster option to the front of the sorted array. */
static size_t keep_pareto(harpe_option *options, size_t count) {
    size_t kept = 1;
    for (size_t i = 1; i < count; i++)
        if (options[i].effective_energy_j < options[kept - 1].effective_energy_j)
            options[kept++] = options[i];
    return kept;
}

harpe_status harpe_options_from_points(const harpe_profile_point *points, size_t point_count,
                                       double blocking_power_w, harpe_option **options,
                                       size_t *option_count, harpe_error *error) {
    /* How long it takes where the clock is left alone depends on the clock that the GPU has. */
    if (point_count > 1 && points[point_count - 1].frequency_mhz == 0) point_count--;
    if (point_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "an instruction needs at least one point");
    if (!(blocking_power_w >= 0 && blocking_power_w <= BLOCKING_POWER_MAX_W))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "blocking power must be 0 to %g W, not %g",
                          BLOCKING_POWER_MAX_W, blocking_power_w);
    harpe_option *made = harpe_calloc(point_count, sizeof *made);
    size_t *corners = harpe_calloc(point_count, sizeof *corners);
    if (!made || !corners) {
        free(made);
        free(corners);
        return harpe_fail_memory(error);
    }
    for (size_t i = 0; i < point_count; i++) {
        made[i] = (harpe_option){
            .frequency_mhz = points[i].frequency_mhz,
            .time_s = points[i].time_s,
            .energy_j = points[i].energy_j,
            .effective_energy_j = points[i].energy_j - blocking_power_w * points[i].time_s,
        };
    }
    qsort(made, point_count, sizeof *made, compare_options);
    size_t kept = keep_pareto(made, point_count);
    size_t corner_count = harpe_hull_corners(made, kept, corners);
    for (size_t i = 0; i < corner_count; i++)
        made[corners[i]].is_on_hull = true;
    free(corners);
    *options = made;
    *option_count = kept;
    return HARPE_OK;
}
