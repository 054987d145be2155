/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the plan files of a graph (harpe-graph(5)). plan/plan_file.h has those of a pipeline. */
#ifndef HARPE_CLI_PLAN_GRAPH_PLAN_FILE_H
#define HARPE_CLI_PLAN_GRAPH_PLAN_FILE_H

#include <harpe/graph.h>

#include "base/text.h"

/* Format of the file name of plan `number`, for snprintf. */
#define HARPE_GRAPH_PLAN_FILE_NAME_FORMAT "plan_%05d.json"

/* Appends a plan as JSON. `problem` was made from `graph`. The caller then checks text->failed. */
harpe_status harpe_graph_plan_file_format(harpe_text *text, const harpe_graph *graph,
                                          const harpe_problem *problem, const harpe_plan *plan,
                                          harpe_error *error);

#endif
