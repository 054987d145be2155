/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the data for the page's script as JSON. Texts are escaped, so that they cannot end the
 * script element. The size is limited for every input: a plan contains only its differences from
 * the plan before it, and if there are too many points or plans, some are left out. web/report/
 * reads the data. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/format.h"
#include "draw/draw_internal.h"

#define PLANS_MAX 2000
#define VERTICES_MAX 1000
#define INSTRUCTIONS_MAX 20000 /* with more, the page shows only a picture */
#define CHANGES_SIZE_MAX 1000000

static void put(harpe_text *out, const char *text) { harpe_text_append(out, text, strlen(text)); }

/* Writes a comma before every element except the first. */
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

static headlines find_headlines(const harpe_report *report) {
    double reference_s = report->frontier.reference.time_s;
    return (headlines){{0, report->frontier.plan_count - 1,
                        harpe_report_best_within(report, reference_s),
                        harpe_report_best_within(report, reference_s * 1.05),
                        harpe_report_best_within(report, INFINITY)}};
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

static size_t point_of(const harpe_choice *choice, int mhz) {
    for (size_t i = 0; i < choice->point_count; i++)
        if (choice->points[i].frequency_mhz == mhz) return i;
    return 0; /* the frequency is not among the points */
}

/* Writes a plan as differences from `before`, the plan written before, or from the highest
 * frequencies if there is none: each instruction that changes, and the index of its new point. */
static void put_changes(const harpe_problem *problem, const int *before, const int *now,
                        harpe_text *out) {
    pair_list list = {.out = out};
    put(out, "[");
    for (size_t i = 0; i < harpe_problem_instruction_count(problem); i++) {
        if (before && before[i] == now[i]) continue;
        size_t point = point_of(harpe_problem_choice(problem, (int32_t)i), now[i]);
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

void harpe_report_put_data(const harpe_report *report, harpe_text *out) {
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
