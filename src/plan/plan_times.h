/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the iteration times for which plans are made. */
#ifndef HARPE_PLAN_PLAN_TIMES_H
#define HARPE_PLAN_PLAN_TIMES_H

#include <stddef.h>
#include <stdint.h>

#include "plan/walk.h"

typedef struct harpe_wanted_time {
    int64_t time_ps;
    int64_t longest_ps; /* what was asked for; above T*, more time saves energy only if changes of
                         * clock have a cost */
    bool is_asked;
} harpe_wanted_time;

typedef struct harpe_wanted_times {
    harpe_wanted_time *items; /* the slowest first; free it */
    size_t count;
} harpe_wanted_times;

/* Lists the times of a request that does not ask for all vertices. For HARPE_PLANS_AT these are the
 * requested times (0: T_min) and, if the request's count is above 0, those for this count. No time
 * is asked for twice. Fails with HARPE_INFEASIBLE if a requested time is below T_min. */
harpe_status harpe_plan_times(const harpe_walk *walk, const harpe_plan_request *request,
                              harpe_wanted_times *out, harpe_error *error);

#endif
