/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the page and its sections, from top to bottom. The script gets its data as JSON, and
 * web/report/report.css is the style. The page contains all information even if scripts
 * do not run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "draw/draw_internal.h"
#include "plan/plans.h"

/* ---- Data for the script --------------------------------------------------------------------- */

/* Writes the data for the page's script as JSON. Texts are escaped, so that they cannot end the
 * script element. The size is limited for every input: a plan contains only its differences from
 * the plan before it, and if there are too many points or plans, some are left out. web/report/
 * reads the data. */

#define PLANS_MAX 2000
#define VERTICES_MAX 1000
#define INSTRUCTIONS_MAX 20000 /* with more, the page shows only a picture */
#define CHANGES_SIZE_MAX 1000000

static void put(harpe_text *out, const char *text) { harpe_text_append(out, text, strlen(text)); }

/* Writes a comma, unless the element is the first one. */
static void put_comma(harpe_text *out, bool is_first) {
    if (!is_first) put(out, ",");
}

/* Writes numbers as [a,b,...]. */
static void put_numbers(harpe_text *out, const double *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        put(out, i == 0 ? "[" : ",");
        harpe_text_number(out, numbers[i]);
    }
    put(out, "]");
}

/* Writes a string in quotes. '<' is escaped, because "</script" would end the script element. */
static void put_string(harpe_text *out, const char *text) {
    size_t size = strlen(text) + 4;
    char *clean = harpe_calloc(size, 1);
    if (!clean) {
        out->failed = true;
        return;
    }
    put(out, "\"");
    for (const char *at = harpe_clean_text(clean, size, text); *at; at++)
        if (*at == '"' || *at == '\\' || *at == '<')
            harpe_text_printf(out, "\\u%04x", (unsigned)*at);
        else
            harpe_text_append(out, at, 1);
    put(out, "\"");
    free(clean);
}

/* A list of pairs of numbers: the distance from the previous place to this one, and a value. */
typedef struct pair_list {
    harpe_text *out;
    size_t last, count;
} pair_list;

static void put_pair(pair_list *list, size_t place, double value) {
    put_comma(list->out, list->count++ == 0);
    harpe_text_printf(list->out, "%zu,", place - list->last);
    harpe_text_number(list->out, value);
    list->last = place;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* The fastest and the slowest plan, and those of the page's headlines. A plan may repeat. */
typedef struct headlines {
    size_t plan[5];
} headlines;

/* Returns the index of the plan with the least energy among those that take at most `time_s`, or
 * plan_count if no plan does. */
static size_t report_best_within(const harpe_report *report, double time_s) {
    const harpe_frontier_picture *frontier = &report->frontier;
    const harpe_frontier_row *best =
        harpe_frontier_rows_within(frontier->plans, frontier->plan_count, time_s);
    return best ? (size_t)(best - frontier->plans) : frontier->plan_count;
}

static headlines find_headlines(const harpe_report *report) {
    double reference_s = report->frontier.reference.time_s;
    return (headlines){{0, report->frontier.plan_count - 1, report_best_within(report, reference_s),
                        report_best_within(report, reference_s * 1.05),
                        report_best_within(report, INFINITY)}};
}

static bool is_headline(const headlines *list, size_t plan) {
    for (size_t i = 0; i < sizeof list->plan / sizeof list->plan[0]; i++)
        if (list->plan[i] == plan) return true;
    return false;
}

/* Returns true if the page has this plan. The page has all headlines, and every nth plan. */
static bool is_shown(const harpe_report *report, const headlines *list, size_t plan) {
    size_t step = (report->frontier.plan_count + PLANS_MAX - 1) / PLANS_MAX;
    return plan % step == 0 || is_headline(list, plan);
}

static void put_plans(const harpe_report *report, const headlines *list, harpe_text *out) {
    put(out, ",\n\"plans\":[");
    for (size_t i = 0; i < report->frontier.plan_count; i++) {
        const harpe_frontier_row *row = &report->frontier.plans[i];
        if (!is_shown(report, list, i)) continue;
        put_comma(out, i == 0);
        put_numbers(out,
                    (double[]){row->plan, row->time_s, row->energy_j, row->lower_bound_j,
                               row->peak_power_w, row->swing_w},
                    6);
    }
    put(out, "],\n\"one_clock\":[");
    for (size_t i = 0; i < report->frontier.one_clock_count; i++) {
        const harpe_frontier_row *row = &report->frontier.one_clock[i];
        put_comma(out, i == 0);
        put_numbers(out, (double[]){row->one_clock_mhz, row->time_s, row->energy_j}, 3);
    }
    put(out, "],\n\"bound\":[");
    size_t count = report->frontier.bound_count, step = (count + VERTICES_MAX - 1) / VERTICES_MAX;
    for (size_t i = 0; i < count; i++) {
        const harpe_frontier_vertex *vertex = &report->frontier.bound[i];
        if (i % step != 0 && i + 1 != count) continue;
        put_comma(out, i == 0);
        put_numbers(out, (double[]){vertex->time_s, vertex->lower_bound_j}, 2);
    }
    put(out, "]");
}

/* ---- Timeline -------------------------------------------------------------------------------- */

static void put_entries(const harpe_problem *problem, harpe_text *out) {
    put(out, "\"entries\":[");
    for (size_t i = 0; i < problem->choice_count - problem->delay_choice_count; i++) {
        const harpe_choice *choice = &problem->choices[i];
        put_comma(out, i == 0);
        harpe_text_printf(out, "{\"stage\":%d,\"instruction\":", choice->list.stage);
        put_string(out, choice->list.instruction);
        int gpus = problem->gpu_count[choice->list.rank];
        if (gpus > 1) harpe_text_printf(out, ",\"gpus\":%d", gpus);
        put(out, ",\"points\":[");
        for (size_t k = 0; k < choice->point_count; k++) {
            const harpe_profile_point *point = &choice->points[k];
            put_comma(out, k == 0);
            put_numbers(out, (double[]){point->frequency_mhz, point->time_s, point->energy_j}, 3);
        }
        put(out, "]}\n");
    }
    put(out, "]");
}

static void put_ranks(const harpe_problem *problem, harpe_text *out) {
    put(out, ",\n\"ranks\":[");
    for (int r = 0; r < problem->rank_count; r++) {
        size_t first = problem->rank_offset[r], end = problem->rank_offset[r + 1];
        put(out, r == 0 ? "{\"entry\":[" : ",{\"entry\":[");
        for (size_t i = first; i < end; i++)
            harpe_text_printf(out, i == first ? "%d" : ",%d", problem->choice_of[i]);
        put(out, "],\"microbatch\":[");
        for (size_t i = first; i < end; i++)
            harpe_text_printf(out, i == first ? "%d" : ",%d", problem->action_of[i].microbatch);
        put(out, "]}\n");
    }
    put(out, "]");
}

/* Writes for which others each instruction waits, apart from the instruction before it on its rank,
 * and its lag: how long it still waits after the others have ended. */
static void put_waits(const harpe_problem *problem, harpe_text *out) {
    const harpe_dag *dag = &problem->dag;
    harpe_text lags = {0};
    pair_list wait_list = {.out = out}, lag_list = {.out = &lags};
    put(out, ",\n\"waits\":[");
    for (int r = 0; r < problem->rank_count; r++) {
        for (size_t i = problem->rank_offset[r]; i < problem->rank_offset[r + 1]; i++) {
            double lag_s = 0;
            for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++) {
                int32_t from = dag->arc_from[a];
                if (harpe_problem_is_delay(problem, from)) {
                    if (!(lag_s > 0)) lag_s = harpe_problem_choice(problem, from)->points[0].time_s;
                    from = dag->arc_from[dag->first_arc_into[from]];
                }
                if (i == problem->rank_offset[r] || (size_t)from != i - 1)
                    put_pair(&wait_list, i, from);
            }
            if (lag_s > 0) put_pair(&lag_list, i, lag_s);
        }
    }
    put(out, "]");
    if (lag_list.count > 0) harpe_text_printf(out, ",\n\"lags\":[%s]", lags.data ? lags.data : "");
    out->failed |= lags.failed;
    harpe_text_free(&lags);
}

/* Writes a plan as differences from `before`, the plan written before, or from the highest
 * frequencies if there is none: each instruction that changes, and the index of its new point. */
static void put_changes(const harpe_problem *problem, const int *before, const int *now,
                        harpe_text *out) {
    pair_list list = {.out = out};
    put(out, "[");
    for (size_t i = 0; i < harpe_problem_instruction_count(problem); i++) {
        if (before && before[i] == now[i]) continue;
        const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
        const harpe_profile_point *found = harpe_choice_point(choice, now[i]);
        size_t point = found ? (size_t)(found - choice->points) : 0;
        if (before || point != 0) put_pair(&list, i, (double)point);
    }
    put(out, "]");
}

/* Writes the plans of the page: the headline plans and every `step`-th plan, and null for the
 * others. Stops early if the text becomes too long. */
static void put_all_changes(const harpe_report *report, const headlines *list, size_t step,
                            harpe_text *out) {
    const int *before = NULL;
    size_t shown = 0;
    for (size_t i = 0; i < report->frontier.plan_count && out->length <= CHANGES_SIZE_MAX; i++) {
        if (!is_shown(report, list, i)) continue;
        const int *now = report->frequency_mhz[i];
        put_comma(out, i == 0);
        bool is_laid_out = shown++ % step == 0 || is_headline(list, i);
        if (is_laid_out)
            put_changes(report->problem, before, now, out);
        else
            put(out, "null");
        if (is_laid_out) before = now;
    }
}

static void put_timeline(const harpe_report *report, const headlines *list, harpe_text *out) {
    put(out, ",\n\"timeline\":{");
    put_entries(report->problem, out);
    put_ranks(report->problem, out);
    put_waits(report->problem, out);
    harpe_text changes = {0};
    for (size_t step = 1; step <= 2 * PLANS_MAX; step *= 2) {
        changes.length = 0;
        put_all_changes(report, list, step, &changes);
        if (changes.length <= CHANGES_SIZE_MAX) break;
    }
    put(out, ",\n\"plans\":[");
    harpe_text_append(out, changes.data, changes.length);
    put(out, "]}");
    out->failed |= changes.failed;
    harpe_text_free(&changes);
}

/* Writes the data for the script as JSON. */
static void report_put_data(const harpe_report *report, harpe_text *out) {
    put(out, "<script type=\"application/json\" id=\"data\">{\"directory\":");
    put_string(out, report->directory);
    if (report->problem->graph) put(out, ",\"graph\":true");
    put(out, ",\"reference\":");
    const harpe_frontier_row *reference = &report->frontier.reference;
    put_numbers(out, (double[]){reference->time_s, reference->energy_j}, 2);
    if (report->frontier.plans[0].overhead_energy_j > 0) put(out, ",\n\"has_overhead\":true");
    headlines list = find_headlines(report);
    put_plans(report, &list, out);
    if (report->frequency_mhz &&
        harpe_problem_instruction_count(report->problem) <= INSTRUCTIONS_MAX)
        put_timeline(report, &list, out);
    put(out, "}</script>\n");
}

/* ---- The page -------------------------------------------------------------------------------- */

#define COST_PANELS_MAX 24 /* panels in the page; more panels are only in separate files */
#define ROWS_MAX 400       /* rows of the folded table */
/* The place where the script puts the elements that replace a section's pictures. */
#define INTERACTIVE "<div class=\"interactive\"></div>\n"

/* Writes escaped text, and replaces characters that a page must not contain. */
static void put_text(harpe_text *out, const char *text) {
    size_t size = strlen(text) + 4;
    char *clean = harpe_calloc(size, 1);
    out->failed |= !clean;
    if (clean) harpe_text_html(out, harpe_clean_text(clean, size, text));
    free(clean);
}

static void put_head(const harpe_report *report, harpe_text *out) {
    put(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
             "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>");
    put_text(out, report->title);
    put(out, " \xe2\x80\x93 Harpe</title>\n<style>\n:root{");
    harpe_put_inks(out, false);
    put(out, "}\n@media (prefers-color-scheme:dark){:root{");
    harpe_put_inks(out, true);
    put(out, "}}\n@media print{:root{");
    harpe_put_inks(out, false);
    put(out, "}}\n");
    harpe_text_append(out, (const char *)harpe_report_style, harpe_report_style_size);
    put(out, "</style>\n</head>\n<body>\n<main>\n<header><p class=\"brand\">Harpe: time and energy "
             "of ");
    put(out, report->problem->graph ? "training</p><h1>" : "pipeline training</p><h1>");
    put_text(out, report->title);
    put(out, "</h1></header>\n");
}

/* ---- Comparisons ----------------------------------------------------------------------------- */

/* Returns the plan with one clock that needs the least energy within a time, or within that of the
 * reference if it is longer; NULL: there is none. */
static const harpe_frontier_row *one_clock_within(const harpe_report *report, double time_s) {
    const harpe_frontier_picture *frontier = &report->frontier;
    return harpe_frontier_rows_within(frontier->one_clock, frontier->one_clock_count,
                                      fmax(time_s, frontier->reference.time_s));
}

/* Returns how much less energy a plan needs than the plan with one clock, in percent. */
static double one_clock_savings(const harpe_report *report, const harpe_frontier_row *plan,
                                double most_s) {
    const harpe_frontier_row *other = one_clock_within(report, most_s);
    return other ? (1.0 - plan->energy_j / other->energy_j) * 100.0 : 0.0;
}

/* ---- Headlines ------------------------------------------------------------------------------- */

/* Writes what one clock for all GPUs saves within a time, and what a plan saves against it. */
static void put_one_clock(const harpe_report *report, harpe_text *out,
                          const harpe_frontier_row *plan, double most_s) {
    char number[HARPE_NUMBER_SIZE];
    const harpe_frontier_row *other = one_clock_within(report, most_s);
    if (!other) return;
    double savings = one_clock_savings(report, plan, most_s);
    harpe_text_printf(out, "<div>%s %s than ", harpe_format_percent(number, savings),
                      savings >= -0.005 ? "less" : "more");
    if (other->one_clock_mhz > 0)
        harpe_text_printf(out, "one clock, %d MHz, which ", other->one_clock_mhz);
    else
        put(out, "the highest clocks, which ");
    double own = (1.0 - other->energy_j / report->frontier.reference.energy_j) * 100.0;
    harpe_text_printf(out, "saves %s</div>", harpe_format_percent(number, own));
}

/* Writes a plan as a headline. It is compared with one clock for all GPUs within `most_s`. */
static void put_headline(const harpe_report *report, harpe_text *out, const char *name,
                         size_t index, double most_s) {
    char number[HARPE_NUMBER_SIZE];
    const harpe_frontier_row *plan = &report->frontier.plans[index];
    double savings = plan->savings_percent, slowdown = plan->slowdown_percent;
    harpe_text_printf(out,
                      "<div class=\"headline\"><div class=\"name\">%s</div>"
                      "<div class=\"number\">%s</div><div>%s energy, ",
                      name, harpe_format_percent(number, savings),
                      savings >= -0.005 ? "less" : "more");
    if (fabs(slowdown) < 0.005)
        put(out, "the same time");
    else
        harpe_text_printf(out, "%s %s", harpe_format_percent(number, slowdown),
                          slowdown > 0.0 ? "slower" : "faster");
    put(out, "</div>");
    put_one_clock(report, out, plan, most_s);
    harpe_text_printf(out, "<div class=\"detail\">plan %d: %s, %s</div></div>\n", plan->plan,
                      HARPE_TIME(plan->time_s), HARPE_ENERGY(plan->energy_j));
}

static void put_headlines(const harpe_report *report, harpe_text *out) {
    const harpe_frontier_picture *frontier = &report->frontier;
    double reference_s = frontier->reference.time_s;
    put(out, "<section class=\"headlines\" aria-label=\"Headline numbers\">\n");
    size_t least = report_best_within(report, INFINITY);
    size_t same_time = report_best_within(report, reference_s);
    size_t within = report_best_within(report, reference_s * 1.05);
    if (same_time < frontier->plan_count && same_time != least)
        put_headline(report, out, "Without any slowdown", same_time, reference_s);
    else if (same_time != least)
        put_headline(report, out, "Fastest plan", 0, frontier->plans[0].time_s);
    if (within < frontier->plan_count && within != least && within != same_time)
        put_headline(report, out, "At most 5 % slower", within, reference_s * 1.05);
    put_headline(report, out, "Least energy", least, frontier->plans[least].time_s);
    harpe_text_printf(out,
                      "</section>\n<p class=\"note\">Compared with every %s at its highest "
                      "profiled frequency: %s and %s per iteration.%s</p>\n",
                      report->problem->graph ? "activity" : "instruction", HARPE_TIME(reference_s),
                      HARPE_ENERGY(frontier->reference.energy_j),
                      frontier->one_clock_count > 0
                          ? " One clock is the best clock for all GPUs in the same time."
                          : "");
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void put_cell(harpe_text *out, double value, int decimals) {
    char number[HARPE_NUMBER_SIZE];
    harpe_format_fixed(number, fabs(value), decimals);
    bool is_negative = value < 0.0 && strpbrk(number, "123456789"); /* no minus sign before 0.00 */
    harpe_text_printf(out, "<td>%s%s</td>", is_negative ? "\xe2\x88\x92" : "", number);
}

/* Begins a table in a region that the keyboard can scroll. The most useful columns come first,
 * because a narrow screen shows only the first ones. */
static void put_table_head(const harpe_report *report, harpe_text *out, bool has_names) {
    harpe_text_printf(out,
                      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
                      "<table>\n<thead><tr>%s",
                      has_names ? "Plans to choose from" : "Plans", has_names ? "<td></td>" : "");
    put(out, "<th>plan</th><th>saved<br><small>%</small></th>");
    if (report->frontier.one_clock_count > 0)
        put(out, "<th>against one clock<br><small>%</small></th>");
    put(out, "<th>slower<br><small>%</small></th><th>time<br><small>s</small></th>"
             "<th>energy<br><small>J</small></th><th>lower bound<br><small>J</small></th>"
             "<th>gap<br><small>%</small></th><th>waiting<br><small>J</small></th>");
    if (report->frontier.plans[0].overhead_energy_j > 0)
        put(out, "<th>overhead<br><small>J</small></th>");
    put(out, "<th>per GPU<br><small>W</small></th><th>peak<br><small>W</small></th>"
             "<th>swing<br><small>W</small></th></tr></thead>\n<tbody>\n");
}

/* Writes the row of a plan. It is compared with one clock for all GPUs within `most_s`. */
static void put_row(const harpe_report *report, harpe_text *out, const char *name,
                    const harpe_frontier_row *plan, double most_s) {
    int energy_decimals = plan->energy_j < 100.0 ? 3 : plan->energy_j < 1e5 ? 1 : 0;
    put(out, "<tr>");
    if (name) harpe_text_printf(out, "<th class=\"text\" scope=\"row\">%s</th>", name);
    harpe_text_printf(out, "<td>%d</td>", plan->plan);
    put_cell(out, plan->savings_percent, 2);
    if (report->frontier.one_clock_count > 0)
        put_cell(out, one_clock_savings(report, plan, most_s), 2);
    put_cell(out, plan->slowdown_percent, 2);
    put_cell(out, plan->time_s, plan->time_s < 1.0 ? 5 : 4);
    put_cell(out, plan->energy_j, energy_decimals);
    put_cell(out, plan->lower_bound_j, energy_decimals);
    put_cell(out, plan->gap_percent, 3);
    put_cell(out, plan->blocking_energy_j, energy_decimals);
    if (report->frontier.plans[0].overhead_energy_j > 0)
        put_cell(out, plan->overhead_energy_j, energy_decimals);
    put_cell(out, plan->average_power_w, 1);
    put_cell(out, plan->peak_power_w, 0);
    put_cell(out, plan->swing_w, 0);
    put(out, "</tr>\n");
}

/* Writes a short table of the most useful plans. */
static void put_key_rows(const harpe_report *report, harpe_text *out) {
    static const struct {
        const char *name;
        double slowdown;
    } rows[] = {
        {"no slowdown", 0.0},        {"at most 1 % slower", 1.0},   {"at most 2 % slower", 2.0},
        {"at most 5 % slower", 5.0}, {"at most 10 % slower", 10.0}, {"least energy", INFINITY},
    };
    const harpe_frontier_row *plans = report->frontier.plans;
    double reference_s = report->frontier.reference.time_s;
    put_table_head(report, out, true);
    put_row(report, out, "fastest", &plans[0], plans[0].time_s);
    size_t least = report_best_within(report, INFINITY), before = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool is_last = isinf(rows[i].slowdown);
        double most_s =
            is_last ? plans[least].time_s : reference_s * (1.0 + rows[i].slowdown / 100.0);
        size_t best = is_last ? least : report_best_within(report, most_s);
        if (best == report->frontier.plan_count || best == before || (best == least && !is_last))
            continue;
        put_row(report, out, rows[i].name, &plans[best], most_s);
        before = best;
    }
    put(out, "</tbody></table></div>\n");
}

/* Writes a folded table of all plans. */
static void put_all_rows(const harpe_report *report, harpe_text *out) {
    size_t count = report->frontier.plan_count, step = (count + ROWS_MAX - 1) / ROWS_MAX;
    if (step <= 1)
        harpe_text_printf(out, "<details><summary>All %zu plans</summary>\n", count);
    else
        harpe_text_printf(out,
                          "<details><summary>One in %zu of %zu plans (all are in frontier.csv)"
                          "</summary>\n",
                          step, count);
    put_table_head(report, out, false);
    for (size_t i = 0; i < count; i += step)
        put_row(report, out, NULL, &report->frontier.plans[i], report->frontier.plans[i].time_s);
    put(out, "</tbody></table></div>\n</details>\n");
}

/* ---- Pictures -------------------------------------------------------------------------------- */

static harpe_status put_frontier(const harpe_report *report, harpe_text *out, harpe_error *error) {
    put(out, "<section id=\"frontier\">\n<h2>Frontier</h2>\n<figure class=\"frontier scroll\" "
             "tabindex=\"0\" aria-label=\"Frontier\">\n");
    harpe_status status = harpe_draw_frontier(&report->frontier, true, out, error);
    put(out, "</figure>\n" INTERACTIVE);
    put_key_rows(report, out);
    if (report->frontier.plan_count > 1) put_all_rows(report, out);
    put(out, "</section>\n");
    return status;
}

static harpe_status put_pipelines(const harpe_report *report, harpe_text *out, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (report->pipeline_count == 0) return status;
    if (report->problem->graph) {
        put(out,
            "<section id=\"pipeline\">\n<h2>Iteration</h2>\n<p>Each lane is a resource, each box "
            "an activity, its colour the power it draws. Activities without a resource are in "
            "lanes below the resources. Activities beside the critical path run slower and "
            "cooler, and the iteration does not wait for them.</p>\n");
    } else {
        put(out,
            "<section id=\"pipeline\">\n<h2>Pipeline</h2>\n<p>Each lane is a rank, each box an "
            "instruction, its colour the power it draws. Instructions beside the critical path "
            "run slower and cooler, and the iteration does not wait for them.</p>\n");
    }
    for (size_t i = 0; i < report->pipeline_count && status == HARPE_OK; i++) {
        put(out, "<figure class=\"scroll\" tabindex=\"0\" aria-label=\"Pipeline\">\n");
        status = harpe_draw_pipeline(&report->pipelines[i], true, out, error);
        put(out, "</figure>\n");
    }
    put(out, INTERACTIVE "</section>\n");
    return status;
}

/* Writes a picture per panel, so that the page can arrange them. */
static harpe_status put_cost_model(const harpe_cost_model_picture *model, size_t *room,
                                   harpe_text *out, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (model->title) {
        put(out, "<h3>");
        put_text(out, model->title);
        put(out, "</h3>\n");
    }
    put(out, "<div class=\"panels\">\n");
    for (size_t i = 0; i<model->panel_count && * room> 0 && status == HARPE_OK; i++) {
        harpe_cost_model_picture one = *model;
        one.title = NULL;
        one.panels = &model->panels[i];
        one.panel_count = 1;
        put(out, "<figure>\n");
        status = harpe_draw_cost_model(&one, true, out, error);
        put(out, "</figure>\n");
        *room -= 1;
    }
    put(out, "</div>\n");
    return status;
}

static harpe_status put_cost_models(const harpe_report *report, harpe_text *out,
                                    harpe_error *error) {
    if (report->cost_model_count == 0) return HARPE_OK;
    put(out, "<section>\n<h2>Cost models</h2>\n<p>The time of one run of an instruction at each "
             "frequency, and its energy minus the energy of waiting for the same time. The plans "
             "use the filled points, and the lower bound uses the line.</p>\n");
    size_t room = COST_PANELS_MAX;
    size_t shown = 0;
    harpe_status status = HARPE_OK;
    while (shown < report->cost_model_count && room > 0 && status == HARPE_OK)
        status = put_cost_model(&report->cost_models[shown++], &room, out, error);
    if (shown < report->cost_model_count) {
        put(out, "<p class=\"note\">The others are in the cost_model files beside this "
                 "page.</p>\n");
    }
    put(out, "</section>\n");
    return status;
}

/* ---- Words ----------------------------------------------------------------------------------- */

static bool needs_quotes(const char *argument) {
    return argument[0] == '\0' ||
           strspn(argument, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789_-./=:,+@%") != strlen(argument);
}

/* Writes an argument in the form in which a shell accepts it. */
static void put_argument(harpe_text *out, const char *argument) {
    if (!needs_quotes(argument)) {
        put_text(out, argument);
        return;
    }
    harpe_text quoted = {0};
    harpe_text_append(&quoted, "'", 1);
    for (; *argument; argument++)
        if (*argument == '\'')
            harpe_text_append(&quoted, "'\\''", 4);
        else
            harpe_text_append(&quoted, argument, 1);
    harpe_text_append(&quoted, "'", 1);
    if (quoted.failed)
        out->failed = true;
    else
        put_text(out, quoted.data);
    harpe_text_free(&quoted);
}

static void put_use(const harpe_report *report, harpe_text *out) {
    const harpe_frontier_row *plans = report->frontier.plans;
    int best = plans[report_best_within(report, plans[0].time_s)].plan;
    put(out, "<section>\n<h2>Use a plan</h2>\n<p>Let Harpe choose one, for example the plan of "
             "least energy that is at most 5 % slower:</p>\n<pre>harpe choose ");
    put_argument(out, report->directory);
    put(out, " --max-slowdown 1.05</pre>\n<p>");
    if (report->problem->graph) {
        put(out, "or read the option of every activity from a plan's file, for example");
    } else {
        put(out, "or have <code>harpe serve</code> hand one to a training "
                 "job, with a plan's file as its <code>solution_path</code>, for example");
    }
    put(out, "</p>\n<pre>");
    /* the directory and the name form one argument */
    harpe_text path = {0};
    harpe_text_printf(&path,
                      report->problem->graph ? "%s/plan_%05d.json" : "%s/freqs_pipeline_%05d.py",
                      report->directory, best);
    if (path.failed)
        out->failed = true;
    else
        put_argument(out, path.data);
    harpe_text_free(&path);
    put(out, "</pre>\n<p>A larger number is a faster plan. All plans are in frontier.csv, every "
             "vertex of the lower bound in bound.csv.</p>\n</section>\n");
}

static void put_reading(const harpe_report *report, harpe_text *out) {
    put(out, "<section>\n<h2>How to read this</h2>\n<ul>\n<li>");
    if (report->problem->graph) {
        put(out, "A plan gives every activity one of its options. Its time and energy come from "
                 "the options of the graph: the longest path over their times, and the energies "
                 "of the activities plus the energy of waiting resources.</li>\n<li>The lower "
                 "bound is the exact optimum when an activity may take any ");
    } else {
        put(out, "A plan gives every instruction of every rank its own GPU frequency. Its time "
                 "and energy come from the measured profile: the longest path over measured "
                 "times, and the measured energies plus the energy of waiting.</li>\n<li>The "
                 "lower bound is the exact optimum when an instruction may take any ");
    }
    put(out,
        "duration along its cost model's curve. With the hull cost model no plan that takes the "
        "same time can need less; the gap is the largest possible distance of a plan from "
        "it.</li>\n<li>No plan exists to the left of the frontier. To the right of the plan of "
        "least energy, an iteration is slower and needs more energy, because waiting costs power "
        "too.</li>\n<li>If another part of the job is slower anyway, choose the slowest plan that "
        "does not delay it: <code>harpe choose --straggler</code>.</li>\n</ul>\n</section>\n");
}

static void put_facts(const harpe_report *report, harpe_text *out) {
    put(out, "<section>\n<h2>How this was made</h2>\n<dl>\n");
    for (size_t i = 0; i < report->fact_count; i++) {
        put(out, "<dt>");
        put_text(out, report->facts[i].name);
        put(out, "</dt><dd>");
        put_text(out, report->facts[i].value);
        put(out, "</dd>\n");
    }
    put(out, "<dt>Harpe</dt><dd>");
    put_text(out, report->version);
    put(out, "</dd>\n</dl>\n");
    if (report->argument_count > 0) {
        put(out, "<pre>");
        for (size_t i = 0; i < report->argument_count; i++) {
            put(out, i > 0 ? " " : "");
            put_argument(out, report->arguments[i]);
        }
        put(out, "</pre>\n");
    }
    put(out, "</section>\n");
}

harpe_status harpe_report_write(const harpe_report *report, harpe_text *out, harpe_error *error) {
    size_t before = out->length;
    put_head(report, out);
    put_headlines(report, out);
    harpe_status status = put_frontier(report, out, error);
    if (status == HARPE_OK) status = put_pipelines(report, out, error);
    if (status == HARPE_OK) {
        put_use(report, out);
        status = put_cost_models(report, out, error);
    }
    put_reading(report, out);
    put_facts(report, out);
    put(out, "</main>\n");
    report_put_data(report, out);
    put(out, "<script type=\"module\">");
    harpe_text_append(out, (const char *)harpe_report_script, harpe_report_script_size);
    put(out, "</script>\n</body>\n</html>\n");
    if (status == HARPE_OK && out->failed) status = harpe_fail_memory(error);
    if (status != HARPE_OK) out->length = before;
    return status;
}
