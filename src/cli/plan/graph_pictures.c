/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the plans of a graph to boxes in lanes. An activity without a resource gets the first
 * free lane below the resources. Lags and releases have no box. */
#include "cli/plan/graph_pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "cli/plan/picture_parts.h"
#include "plan/evaluate.h"
#include "plan/graph.h"
#include "plan/problem.h"

/* Lanes for activities without a resource. If they need more, the boxes of the last lane overlap.
 */
#define FREE_LANES_MAX 24

/* A plan as it runs, by instruction. */
typedef struct running {
    const harpe_problem *problem;
    const harpe_profile_point **points;
    double *start_s;
    int32_t *box_of; /* -1: none */
} running;

static void running_clear(running *r) {
    free(r->points);
    free(r->start_s);
    free(r->box_of);
}

static harpe_status running_init(running *r, const harpe_problem *problem, const harpe_plan *plan,
                                 harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    *r = (running){.problem = problem};
    r->points = harpe_calloc(count, sizeof *r->points);
    r->start_s = harpe_calloc(count, sizeof *r->start_s);
    r->box_of = harpe_calloc(count, sizeof *r->box_of);
    if (!r->points || !r->start_s || !r->box_of) return harpe_fail_memory(error);
    harpe_status status =
        harpe_evaluate_find_points(problem, plan->frequency_mhz, r->points, error);
    if (status == HARPE_OK) (void)harpe_evaluate_points(problem, r->points, r->start_s);
    return status;
}

/* ---- Lanes ----------------------------------------------------------------------------------- */

static int compare_starts(const void *left, const void *right) {
    const harpe_pipeline_box *a = *(harpe_pipeline_box *const *)left;
    const harpe_pipeline_box *b = *(harpe_pipeline_box *const *)right;
    if (a->start_s != b->start_s) return a->start_s < b->start_s ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Puts the boxes without a resource, whose rank is `first_lane`, into lanes. Returns the number of
 * lanes that they need, or -1 when out of memory. */
static int place_free_boxes(harpe_pipeline_box *boxes, size_t count, int first_lane) {
    harpe_pipeline_box **free_boxes = harpe_calloc(count, sizeof(harpe_pipeline_box *));
    if (!free_boxes) return -1;
    size_t free_count = 0;
    for (size_t i = 0; i < count; i++)
        if (boxes[i].rank == first_lane) free_boxes[free_count++] = &boxes[i];
    qsort(free_boxes, free_count, sizeof(harpe_pipeline_box *), compare_starts);
    double end_s[FREE_LANES_MAX];
    int lanes = 0;
    for (size_t i = 0; i < free_count; i++) {
        harpe_pipeline_box *box = free_boxes[i];
        int lane = 0;
        while (lane < lanes && end_s[lane] > box->start_s * (1 + 1e-12))
            lane++;
        if (lane == FREE_LANES_MAX) lane--;
        if (lane == lanes) lanes++;
        box->rank = first_lane + lane;
        end_s[lane] = box->start_s + box->duration_s;
    }
    free(free_boxes);
    return lanes;
}

/* Returns the frequency of a box, or 0 if its option has none. */
static int frequency_of(const harpe_problem *problem, size_t activity,
                        const harpe_profile_point *point) {
    size_t k = (size_t)(point - problem->choices[activity].points);
    return (int)lround(problem->graph->frequency_mhz[problem->graph->first_point[activity] + k]);
}

/* Makes a box for each activity that takes time. */
static size_t fill_boxes(running *r, int resources, harpe_pipeline_box *boxes) {
    const harpe_problem *problem = r->problem;
    size_t count = 0;
    for (int32_t i = 0; i < problem->instruction_count; i++)
        r->box_of[i] = -1;
    for (size_t a = 0; a < problem->graph->activity_count; a++) {
        int32_t i = problem->graph->instruction_of[a];
        const harpe_profile_point *point = r->points[i];
        if (!(point->time_s > 0)) continue;
        int rank = problem->choices[a].list.rank;
        r->box_of[i] = (int32_t)count;
        boxes[count++] = (harpe_pipeline_box){
            .rank = rank < resources ? rank : resources,
            .kind = HARPE_BOX_STANDALONE,
            .microbatch = -1,
            .name = problem->choices[a].list.instruction,
            .frequency_mhz = frequency_of(problem, a, point),
            .start_s = r->start_s[i],
            .duration_s = point->time_s,
            .power_w = point->energy_j / point->time_s,
        };
    }
    return count;
}

/* ---- Critical path --------------------------------------------------------------------------- */

/* Returns an instruction that ends when `i` starts and for which `i` waits, or -1. */
static int32_t tight_predecessor(const running *r, int32_t i, double tolerance_s) {
    const harpe_dag *dag = &r->problem->dag;
    for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
        int32_t from = dag->arc_from[a];
        if (r->start_s[from] + r->points[from]->time_s >= r->start_s[i] - tolerance_s) return from;
    }
    return -1;
}

static harpe_status mark_critical(const running *r, harpe_arena *arena, double time_s,
                                  harpe_pipeline_panel *panel, harpe_error *error) {
    double tolerance_s = 1e-12 * time_s;
    size_t *path = harpe_arena_alloc(arena, panel->box_count, sizeof *path);
    if (!path) return harpe_fail_memory(error);
    int32_t at = 0;
    while (r->start_s[at] + r->points[at]->time_s < time_s - tolerance_s)
        at++;
    size_t count = 0;
    for (; at >= 0; at = tight_predecessor(r, at, tolerance_s))
        if (r->box_of[at] >= 0) path[count++] = (size_t)r->box_of[at];
    for (size_t i = 0; i < count / 2; i++) {
        size_t swapped = path[i];
        path[i] = path[count - 1 - i];
        path[count - 1 - i] = swapped;
    }
    panel->critical = path;
    panel->critical_count = count;
    return HARPE_OK;
}

/* ---- Panels ---------------------------------------------------------------------------------- */

static harpe_status collect_panel(const harpe_problem_input *input, const harpe_plan *plan,
                                  const char *title, harpe_arena *arena,
                                  harpe_pipeline_panel *panel, int *lane_count,
                                  harpe_error *error) {
    int resources = (int)harpe_graph_resource_count(input->graph);
    size_t activities = harpe_graph_activity_count(input->graph);
    harpe_pipeline_box *boxes = harpe_arena_alloc(arena, activities, sizeof *boxes);
    char *kept_title = harpe_arena_strdup(arena, title, strlen(title));
    char *detail = harpe_picture_time_and_energy(arena, plan);
    if (!boxes || !kept_title || !detail) return harpe_fail_memory(error);
    running r;
    harpe_status status = running_init(&r, input->problem, plan, error);
    if (status == HARPE_OK) {
        size_t count = fill_boxes(&r, resources, boxes);
        *panel = (harpe_pipeline_panel){.title = kept_title,
                                        .detail = detail,
                                        .boxes = boxes,
                                        .box_count = count,
                                        .time_s = plan->time_s};
        status = mark_critical(&r, arena, plan->time_s, panel, error);
        int lanes = place_free_boxes(boxes, count, resources);
        if (status == HARPE_OK && lanes < 0) status = harpe_fail_memory(error);
        if (resources + lanes > *lane_count) *lane_count = resources + lanes;
    }
    running_clear(&r);
    return status;
}

static harpe_status name_lanes(const harpe_graph *graph, harpe_arena *arena,
                               harpe_pipeline_picture *picture, harpe_error *error) {
    const char **names = harpe_arena_alloc(arena, (size_t)picture->rank_count, sizeof *names);
    if (!names) return harpe_fail_memory(error);
    for (int lane = 0; lane < picture->rank_count; lane++) {
        const harpe_graph_resource *resource = harpe_graph_resource_at(graph, (size_t)lane);
        names[lane] = resource ? resource->name : "other";
    }
    picture->lane_names = names;
    return HARPE_OK;
}

/* Adds a picture with the reference above and a plan below. */
static harpe_status collect_plan(const harpe_problem_input *input, const harpe_plan_result *result,
                                 harpe_key_row key, const char *name, const char *what,
                                 harpe_pictures *pictures, harpe_error *error) {
    harpe_pipeline_picture picture = {
        .title = "One iteration", .blocking_power_w = -1, .panel_count = 1};
    harpe_status status =
        collect_panel(input, &result->all_maximum, "Every activity at its highest frequency",
                      &pictures->arena, &picture.panels[0], &picture.rank_count, error);
    if (status == HARPE_OK && result->row_count > 0) {
        const harpe_frontier_row *row = &result->key_rows[key].row;
        char title[64];
        snprintf(title, sizeof title, "Plan %d: %s", row->plan, what);
        picture.panel_count = 2;
        status = collect_panel(input, harpe_plan_result_plan(result, row), title, &pictures->arena,
                               &picture.panels[1], &picture.rank_count, error);
    }
    if (status == HARPE_OK) status = name_lanes(input->graph, &pictures->arena, &picture, error);
    if (status != HARPE_OK) return status;
    pictures->pipeline_names[pictures->pipeline_count] = name;
    pictures->pipelines[pictures->pipeline_count++] = picture;
    return HARPE_OK;
}

/* ---- Cost models ----------------------------------------------------------------------------- */

static bool same_panel(const harpe_cost_panel *a, const harpe_cost_panel *b) {
    if (a->point_count != b->point_count) return false;
    for (size_t i = 0; i < a->point_count; i++) {
        const harpe_cost_point *p = &a->points[i], *q = &b->points[i];
        if (p->frequency_mhz != q->frequency_mhz || p->time_s != q->time_s ||
            p->effective_energy_j != q->effective_energy_j)
            return false;
    }
    return true;
}

static bool has_panel(const harpe_cost_model_picture *picture, const harpe_cost_panel *panel) {
    for (size_t i = 0; i < picture->panel_count; i++)
        if (same_panel(&picture->panels[i], panel)) return true;
    return false;
}

/* Shows each different set of options of a rank once, with the name of the first activity. */
static harpe_status collect_resource(const harpe_problem *problem, int rank, harpe_arena *arena,
                                     harpe_cost_model_picture *picture, harpe_error *error) {
    harpe_cost_panel *panels =
        harpe_arena_alloc(arena, HARPE_COST_MODEL_PANELS_MAX, sizeof *panels);
    if (!panels) return harpe_fail_memory(error);
    picture->panels = panels;
    for (size_t a = 0; a < problem->graph->activity_count; a++) {
        const harpe_choice *choice = &problem->choices[a];
        if (choice->list.rank != rank || choice->point_count < 2) continue;
        if (picture->panel_count == HARPE_COST_MODEL_PANELS_MAX) return HARPE_OK;
        harpe_cost_panel *panel = &panels[picture->panel_count];
        harpe_status status = harpe_picture_fill_cost_panel(arena, choice, panel, error);
        if (status != HARPE_OK) return status;
        harpe_cost_point *points = (harpe_cost_point *)panel->points;
        for (size_t k = 0; k < choice->point_count; k++)
            points[k].frequency_mhz = frequency_of(problem, a, &choice->points[k]);
        picture->panel_count += !has_panel(picture, panel);
    }
    return HARPE_OK;
}

static harpe_status collect_cost_models(const harpe_problem_input *input, harpe_pictures *pictures,
                                        harpe_error *error) {
    const harpe_problem *problem = input->problem;
    for (int rank = 0; rank < problem->rank_count; rank++) {
        size_t count = pictures->cost_model_count;
        if (count == HARPE_COST_MODEL_PICTURES_MAX) return HARPE_OK;
        const harpe_graph_resource *resource = harpe_graph_resource_at(input->graph, (size_t)rank);
        harpe_cost_model_picture picture = {
            .title = resource ? resource->name : "Activities without a resource",
            .curve_label = harpe_picture_curve_label(input->cost_model),
            .blocking_power_w = problem->blocking_power_w[rank],
        };
        harpe_status status = collect_resource(problem, rank, &pictures->arena, &picture, error);
        if (status != HARPE_OK) return status;
        if (picture.panel_count == 0) continue;
        pictures->cost_models[count] = picture;
        pictures->cost_model_stages[count] = rank;
        pictures->cost_model_count++;
    }
    return HARPE_OK;
}

/* ---- All ------------------------------------------------------------------------------------- */

harpe_status harpe_graph_pictures_collect(const harpe_problem_input *input,
                                          const harpe_plan_result *result, harpe_pictures *pictures,
                                          harpe_error *error) {
    harpe_status status = harpe_pictures_collect_frontier(input, result, pictures, error);
    if (status != HARPE_OK) return status;
    if (result->row_count == 0) {
        status = collect_plan(input, result, HARPE_KEY_ALL_MAXIMUM, "pipeline_all_maximum", "",
                              pictures, error);
    } else {
        status = collect_plan(input, result, HARPE_KEY_FASTEST, "pipeline_fastest", "fastest",
                              pictures, error);
        if (status == HARPE_OK) {
            status = collect_plan(input, result, HARPE_KEY_MINIMUM_ENERGY,
                                  "pipeline_minimum_energy", "minimum energy", pictures, error);
        }
    }
    return status == HARPE_OK ? collect_cost_models(input, pictures, error) : status;
}
