/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the pictures of a plan directory, writes their files, and writes report.html, which
 * contains them. plan_pictures.c collects the contents. */
#include "cli/plan/plan_images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/version.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/plan/graph_pictures.h"
#include "cli/plan/plan_directory.h"
#include "cli/plan/plan_pictures.h"
#include "draw/draw.h"
#include "draw/report.h"

typedef harpe_status (*draw_function)(const void *picture, harpe_image_format format,
                                      harpe_text *out, harpe_error *error);

static harpe_status draw_frontier(const void *picture, harpe_image_format format, harpe_text *out,
                                  harpe_error *error) {
    return harpe_draw_frontier(picture, format, out, error);
}

static harpe_status draw_pipeline(const void *picture, harpe_image_format format, harpe_text *out,
                                  harpe_error *error) {
    return harpe_draw_pipeline(picture, format, out, error);
}

static harpe_status draw_cost_model(const void *picture, harpe_image_format format, harpe_text *out,
                                    harpe_error *error) {
    return harpe_draw_cost_model(picture, format, out, error);
}

static harpe_status write_image(harpe_directory *directory, draw_function draw, const void *picture,
                                harpe_image_format format, const char *stem, harpe_error *error) {
    harpe_status status = harpe_command_check_signal(error);
    if (status != HARPE_OK) return status;
    char name[96];
    snprintf(name, sizeof name, "%s.%s", stem, format == HARPE_IMAGE_PNG ? "png" : "svg");
    harpe_text image = {0};
    status = draw(picture, format, &image, error);
    if (status == HARPE_OK)
        status = harpe_directory_write(directory, name, image.data, image.length, error);
    harpe_text_free(&image);
    return status;
}

static harpe_status write_png_and_svg(harpe_directory *directory, draw_function draw,
                                      const void *picture, const char *stem, harpe_error *error) {
    harpe_status status = write_image(directory, draw, picture, HARPE_IMAGE_PNG, stem, error);
    if (status == HARPE_OK)
        status = write_image(directory, draw, picture, HARPE_IMAGE_SVG, stem, error);
    return status;
}

static harpe_status write_images(harpe_directory *directory, const harpe_pictures *pictures,
                                 bool is_of_graph, harpe_error *error) {
    harpe_status status =
        write_png_and_svg(directory, draw_frontier, &pictures->frontier, "frontier", error);
    for (size_t i = 0; i < pictures->pipeline_count && status == HARPE_OK; i++) {
        status = write_png_and_svg(directory, draw_pipeline, &pictures->pipelines[i],
                                   pictures->pipeline_names[i], error);
    }
    for (size_t i = 0; i < pictures->cost_model_count && status == HARPE_OK; i++) {
        char stem[48];
        snprintf(stem, sizeof stem, "cost_model_%s_%02d", is_of_graph ? "resource" : "stage",
                 pictures->cost_model_stages[i]);
        status = write_image(directory, draw_cost_model, &pictures->cost_models[i], HARPE_IMAGE_PNG,
                             stem, error);
    }
    return status;
}

/* ---- Report ---------------------------------------------------------------------------------- */

enum { FACT_COUNT = 8, FACT_SIZE = 160 };

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

static void collect_graph_facts(const harpe_problem_input *input, fact_list *list) {
    snprintf(next_fact(list, "Graph"), FACT_SIZE, "%s", input->graph_path);
    snprintf(next_fact(list, "Size"), FACT_SIZE, "%zu activities on %zu resources",
             harpe_graph_activity_count(input->graph), harpe_graph_resource_count(input->graph));
    snprintf(next_fact(list, "Blocking power"), FACT_SIZE, "%s W in all",
             HARPE_DIGITS(harpe_problem_input_total_blocking_power_w(input), 6));
}

static void collect_pipeline_facts(const harpe_problem_input *input, fact_list *list) {
    snprintf(next_fact(list, "Profile"), FACT_SIZE, "%s", input->profile_path);
    int stages = harpe_schedule_stage_count(input->schedule);
    int ranks = harpe_schedule_rank_count(input->schedule);
    int microbatches = harpe_schedule_microbatch_count(input->schedule);
    snprintf(next_fact(list, "Pipeline"), FACT_SIZE,
             "%d stage%s on %d rank%s, %d microbatch%s, %zu instructions", stages,
             stages == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s", microbatches,
             microbatches == 1 ? "" : "es", harpe_problem_instruction_count(input->problem));
    snprintf(next_fact(list, "Schedule"), FACT_SIZE, "%s", input->schedule_name);
    double total_w = harpe_problem_input_total_blocking_power_w(input);
    if (input->wait_powers) {
        snprintf(next_fact(list, "Blocking power"), FACT_SIZE,
                 "for each kind of wait, from %s; at most %s W in all", input->wait_powers_path,
                 HARPE_DIGITS(total_w, 6));
    } else if (input->blocking_power_count == 1) {
        snprintf(next_fact(list, "Blocking power"), FACT_SIZE, "%g W per GPU",
                 input->blocking_power_w[0]);
    } else {
        snprintf(next_fact(list, "Blocking power"), FACT_SIZE, "%s W in all",
                 HARPE_DIGITS(total_w, 6));
    }
    if (input->overhead_power_w > 0) {
        snprintf(next_fact(list, "Overhead power"), FACT_SIZE,
                 "%s W; energies are those of whole machines",
                 HARPE_DIGITS(input->overhead_power_w, 6));
    }
}

static void collect_facts(const harpe_problem_input *input, const harpe_plan_result *result,
                          fact_list *list) {
    harpe_work work = harpe_frontier_work(result->frontier);
    size_t vertices = 0;
    (void)harpe_frontier_vertices(result->frontier, &vertices);
    if (input->graph)
        collect_graph_facts(input, list);
    else
        collect_pipeline_facts(input, list);
    snprintf(next_fact(list, "Cost model"), FACT_SIZE, "%s",
             input->cost_model == HARPE_COST_EXPONENTIAL ? "exponential" : "hull");
    snprintf(next_fact(list, "Frontier"), FACT_SIZE, "%zu vertices, solved in %s ms%s", vertices,
             HARPE_DIGITS((work.build_s + work.solve_s) * 1e3, 3),
             result->verified ? ", verified" : "");
    snprintf(next_fact(list, "Plans"), FACT_SIZE, "%zu, assigned in %s ms", result->row_count,
             HARPE_DIGITS(work.assign_s * 1e3, 3));
}

static harpe_report_plan *collect_plans(const harpe_plan_result *result) {
    harpe_report_plan *plans = harpe_calloc(result->row_count, sizeof *plans);
    for (size_t i = 0; plans && i < result->row_count; i++) {
        const harpe_frontier_row *row = &result->rows[i];
        plans[i] = (harpe_report_plan){
            .number = row->plan,
            .time_s = row->time_s,
            .energy_j = row->energy_j,
            .lower_bound_j = row->lower_bound_j,
            .compute_energy_j = row->compute_energy_j,
            .blocking_energy_j = row->blocking_energy_j,
            .average_power_w = row->average_power_w,
            .overhead_energy_j = row->overhead_energy_j,
            .peak_power_w = row->peak_power_w,
            .swing_w = row->swing_w,
            .frequency_mhz = harpe_plan_result_plan(result, row)->frequency_mhz,
        };
    }
    return plans;
}

static harpe_status write_report(harpe_directory *directory, const harpe_plan_output_names *names,
                                 const harpe_problem_input *input, const harpe_plan_result *result,
                                 const harpe_pictures *pictures, harpe_error *error) {
    fact_list facts = {.count = 0};
    collect_facts(input, result, &facts);
    harpe_report_plan *plans = collect_plans(result);
    if (!plans) return harpe_fail_memory(error);
    harpe_report report = {
        .title = pictures->frontier.subtitle,
        .is_of_graph = input->graph,
        .version = harpe_version(),
        .directory = names->directory,
        .facts = facts.facts,
        .fact_count = facts.count,
        .arguments = names->arguments,
        .argument_count = names->argument_count,
        .plans = plans,
        .plan_count = result->row_count,
        .has_reference = true,
        .reference = pictures->frontier.reference,
        .one_clock = pictures->one_clock,
        .one_clock_count = pictures->frontier.one_clock_count,
        .bound = pictures->frontier.bound,
        .bound_count = pictures->frontier.bound_count,
        .pipelines = pictures->pipelines,
        .pipeline_count = pictures->pipeline_count,
        .timeline = input->graph ? NULL : &pictures->timeline,
        .cost_models = pictures->cost_models,
        .cost_model_count = pictures->cost_model_count,
    };
    harpe_text page = {0};
    harpe_status status = harpe_report_write(&report, &page, error);
    if (status == HARPE_OK)
        status = harpe_directory_write(directory, HARPE_REPORT_NAME, page.data, page.length, error);
    harpe_text_free(&page);
    free(plans);
    return status;
}

harpe_status harpe_plan_output_pictures(harpe_directory *directory,
                                        const harpe_plan_output_names *names,
                                        const harpe_problem_input *input,
                                        const harpe_plan_result *result, harpe_error *error) {
    harpe_pictures pictures = {0};
    harpe_status status = input->graph
                              ? harpe_graph_pictures_collect(input, result, &pictures, error)
                              : harpe_pictures_collect(input, result, &pictures, error);
    if (status == HARPE_OK) status = write_images(directory, &pictures, input->graph, error);
    if (status == HARPE_OK && result->row_count > 0)
        status = write_report(directory, names, input, result, &pictures, error);
    harpe_pictures_free(&pictures);
    return status;
}
