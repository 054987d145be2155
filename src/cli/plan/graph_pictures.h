/* SPDX-License-Identifier: Apache-2.0 */
/* The pictures of a graph's plans: a lane for each resource, and lanes for activities without one.
 * plan_pictures.c makes those of a pipeline. */
#ifndef HARPE_CLI_PLAN_GRAPH_PICTURES_H
#define HARPE_CLI_PLAN_GRAPH_PICTURES_H

#include "cli/plan/plan_pictures.h"

/* Collects all pictures of a graph. There is no timeline. */
harpe_status harpe_graph_pictures_collect(const harpe_problem_input *input,
                                          const harpe_plan_result *result, harpe_pictures *pictures,
                                          harpe_error *error);

#endif
