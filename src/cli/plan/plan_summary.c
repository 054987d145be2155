/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the result of `harpe plan`: a few lines for people, or JSON for programs. The only numbers
 * that it computes are the mean gap and the worst gap. */
#include "cli/plan/plan_summary.h"

#include <math.h>
#include <stdio.h>

#include "base/format.h"
#include "cli/command.h"
#include "cli/plan/plan_result.h"

/* A saving below this share of the highest clocks' energy has no row of its own. */
#define HIDDEN_SAVING 0.001

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

/* ---- For people ------------------------------------------------------------------------------ */

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

/* Adds the best plan that is as fast as the highest clocks, if the fastest plan hides its saving:
 * it may be faster by almost nothing. */
static void add_no_slowdown(const harpe_plan_result *result, harpe_labelled_row *rows,
                            size_t *count) {
    if (result->row_count == 0) return;
    double highest_s = result->all_maximum.time_s;
    const harpe_frontier_row *row = harpe_plan_result_within(result, highest_s);
    double hidden_j = result->rows[0].energy_j - row->energy_j;
    if (hidden_j < HIDDEN_SAVING * result->all_maximum.energy_j) return;
    rows[(*count)++] = (harpe_labelled_row){.label = "no slowdown", .row = *row};
}

/* Prints the key rows. Before a row that is compared with another plan with one clock than the rows
 * above comes this plan. */
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
}

/* ---- For programs ---------------------------------------------------------------------------- */

/* Returns the plans with one clock, under the names of the rows that are compared with them. */
static json_t *one_clock_json(const harpe_plan_result *result) {
    json_t *object = json_object();
    for (int k = 0; k < HARPE_KEY_COUNT && result->one_clock.count > 0; k++)
        json_object_set_new(object, key_names[k], harpe_row_json(result->key_one_clock[k]));
    return object;
}

json_t *harpe_plan_summary_json(const harpe_plan_result *result) {
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
    return summary;
}

json_t *harpe_plan_work_json(const harpe_plan_result *result) {
    harpe_work work = harpe_frontier_work(result->frontier);
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "pivots", (json_int_t)work.pivots,
                     "degenerate_pivots", (json_int_t)work.degenerate_pivots, "nodes_moved",
                     (json_int_t)work.nodes_moved, "path_steps", (json_int_t)work.path_steps,
                     "build_s", work.build_s, "solve_s", work.solve_s, "assign_s", work.assign_s,
                     "memory_bytes", (json_int_t)work.memory_bytes);
}
