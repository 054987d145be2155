/* SPDX-License-Identifier: Apache-2.0 */
/* Formats a plan of a graph as JSON: for each activity its option, frequency, start and slack. */
#include "cli/plan/graph_plan_file.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/graph_json.h"

static void put_number(harpe_text *text, const char *before, double value) {
    harpe_text_printf(text, "%s", before);
    harpe_text_number(text, value);
}

static void put_run(harpe_text *text, const char *name, const harpe_graph_run *run) {
    harpe_graph_json_name(text, name);
    harpe_text_printf(text, ": {\"option\": ");
    if (run->option >= 0)
        harpe_text_printf(text, "%d", run->option);
    else
        harpe_text_printf(text, "null");
    if (run->frequency_mhz > 0)
        put_number(text, ", \"frequency\": ", run->frequency_mhz);
    else
        harpe_text_printf(text, ", \"frequency\": null");
    put_number(text, ", \"start_s\": ", run->start_s);
    put_number(text, ", \"slack_s\": ", run->slack_s);
    harpe_text_printf(text, "}");
}

harpe_status harpe_graph_plan_file_format(harpe_text *text, const harpe_graph *graph,
                                          const harpe_problem *problem, const harpe_plan *plan,
                                          harpe_error *error) {
    size_t count = harpe_graph_activity_count(graph);
    harpe_graph_run *runs = harpe_calloc(count, sizeof *runs);
    if (!runs) return harpe_fail_memory(error);
    harpe_status status = harpe_graph_runs(problem, plan->frequency_mhz, runs, error);
    if (status == HARPE_OK) {
        put_number(text, "{\"time_s\": ", plan->time_s);
        put_number(text, ", \"energy_j\": ", plan->energy_j);
        put_number(text, ", \"lower_bound_j\": ", plan->lower_bound_j);
        harpe_text_printf(text, ",\n \"activities\": {");
        for (size_t i = 0; i < count; i++) {
            harpe_text_printf(text, "%s\n  ", i > 0 ? "," : "");
            put_run(text, harpe_graph_activity_at(graph, i)->name, &runs[i]);
        }
        harpe_text_printf(text, "}}\n");
    }
    free(runs);
    return status;
}
