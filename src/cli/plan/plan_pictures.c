/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the pictures of a plan directory, and writes them and report.html, which contains them.
 * src/draw draws them. In the picture of a graph, each resource has a lane. Activities without a
 * resource are in lanes below those of the resources. Lags and releases are not drawn. */
#include <math.h>

#include <harpe/version.h>

#include "cli/plan/plan_internal.h"
#include "draw/draw.h"
#include "plan/graphs.h"
#include "plan/plans.h"
#include "plan/problem.h"
#include "plan/schedule.h"

enum {
    PIPELINES_MAX = 2,
    /* Of a deep pipeline, only the first stages have a picture. */
    COST_MODELS_MAX = 16,
    COST_PANELS_MAX = 24,
    /* Lanes for activities without a resource. If these activities need more lanes, boxes overlap
     * in the last lane. */
    FREE_LANES_MAX = 24,
    TITLE_SIZE = 80,
};

/* All pointers point into the arena, the problem or the result. */
typedef struct pictures {
    harpe_arena arena;
    const harpe_problem_input *input;
    const harpe_problem *problem;
    const harpe_plan_result *result;
    harpe_frontier_picture frontier;
    size_t pipeline_count;
    harpe_pipeline_picture pipelines[PIPELINES_MAX];
    const char *pipeline_names[PIPELINES_MAX]; /* of their files, without ".svg" */
    size_t cost_model_count;
    harpe_cost_model_picture cost_models[COST_MODELS_MAX];
    int cost_model_groups[COST_MODELS_MAX]; /* the first stage, or the resource, of each picture */
} pictures;

/* ---- Frontier -------------------------------------------------------------------------------- */

static harpe_status collect_frontier(pictures *p, harpe_error *error) {
    const harpe_plan_result *result = p->result;
    double slowest_s = result->all_maximum.time_s;
    for (size_t i = 0; i < result->row_count; i++)
        slowest_s = fmax(slowest_s, result->rows[i].time_s);
    size_t one_clock_count = 0; /* rows up to the time of the slowest plan */
    while (one_clock_count < result->one_clock.count &&
           result->one_clock.rows[one_clock_count].time_s <= slowest_s)
        one_clock_count++;
    harpe_text line = {0};
    harpe_problem_input_describe(p->input, &line);
    p->frontier = (harpe_frontier_picture){
        .title = "Time-energy frontier",
        .subtitle = line.failed ? NULL : harpe_arena_strdup(&p->arena, line.data, line.length),
        .plans = result->rows,
        .plan_count = result->row_count,
        .reference = {.time_s = result->all_maximum.time_s,
                      .energy_j = result->all_maximum.energy_j},
        .one_clock = result->one_clock.rows,
        .one_clock_count = one_clock_count,
    };
    harpe_text_free(&line);
    p->frontier.bound = harpe_frontier_vertices(result->frontier, &p->frontier.bound_count);
    return p->frontier.subtitle ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- Pipelines ------------------------------------------------------------------------------- */

/* A running plan. The arrays have an element for each instruction. */
typedef struct running {
    const harpe_problem *problem;
    const harpe_profile_point **points;
    double *start_s;
    int32_t *box_of; /* -1: none */
} running;

static harpe_box_kind kind_of(const harpe_problem *problem, int32_t instruction) {
    const char *name = harpe_problem_choice(problem, instruction)->list.instruction;
    if (strcmp(name, HARPE_OVERLAPPED_NAME) == 0) return HARPE_BOX_OVERLAPPED;
    return (harpe_box_kind)problem->action_of[instruction].operation;
}

/* Makes a box for each instruction or activity that takes time, and returns their number. */
static size_t fill_boxes(running *r, harpe_pipeline_box *boxes) {
    const harpe_problem *problem = r->problem;
    const harpe_graph_layout *graph = problem->graph;
    size_t count = 0;
    for (int32_t i = 0; i < problem->instruction_count; i++)
        r->box_of[i] = -1;
    for (size_t k = 0;
         k < (graph ? graph->activity_count : harpe_problem_instruction_count(problem)); k++) {
        int32_t i = graph ? graph->instruction_of[k] : (int32_t)k;
        const harpe_choice *choice = harpe_problem_choice(problem, i);
        const harpe_profile_point *point = r->points[i];
        if (!(point->time_s > 0)) continue;
        harpe_pipeline_box *box = &boxes[count];
        r->box_of[i] = (int32_t)count++;
        *box = (harpe_pipeline_box){.rank = choice->list.rank,
                                    .start_s = r->start_s[i],
                                    .duration_s = point->time_s,
                                    .frequency_mhz = point->frequency_mhz,
                                    .power_w = point->energy_j / point->time_s};
        if (graph) {
            size_t at = graph->first_point[k] + (size_t)(point - choice->points);
            box->kind = HARPE_BOX_STANDALONE;
            box->microbatch = -1;
            box->name = choice->list.instruction;
            box->frequency_mhz = (int)lround(graph->frequency_mhz[at]);
        } else {
            box->kind = kind_of(problem, i);
            box->microbatch = problem->action_of[i].microbatch;
            box->power_w /= problem->gpu_count[box->rank];
        }
    }
    return count;
}

static int compare_starts(const void *left, const void *right) {
    const harpe_pipeline_box *a = *(harpe_pipeline_box *const *)left;
    const harpe_pipeline_box *b = *(harpe_pipeline_box *const *)right;
    if (a->start_s != b->start_s) return a->start_s < b->start_s ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Puts the boxes without a resource, whose rank is at least `first_lane`, into lanes. Returns the
 * number of lanes that they need, or -1 when out of memory. */
static int place_free_boxes(harpe_pipeline_box *boxes, size_t count, int first_lane) {
    harpe_pipeline_box **free_boxes = harpe_calloc(count, sizeof(harpe_pipeline_box *));
    if (!free_boxes) return -1;
    size_t free_count = 0;
    for (size_t i = 0; i < count; i++)
        if (boxes[i].rank >= first_lane) free_boxes[free_count++] = &boxes[i];
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

/* Returns an instruction that ends when `i` starts and for which `i` waits, or -1. */
static int32_t tight_predecessor(const running *r, int32_t i, double tolerance_s) {
    const harpe_dag *dag = &r->problem->dag;
    for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
        int32_t from = dag->arc_from[a];
        if (r->start_s[from] + r->points[from]->time_s >= r->start_s[i] - tolerance_s) return from;
    }
    return -1;
}

/* Stores the boxes of one critical path in the panel. */
static harpe_status mark_critical(const running *r, harpe_arena *arena, double time_s,
                                  harpe_pipeline_panel *panel, harpe_error *error) {
    double tolerance_s = 1e-12 * time_s;
    size_t next = panel->box_count;
    size_t *path = harpe_arena_alloc(arena, panel->box_count, sizeof *path);
    if (!path) return harpe_fail_memory(error);
    int32_t at = 0;
    while (r->start_s[at] + r->points[at]->time_s < time_s - tolerance_s)
        at++;
    for (; at >= 0; at = tight_predecessor(r, at, tolerance_s))
        if (r->box_of[at] >= 0) path[--next] = (size_t)r->box_of[at];
    panel->critical = path + next;
    panel->critical_count = panel->box_count - next;
    return HARPE_OK;
}

/* Fills in the boxes of a panel and its critical path. If the panel needs more than `*lane_count`
 * lanes, sets `*lane_count` to their number. */
static harpe_status run_plan(running *r, pictures *p, const harpe_plan *plan,
                             harpe_pipeline_panel *panel, int *lane_count, harpe_error *error) {
    harpe_pipeline_box *boxes =
        harpe_arena_alloc(&p->arena, (size_t)p->problem->instruction_count, sizeof *boxes);
    if (!boxes || !r->points || !r->start_s || !r->box_of) return harpe_fail_memory(error);
    harpe_status status =
        harpe_evaluate_find_points(p->problem, plan->frequency_mhz, r->points, error);
    if (status != HARPE_OK) return status;
    harpe_plan evaluated = harpe_evaluate_points(p->problem, r->points, r->start_s);
    panel->boxes = boxes;
    panel->box_count = fill_boxes(r, boxes);
    int lanes = p->problem->rank_count;
    if (p->problem->graph) {
        int resources = (int)harpe_graph_resource_count(p->input->graph);
        int free_lanes = place_free_boxes(boxes, panel->box_count, resources);
        if (free_lanes < 0) return harpe_fail_memory(error);
        lanes = resources + free_lanes;
    }
    if (lanes > *lane_count) *lane_count = lanes;
    return mark_critical(r, &p->arena, evaluated.time_s, panel, error);
}

static harpe_status collect_panel(pictures *p, const harpe_plan *plan, const char *title,
                                  harpe_pipeline_panel *panel, int *lane_count,
                                  harpe_error *error) {
    char detail[2 * HARPE_NUMBER_SIZE + 4];
    int length = snprintf(detail, sizeof detail, "%s, %s", HARPE_TIME(plan->time_s),
                          HARPE_ENERGY(plan->energy_j));
    *panel = (harpe_pipeline_panel){
        .title = harpe_arena_strdup(&p->arena, title, strlen(title)),
        .detail = harpe_arena_strdup(&p->arena, detail, (size_t)length),
        .time_s = plan->time_s,
    };
    if (!panel->title || !panel->detail) return harpe_fail_memory(error);
    size_t count = (size_t)p->problem->instruction_count;
    running r = {.problem = p->problem,
                 .points = harpe_arena_alloc(&p->arena, count, sizeof *r.points),
                 .start_s = harpe_arena_alloc(&p->arena, count, sizeof *r.start_s),
                 .box_of = harpe_arena_alloc(&p->arena, count, sizeof *r.box_of)};
    return run_plan(&r, p, plan, panel, lane_count, error);
}

/* Names the lanes of a graph. */
static harpe_status name_lanes(pictures *p, harpe_pipeline_picture *picture, harpe_error *error) {
    const char **names = harpe_arena_alloc(&p->arena, (size_t)picture->rank_count, sizeof *names);
    if (!names) return harpe_fail_memory(error);
    for (int lane = 0; lane < picture->rank_count; lane++) {
        const harpe_graph_resource *resource =
            harpe_graph_resource_at(p->input->graph, (size_t)lane);
        names[lane] = resource ? resource->name : "other";
    }
    picture->lane_names = names;
    return HARPE_OK;
}

/* Adds a picture of two iterations on one time axis: the upper one with the highest clocks, the
 * lower one with a plan. Without plans, the picture has only the upper one. */
static harpe_status collect_pipeline(pictures *p, harpe_key_row key, const char *name,
                                     const char *what, harpe_error *error) {
    const harpe_problem_input *input = p->input;
    bool has_one_power = !input->graph && input->blocking_power_count == 1 && !input->wait_powers;
    harpe_pipeline_picture picture = {
        .title = "One iteration",
        .blocking_power_w = has_one_power ? input->blocking_power_w[0] : -1,
        .panel_count = p->result->row_count > 0 ? 2 : 1,
    };
    harpe_status status = collect_panel(p, &p->result->all_maximum,
                                        input->graph ? "Every activity at its highest frequency"
                                                     : "Every instruction at its highest frequency",
                                        &picture.panels[0], &picture.rank_count, error);
    if (status == HARPE_OK && picture.panel_count == 2) {
        const harpe_frontier_row *row = &p->result->key_rows[key].row;
        char title[TITLE_SIZE];
        (void)snprintf(title, sizeof title, "Plan %d: %s", row->plan, what);
        status = collect_panel(p, harpe_plan_result_plan(p->result, row), title, &picture.panels[1],
                               &picture.rank_count, error);
    }
    if (status == HARPE_OK && input->graph) status = name_lanes(p, &picture, error);
    p->pipeline_names[p->pipeline_count] = name;
    p->pipelines[p->pipeline_count++] = picture;
    return status;
}

/* ---- Cost models ----------------------------------------------------------------------------- */

static bool same_panel(const harpe_cost_panel *left, const harpe_cost_panel *right) {
    const harpe_choice *a = left->choice, *b = right->choice;
    bool is_same = a->point_count == b->point_count && a->blocking_power_w == b->blocking_power_w;
    for (size_t i = 0; is_same && i < a->point_count; i++)
        is_same = (left->frequency_mhz && right->frequency_mhz
                       ? left->frequency_mhz[i] == right->frequency_mhz[i]
                       : a->points[i].frequency_mhz == b->points[i].frequency_mhz) &&
                  a->points[i].time_s == b->points[i].time_s &&
                  a->points[i].energy_j == b->points[i].energy_j;
    return is_same;
}

static bool has_panel(const harpe_cost_model_picture *picture, const harpe_cost_panel *panel) {
    for (size_t i = 0; i < picture->panel_count; i++)
        if (same_panel(&picture->panels[i], panel)) return true;
    return false;
}

static bool same_cost_model(const harpe_cost_model_picture *a, const harpe_cost_model_picture *b) {
    bool is_same = a->panel_count == b->panel_count;
    for (size_t i = 0; is_same && i < a->panel_count; i++)
        is_same = same_panel(&a->panels[i], &b->panels[i]) &&
                  strcmp(a->panels[i].choice->list.instruction,
                         b->panels[i].choice->list.instruction) == 0;
    return is_same;
}

/* Collects the panels of a stage or of a resource. Activities of a resource that have the same
 * options share a panel, which has the name of the first of them. */
static harpe_status collect_group(const harpe_problem *problem, int group, harpe_arena *arena,
                                  harpe_cost_model_picture *picture, harpe_error *error) {
    const harpe_graph_layout *graph = problem->graph;
    harpe_cost_panel *panels = harpe_arena_alloc(arena, COST_PANELS_MAX, sizeof *panels);
    if (!panels) return harpe_fail_memory(error);
    picture->panels = panels;
    size_t count = graph ? graph->activity_count : problem->choice_count;
    for (size_t i = 0; i < count && picture->panel_count < COST_PANELS_MAX; i++) {
        const harpe_choice *choice = &problem->choices[i];
        harpe_cost_panel panel = {.choice = choice};
        if ((graph ? choice->list.rank : choice->list.stage) != group) continue;
        if (graph) panel.frequency_mhz = graph->frequency_mhz + graph->first_point[i];
        if (graph && (choice->point_count < 2 || has_panel(picture, &panel))) continue;
        panels[picture->panel_count++] = panel;
    }
    return HARPE_OK;
}

/* Returns the title of a picture; the arena or the graph owns it. NULL: out of memory. */
static const char *title_of(pictures *p, int first, int last) {
    if (p->input->graph) {
        const harpe_graph_resource *resource =
            harpe_graph_resource_at(p->input->graph, (size_t)first);
        return resource ? resource->name : "Activities without a resource";
    }
    char title[TITLE_SIZE];
    int length = first == last ? snprintf(title, sizeof title, "Stage %d", first)
                               : snprintf(title, sizeof title, "Stages %d to %d", first, last);
    return harpe_arena_strdup(&p->arena, title, (size_t)length);
}

/* Makes a picture for each group of neighbouring stages with equal options, or each resource. */
static harpe_status collect_cost_models(pictures *p, harpe_error *error) {
    int groups =
        p->input->graph ? p->problem->rank_count : harpe_schedule_stage_count(p->input->schedule);
    for (int group = 0; group < groups; group++) {
        harpe_cost_model_picture picture = {
            .curve_label = p->input->cost_model == HARPE_COST_EXPONENTIAL ? "fitted a*exp(b*t)+c"
                                                                          : "lower convex hull"};
        harpe_status status = collect_group(p->problem, group, &p->arena, &picture, error);
        if (status != HARPE_OK) return status;
        size_t count = p->cost_model_count;
        bool repeats =
            !p->input->graph && count > 0 && same_cost_model(&p->cost_models[count - 1], &picture);
        if (picture.panel_count == 0) continue;
        if (!repeats && count == COST_MODELS_MAX) return HARPE_OK;
        size_t at = repeats ? count - 1 : p->cost_model_count++;
        if (!repeats) p->cost_model_groups[at] = group;
        picture.title = title_of(p, p->cost_model_groups[at], group);
        if (!picture.title) return harpe_fail_memory(error);
        p->cost_models[at] = picture;
    }
    return HARPE_OK;
}

static harpe_status collect(pictures *p, harpe_error *error) {
    harpe_status status = collect_frontier(p, error);
    if (status == HARPE_OK && p->result->row_count == 0)
        status = collect_pipeline(p, HARPE_KEY_ALL_MAXIMUM, "pipeline_all_maximum", "", error);
    if (status == HARPE_OK && p->result->row_count > 0)
        status = collect_pipeline(p, HARPE_KEY_FASTEST, "pipeline_fastest", "fastest, within 0.1 %",
                                  error);
    if (status == HARPE_OK && p->result->row_count > 0)
        status = collect_pipeline(p, HARPE_KEY_MINIMUM_ENERGY, "pipeline_minimum_energy",
                                  "minimum energy", error);
    return status == HARPE_OK ? collect_cost_models(p, error) : status;
}

/* ---- Files ----------------------------------------------------------------------------------- */

static harpe_status write_images(harpe_directory *directory, const pictures *p,
                                 harpe_error *error) {
    harpe_text text = {0};
    char name[TITLE_SIZE];
    harpe_status status = harpe_draw_frontier(&p->frontier, false, &text, error);
    status = harpe_plan_write_text(directory, "frontier.svg", &text, status, error);
    for (size_t i = 0; i < p->pipeline_count && status == HARPE_OK; i++) {
        (void)snprintf(name, sizeof name, "%s.svg", p->pipeline_names[i]);
        status = harpe_draw_pipeline(&p->pipelines[i], false, &text, error);
        status = harpe_plan_write_text(directory, name, &text, status, error);
    }
    for (size_t i = 0; i < p->cost_model_count && status == HARPE_OK; i++) {
        (void)snprintf(name, sizeof name, "cost_model_%s_%02d.svg",
                       p->input->graph ? "resource" : "stage", p->cost_model_groups[i]);
        status = harpe_draw_cost_model(&p->cost_models[i], false, &text, error);
        status = harpe_plan_write_text(directory, name, &text, status, error);
    }
    return status;
}

enum { FACT_COUNT = 9, FACT_SIZE = 160 };

typedef struct fact_list {
    char values[FACT_COUNT][FACT_SIZE];
    harpe_report_fact facts[FACT_COUNT];
    size_t count;
} fact_list;

/* Adds a fact with this name to the list. Returns the buffer for its value. */
static char *next_fact(fact_list *list, const char *name) {
    char *value = list->values[list->count];
    list->facts[list->count++] = (harpe_report_fact){name, value};
    return value;
}

static void collect_facts(const harpe_problem_input *input, const harpe_plan_result *result,
                          fact_list *list) {
    harpe_work work = harpe_frontier_work(result->frontier);
    size_t vertices = 0;
    (void)harpe_frontier_vertices(result->frontier, &vertices);
    snprintf(next_fact(list, input->graph ? "Graph" : "Profile"), FACT_SIZE, "%s",
             input->graph ? input->graph_path : input->profile_path);
    if (!input->graph) snprintf(next_fact(list, "Schedule"), FACT_SIZE, "%s", input->schedule_name);
    snprintf(next_fact(list, "Instructions"), FACT_SIZE, "%zu",
             harpe_problem_instruction_count(input->problem));
    snprintf(next_fact(list, "Blocking power"), FACT_SIZE, "%s%s%s%s W in all",
             input->wait_powers ? "for each kind of wait, from " : "",
             input->wait_powers ? input->wait_powers_path : "",
             input->wait_powers ? "; at most " : "",
             HARPE_DIGITS(input->problem->total_blocking_power_w, 6));
    if (input->overhead_power_w > 0)
        snprintf(next_fact(list, "Overhead power"), FACT_SIZE,
                 "%s W; energies are those of whole machines",
                 HARPE_DIGITS(input->overhead_power_w, 6));
    snprintf(next_fact(list, "Cost model"), FACT_SIZE, "%s",
             input->cost_model == HARPE_COST_EXPONENTIAL ? "exponential" : "hull");
    snprintf(next_fact(list, "Frontier"), FACT_SIZE, "%zu vertices, solved in %s ms%s", vertices,
             HARPE_DIGITS((work.build_s + work.solve_s) * 1e3, 3),
             result->verified ? ", verified" : "");
    snprintf(next_fact(list, "Plans"), FACT_SIZE, "%zu, assigned in %s ms", result->row_count,
             HARPE_DIGITS(work.assign_s * 1e3, 3));
    char limits[FACT_SIZE / 2];
    if (harpe_plan_limits_words(&result->request, limits, sizeof limits))
        snprintf(next_fact(list, "Limits on power"), FACT_SIZE,
                 "%s: kept by all plans; one clock and the highest clocks need not", limits);
}

static harpe_status write_report(harpe_directory *directory, const harpe_plan_arguments *arguments,
                                 pictures *p, harpe_error *error) {
    const harpe_plan_result *result = p->result;
    fact_list facts = {.count = 0};
    collect_facts(p->input, result, &facts);
    const int **frequency_mhz =
        harpe_arena_alloc(&p->arena, result->row_count, sizeof *frequency_mhz);
    if (!frequency_mhz) return harpe_fail_memory(error);
    for (size_t i = 0; i < result->row_count; i++)
        frequency_mhz[i] = harpe_plan_result_plan(result, &result->rows[i])->frequency_mhz;
    harpe_report report = {
        .title = p->frontier.subtitle,
        .version = harpe_version(),
        .directory = arguments->output_directory,
        .facts = facts.facts,
        .fact_count = facts.count,
        .arguments = arguments->command_line,
        .argument_count = arguments->command_line_length,
        .frontier = p->frontier,
        .problem = p->problem,
        .frequency_mhz = p->problem->graph ? NULL : frequency_mhz,
        .pipelines = p->pipelines,
        .pipeline_count = p->pipeline_count,
        .cost_models = p->cost_models,
        .cost_model_count = p->cost_model_count,
    };
    report.frontier.title = report.frontier.subtitle = NULL;
    harpe_text page = {0};
    harpe_status status = harpe_report_write(&report, &page, error);
    return harpe_plan_write_text(directory, HARPE_REPORT_NAME, &page, status, error);
}

harpe_status harpe_plan_output_pictures(harpe_directory *directory,
                                        const harpe_plan_arguments *arguments,
                                        const harpe_plan_result *result, harpe_error *error) {
    const harpe_problem_input *input = &arguments->input;
    pictures p = {.input = input, .problem = input->problem, .result = result};
    harpe_status status = collect(&p, error);
    if (status == HARPE_OK) status = write_images(directory, &p, error);
    if (status == HARPE_OK && result->row_count > 0)
        status = write_report(directory, arguments, &p, error);
    harpe_arena_free(&p.arena);
    return status;
}
