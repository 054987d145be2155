/* SPDX-License-Identifier: Apache-2.0 */
/* Frontier and plans of graphs with deadlines. The parametric solver cannot begin with deadlines:
 * with all instructions at their slowest, an activity may end too late. At one iteration time T, a
 * deadline D is a fixed delay of T - D between the end of the activity and the end of the
 * iteration. Each of such problems is solved without deadlines. */
#ifndef HARPE_PLAN_GRAPH_DEADLINE_H
#define HARPE_PLAN_GRAPH_DEADLINE_H

#include <harpe/plan.h>

#include "plan/graph.h"
#include "plan/problem.h"

/* Returns true if an activity of the problem's graph has a deadline. */
static inline bool harpe_problem_has_deadlines(const harpe_problem *problem) {
    return problem->graph && problem->graph->deadline_count > 0;
}

/* Do the same as harpe_frontier_new and harpe_frontier_verify, for problems with deadlines. The
 * frontier takes two walks for each vertex. `rounding_j` is the difference of two energies that
 * rounding explains. */
harpe_status harpe_deadline_frontier(const harpe_problem *problem, const harpe_progress *progress,
                                     harpe_frontier **out, harpe_error *error);
harpe_status harpe_deadline_verify(const harpe_problem *problem, const harpe_frontier *frontier,
                                   size_t samples, double rounding_j, harpe_error *error);

/* Does the same as harpe_plan_set_new, for problems with deadlines. Each plan takes one walk. */
harpe_status harpe_deadline_plans(const harpe_problem *problem, const harpe_plan_request *request,
                                  const harpe_progress *progress, harpe_frontier **frontier,
                                  harpe_plan_set **out, harpe_error *error);

#endif
