/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the power of all replicas together. Private to src/plan. */
#ifndef HARPE_PLAN_REPLICA_LIMITS_H
#define HARPE_PLAN_REPLICA_LIMITS_H

#include "plan/power_limits.h"
#include "plan/replica_plans.h"

/* Changes the plans of all replicas, each of which is a group of its own, so that the power of the
 * job keeps the limits. A replica may begin its iteration later (harpe_replica_plan.start_s), at
 * most so much that it ends within `time_s`. Returns at once if the limits are kept. Fails with
 * HARPE_INFEASIBLE if no such plans are found. */
harpe_status
harpe_replica_limits_keep(harpe_replica_plans *plans, const harpe_replica_profiles *profiles,
                          const harpe_schedule *schedule, const harpe_problem_options *options,
                          const harpe_power_limits *limits, double time_s, harpe_error *error);

#endif
