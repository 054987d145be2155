/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses one plan of a plan directory by a criterion, among the plans within limits on their
 * power. It reads and prints nothing. */
#ifndef HARPE_CLI_PLAN_CHOOSE_PLAN_H
#define HARPE_CLI_PLAN_CHOOSE_PLAN_H

#include "cli/plan/choose_cost.h"
#include "cli/plan/plan_directory.h"

typedef enum harpe_criterion {
    HARPE_CHOOSE_NOTHING = 0, /* no criterion is given */
    HARPE_CHOOSE_SLOWEST,     /* the slowest plan within `value` seconds */
    HARPE_CHOOSE_DEADLINE,    /* the best plan within `value` seconds */
    HARPE_CHOOSE_SLOWDOWN,    /* the best plan within `value` times the time at highest clocks */
    HARPE_CHOOSE_STRAGGLER,   /* the best plan within `value` times the fastest plan's time */
    HARPE_CHOOSE_POWER_CAP,   /* the fastest plan of at most `value` watts per GPU on average */
    HARPE_CHOOSE_BEST,        /* the best plan */
    HARPE_CHOOSE_FASTEST,
} harpe_criterion;

/* The best plan is the plan of least cost if prices are given, and otherwise that of least
 * energy. */
typedef struct harpe_choose_request {
    harpe_criterion criterion;
    double value;
    double peak_limit_w; /* INFINITY: no limit */
    double swing_limit_w;
    harpe_prices prices;
} harpe_choose_request;

typedef struct harpe_chosen {
    const harpe_frontier_row *row;
    const harpe_frontier_row *unlimited; /* the choice without the limits on power */
    const harpe_frontier_row *fastest;   /* of all plans */
    /* The best plan with one clock that is as fast as the highest clocks, and the best one within
     * the time that the choice may take. NULL: not known. */
    const harpe_frontier_row *as_fast_one_clock, *one_clock;
    double iteration_s; /* with a straggler: the end of the iteration; else the row's time */
    double waiting_j;   /* with a straggler: energy of the wait after the plan's end */
} harpe_chosen;

bool harpe_choose_has_limits(const harpe_choose_request *request);

/* Fails with HARPE_INFEASIBLE and names the nearest plan if no plan fits. The rows in `out` belong
 * to `plans`, where all rows are compared with plans with one clock: the choice with the best one
 * within the criterion's limit of time, and other rows with the best one of at most their time. */
harpe_status harpe_choose(const harpe_choose_request *request, harpe_plan_directory *plans,
                          harpe_chosen *out, harpe_error *error);

#endif
