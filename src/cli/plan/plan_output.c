/* SPDX-License-Identifier: Apache-2.0 */
/* Prints plans as rows of a table and as JSON. Prints the result of `harpe plan` for people or as
 * JSON, and notes about probable mistakes in its input. Writes bound.csv, frontier.csv, the plan
 * files and plan.json. src/plan defines the formats. plan_pictures.c writes the pictures. */
#include <math.h>

#include <harpe/schedule.h>
#include <harpe/version.h>

#include "base/possible.h"
#include "cli/plan/plan_internal.h"
#include "plan/graphs.h"
#include "plan/plan_file.h"
#include "plan/problem.h"
#include "plan/profiles.h"

#define JSON_DIGITS 15
/* A saving below this share of the highest clocks' energy has no row of its own. */
#define HIDDEN_SAVING 0.001

/* ---- Rows ------------------------------------------------------------------------------------ */

int harpe_row_decimals(double value, int digits) {
    double magnitude = fabs(value) > 0 ? floor(log10(fabs(value))) : 0;
    double decimals = digits - 1 - magnitude;
    return decimals < 0 ? 0 : decimals > 9 ? 9 : (int)decimals;
}

/* Returns the percentage, or 0 if it would be printed as zero with a sign. */
static double unsigned_zero(double percent) { return fabs(percent) < 0.005 ? 0 : percent; }

static double one_clock_savings(const harpe_frontier_row *row) {
    return 100 * (1 - row->energy_j / row->one_clock_energy_j);
}

int harpe_rows_label_width(const harpe_labelled_row *rows, size_t count) {
    int width = 0;
    for (size_t i = 0; i < count; i++) {
        int length = (int)strlen(rows[i].label);
        width = length > width ? length : width;
    }
    return width;
}

void harpe_rows_print(const harpe_labelled_row *rows, size_t count) {
    int width = harpe_rows_label_width(rows, count);
    int time_decimals = 0;
    int energy_decimals = 0;
    bool has_overhead = false, has_one_clock = false;
    for (size_t i = 0; i < count; i++) {
        int for_time = harpe_row_decimals(rows[i].row.time_s, 4);
        int for_energy = harpe_row_decimals(rows[i].row.energy_j, 5);
        has_overhead = has_overhead || rows[i].row.overhead_energy_j > 0;
        has_one_clock = has_one_clock || rows[i].row.one_clock_energy_j > 0;
        time_decimals = for_time > time_decimals ? for_time : time_decimals;
        energy_decimals = for_energy > energy_decimals ? for_energy : energy_decimals;
    }
    printf("%s  %-*s %11s %13s", harpe_bold_start(), width, "", "time", "energy");
    if (has_overhead) printf(" %13s", "GPU energy");
    printf(" %10s %9s", "slowdown", "savings");
    if (has_one_clock) printf(" %12s", "vs one clock");
    printf(" %9s %11s%s\n", "gap", "power/GPU", harpe_bold_end());
    for (size_t i = 0; i < count; i++) {
        const harpe_frontier_row *row = &rows[i].row;
        printf("  %-*s %9.*f s %11.*f J", width, rows[i].label, time_decimals, row->time_s,
               energy_decimals, row->energy_j);
        if (has_overhead)
            printf(" %11.*f J", energy_decimals, row->energy_j - row->overhead_energy_j);
        printf(" %8.2f %% %7.2f %%", unsigned_zero(row->slowdown_percent),
               unsigned_zero(row->savings_percent));
        if (has_one_clock) printf(" %10.2f %%", unsigned_zero(one_clock_savings(row)));
        printf(" %7.3f %% %9.1f W\n", row->gap_percent, row->average_power_w);
    }
}

void harpe_rows_print_power(const harpe_labelled_row *rows, size_t count) {
    int width = harpe_rows_label_width(rows, count);
    printf("%s  %-*s %13s %13s %13s%s\n", harpe_bold_start(), width, "", "peak power", "swing",
           "frequency", harpe_bold_end());
    for (size_t i = 0; i < count; i++) {
        const harpe_frontier_row *row = &rows[i].row;
        if (row->peak_power_w <= 0) continue; /* not known */
        printf("  %-*s %11.1f W %11.1f W", width, rows[i].label, row->peak_power_w, row->swing_w);
        if (row->swing_hz > 0)
            printf(" %10.3f Hz\n", row->swing_hz);
        else
            printf(" %13s\n", "-");
    }
}

json_t *harpe_row_json(const harpe_frontier_row *row) {
    json_t *object =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "time_s", row->time_s, "energy_j",
                  row->energy_j, "lower_bound_j", row->lower_bound_j, "gap_percent",
                  row->gap_percent, "average_power_w", row->average_power_w, "slowdown_percent",
                  row->slowdown_percent, "savings_percent", row->savings_percent);
    /* The rows of a server's job have only the sum. */
    bool has_parts = row->compute_energy_j > 0 || row->blocking_energy_j > 0 || row->energy_j <= 0;
    if (object && has_parts) {
        json_object_set_new(object, "compute_energy_j", json_real(row->compute_energy_j));
        json_object_set_new(object, "blocking_energy_j", json_real(row->blocking_energy_j));
        json_object_set_new(object, "overhead_energy_j", json_real(row->overhead_energy_j));
        json_object_set_new(object, "change_energy_j", json_real(row->change_energy_j));
    }
    if (object && row->peak_power_w > 0) {
        json_object_set_new(object, "peak_power_w", json_real(row->peak_power_w));
        json_object_set_new(object, "swing_w", json_real(row->swing_w));
        json_object_set_new(object, "swing_hz", json_real(row->swing_hz));
    }
    if (object && row->one_clock_energy_j > 0)
        json_object_set_new(object, "one_clock_savings_percent", json_real(one_clock_savings(row)));
    if (object && row->one_clock_mhz > 0)
        json_object_set_new(object, "frequency_mhz", json_integer(row->one_clock_mhz));
    if (object && row->plan >= 0) json_object_set_new(object, "plan", json_integer(row->plan));
    return object;
}

/* ---- Notes ----------------------------------------------------------------------------------- */

/* Marks each entry of the profile that the schedule runs. The caller frees the marks. */
static bool *mark_used(const harpe_problem_input *input) {
    const harpe_profile *profile = input->profile;
    const harpe_profile_entry *first = harpe_profile_entry_at(profile, 0);
    bool *is_used = harpe_calloc(harpe_profile_entry_count(profile) + 1, sizeof *is_used);
    for (size_t i = 0; is_used && i < harpe_problem_option_list_count(input->problem); i++) {
        const harpe_option_list *list = harpe_problem_option_list_at(input->problem, i);
        const harpe_profile_entry *entry =
            harpe_profile_find(profile, list->stage, list->instruction);
        if (entry) is_used[entry - first] = true;
    }
    return is_used;
}

static void note_left_out(const harpe_problem_input *input, harpe_text *text) {
    const harpe_profile_entry *left_out = NULL;
    size_t count = 0;
    bool *is_used = mark_used(input);
    for (size_t i = 0; is_used && i < harpe_profile_entry_count(input->profile); i++) {
        if (is_used[i]) continue;
        if (!left_out) left_out = harpe_profile_entry_at(input->profile, i);
        count++;
    }
    free(is_used);
    if (count == 0) return;
    char more[40] = "";
    if (count > 1) (void)snprintf(more, sizeof more, " and %zu more", count - 1);
    harpe_text_printf(text, "%s: stage %d '%s'%s %s not in schedule %s: left out",
                      input->profile_path, left_out->stage, left_out->instruction, more,
                      count > 1 ? "are" : "is", input->schedule_name);
}

/* Returns the highest power of one GPU in the profile. */
static double highest_power_w(const harpe_problem_input *input) {
    double highest_w = 0;
    for (size_t i = 0; i < harpe_problem_option_list_count(input->problem); i++) {
        const harpe_option_list *list = harpe_problem_option_list_at(input->problem, i);
        const harpe_profile_entry *entry =
            harpe_profile_find(input->profile, list->stage, list->instruction);
        int gpus = harpe_problem_gpu_count(input->problem, list->rank);
        for (size_t p = 0; entry && p < entry->point_count; p++) {
            double power_w = entry->points[p].energy_j / (entry->points[p].time_s * gpus);
            if (power_w > highest_w) highest_w = power_w;
        }
    }
    return highest_w;
}

/* Notes a blocking power that is too high to be plausible. A GPU that waits draws less power than a
 * GPU that works. */
static void note_blocking_power(const harpe_problem_input *input, harpe_text *text) {
    double highest_w = highest_power_w(input);
    if (highest_w < HARPE_GPU_LOWEST_W) return; /* the profile is wrong */
    for (size_t i = 0; i < input->blocking_power_count; i++) {
        if (input->blocking_power_w[i] <= highest_w) continue;
        harpe_text_printf(text,
                          "warning: --p2p-power %g: no instruction of %s draws more than %s W on a "
                          "GPU; is it the watts of one GPU that waits?",
                          input->blocking_power_w[i], input->profile_path,
                          HARPE_DIGITS(highest_w, 4));
        return;
    }
}

static void add_profile_notes(const harpe_problem_input *input, json_t *notes) {
    harpe_text text = {0};
    const char *warning;
    for (size_t i = 0; (warning = harpe_profile_warning_at(input->profile, i)); i++) {
        harpe_text_printf(&text, "warning: %s", warning);
        harpe_command_add_note(notes, &text);
    }
    harpe_profile_note_repeats(input->profile, input->profile_path, &text);
    harpe_command_add_note(notes, &text);
    note_left_out(input, &text);
    harpe_command_add_note(notes, &text);
    note_blocking_power(input, &text);
    harpe_command_add_note(notes, &text);
}

json_t *harpe_plan_notes(const harpe_problem_input *input, const char *more) {
    json_t *notes = json_array();
    if (!input->graph_path) add_profile_notes(input, notes);
    if (more) json_array_append_new(notes, harpe_command_json_text(more));
    return notes;
}

/* ---- Limits on power ------------------------------------------------------------------------- */

bool harpe_plan_limits_words(const harpe_plan_request *request, char *into, size_t size) {
    bool has_peak = request->max_peak_power_w > 0;
    bool is_share = request->max_swing_share > 0, has_swing = is_share || request->max_swing_w > 0;
    double swing = is_share ? 100 * request->max_swing_share : request->max_swing_w;
    snprintf(into, size, "%s%s%s%s%s%s", has_peak ? "peak " : "",
             has_peak ? HARPE_DIGITS(request->max_peak_power_w, 9) : "", has_peak ? " W" : "",
             has_swing ? has_peak ? ", swing " : "swing " : "",
             has_swing ? HARPE_DIGITS(swing, 9) : "",
             !has_swing ? ""
             : is_share ? " % of the mean"
                        : " W");
    return has_peak || has_swing;
}

json_t *harpe_plan_limits_json(const harpe_plan_request *request) {
    json_t *object = json_object();
    if (request->max_peak_power_w > 0)
        json_object_set_new(object, "max_peak_power_w", json_real(request->max_peak_power_w));
    if (request->max_swing_w > 0)
        json_object_set_new(object, "max_swing_w", json_real(request->max_swing_w));
    if (request->max_swing_share > 0)
        json_object_set_new(object, "max_swing_share", json_real(request->max_swing_share));
    return object;
}

json_t *harpe_plan_kept_limits_json(const harpe_plan_request *request) {
    json_t *object = harpe_plan_limits_json(request);
    if (json_object_size(object) > 0) json_object_set_new(object, "plans_keep_them", json_true());
    return object;
}

void harpe_plan_limits_print(const harpe_plan_request *request) {
    char words[160];
    if (harpe_plan_limits_words(request, words, sizeof words))
        printf("All plans keep the limits on power: %s; the other rows need not\n", words);
}

/* ---- Printing -------------------------------------------------------------------------------- */

static const char *const key_names[HARPE_KEY_COUNT] = {
    [HARPE_KEY_ALL_MAXIMUM] = "all_maximum",
    [HARPE_KEY_FASTEST] = "fastest",
    [HARPE_KEY_SMALL_SLOWDOWN] = "within_1.05x",
    [HARPE_KEY_MINIMUM_ENERGY] = "minimum_energy",
};

typedef struct gap_summary {
    double mean_percent;
    double worst_percent;
} gap_summary;

static gap_summary summarize_gaps(const harpe_plan_result *result) {
    gap_summary gaps = {0};
    for (size_t i = 0; i < result->row_count; i++) {
        gaps.mean_percent += result->rows[i].gap_percent / (double)result->row_count;
        gaps.worst_percent = fmax(gaps.worst_percent, result->rows[i].gap_percent);
    }
    return gaps;
}

static void print_duration(const char *what, double seconds) {
    if (seconds < 1)
        printf("%s %s ms", what, HARPE_DIGITS(seconds * 1e3, 3));
    else
        printf("%s %s s", what, HARPE_DIGITS(seconds, 3));
}

static void print_work(const harpe_plan_result *result) {
    harpe_work work = harpe_frontier_work(result->frontier);
    size_t vertices = 0;
    (void)harpe_frontier_vertices(result->frontier, &vertices);
    print_duration("Exact frontier in", work.build_s + work.solve_s);
    printf(": %zu vertices, %llu pivots, %.1f MiB", vertices, (unsigned long long)work.pivots,
           (double)work.memory_bytes / 1048576);
    if (result->plans) {
        printf("; %zu plan%s", result->row_count, result->row_count == 1 ? "" : "s");
        print_duration(" in", work.assign_s);
        gap_summary gaps = summarize_gaps(result);
        printf(", %.3f %% (worst %.3f %%) above the bound", gaps.mean_percent, gaps.worst_percent);
    }
    printf("%s\n", result->verified ? "; verified" : "");
}

/* Adds the plan of least energy that is as fast as the highest clocks, if it needs clearly less
 * energy than the row of the fastest plan. */
static void add_no_slowdown(const harpe_plan_result *result, harpe_labelled_row *rows,
                            size_t *count) {
    if (result->row_count == 0) return;
    double highest_s = result->all_maximum.time_s;
    const harpe_frontier_row *row = harpe_plan_result_within(result, highest_s);
    double hidden_j = result->key_rows[HARPE_KEY_FASTEST].row.energy_j - row->energy_j;
    if (hidden_j < HIDDEN_SAVING * result->all_maximum.energy_j) return;
    rows[(*count)++] = (harpe_labelled_row){.label = "no slowdown", .row = *row};
}

/* Prints the key rows, and the plans with one clock with which they are compared: each of these
 * before the first row that is compared with it, but after the highest clocks. */
static void print_key_rows(const harpe_plan_result *result) {
    harpe_labelled_row rows[2 * HARPE_KEY_COUNT + 1];
    const harpe_frontier_row *shown = NULL;
    size_t count = 0;
    for (int k = 0; k < HARPE_KEY_COUNT; k++) {
        const harpe_frontier_row *one_clock = result->key_one_clock[k];
        if (k == HARPE_KEY_ALL_MAXIMUM) rows[count++] = result->key_rows[k];
        if (one_clock != shown) rows[count++] = harpe_one_clock_labelled(one_clock);
        if (k != HARPE_KEY_ALL_MAXIMUM) rows[count++] = result->key_rows[k];
        if (k == HARPE_KEY_FASTEST) add_no_slowdown(result, rows, &count);
        shown = one_clock;
    }
    harpe_rows_print(rows, count);
    const harpe_frontier_row *named = &result->key_rows[HARPE_KEY_FASTEST].row;
    const harpe_frontier_row *fastest = result->rows;
    if (result->row_count > 0 && fastest->energy_j > named->energy_j * (1 + HIDDEN_SAVING))
        printf("\nMeasured times vary by more than 0.1 %%: plan %d is shown in place of the "
               "fastest, %d, which takes %.4f %% less time and %.2f %% more energy.\n",
               named->plan, fastest->plan, 100 * (1 - fastest->time_s / named->time_s),
               100 * (fastest->energy_j / named->energy_j - 1));
}

void harpe_plan_summary_print(const harpe_problem_input *input, const harpe_plan_result *result,
                              const char *directory, bool has_report) {
    harpe_problem_input_print(input);
    printf("\n");
    print_key_rows(result);
    printf("\n");
    print_work(result);
    if (directory && has_report)
        printf("Report: %s%s/report.html%s\n", harpe_bold_start(), directory, harpe_bold_end());
    else if (directory)
        printf("Written: %s%s%s\n", harpe_bold_start(), directory, harpe_bold_end());
    harpe_plan_limits_print(&result->request);
}

/* Returns the plans with one clock, under the names of the rows that are compared with them. */
static json_t *one_clock_json(const harpe_plan_result *result) {
    json_t *object = json_object();
    for (int k = 0; k < HARPE_KEY_COUNT && result->one_clock.count > 0; k++)
        json_object_set_new(object, key_names[k], harpe_row_json(result->key_one_clock[k]));
    return object;
}

static json_t *summary_json(const harpe_plan_result *result) {
    json_t *summary = json_object();
    for (int k = 0; k < HARPE_KEY_COUNT; k++)
        json_object_set_new(summary, key_names[k], harpe_row_json(&result->key_rows[k].row));
    json_object_set_new(summary, "one_clock", one_clock_json(result));
    size_t vertices = 0;
    (void)harpe_frontier_vertices(result->frontier, &vertices);
    json_object_set_new(summary, "vertices", json_integer((json_int_t)vertices));
    json_object_set_new(summary, "plans", json_integer((json_int_t)result->row_count));
    if (result->row_count > 0) {
        gap_summary gaps = summarize_gaps(result);
        json_object_set_new(summary, "mean_gap_percent", json_real(gaps.mean_percent));
        json_object_set_new(summary, "worst_gap_percent", json_real(gaps.worst_percent));
    }
    json_object_set_new(summary, "verified", json_boolean(result->verified));
    json_object_set_new(summary, "power_limits", harpe_plan_kept_limits_json(&result->request));
    return summary;
}

static json_t *work_json(const harpe_plan_result *result) {
    harpe_work work = harpe_frontier_work(result->frontier);
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "pivots", (json_int_t)work.pivots,
                     "degenerate_pivots", (json_int_t)work.degenerate_pivots, "nodes_moved",
                     (json_int_t)work.nodes_moved, "path_steps", (json_int_t)work.path_steps,
                     "build_s", work.build_s, "solve_s", work.solve_s, "assign_s", work.assign_s,
                     "memory_bytes", (json_int_t)work.memory_bytes);
}

json_t *harpe_plan_result_json(const harpe_problem_input *input, const harpe_plan_result *result,
                               json_t *arguments) {
    json_t *profile = harpe_command_json_text(input->profile_path);
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "program", HARPE_PLAN_JSON_PROGRAM,
                     "version", harpe_version(), "arguments", arguments, "profile", profile,
                     "problem", harpe_problem_input_json(input), "summary", summary_json(result),
                     "work", work_json(result), "notes",
                     harpe_plan_notes(input, result->dwell_note));
}

/* ---- Files ----------------------------------------------------------------------------------- */

const char *harpe_plan_name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void harpe_plan_file_name(char name[64], bool is_of_graph, int number) {
    snprintf(name, 64, is_of_graph ? "plan_%05d.json" : HARPE_PLAN_FILE_NAME_FORMAT, number);
}

harpe_status harpe_plan_write_text(harpe_directory *directory, const char *name, harpe_text *text,
                                   harpe_status status, harpe_error *error) {
    if (status == HARPE_OK) status = harpe_command_check_signal(error);
    if (status == HARPE_OK && text->failed) status = harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = harpe_directory_write(directory, name, text->data, text->length, error);
    harpe_text_free(text);
    *text = (harpe_text){0};
    return status;
}

harpe_status harpe_plan_write_json(harpe_directory *directory, json_t *object, harpe_error *error) {
    char *text =
        object ? json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(JSON_DIGITS)) : NULL;
    json_decref(object);
    if (!text) return harpe_fail_memory(error);
    harpe_status status =
        harpe_directory_write(directory, HARPE_PLAN_JSON_NAME, text, strlen(text), error);
    free(text);
    return status;
}

static harpe_status write_bound(harpe_directory *directory, const harpe_plan_result *result,
                                harpe_error *error) {
    size_t count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(result->frontier, &count);
    harpe_text text = {0};
    harpe_bound_csv_format(&text, vertices, count);
    return harpe_plan_write_text(directory, HARPE_BOUND_FILE_NAME, &text, HARPE_OK, error);
}

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

/* Appends a plan of a graph as JSON: for each activity its option, frequency, start and slack. */
static harpe_status format_graph_plan(harpe_text *text, const harpe_graph *graph,
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

/* Returns the "total cost" in a plan file: the energy of the GPUs without that of their changes of
 * clock, minus the energy that all ranks would need if they only waited for the same time. */
static double total_cost_j(const harpe_frontier_row *row, double blocking_power_w) {
    return row->energy_j - row->change_energy_j - row->overhead_energy_j -
           blocking_power_w * row->time_s;
}

static harpe_status write_plans(harpe_directory *directory, const harpe_problem_input *input,
                                const harpe_plan_result *result, harpe_error *error) {
    harpe_text table = {0};
    harpe_frontier_csv_format(&table, result->rows, result->row_count);
    harpe_status status =
        harpe_plan_write_text(directory, HARPE_FRONTIER_FILE_NAME, &table, HARPE_OK, error);
    double power_w = input->problem->total_blocking_power_w;
    for (size_t i = 0; i < result->row_count && status == HARPE_OK; i++) {
        const harpe_frontier_row *row = &result->rows[i];
        const harpe_plan *plan = harpe_plan_set_at(result->plans, i);
        double change_j = 0;
        if (i + 1 < result->row_count)
            change_j = total_cost_j(row, power_w) - total_cost_j(row + 1, power_w);
        harpe_text text = {0};
        if (input->graph)
            status = format_graph_plan(&text, input->graph, input->problem, plan, error);
        else
            harpe_plan_file_format(&text, input->problem, plan, row->plan, change_j);
        char name[64];
        harpe_plan_file_name(name, input->graph, row->plan);
        status = harpe_plan_write_text(directory, name, &text, status, error);
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

/* Returns an empty list for a graph, because the file of the graph has the options. */
static json_t *option_lists_json(const harpe_problem_input *input) {
    json_t *lists = json_array();
    size_t count = input->graph ? 0 : harpe_problem_option_list_count(input->problem);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(lists,
                              option_list_json(harpe_problem_option_list_at(input->problem, i)));
    return lists;
}

static json_t *one_clock_rows_json(const harpe_one_clock_rows *of) {
    json_t *rows = json_array();
    for (size_t i = 0; i < of->count; i++)
        json_array_append_new(rows, harpe_row_json(&of->rows[i]));
    return rows;
}

harpe_status harpe_plan_output_write(harpe_directory *directory, const harpe_problem_input *input,
                                     const harpe_plan_result *result, json_t *arguments,
                                     harpe_error *error) {
    harpe_status status = write_bound(directory, result, error);
    if (status == HARPE_OK && arguments) status = write_plans(directory, input, result, error);
    if (status != HARPE_OK || !arguments) {
        json_decref(arguments);
        return status;
    }
    json_t *object = harpe_plan_result_json(input, result, arguments);
    json_object_set_new(object, "one_clock", one_clock_rows_json(&result->one_clock));
    json_object_set_new(object, "options", option_lists_json(input));
    return harpe_plan_write_json(directory, object, error);
}
