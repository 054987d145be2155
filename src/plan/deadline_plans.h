/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of graphs with deadlines. */
#ifndef HARPE_PLAN_DEADLINE_PLANS_H
#define HARPE_PLAN_DEADLINE_PLANS_H

#include <harpe/plan.h>

/* Does the same as harpe_plan_set_new, for problems with deadlines. Each plan takes one walk. */
harpe_status harpe_deadline_plans(const harpe_problem *problem, const harpe_plan_request *request,
                                  const harpe_progress *progress, harpe_frontier **frontier,
                                  harpe_plan_set **out, harpe_error *error);

#endif
