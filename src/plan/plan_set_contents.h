/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a harpe_plan_set. plan_set.c and graph_deadline.c make plan sets. */
#ifndef HARPE_PLAN_PLAN_SET_CONTENTS_H
#define HARPE_PLAN_PLAN_SET_CONTENTS_H

#include <stddef.h>

#include <harpe/plan.h>

/* The set owns each plan's frequencies. */
struct harpe_plan_set {
    harpe_plan *plans;
    size_t count;
};

#endif
