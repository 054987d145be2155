/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's tests run plans themselves: from the dependencies and the measured points alone,
 * without the evaluation, the network or the solver. And they go through all plans of a small
 * problem. */
#ifndef HARPE_TESTS_PLAN_ORACLE_H
#define HARPE_TESTS_PLAN_ORACLE_H

#include "instances.h"

/* Computes when each instruction starts, by visiting all dependencies until nothing changes.
 * Returns the length of the iteration. */
static inline double simulate_times(const harpe_problem *problem, const double *time_s,
                                    double *start_s) {
    const harpe_dag *dag = &problem->dag;
    double length_s = 0;
    memset(start_s, 0, (size_t)dag->node_count * sizeof *start_s);
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t a = 0; a < dag->arc_count; a++) {
            double end_s = start_s[dag->arc_from[a]] + time_s[dag->arc_from[a]];
            if (end_s <= start_s[dag->arc_to[a]]) continue;
            start_s[dag->arc_to[a]] = end_s;
            changed = true;
        }
    }
    for (int32_t i = 0; i < dag->node_count; i++)
        length_s = fmax(length_s, start_s[i] + time_s[i]);
    return length_s;
}

/* Advances to the next combination of measured points, which may not be Pareto-optimal. Returns
 * false after the last one. */
static inline bool next_plan(const harpe_problem *problem, size_t *point) {
    for (size_t i = 0; i < harpe_problem_instruction_count(problem); i++) {
        if (++point[i] < harpe_problem_choice(problem, (int32_t)i)->point_count) return true;
        point[i] = 0;
    }
    return false;
}

#endif
