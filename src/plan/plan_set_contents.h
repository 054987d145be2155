/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a harpe_plan_set, and what all makers of plan sets do with it. */
#ifndef HARPE_PLAN_PLAN_SET_CONTENTS_H
#define HARPE_PLAN_PLAN_SET_CONTENTS_H

#include <stddef.h>

#include <harpe/plan.h>

/* The set owns each plan's frequencies. Initialise with zeros. */
struct harpe_plan_set {
    harpe_plan *plans;
    size_t count, capacity;
};

/* Frees the plans, but not the set. */
void harpe_plan_set_clear(harpe_plan_set *set);

/* Evaluates a plan and adds it. Copies the frequencies. */
harpe_status harpe_plan_set_add(harpe_plan_set *set, const harpe_problem *problem,
                                const int *frequency_mhz, harpe_error *error);

/* Returns the energy of a plan with `change_j` for each change of clock. */
double harpe_plan_set_cost_j(const harpe_problem *problem, double change_j, const harpe_plan *plan);

/* Keeps the plans that need less energy, with `change_j` for each change of clock, than every
 * faster plan. Sorts the fastest first. */
void harpe_plan_set_drop_dominated(harpe_plan_set *set, const harpe_problem *problem,
                                   double change_j);

/* Replaces the plans of a set after harpe_plan_set_drop_dominated by one for each time: the plan of
 * least energy that takes at most this time. If no plan is fast enough, the fastest one takes its
 * place: with a minimum dwell time, all plans found for a short time may take longer. */
harpe_status harpe_plan_set_pick(harpe_plan_set *set, const harpe_problem *problem,
                                 const double *times_s, size_t count, harpe_error *error);

#endif
