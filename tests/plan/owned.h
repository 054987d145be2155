/* SPDX-License-Identifier: Apache-2.0 */
/* What the planner's tests make, freed at the end of the scope (test.h), and what errors say. */
#ifndef HARPE_TESTS_PLAN_OWNED_H
#define HARPE_TESTS_PLAN_OWNED_H

#include "test.h"

#include <harpe/graph.h>
#include <harpe/plan.h>

#include "base/text.h"

OWNER(harpe_profile)
OWNER(harpe_schedule)
OWNER(harpe_problem)
OWNER(harpe_frontier)
OWNER(harpe_plan_set)
OWNER(harpe_plan_file)
OWNER(harpe_graph)

#define owned_profile OWNED(harpe_profile)
#define owned_schedule OWNED(harpe_schedule)
#define owned_problem OWNED(harpe_problem)
#define owned_frontier OWNED(harpe_frontier)
#define owned_plan_set OWNED(harpe_plan_set)
#define owned_plan_file OWNED(harpe_plan_file)
#define owned_graph OWNED(harpe_graph)
#define owned_text AT_END(harpe_text_free) harpe_text

/* Checks that an error is one line, which says this. */
static inline void assert_says(const harpe_error *error, const char *text) {
    if (!strstr(error->message, text)) fail_msg("'%s' does not say '%s'", error->message, text);
    assert_null(strchr(error->message, '\n'));
}

#endif
