/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the parts of pictures that do not depend on the kind of problem. */
#include "cli/plan/picture_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/format.h"

char *harpe_picture_time_and_energy(harpe_arena *arena, const harpe_plan *plan) {
    char time_text[HARPE_NUMBER_SIZE];
    char energy_text[HARPE_NUMBER_SIZE];
    char detail[2 * HARPE_NUMBER_SIZE + 4];
    int length =
        snprintf(detail, sizeof detail, "%s, %s", harpe_format_time(time_text, plan->time_s),
                 harpe_format_energy(energy_text, plan->energy_j));
    return harpe_arena_strdup(arena, detail, (size_t)length);
}

static bool is_option(const harpe_choice *choice, const harpe_profile_point *point) {
    for (size_t i = 0; i < choice->list.option_count; i++)
        if (choice->list.options[i].frequency_mhz == point->frequency_mhz) return true;
    return false;
}

harpe_status harpe_picture_fill_cost_panel(harpe_arena *arena, const harpe_choice *choice,
                                           harpe_cost_panel *panel, harpe_error *error) {
    harpe_cost_point *points = harpe_arena_alloc(arena, choice->point_count, sizeof *points);
    if (!points) return harpe_fail_memory(error);
    for (size_t i = 0; i < choice->point_count; i++) {
        const harpe_profile_point *point = &choice->points[i];
        points[i].frequency_mhz = point->frequency_mhz;
        points[i].time_s = point->time_s;
        points[i].effective_energy_j = point->energy_j - choice->blocking_power_w * point->time_s;
        points[i].is_option = is_option(choice, point);
    }
    *panel = (harpe_cost_panel){
        .title = choice->list.instruction,
        .points = points,
        .point_count = choice->point_count,
        .curve_time_s = choice->list.curve_time_s,
        .curve_effective_energy_j = choice->list.curve_effective_energy_j,
        .curve_count = choice->list.curve_count,
    };
    return HARPE_OK;
}

const char *harpe_picture_curve_label(harpe_cost_model model) {
    return model == HARPE_COST_EXPONENTIAL ? "fitted a*exp(b*t)+c" : "lower convex hull";
}
