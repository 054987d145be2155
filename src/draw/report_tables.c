/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the tables of the report: a short table of the most useful plans, and a folded table of
 * all plans. */
#include "draw/report_tables.h"

#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/number_print.h"
#include "draw/report_savings.h"

#define ROWS_MAX 400 /* rows of the folded table */

static void put(harpe_text *out, const char *html) { harpe_text_append(out, html, strlen(html)); }

static void put_cell(harpe_text *out, double value, int decimals) {
    char number[HARPE_NUMBER_SIZE];
    harpe_format_fixed(number, fabs(value), decimals);
    bool is_negative = value < 0.0 && strpbrk(number, "123456789"); /* no minus sign before 0.00 */
    harpe_text_printf(out, "<td>%s%s</td>", is_negative ? "\xe2\x88\x92" : "", number);
}

static bool has_overhead(const harpe_report *report) {
    return report->plans[0].overhead_energy_j > 0;
}

/* Begins a table in a region that the keyboard can scroll. */
static void put_table_head(const harpe_report *report, harpe_text *out, bool has_names) {
    harpe_text_printf(out,
                      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">"
                      "<table>\n<thead><tr>%s",
                      has_names ? "Plans to choose from" : "Plans", has_names ? "<td></td>" : "");
    put(out, "<th>plan</th>");
    if (report->has_reference) /* columns that a narrow screen shows first */
        put(out, "<th>saved<br><small>%</small></th>");
    if (report->one_clock_count > 0) put(out, "<th>against one clock<br><small>%</small></th>");
    if (report->has_reference) put(out, "<th>slower<br><small>%</small></th>");
    put(out, "<th>time<br><small>s</small></th><th>energy<br><small>J</small></th>"
             "<th>lower bound<br><small>J</small></th><th>gap<br><small>%</small></th>"
             "<th>waiting<br><small>J</small></th>");
    if (has_overhead(report)) put(out, "<th>overhead<br><small>J</small></th>");
    put(out, "<th>per GPU<br><small>W</small></th><th>peak<br><small>W</small></th>"
             "<th>swing<br><small>W</small></th></tr></thead>\n<tbody>\n");
}

/* Writes the row of a plan. It is compared with one clock for all GPUs within `most_s`. */
static void put_row(const harpe_report *report, harpe_text *out, const char *name,
                    const harpe_report_plan *plan, double most_s) {
    int energy_decimals = plan->energy_j < 100.0 ? 3 : plan->energy_j < 1e5 ? 1 : 0;
    put(out, "<tr>");
    if (name) harpe_text_printf(out, "<th class=\"text\" scope=\"row\">%s</th>", name);
    harpe_text_printf(out, "<td>%d</td>", plan->number);
    if (report->has_reference) put_cell(out, harpe_report_savings(report, plan), 2);
    if (report->one_clock_count > 0)
        put_cell(out, harpe_report_one_clock_savings(report, plan, most_s), 2);
    if (report->has_reference) put_cell(out, harpe_report_slowdown(report, plan), 2);
    put_cell(out, plan->time_s, plan->time_s < 1.0 ? 5 : 4);
    put_cell(out, plan->energy_j, energy_decimals);
    put_cell(out, plan->lower_bound_j, energy_decimals);
    put_cell(out, harpe_report_gap(plan), 3);
    put_cell(out, plan->blocking_energy_j, energy_decimals);
    if (has_overhead(report)) put_cell(out, plan->overhead_energy_j, energy_decimals);
    put_cell(out, plan->average_power_w, 1);
    put_cell(out, plan->peak_power_w, 0);
    put_cell(out, plan->swing_w, 0);
    put(out, "</tr>\n");
}

static void put_key_rows(const harpe_report *report, harpe_text *out) {
    static const struct {
        const char *name;
        double slowdown;
    } rows[] = {
        {"no slowdown", 0.0},        {"at most 1 % slower", 1.0},   {"at most 2 % slower", 2.0},
        {"at most 5 % slower", 5.0}, {"at most 10 % slower", 10.0}, {"least energy", INFINITY},
    };
    const size_t row_count = sizeof rows / sizeof rows[0];
    double reference_s = report->has_reference ? report->reference.time_s : report->plans[0].time_s;
    put_table_head(report, out, true);
    put_row(report, out, "fastest", &report->plans[0], report->plans[0].time_s);
    size_t least = harpe_report_best_within(report, INFINITY);
    size_t before = 0;
    for (size_t i = 0; i < row_count; i++) {
        bool is_last = i + 1 == row_count;
        double most_s =
            is_last ? report->plans[least].time_s : reference_s * (1.0 + rows[i].slowdown / 100.0);
        size_t best = is_last ? least : harpe_report_best_within(report, most_s);
        if (best == report->plan_count || best == before || (best == least && !is_last)) continue;
        put_row(report, out, rows[i].name, &report->plans[best], most_s);
        before = best;
    }
    put(out, "</tbody></table></div>\n");
}

static void put_all_rows(const harpe_report *report, harpe_text *out) {
    size_t step = (report->plan_count + ROWS_MAX - 1) / ROWS_MAX;
    if (step <= 1) {
        harpe_text_printf(out, "<details><summary>All %zu plans</summary>\n", report->plan_count);
    } else {
        harpe_text_printf(out,
                          "<details><summary>One in %zu of %zu plans (all are in frontier.csv)"
                          "</summary>\n",
                          step, report->plan_count);
    }
    put_table_head(report, out, false);
    for (size_t i = 0; i < report->plan_count; i += step)
        put_row(report, out, NULL, &report->plans[i], report->plans[i].time_s);
    put(out, "</tbody></table></div>\n</details>\n");
}

void harpe_report_put_tables(const harpe_report *report, harpe_text *out) {
    put_key_rows(report, out);
    if (report->plan_count > 1) put_all_rows(report, out);
}
