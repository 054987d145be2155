/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which pictures a plan directory has, and converts problem and plans to the plain arrays
 * that src/draw uses. src/draw decides how the pictures look. */
#include "cli/plan/plan_pictures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/plan/picture_parts.h"
#include "cli/plan/plan_timeline.h"
#include "plan/problem.h"
#include "plan/schedule.h"

/* Copies a text to the arena. Returns NULL when out of memory. */
static char *keep_text(harpe_arena *arena, const char *text) {
    return harpe_arena_strdup(arena, text, strlen(text));
}

/* ---- Frontier -------------------------------------------------------------------------------- */

static const char *file_name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Returns the size of the problem in words, or NULL when out of memory. */
static char *make_subtitle(const harpe_problem_input *input, harpe_arena *arena) {
    harpe_text line = {0};
    if (input->graph) {
        harpe_text_printf(&line, "%s: %zu activities, %zu resources",
                          file_name_of(input->graph_path), harpe_graph_activity_count(input->graph),
                          harpe_graph_resource_count(input->graph));
    } else {
        int stages = harpe_schedule_stage_count(input->schedule);
        int microbatches = harpe_schedule_microbatch_count(input->schedule);
        harpe_text_printf(&line, "%s: %d stage%s, %d microbatch%s, schedule %s",
                          file_name_of(input->profile_path), stages, stages == 1 ? "" : "s",
                          microbatches, microbatches == 1 ? "" : "es",
                          harpe_schedule_name(input->schedule));
    }
    char *subtitle = line.failed ? NULL : keep_text(arena, line.data);
    harpe_text_free(&line);
    return subtitle;
}

/* Collects the plans with one clock up to the time of the slowest plan. */
static harpe_status collect_one_clock(const harpe_plan_result *result, harpe_pictures *pictures,
                                      harpe_error *error) {
    const harpe_one_clock_rows *of = &result->one_clock;
    double slowest_s = result->all_maximum.time_s;
    for (size_t i = 0; i < result->row_count; i++)
        slowest_s = fmax(slowest_s, result->rows[i].time_s);
    harpe_frontier_picture *frontier = &pictures->frontier;
    harpe_point *points = harpe_arena_alloc(&pictures->arena, of->count, sizeof *points);
    pictures->one_clock =
        harpe_arena_alloc(&pictures->arena, of->count, sizeof *pictures->one_clock);
    if (!points || !pictures->one_clock) return harpe_fail_memory(error);
    for (size_t i = 0; i < of->count && of->rows[i].time_s <= slowest_s; i++) {
        const harpe_frontier_row *row = &of->rows[i];
        pictures->one_clock[i] =
            (harpe_report_point){row->one_clock_mhz, row->time_s, row->energy_j};
        points[i] = (harpe_point){row->time_s, row->energy_j};
        frontier->one_clock_count = i + 1;
    }
    frontier->one_clock = points;
    return HARPE_OK;
}

harpe_status harpe_pictures_collect_frontier(const harpe_problem_input *input,
                                             const harpe_plan_result *result,
                                             harpe_pictures *pictures, harpe_error *error) {
    size_t bound_count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(result->frontier, &bound_count);
    harpe_arena *arena = &pictures->arena;
    harpe_point *bound = harpe_arena_alloc(arena, bound_count, sizeof *bound);
    harpe_point *plans = harpe_arena_alloc(arena, result->row_count, sizeof *plans);
    char *subtitle = make_subtitle(input, arena);
    if (!bound || !plans || !subtitle) return harpe_fail_memory(error);
    for (size_t i = 0; i < bound_count; i++)
        bound[i] = (harpe_point){vertices[i].time_s, vertices[i].lower_bound_j};
    for (size_t i = 0; i < result->row_count; i++)
        plans[i] = (harpe_point){result->rows[i].time_s, result->rows[i].energy_j};
    pictures->frontier = (harpe_frontier_picture){
        .title = "Time-energy frontier",
        .subtitle = subtitle,
        .bound = bound,
        .bound_count = bound_count,
        .plans = plans,
        .plan_count = result->row_count,
        .has_reference = true,
        .reference = {result->all_maximum.time_s, result->all_maximum.energy_j},
    };
    return collect_one_clock(result, pictures, error);
}

/* ---- Pipelines ------------------------------------------------------------------------------- */

static const harpe_profile_point *point_at(const harpe_choice *choice, int frequency_mhz) {
    for (size_t i = 0; i < choice->point_count; i++)
        if (choice->points[i].frequency_mhz == frequency_mhz) return &choice->points[i];
    return &choice->points[0];
}

static harpe_box_kind kind_of(const harpe_problem *problem, int32_t instruction) {
    const char *name = harpe_problem_choice(problem, instruction)->list.instruction;
    if (strcmp(name, HARPE_OVERLAPPED_NAME) == 0) return HARPE_BOX_OVERLAPPED;
    return (harpe_box_kind)problem->action_of[instruction].operation;
}

static void fill_boxes(const harpe_problem *problem, const harpe_plan *plan, const double *start_s,
                       harpe_pipeline_box *boxes) {
    for (int rank = 0; rank < problem->rank_count; rank++) {
        for (size_t i = problem->rank_offset[rank]; i < problem->rank_offset[rank + 1]; i++) {
            int32_t instruction = (int32_t)i;
            const harpe_profile_point *point =
                point_at(harpe_problem_choice(problem, instruction), plan->frequency_mhz[i]);
            boxes[i] = (harpe_pipeline_box){
                .rank = rank,
                .kind = kind_of(problem, instruction),
                .microbatch = problem->action_of[i].microbatch,
                .frequency_mhz = point->frequency_mhz,
                .start_s = start_s[i],
                .duration_s = point->time_s,
                .power_w = point->energy_j / (point->time_s * problem->gpu_count[rank]),
            };
        }
    }
}

/* Marks a critical path, stored in the arena. */
static harpe_status mark_critical(harpe_arena *arena, harpe_pipeline_panel *panel,
                                  harpe_error *error) {
    size_t *path = NULL;
    size_t count = 0;
    harpe_status status =
        harpe_pipeline_critical_path(panel->boxes, panel->box_count, &path, &count, error);
    if (status != HARPE_OK) return status;
    size_t *kept = harpe_arena_alloc(arena, count, sizeof *kept);
    if (kept) {
        memcpy(kept, path, count * sizeof *kept);
        panel->critical = kept;
        panel->critical_count = count;
    }
    free(path);
    return kept ? HARPE_OK : harpe_fail_memory(error);
}

/* Returns the instruction for which another one waits longest, -1 if there is none. */
static int32_t waited_for(const harpe_problem *problem, const harpe_pipeline_box *boxes,
                          int32_t instruction) {
    const harpe_dag *dag = &problem->dag;
    int32_t found = -1;
    double latest_s = 0;
    for (int32_t a = dag->first_arc_into[instruction]; a < dag->first_arc_into[instruction + 1];
         a++) {
        int32_t from = dag->arc_from[a];
        double ready_s = 0;
        if (harpe_problem_is_delay(problem, from)) {
            ready_s = harpe_problem_choice(problem, from)->points[0].time_s;
            from = dag->arc_from[dag->first_arc_into[from]];
        }
        ready_s += boxes[from].start_s + boxes[from].duration_s;
        if (found >= 0 && ready_s <= latest_s) continue;
        found = from;
        latest_s = ready_s;
    }
    return found;
}

/* The same for a pipeline with delays, whose instructions start later than others end. */
static harpe_status mark_delayed(const harpe_problem *problem, harpe_arena *arena,
                                 harpe_pipeline_panel *panel, harpe_error *error) {
    size_t count = panel->box_count, next = count;
    size_t *path = harpe_arena_alloc(arena, count, sizeof *path);
    if (!path) return harpe_fail_memory(error);
    int32_t last = 0;
    for (size_t i = 0; i < count; i++) {
        const harpe_pipeline_box *box = &panel->boxes[i], *until = &panel->boxes[last];
        if (box->start_s + box->duration_s > until->start_s + until->duration_s) last = (int32_t)i;
    }
    for (; last >= 0; last = waited_for(problem, panel->boxes, last))
        path[--next] = (size_t)last;
    panel->critical = path + next;
    panel->critical_count = count - next;
    return HARPE_OK;
}

static harpe_status collect_panel(const harpe_problem *problem, const harpe_plan *plan,
                                  const char *title, harpe_arena *arena,
                                  harpe_pipeline_panel *panel, harpe_error *error) {
    size_t count = harpe_problem_instruction_count(problem);
    double *start_s = harpe_arena_alloc(arena, count, sizeof *start_s);
    harpe_pipeline_box *boxes = harpe_arena_alloc(arena, count, sizeof *boxes);
    char *kept_title = keep_text(arena, title);
    char *detail = harpe_picture_time_and_energy(arena, plan);
    if (!start_s || !boxes || !kept_title || !detail) return harpe_fail_memory(error);
    harpe_plan evaluated;
    harpe_status status =
        harpe_plan_evaluate(problem, plan->frequency_mhz, &evaluated, start_s, error);
    if (status != HARPE_OK) return status;
    fill_boxes(problem, plan, start_s, boxes);
    *panel = (harpe_pipeline_panel){
        .title = kept_title,
        .detail = detail,
        .boxes = boxes,
        .box_count = count,
        .time_s = plan->time_s,
    };
    return problem->delay_count > 0 ? mark_delayed(problem, arena, panel, error)
                                    : mark_critical(arena, panel, error);
}

/* Adds a picture of two iterations on one time axis: above with every instruction at its highest
 * frequency, below with a plan. */
static harpe_status collect_plan(const harpe_problem_input *input, const harpe_plan_result *result,
                                 harpe_key_row key, const char *name, const char *what,
                                 const harpe_pipeline_picture *maximum, harpe_pictures *pictures,
                                 harpe_error *error) {
    const harpe_frontier_row *row = &result->key_rows[key].row;
    char title[64];
    snprintf(title, sizeof title, "Plan %d: %s", row->plan, what);
    harpe_pipeline_picture picture = *maximum;
    picture.panel_count = 2;
    harpe_status status = collect_panel(input->problem, harpe_plan_result_plan(result, row), title,
                                        &pictures->arena, &picture.panels[1], error);
    if (status == HARPE_OK) {
        pictures->pipeline_names[pictures->pipeline_count] = name;
        pictures->pipelines[pictures->pipeline_count++] = picture;
    }
    return status;
}

static harpe_status collect_pipelines(const harpe_problem_input *input,
                                      const harpe_plan_result *result, harpe_pictures *pictures,
                                      harpe_error *error) {
    harpe_pipeline_picture maximum = {
        .title = "One iteration",
        .rank_count = harpe_problem_rank_count(input->problem),
        .blocking_power_w = input->blocking_power_count == 1 && !input->wait_powers
                                ? input->blocking_power_w[0]
                                : -1,
        .panel_count = 1,
    };
    harpe_status status = collect_panel(input->problem, &result->all_maximum,
                                        "Every instruction at its highest frequency",
                                        &pictures->arena, &maximum.panels[0], error);
    if (status != HARPE_OK) return status;
    if (result->row_count == 0) {
        pictures->pipelines[0] = maximum;
        pictures->pipeline_names[0] = "pipeline_all_maximum";
        pictures->pipeline_count = 1;
        return HARPE_OK;
    }
    status = collect_plan(input, result, HARPE_KEY_FASTEST, "pipeline_fastest", "fastest", &maximum,
                          pictures, error);
    if (status == HARPE_OK) {
        status = collect_plan(input, result, HARPE_KEY_MINIMUM_ENERGY, "pipeline_minimum_energy",
                              "minimum energy", &maximum, pictures, error);
    }
    return status;
}

/* ---- Cost models ----------------------------------------------------------------------------- */

static harpe_status collect_stage(const harpe_problem *problem, int stage, harpe_arena *arena,
                                  harpe_cost_model_picture *picture, harpe_error *error) {
    harpe_cost_panel *panels =
        harpe_arena_alloc(arena, HARPE_COST_MODEL_PANELS_MAX, sizeof *panels);
    if (!panels) return harpe_fail_memory(error);
    picture->panels = panels;
    for (size_t i = 0; i < problem->choice_count; i++) {
        const harpe_choice *choice = &problem->choices[i];
        if (choice->list.stage != stage || picture->panel_count == HARPE_COST_MODEL_PANELS_MAX)
            continue;
        picture->blocking_power_w = choice->blocking_power_w;
        harpe_status status =
            harpe_picture_fill_cost_panel(arena, choice, &panels[picture->panel_count], error);
        if (status != HARPE_OK) return status;
        picture->panel_count++;
    }
    return HARPE_OK;
}

static bool same_panel(const harpe_cost_panel *a, const harpe_cost_panel *b) {
    if (strcmp(a->title, b->title) != 0 || a->point_count != b->point_count) return false;
    for (size_t i = 0; i < a->point_count; i++) {
        const harpe_cost_point *p = &a->points[i];
        const harpe_cost_point *q = &b->points[i];
        if (p->frequency_mhz != q->frequency_mhz || p->time_s != q->time_s ||
            p->effective_energy_j != q->effective_energy_j)
            return false;
    }
    return true;
}

static bool same_cost_model(const harpe_cost_model_picture *a, const harpe_cost_model_picture *b) {
    bool same = a->panel_count == b->panel_count;
    for (size_t i = 0; same && i < a->panel_count; i++)
        same = same_panel(&a->panels[i], &b->panels[i]);
    return same;
}

static harpe_status name_cost_model(harpe_pictures *pictures, size_t index, int last_stage,
                                    harpe_error *error) {
    int first_stage = pictures->cost_model_stages[index];
    char title[64];
    if (first_stage == last_stage)
        snprintf(title, sizeof title, "Stage %d", first_stage);
    else
        snprintf(title, sizeof title, "Stages %d to %d", first_stage, last_stage);
    pictures->cost_models[index].title = keep_text(&pictures->arena, title);
    return pictures->cost_models[index].title ? HARPE_OK : harpe_fail_memory(error);
}

/* Makes one picture for each group of neighbouring stages that are equal. */
static harpe_status collect_cost_models(const harpe_problem_input *input, harpe_pictures *pictures,
                                        harpe_error *error) {
    const char *label = harpe_picture_curve_label(input->cost_model);
    int stages = harpe_schedule_stage_count(input->schedule);
    for (int stage = 0; stage < stages; stage++) {
        harpe_cost_model_picture picture = {.curve_label = label};
        harpe_status status =
            collect_stage(input->problem, stage, &pictures->arena, &picture, error);
        if (status != HARPE_OK) return status;
        size_t count = pictures->cost_model_count;
        bool repeats = count > 0 && same_cost_model(&pictures->cost_models[count - 1], &picture);
        if (!repeats && count == HARPE_COST_MODEL_PICTURES_MAX) return HARPE_OK;
        if (!repeats) {
            pictures->cost_models[count] = picture;
            pictures->cost_model_stages[count] = stage;
            pictures->cost_model_count++;
        }
        status = name_cost_model(pictures, pictures->cost_model_count - 1, stage, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

/* ---- All ------------------------------------------------------------------------------------- */

harpe_status harpe_pictures_collect(const harpe_problem_input *input,
                                    const harpe_plan_result *result, harpe_pictures *pictures,
                                    harpe_error *error) {
    harpe_status status = harpe_pictures_collect_frontier(input, result, pictures, error);
    if (status == HARPE_OK) status = collect_pipelines(input, result, pictures, error);
    if (status == HARPE_OK) {
        status = harpe_pictures_collect_timeline(input->problem, &pictures->arena,
                                                 &pictures->timeline, error);
    }
    if (status == HARPE_OK) status = collect_cost_models(input, pictures, error);
    return status;
}

void harpe_pictures_free(harpe_pictures *pictures) {
    harpe_arena_free(&pictures->arena);
    *pictures = (harpe_pictures){0};
}
