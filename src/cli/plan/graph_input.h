/* SPDX-License-Identifier: Apache-2.0 */
/* The input of `harpe plan --graph`: reads the graph, and describes the problem for people and for
 * programs. problem_options.c does the same for a profile with a schedule. */
#ifndef HARPE_CLI_PLAN_GRAPH_INPUT_H
#define HARPE_CLI_PLAN_GRAPH_INPUT_H

#include <jansson.h>
#include <stdbool.h>

#include <harpe/graph.h>

/* Reads a file and makes its graph and the problem. The caller frees both, also after a failure. */
harpe_status harpe_graph_input_load(const char *path, const harpe_problem_options *options,
                                    harpe_graph **graph, harpe_problem **problem,
                                    harpe_error *error);

/* Returns the size of the problem. */
json_t *harpe_graph_input_json(const harpe_graph *graph, const harpe_problem *problem);
/* Prints the size in one line, for people. */
void harpe_graph_input_print(const char *path, const harpe_graph *graph,
                             const harpe_problem *problem);

/* Writes the problem of a pipeline as a graph. Replaces an existing file only if `force` is set. */
harpe_status harpe_graph_input_export(const harpe_problem *problem, const char *path, bool force,
                                      harpe_error *error);

#endif
