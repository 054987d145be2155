/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of graphs. For any bytes, the result is an error of one printable line, or a
 * graph that does not change when it is written and read again. A small graph is planned, and the
 * plans must pass the checks of verify.c. Uses no files. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/graph.h>

#include "plan/graphs.h"

#define PLANNED_MAX 24 /* activities of a graph that is also planned */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_round_trip(const harpe_graph *graph) {
    harpe_text text = {0}, again = {0};
    harpe_graph *read = NULL;
    harpe_graph_json_format(&text, graph);
    require(harpe_graph_parse_json(text.data, text.length, "again", &read, NULL) == HARPE_OK);
    harpe_graph_json_format(&again, read);
    require(text.length == again.length && memcmp(text.data, again.data, text.length) == 0);
    harpe_graph_free(read);
    harpe_text_free(&text);
    harpe_text_free(&again);
}

static void check_runs(const harpe_graph *graph, const harpe_problem *problem,
                       const harpe_plan *plan) {
    harpe_graph_run runs[PLANNED_MAX];
    require(harpe_graph_runs(problem, plan->frequency_mhz, runs, NULL) == HARPE_OK);
    for (size_t i = 0; i < harpe_graph_activity_count(graph); i++) {
        const harpe_graph_activity *activity = harpe_graph_activity_at(graph, i);
        require(runs[i].option >= -1 && runs[i].option < (int)activity->option_count);
        require((runs[i].option < 0) == (activity->option_count == 0));
        require(runs[i].start_s >= activity->release_s - 1e-12 && runs[i].slack_s >= 0);
        require(runs[i].start_s <= plan->time_s + 1e-12);
    }
}

static void check_plans(const harpe_graph *graph) {
    harpe_problem *problem = NULL;
    harpe_frontier *frontier = NULL;
    harpe_plan_set *plans = NULL;
    harpe_plan_request request = {.count = 3};
    harpe_error error = {.message = ""};
    require(harpe_problem_of_graph(graph, NULL, &problem, &error) == HARPE_OK);
    harpe_status status = harpe_plan_set_new(problem, &request, NULL, &frontier, &plans, &error);
    if (status != HARPE_OK) {
        /* The curve is too steep, or the numbers are too large. */
        require(status == HARPE_INVALID_INPUT || status == HARPE_LIMIT_EXCEEDED);
        require(!strpbrk(error.message, "\n\r\x1B"));
        harpe_problem_free(problem);
        return;
    }
    for (size_t i = 0; i < harpe_plan_set_count(plans); i++)
        check_runs(graph, problem, harpe_plan_set_at(plans, i));
    harpe_plan_set_free(plans);
    harpe_frontier_free(frontier);
    harpe_problem_free(problem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_graph *graph = NULL;
    harpe_error error = {.message = ""};
    harpe_status status =
        harpe_graph_parse_json((const char *)data, size, "fuzz.json", &graph, &error);
    if (status != HARPE_OK) {
        require(!graph);
        require(error.status == status);
        require(strncmp(error.message, "fuzz.json", strlen("fuzz.json")) == 0);
        require(!strpbrk(error.message, "\n\r\x1B"));
        return 0;
    }
    require(harpe_graph_activity_count(graph) >= 1);
    check_round_trip(graph);
    if (harpe_graph_activity_count(graph) <= PLANNED_MAX) check_plans(graph);
    harpe_graph_free(graph);
    return 0;
}
