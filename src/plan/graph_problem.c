/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a problem from a graph. A resource becomes a rank, an activity an instruction, and a lag or
 * a release an instruction of fixed length, without energy, that belongs to no resource. Also reads
 * the options of activities back from a plan, and makes a graph from a problem. graph.c has checked
 * the graph. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/graphs.h"
#include "plan/plans.h"
#include "plan/problem.h"

/* A lag or a release. */
typedef struct delay {
    int32_t from; /* the activity that ends before; -1: the start of the iteration */
    double length_s;
} delay;

/* A problem under construction. */
typedef struct builder {
    const harpe_graph *graph;
    const harpe_problem_options *options;
    harpe_problem *problem;
    harpe_graph_layout *layout;
    delay *delays; /* in the order of the activities that they delay */
    size_t delay_count;
    size_t *first_delay; /* [activity_count + 1] */
    size_t deadline_count;
    size_t free_count; /* activities without a resource */
} builder;

/* ---- Counting -------------------------------------------------------------------------------- */

/* Lists the delays. For each activity: that of its release, then those of its waits. */
static harpe_status list_delays(builder *b, harpe_error *error) {
    const harpe_graph *graph = b->graph;
    size_t most = 2 * graph->activity_count + (size_t)graph->first_wait[graph->activity_count];
    b->delays = harpe_calloc(most, sizeof *b->delays);
    b->first_delay = harpe_calloc(graph->activity_count + 1, sizeof *b->first_delay);
    if (!b->delays || !b->first_delay) return harpe_fail_memory(error);
    for (size_t i = 0; i < graph->activity_count; i++) {
        const harpe_graph_activity *activity = &graph->activities[i];
        b->free_count += graph->resource_of[i] < 0;
        b->deadline_count += activity->deadline_s > 0;
        if (activity->release_s > 0) b->delays[b->delay_count++] = (delay){-1, activity->release_s};
        for (size_t k = 0; k < activity->wait_count; k++) {
            double lag_s = activity->waits[k].lag_s;
            int32_t from = graph->wait_for[graph->first_wait[i] + (int32_t)k];
            if (lag_s > 0) b->delays[b->delay_count++] = (delay){from, lag_s};
        }
        b->first_delay[i + 1] = b->delay_count;
    }
    return HARPE_OK;
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

static harpe_status allocate(builder *b, harpe_error *error) {
    harpe_problem *problem = b->problem;
    harpe_arena *arena = &problem->arena;
    size_t ranks = (size_t)problem->rank_count, n = (size_t)problem->instruction_count;
    size_t activities = b->graph->activity_count;
    harpe_action *actions = harpe_arena_alloc(arena, n, sizeof *actions);
    problem->rank_offset = harpe_arena_alloc(arena, ranks + 1, sizeof *problem->rank_offset);
    problem->choice_of = harpe_arena_alloc(arena, n, sizeof *problem->choice_of);
    problem->choices = harpe_arena_alloc(arena, n, sizeof *problem->choices);
    problem->maximum_frequency_mhz =
        harpe_arena_alloc(arena, n, sizeof *problem->maximum_frequency_mhz);
    problem->blocking_power_w = harpe_arena_alloc(arena, ranks, sizeof *problem->blocking_power_w);
    problem->gpu_count = harpe_arena_alloc(arena, ranks, sizeof *problem->gpu_count);
    b->layout = harpe_arena_alloc(arena, 1, sizeof *b->layout);
    if (arena->has_failed) return harpe_fail_memory(error);
    for (size_t i = 0; i < n; i++)
        actions[i] = (harpe_action){.operation = HARPE_STANDALONE, .microbatch = -1};
    problem->action_of = actions;
    problem->graph = b->layout;
    b->layout->activity_count = activities;
    b->layout->instruction_of = harpe_arena_alloc(arena, activities, sizeof(int32_t));
    b->layout->first_point = harpe_arena_alloc(arena, activities, sizeof(size_t));
    problem->deadlines = harpe_arena_alloc(arena, b->deadline_count, sizeof *problem->deadlines);
    return arena->has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* Numbers the instructions rank by rank, each rank's in topological order. The delays come last. */
static void number_instructions(builder *b) {
    const harpe_graph *graph = b->graph;
    harpe_problem *problem = b->problem;
    size_t resources = graph->resource_count;
    for (size_t i = 0; i < graph->activity_count; i++)
        if (graph->resource_of[i] >= 0) problem->rank_offset[graph->resource_of[i] + 1]++;
    for (size_t r = 0; r < resources; r++) {
        problem->rank_offset[r + 1] += problem->rank_offset[r];
        problem->gpu_count[r] = 1;
        problem->blocking_power_w[r] = graph->resources[r].blocking_power_w;
        problem->total_blocking_power_w += problem->blocking_power_w[r];
    }
    problem->total_gpu_count = resources > 0 ? (int)resources : 1; /* it is a divisor */
    /* From the last to the first, so that each rank fills from its end. */
    size_t free_end = problem->rank_offset[resources] + b->free_count;
    for (size_t p = graph->activity_count; p-- > 0;) {
        int32_t i = graph->topological_order[p], resource = graph->resource_of[i];
        size_t *end = resource < 0 ? &free_end : &problem->rank_offset[resource + 1];
        b->layout->instruction_of[i] = (int32_t)-- * end;
    }
    /* Each end has become its rank's beginning. */
    for (size_t r = 0; r < resources; r++)
        problem->rank_offset[r] = problem->rank_offset[r + 1];
    if (resources > 0) problem->rank_offset[resources] = free_end;
    problem->rank_offset[problem->rank_count] = (size_t)problem->instruction_count;
    for (size_t i = 0; i < graph->activity_count; i++)
        problem->choice_of[b->layout->instruction_of[i]] = (int32_t)i;
    size_t others = b->delay_count + b->deadline_count;
    for (size_t d = 0; d < others; d++) {
        size_t instruction = (size_t)problem->instruction_count - others + d;
        problem->choice_of[instruction] = (int32_t)(graph->activity_count + d);
    }
}

/* Returns the instruction of a delay. Those of the deadlines follow. */
static int32_t delay_instruction(const builder *b, size_t d) {
    size_t others = b->delay_count + b->deadline_count;
    return (int32_t)((size_t)b->problem->instruction_count - others + d);
}

static void list_deadlines(builder *b) {
    harpe_problem *problem = b->problem;
    for (size_t i = 0; i < b->graph->activity_count; i++) {
        double deadline_s = b->graph->activities[i].deadline_s;
        if (!(deadline_s > 0)) continue;
        size_t d = b->delay_count + problem->deadline_count;
        problem->deadlines[problem->deadline_count++] =
            (harpe_deadline){delay_instruction(b, d), deadline_s};
        b->delays[d] = (delay){(int32_t)i, 0};
    }
}

/* ---- Dependencies ---------------------------------------------------------------------------- */

static void add_arc(harpe_dag *dag, int32_t from, int32_t to) {
    dag->arc_from[dag->arc_count] = from;
    dag->arc_to[dag->arc_count++] = to;
}

/* Adds the arcs into an activity. */
static void add_arcs_into(const builder *b, size_t activity, harpe_dag *dag) {
    const harpe_graph *graph = b->graph;
    const harpe_graph_activity *it = &graph->activities[activity];
    int32_t to = b->layout->instruction_of[activity];
    size_t next_delay = b->first_delay[activity];
    if (it->release_s > 0) add_arc(dag, delay_instruction(b, next_delay++), to);
    for (size_t k = 0; k < it->wait_count; k++) {
        int32_t from = graph->wait_for[graph->first_wait[activity] + (int32_t)k];
        if (it->waits[k].lag_s > 0)
            add_arc(dag, delay_instruction(b, next_delay++), to);
        else
            add_arc(dag, b->layout->instruction_of[from], to);
    }
}

static harpe_status build_dag(const builder *b, harpe_error *error) {
    const harpe_graph *graph = b->graph;
    harpe_dag *dag = &b->problem->dag;
    size_t n = (size_t)b->problem->instruction_count;
    size_t arcs =
        (size_t)graph->first_wait[graph->activity_count] + b->delay_count + b->deadline_count;
    dag->node_count = b->problem->instruction_count;
    harpe_status status = harpe_dag_allocate(dag, n, arcs, error);
    if (status != HARPE_OK) return status;
    for (size_t i = 0; i < n; i++) {
        dag->first_arc_into[i] = dag->arc_count;
        size_t choice = (size_t)b->problem->choice_of[i];
        if (choice < graph->activity_count) {
            add_arcs_into(b, choice, dag);
            continue;
        }
        int32_t from = b->delays[choice - graph->activity_count].from;
        if (from >= 0) add_arc(dag, b->layout->instruction_of[from], (int32_t)i);
    }
    dag->first_arc_into[n] = dag->arc_count;
    int32_t *order = dag->topological_order;
    for (size_t p = 0; p < graph->activity_count; p++) {
        int32_t i = graph->topological_order[p];
        for (size_t d = b->first_delay[i]; d < b->first_delay[i + 1]; d++)
            *order++ = delay_instruction(b, d);
        *order++ = b->layout->instruction_of[i];
    }
    for (size_t d = 0; d < b->deadline_count; d++)
        *order++ = b->problem->deadlines[d].instruction;
    return HARPE_OK;
}

/* ---- Choices --------------------------------------------------------------------------------- */

typedef struct numbered_option {
    harpe_graph_option option;
    int index;
    bool by_frequency; /* all options of the activity have a frequency */
} numbered_option;

/* Orders options like the points of a profile, highest frequency first. Without frequencies, the
 * fastest option is first. */
static int compare_options(const void *left, const void *right) {
    const numbered_option *a = left, *b = right;
    const harpe_graph_option *x = &a->option, *y = &b->option;
    if (a->by_frequency && x->frequency_mhz != y->frequency_mhz)
        return x->frequency_mhz > y->frequency_mhz ? -1 : 1;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    if (x->energy_j != y->energy_j) return x->energy_j < y->energy_j ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Fills in the sorted options of an activity. An activity of fixed time has one, with index -1. */
static void sort_options(const harpe_graph_activity *activity, double blocking_power_w,
                         numbered_option *out) {
    if (activity->option_count == 0) {
        double energy_j =
            activity->energy_j < 0 ? blocking_power_w * activity->time_s : activity->energy_j;
        out[0] = (numbered_option){{activity->time_s, energy_j, 0}, -1, false};
        return;
    }
    bool by_frequency = true;
    for (size_t k = 0; k < activity->option_count; k++)
        by_frequency = by_frequency && activity->options[k].frequency_mhz > 0;
    for (size_t k = 0; k < activity->option_count; k++)
        out[k] = (numbered_option){activity->options[k], (int)k, by_frequency};
    qsort(out, activity->option_count, sizeof *out, compare_options);
}

static size_t option_count_of(const harpe_graph_activity *activity) {
    return activity->option_count > 0 ? activity->option_count : 1;
}

static harpe_status fill_activity(builder *b, size_t activity, size_t first_point,
                                  numbered_option *sorted, harpe_profile_point *points,
                                  harpe_error *error) {
    harpe_problem *problem = b->problem;
    const harpe_graph_activity *it = &b->graph->activities[activity];
    int32_t resource = b->graph->resource_of[activity];
    int rank = resource < 0 ? problem->rank_count - 1 : resource;
    size_t count = option_count_of(it);
    sort_options(it, problem->blocking_power_w[rank], sorted);
    b->layout->first_point[activity] = first_point;
    for (size_t k = 0; k < count; k++) {
        points[k] = (harpe_profile_point){(int)(count - k), sorted[k].option.time_s,
                                          sorted[k].option.energy_j};
        b->layout->option_of[first_point + k] = sorted[k].index;
        b->layout->frequency_mhz[first_point + k] = sorted[k].option.frequency_mhz;
    }
    harpe_profile_entry entry = {
        .stage = -1, .instruction = it->name, .point_count = count, .points = points};
    return harpe_problem_fill_choice(problem, &entry, rank, problem->blocking_power_w[rank],
                                     b->options, &problem->choices[activity], error);
}

static harpe_status fill_delay(builder *b, size_t d, harpe_error *error) {
    harpe_problem *problem = b->problem;
    harpe_profile_point point = {1, b->delays[d].length_s, 0};
    const char *name = d >= b->delay_count ? "deadline" : b->delays[d].from < 0 ? "release" : "lag";
    harpe_profile_entry entry = {
        .stage = -1, .instruction = name, .point_count = 1, .points = &point};
    return harpe_problem_fill_choice(problem, &entry, problem->rank_count - 1, 0, b->options,
                                     &problem->choices[b->graph->activity_count + d], error);
}

static harpe_status fill_choices(builder *b, harpe_error *error) {
    const harpe_graph *graph = b->graph;
    size_t total = 0, most = 1;
    for (size_t i = 0; i < graph->activity_count; i++) {
        size_t count = option_count_of(&graph->activities[i]);
        total += count;
        most = count > most ? count : most;
    }
    harpe_arena *arena = &b->problem->arena;
    b->layout->option_of = harpe_arena_alloc(arena, total, sizeof *b->layout->option_of);
    b->layout->frequency_mhz = harpe_arena_alloc(arena, total, sizeof *b->layout->frequency_mhz);
    numbered_option *sorted = harpe_calloc(most, sizeof *sorted);
    harpe_profile_point *points = harpe_calloc(most, sizeof *points);
    harpe_status status = HARPE_OK;
    if (!b->layout->option_of || !b->layout->frequency_mhz || !sorted || !points)
        status = harpe_fail_memory(error);
    size_t first_point = 0;
    for (size_t i = 0; i < graph->activity_count && status == HARPE_OK; i++) {
        status = fill_activity(b, i, first_point, sorted, points, error);
        first_point += option_count_of(&graph->activities[i]);
        b->problem->choice_count++;
    }
    for (size_t d = 0; d < b->delay_count + b->deadline_count && status == HARPE_OK; d++) {
        status = fill_delay(b, d, error);
        b->problem->choice_count++;
    }
    free(sorted);
    free(points);
    return status;
}

/* ---- The problem ----------------------------------------------------------------------------- */

static harpe_status check_options(const harpe_problem_options *options, harpe_error *error) {
    if (!options->blocking_power_w && options->gpus_per_stage == 0 && !options->wait_powers)
        return HARPE_OK;
    return harpe_fail(
        error, HARPE_INVALID_ARGUMENT,
        "a graph has its own blocking powers: leave the blocking power, the wait powers and the "
        "number of GPUs per stage out of the options");
}

static harpe_status fill_problem(builder *b, harpe_error *error) {
    harpe_problem *problem = b->problem;
    size_t others = b->delay_count + b->deadline_count;
    size_t count = b->graph->activity_count + others;
    bool has_free = b->free_count + others > 0;
    problem->instruction_count = (int32_t)count;
    problem->rank_count = (int)b->graph->resource_count + has_free;
    harpe_status status = allocate(b, error);
    if (status != HARPE_OK) return status;
    number_instructions(b);
    list_deadlines(b);
    status = build_dag(b, error);
    if (status == HARPE_OK) status = fill_choices(b, error);
    if (status != HARPE_OK) return status;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        problem->maximum_frequency_mhz[i] =
            harpe_problem_choice(problem, i)->points[0].frequency_mhz;
    }
    return HARPE_OK;
}

harpe_status harpe_problem_of_graph(const harpe_graph *graph, const harpe_problem_options *options,
                                    harpe_problem **out, harpe_error *error) {
    static const harpe_problem_options defaults = {0};
    builder b = {.graph = graph, .options = options ? options : &defaults};
    harpe_status status = check_options(b.options, error);
    if (status == HARPE_OK) status = list_delays(&b, error);
    if (status == HARPE_OK) {
        uint64_t count = graph->activity_count + b.delay_count + b.deadline_count;
        status = harpe_problem_check_size(count, b.options->memory_limit_bytes, error);
    }
    if (status == HARPE_OK) status = harpe_problem_begin(b.options, &b.problem, error);
    if (status == HARPE_OK) status = fill_problem(&b, error);
    free(b.delays);
    free(b.first_delay);
    if (status != HARPE_OK) {
        harpe_problem_free(b.problem);
        return status;
    }
    *out = b.problem;
    return HARPE_OK;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Removes the rounding errors of sums, so that people can read the number. */
static double round_to_ps(double seconds) { return round(seconds * 1e12) / 1e12; }

static void fill_runs(const harpe_problem *problem, const harpe_iteration *run,
                      const double *latest_s, harpe_graph_run *runs) {
    const harpe_graph_layout *layout = problem->graph;
    double rounding_s = 1e-12 * run->plan.time_s; /* of the sums of times */
    for (size_t a = 0; a < layout->activity_count; a++) {
        int32_t i = layout->instruction_of[a];
        size_t point =
            layout->first_point[a] + (size_t)(run->points[i] - problem->choices[a].points);
        double slack_s = latest_s[i] - run->start_s[i];
        runs[a] = (harpe_graph_run){
            .option = layout->option_of[point],
            .frequency_mhz = layout->frequency_mhz[point],
            .start_s = round_to_ps(run->start_s[i]),
            .slack_s = slack_s > rounding_s ? round_to_ps(slack_s) : 0,
        };
    }
}

harpe_status harpe_graph_runs(const harpe_problem *problem, const int *frequency_mhz,
                              harpe_graph_run *runs, harpe_error *error) {
    if (!problem->graph) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the problem was made from a profile and a schedule, not from a graph");
    }
    size_t count = (size_t)problem->instruction_count;
    harpe_iteration run;
    double *latest_s = harpe_calloc(count, sizeof *latest_s);
    harpe_status status = harpe_iteration_run(&run, problem, frequency_mhz, error);
    if (status == HARPE_OK && !latest_s) status = harpe_fail_memory(error);
    if (status == HARPE_OK) {
        double time_s = run.plan.time_s;
        for (size_t i = 0; i < count; i++)
            latest_s[i] = time_s;
        for (size_t d = 0; d < problem->deadline_count; d++) {
            const harpe_deadline *deadline = &problem->deadlines[d];
            latest_s[deadline->instruction] = fmin(time_s, deadline->time_s);
        }
        harpe_evaluate_latest_starts(problem, run.points, latest_s);
        fill_runs(problem, &run, latest_s, runs);
    }
    harpe_iteration_clear(&run);
    free(latest_s);
    return status;
}

/* ---- A problem as a graph -------------------------------------------------------------------- */

/* Makes the graph of a pipeline, so that the graph can be written, changed and planned again. */

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
    harpe_status status = w.arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
    if (status == HARPE_OK) status = name_all(&w, error);
    if (status == HARPE_OK) status = fill_options(&w, error);
    if (status == HARPE_OK) status = fill_waits(&w, error);
    if (status == HARPE_OK)
        status = harpe_graph_new(w.resources, ranks, w.activities, count, out, error);
    harpe_arena_free(&w.arena);
    return status;
}
