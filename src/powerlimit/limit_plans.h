/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the measurements of a power limit optimizer into the plans that a member of a fleet
 * declares: one plan for each power limit, fastest first. */
#ifndef HARPE_POWERLIMIT_LIMIT_PLANS_H
#define HARPE_POWERLIMIT_LIMIT_PLANS_H

#include <stddef.h>

#include <harpe/power_limit.h>

/* The most plans that are declared. A server takes twice as many, but a body of 64 KiB at most. */
enum { HARPE_LIMIT_PLANS_MAX = 500 };

typedef struct harpe_limit_plan {
    int limit_w;    /* power limit of each GPU */
    double time_s;  /* time of one step */
    double power_w; /* mean power of all GPUs of the job */
} harpe_limit_plan;

/* The times rise strictly and the powers fall strictly, so the server's numbers of the plans are
 * the indices of `plans`. */
typedef struct harpe_limit_plans {
    size_t count;
    size_t chosen; /* index of the plan of the limit that the selector has chosen */
    harpe_limit_plan plans[];
} harpe_limit_plans;

/* Makes the plans. `optimum_w` is the limit that the selector has chosen, and `steps` is the number
 * of steps of each measurement. Leaves out a limit whose plan is not slower than the chosen plan
 * and draws no more, or not faster and draws no less; and of the others, those that another plan
 * beats. If there are more plans than HARPE_LIMIT_PLANS_MAX, keeps some of them, spread evenly.
 * Fails with HARPE_INVALID_INPUT if the chosen limit has no measurement that a server accepts. The
 * caller frees `*out`. */
harpe_status harpe_limit_plans_make(const harpe_power_limit_measurement *measurements, size_t count,
                                    int optimum_w, int steps, harpe_limit_plans **out,
                                    harpe_error *error);

#endif
