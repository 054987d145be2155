/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of pictures that pipelines and graphs share. */
#ifndef HARPE_CLI_PLAN_PICTURE_PARTS_H
#define HARPE_CLI_PLAN_PICTURE_PARTS_H

#include "base/arena.h"
#include "draw/draw.h"
#include "plan/problem.h"

/* Returns "4.331 s, 45.2 kJ" in the arena, or NULL when out of memory. */
char *harpe_picture_time_and_energy(harpe_arena *arena, const harpe_plan *plan);

/* Makes the panel of one choice. */
harpe_status harpe_picture_fill_cost_panel(harpe_arena *arena, const harpe_choice *choice,
                                           harpe_cost_panel *panel, harpe_error *error);

/* Returns the name of the relaxation's curve. Static storage. */
const char *harpe_picture_curve_label(harpe_cost_model model);

#endif
