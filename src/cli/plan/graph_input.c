/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the graph of `harpe plan --graph` and describes it. Also writes the graph of a pipeline. */
#include "cli/plan/graph_input.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "cli/command.h"
#include "plan/problem.h"

harpe_status harpe_graph_input_load(const char *path, const harpe_problem_options *options,
                                    harpe_graph **graph, harpe_problem **problem,
                                    harpe_error *error) {
    harpe_status status = harpe_graph_read_json(path, graph, error);
    return status == HARPE_OK ? harpe_problem_of_graph(*graph, options, problem, error) : status;
}

json_t *harpe_graph_input_json(const harpe_graph *graph, const harpe_problem *problem) {
    json_t *power = json_array(), *gpus = json_array(), *names = json_array();
    size_t resources = harpe_graph_resource_count(graph);
    for (size_t r = 0; r < resources; r++) {
        const harpe_graph_resource *resource = harpe_graph_resource_at(graph, r);
        json_array_append_new(names, harpe_command_json_text(resource->name));
        json_array_append_new(power, json_real(resource->blocking_power_w));
        json_array_append_new(gpus, json_integer(1));
    }
    if (resources == 0) { /* harpe choose needs one value */
        json_array_append_new(power, json_real(0));
        json_array_append_new(gpus, json_integer(1));
    }
    return json_pack("{s:o, s:I, s:I, s:o, s:o}", "resources", names, "activities",
                     (json_int_t)harpe_graph_activity_count(graph), "instructions",
                     (json_int_t)harpe_problem_instruction_count(problem), "blocking_power_w",
                     power, "gpus", gpus);
}

void harpe_graph_input_print(const char *path, const harpe_graph *graph,
                             const harpe_problem *problem) {
    const char *slash = strrchr(path, '/');
    size_t activities = harpe_graph_activity_count(graph);
    size_t resources = harpe_graph_resource_count(graph);
    printf("%s%s%s: %zu activit%s on %zu resource%s, blocking power %s W in all\n",
           harpe_bold_start(), slash ? slash + 1 : path, harpe_bold_end(), activities,
           activities == 1 ? "y" : "ies", resources, resources == 1 ? "" : "s",
           HARPE_DIGITS(problem->total_blocking_power_w, 6));
}

harpe_status harpe_graph_input_export(const harpe_problem *problem, const char *path, bool force,
                                      harpe_error *error) {
    if (!force && access(path, F_OK) == 0) {
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "%s: already exists (choose another name, or --force to replace it)",
                          path);
    }
    harpe_graph *graph = NULL;
    harpe_status status = harpe_graph_of_problem(problem, &graph, error);
    if (status == HARPE_OK) status = harpe_graph_write_json(graph, path, error);
    harpe_graph_free(graph);
    return status;
}
