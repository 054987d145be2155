/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the graph of a pipeline, so that the graph can be written, changed and planned again. */
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/graph.h"
#include "plan/problem.h"

/* Working memory. harpe_graph_new copies everything. */
typedef struct writer {
    const harpe_problem *problem;
    harpe_arena arena;
    harpe_graph_resource *resources;
    harpe_graph_activity *activities;
} writer;

static char *rank_name(writer *w, int rank) {
    char name[24];
    int length = snprintf(name, sizeof name, "rank%d", rank);
    return harpe_arena_strdup(&w->arena, name, (size_t)length);
}

static char *activity_name(writer *w, int rank, size_t index, const char *instruction) {
    char name[HARPE_GRAPH_NAME_MAX + 1];
    int length = snprintf(name, sizeof name, "%d.%zu.%s", rank, index, instruction);
    return harpe_arena_strdup(&w->arena, name, (size_t)length);
}

static harpe_status name_all(writer *w, harpe_error *error) {
    const harpe_problem *problem = w->problem;
    for (int rank = 0; rank < problem->rank_count; rank++) {
        char *name = rank_name(w, rank);
        if (!name) return harpe_fail_memory(error);
        w->resources[rank] = (harpe_graph_resource){name, problem->blocking_power_w[rank]};
        for (size_t i = problem->rank_offset[rank]; i < problem->rank_offset[rank + 1]; i++) {
            const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
            w->activities[i].resource = name;
            w->activities[i].name =
                activity_name(w, rank, i - problem->rank_offset[rank], choice->list.instruction);
            if (!w->activities[i].name) return harpe_fail_memory(error);
        }
    }
    return HARPE_OK;
}

/* Makes the options of each choice once. Activities of one choice share them. */
static harpe_status fill_options(writer *w, harpe_error *error) {
    const harpe_problem *problem = w->problem;
    harpe_arena *arena = &w->arena;
    const harpe_graph_option **options_of =
        harpe_arena_alloc(arena, problem->choice_count, sizeof *options_of);
    if (!options_of) return harpe_fail_memory(error);
    for (size_t c = 0; c < problem->choice_count; c++) {
        const harpe_choice *choice = &problem->choices[c];
        harpe_graph_option *options =
            harpe_arena_alloc(arena, choice->point_count, sizeof *options);
        if (!options) return harpe_fail_memory(error);
        for (size_t k = 0; k < choice->point_count; k++) {
            options[k] = (harpe_graph_option){choice->points[k].time_s, choice->points[k].energy_j,
                                              choice->points[k].frequency_mhz};
        }
        options_of[c] = options;
    }
    for (int32_t i = 0; i < problem->instruction_count - problem->delay_count; i++) {
        w->activities[i].options = options_of[problem->choice_of[i]];
        w->activities[i].option_count = harpe_problem_choice(problem, i)->point_count;
    }
    return HARPE_OK;
}

static harpe_status fill_waits(writer *w, harpe_error *error) {
    const harpe_dag *dag = &w->problem->dag;
    int32_t count = dag->node_count - w->problem->delay_count;
    harpe_graph_wait *waits = harpe_arena_alloc(&w->arena, (size_t)dag->arc_count, sizeof *waits);
    if (!waits) return harpe_fail_memory(error);
    for (int32_t a = 0; a < dag->first_arc_into[count]; a++) {
        int32_t from = dag->arc_from[a];
        if (harpe_problem_is_delay(w->problem, from)) {
            waits[a].lag_s = harpe_problem_choice(w->problem, from)->points[0].time_s;
            from = dag->arc_from[dag->first_arc_into[from]];
        }
        waits[a].name = w->activities[from].name;
    }
    for (int32_t i = 0; i < count; i++) {
        w->activities[i].waits = waits + dag->first_arc_into[i];
        w->activities[i].wait_count = (size_t)(dag->first_arc_into[i + 1] - dag->first_arc_into[i]);
    }
    return HARPE_OK;
}

harpe_status harpe_graph_of_problem(const harpe_problem *problem, harpe_graph **out,
                                    harpe_error *error) {
    if (problem->graph)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "the problem was made from a graph");
    if (harpe_problem_has_any_wait_kinds(problem))
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "a graph has one blocking power for each resource, but kinds of waits of "
                          "this problem have different powers: leave the wait powers out");
    writer w = {.problem = problem};
    size_t ranks = (size_t)problem->rank_count, count = harpe_problem_instruction_count(problem);
    w.resources = harpe_arena_alloc(&w.arena, ranks, sizeof *w.resources);
    w.activities = harpe_arena_alloc(&w.arena, count, sizeof *w.activities);
    harpe_status status = w.resources && w.activities ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = name_all(&w, error);
    if (status == HARPE_OK) status = fill_options(&w, error);
    if (status == HARPE_OK) status = fill_waits(&w, error);
    if (status == HARPE_OK)
        status = harpe_graph_new(w.resources, ranks, w.activities, count, out, error);
    harpe_arena_free(&w.arena);
    return status;
}
