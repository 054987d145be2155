/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a plan directory: bound.csv, frontier.csv, plan files, plan.json. src/plan defines the
 * formats, and this file decides the names and the numbers of the files. plan_pictures.c collects
 * the pictures. */
#include "cli/plan/plan_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/version.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/plan/graph_plan_file.h"
#include "cli/plan/plan_notes.h"
#include "cli/plan/plan_summary.h"
#include "plan/frontier_file.h"
#include "plan/plan_file.h"

#define JSON_DIGITS 15

/* Writes a finished text and frees it. */
static harpe_status write_text(harpe_directory *directory, const char *name, harpe_text *text,
                               harpe_error *error) {
    harpe_status status = harpe_command_check_signal(error);
    if (status == HARPE_OK) {
        status = text->failed
                     ? harpe_fail_memory(error)
                     : harpe_directory_write(directory, name, text->data, text->length, error);
    }
    harpe_text_free(text);
    return status;
}

harpe_status harpe_plan_output_bound(harpe_directory *directory, const harpe_plan_result *result,
                                     harpe_error *error) {
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(result->frontier, &count);
    harpe_text text = {0};
    harpe_bound_csv_format(&text, vertices, count);
    return write_text(directory, HARPE_BOUND_FILE_NAME, &text, error);
}

/* Returns the "total cost" in a plan file: the energy of the GPUs, minus the energy that all ranks
 * would need if they only waited for the same time. */
static double total_cost_j(const harpe_frontier_row *row, double blocking_power_w) {
    return row->energy_j - row->overhead_energy_j - blocking_power_w * row->time_s;
}

static harpe_status write_graph_plan(harpe_directory *directory, const harpe_problem_input *input,
                                     const harpe_plan *plan, int number, harpe_error *error) {
    harpe_text text = {0};
    harpe_status status =
        harpe_graph_plan_file_format(&text, input->graph, input->problem, plan, error);
    if (status != HARPE_OK) {
        harpe_text_free(&text);
        return status;
    }
    char name[64];
    snprintf(name, sizeof name, HARPE_GRAPH_PLAN_FILE_NAME_FORMAT, number);
    return write_text(directory, name, &text, error);
}

static harpe_status write_graph_plans(harpe_directory *directory, const harpe_problem_input *input,
                                      const harpe_plan_result *result, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < result->row_count && status == HARPE_OK; i++) {
        status = write_graph_plan(directory, input, harpe_plan_set_at(result->plans, i),
                                  result->rows[i].plan, error);
    }
    return status;
}

harpe_status harpe_plan_output_plans(harpe_directory *directory, const harpe_problem_input *input,
                                     const harpe_plan_result *result, harpe_error *error) {
    harpe_text table = {0};
    harpe_frontier_csv_format(&table, result->rows, result->row_count);
    harpe_status status = write_text(directory, HARPE_FRONTIER_FILE_NAME, &table, error);
    if (status == HARPE_OK && input->graph)
        return write_graph_plans(directory, input, result, error);
    double power_w = harpe_problem_input_total_blocking_power_w(input);
    for (size_t i = 0; i < result->row_count && status == HARPE_OK; i++) {
        const harpe_frontier_row *row = &result->rows[i];
        double change_j = 0;
        if (i + 1 < result->row_count)
            change_j = total_cost_j(row, power_w) - total_cost_j(row + 1, power_w);
        harpe_text text = {0};
        harpe_plan_file_format(&text, input->problem, harpe_plan_set_at(result->plans, i),
                               row->plan, change_j);
        char name[64];
        snprintf(name, sizeof name, HARPE_PLAN_FILE_NAME_FORMAT, row->plan);
        status = write_text(directory, name, &text, error);
    }
    return status;
}

static json_t *option_list_json(const harpe_option_list *list) {
    json_t *options = json_array();
    for (size_t i = 0; i < list->option_count; i++) {
        const harpe_option *option = &list->options[i];
        json_array_append_new(options, json_pack("{s:i, s:f, s:f, s:f, s:b}", "frequency_mhz",
                                                 option->frequency_mhz, "time_s", option->time_s,
                                                 "energy_j", option->energy_j, "effective_energy_j",
                                                 option->effective_energy_j, "is_on_hull",
                                                 option->is_on_hull));
    }
    return json_pack("{s:i, s:i, s:s, s:o}", "stage", list->stage, "rank", list->rank,
                     "instruction", list->instruction, "options", options);
}

/* A graph contains its options, so the list is empty for a graph. */
static json_t *option_lists_json(const harpe_problem_input *input) {
    json_t *lists = json_array();
    size_t count = input->graph ? 0 : harpe_problem_option_list_count(input->problem);
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(lists,
                              option_list_json(harpe_problem_option_list_at(input->problem, i)));
    }
    return lists;
}

static json_t *one_clock_json(const harpe_one_clock_rows *of) {
    json_t *rows = json_array();
    for (size_t i = 0; i < of->count; i++)
        json_array_append_new(rows, harpe_row_json(&of->rows[i]));
    return rows;
}

static json_t *profile_json(const harpe_problem_input *input) {
    return input->profile_path ? harpe_command_json_text(input->profile_path) : json_null();
}

harpe_status harpe_plan_output_json(harpe_directory *directory, const harpe_problem_input *input,
                                    const harpe_plan_result *result, json_t *arguments,
                                    harpe_error *error) {
    json_t *object = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "program", HARPE_PLAN_JSON_PROGRAM,
        "version", harpe_version(), "arguments", arguments, "profile", profile_json(input),
        "problem", harpe_problem_input_json(input), "summary", harpe_plan_summary_json(result),
        "one_clock", one_clock_json(&result->one_clock), "work", harpe_plan_work_json(result),
        "options", option_lists_json(input), "notes",
        harpe_plan_notes_and(input, result->dwell_note));
    char *text =
        object ? json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(JSON_DIGITS)) : NULL;
    json_decref(object);
    if (!text) return harpe_fail_memory(error);
    harpe_status status =
        harpe_directory_write(directory, HARPE_PLAN_JSON_NAME, text, strlen(text), error);
    free(text);
    return status;
}
