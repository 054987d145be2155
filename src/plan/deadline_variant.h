/* SPDX-License-Identifier: Apache-2.0 */
/* The problem of a graph with deadlines at one iteration time T. In place of each deadline D it has
 * a fixed delay of T - D between the end of the activity and the end of the iteration. */
#ifndef HARPE_PLAN_DEADLINE_VARIANT_H
#define HARPE_PLAN_DEADLINE_VARIANT_H

#include "plan/graph.h"
#include "plan/problem.h"

/* The variant shares everything with the problem except for the delays. It must stay in its
 * place. */
typedef struct harpe_deadline_variant {
    harpe_problem problem; /* without deadlines */
    int64_t time_ps;
    harpe_graph_layout layout;
    harpe_choice *choices;
    size_t deadline_count;
    double *delay_s; /* [deadline_count] */
    harpe_profile_point *points;
    harpe_option *options;
    double no_energy_j;
} harpe_deadline_variant;

/* Makes the variant for the time 0, which has no limits. Clear it also after a failure. */
harpe_status harpe_deadline_variant_init(harpe_deadline_variant *variant,
                                         const harpe_problem *problem, harpe_error *error);
void harpe_deadline_variant_clear(harpe_deadline_variant *variant);

void harpe_deadline_variant_set_time(harpe_deadline_variant *variant, int64_t time_ps);

#endif
