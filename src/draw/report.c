/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the page and its sections, from top to bottom. report_tables.c writes tables,
 * report_data.c writes the data for the script, and report_style.c contains the style. The page
 * contains all information even if scripts do not run. */
#include "draw/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/number_print.h"
#include "draw/axis.h"
#include "draw/palette.h"
#include "draw/report_data.h"
#include "draw/report_savings.h"
#include "draw/report_tables.h"

#define COST_PANELS_MAX 24 /* panels in the page; more panels are only in separate files */
#define POINTS_MAX 1000000
/* The place where the script puts the elements that replace a section's pictures. */
#define INTERACTIVE "<div class=\"interactive\"></div>\n"

/* Writes escaped text, and replaces characters that a page must not contain. */
static void put_text(harpe_text *out, const char *text) {
    size_t size = text ? strlen(text) + 4 : 4;
    char *clean = harpe_calloc(size, 1);
    if (!clean) {
        out->failed = true;
        return;
    }
    harpe_text_html(out, harpe_clean_text(clean, size, text));
    free(clean);
}

static void put(harpe_text *out, const char *html) { harpe_text_append(out, html, strlen(html)); }

static void put_palette(harpe_text *out, bool dark) {
    for (int ink = 0; ink < HARPE_INK_COUNT; ink++) {
        harpe_text_printf(out, "--%s:#%06x;", harpe_ink_name((harpe_ink)ink),
                          harpe_ink_rgb((harpe_ink)ink, dark));
    }
}

static void put_head(const harpe_report *report, harpe_text *out) {
    put(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
             "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n<title>");
    put_text(out, report->title ? report->title : "Frontier");
    put(out, " \xe2\x80\x93 Harpe</title>\n<style>\n:root{");
    put_palette(out, false);
    put(out, "}\n@media (prefers-color-scheme:dark){:root{");
    put_palette(out, true);
    put(out, "}}\n@media print{:root{");
    put_palette(out, false);
    put(out, "}}\n");
    put(out, harpe_report_style);
    harpe_text_append(out, (const char *)harpe_report_chart_style, harpe_report_chart_style_size);
    put(out, "</style>\n</head>\n<body>\n<main>\n");
}

/* Writes what one clock for all GPUs saves within a time, and what a plan saves against it. */
static void put_one_clock(const harpe_report *report, harpe_text *out,
                          const harpe_report_plan *plan, double most_s) {
    char number[HARPE_NUMBER_SIZE];
    const harpe_report_point *other = harpe_report_one_clock(report, most_s);
    if (!other || report->reference.energy_j <= 0.0) return;
    double savings = harpe_report_one_clock_savings(report, plan, most_s);
    put(out, "<div>");
    harpe_text_printf(out, "%s %s than ", harpe_format_percent(number, savings),
                      savings >= -0.005 ? "less" : "more");
    if (other->frequency_mhz > 0)
        harpe_text_printf(out, "one clock, %d MHz, which ", other->frequency_mhz);
    else
        put(out, "the highest clocks, which ");
    double own = (1.0 - other->energy_j / report->reference.energy_j) * 100.0;
    harpe_text_printf(out, "saves %s</div>", harpe_format_percent(number, own));
}

/* Writes a plan as a headline. It is compared with one clock for all GPUs within `most_s`. */
static void put_headline(const harpe_report *report, harpe_text *out, const char *name,
                         size_t index, double most_s) {
    char number[HARPE_NUMBER_SIZE];
    const harpe_report_plan *plan = &report->plans[index];
    double savings = harpe_report_savings(report, plan);
    double slowdown = harpe_report_slowdown(report, plan);
    put(out, "<div class=\"headline\"><div class=\"name\">");
    put(out, name);
    put(out, "</div>");
    if (report->has_reference) {
        harpe_text_printf(out, "<div class=\"number\">%s</div><div>%s energy, ",
                          harpe_format_percent(number, savings),
                          savings >= -0.005 ? "less" : "more");
        if (fabs(slowdown) < 0.005) {
            put(out, "the same time");
        } else {
            harpe_text_printf(out, "%s %s", harpe_format_percent(number, slowdown),
                              slowdown > 0.0 ? "slower" : "faster");
        }
        put(out, "</div>");
        put_one_clock(report, out, plan, most_s);
    } else {
        harpe_text_printf(out, "<div class=\"number\">%s</div>",
                          harpe_format_energy(number, plan->energy_j));
    }
    harpe_text_printf(out, "<div class=\"detail\">plan %d: %s, ", plan->number,
                      harpe_format_time(number, plan->time_s));
    harpe_text_printf(out, "%s</div></div>\n", harpe_format_energy(number, plan->energy_j));
}

static void put_headlines(const harpe_report *report, harpe_text *out) {
    double reference_s = report->has_reference ? report->reference.time_s : report->plans[0].time_s;
    put(out, "<section class=\"headlines\" aria-label=\"Headline numbers\">\n");
    size_t least = harpe_report_best_within(report, INFINITY);
    size_t same_time = harpe_report_best_within(report, reference_s);
    size_t within = harpe_report_best_within(report, reference_s * 1.05);
    if (same_time < report->plan_count && same_time != least)
        put_headline(report, out, "Without any slowdown", same_time, reference_s);
    else if (same_time != least)
        put_headline(report, out, "Fastest plan", 0, report->plans[0].time_s);
    if (within < report->plan_count && within != least && within != same_time)
        put_headline(report, out, "At most 5 % slower", within, reference_s * 1.05);
    put_headline(report, out, "Least energy", least, report->plans[least].time_s);
    put(out, "</section>\n");
    if (!report->has_reference) return;
    char number[HARPE_NUMBER_SIZE];
    harpe_text_printf(out,
                      "<p class=\"note\">Compared with every %s at its highest "
                      "profiled frequency: %s and ",
                      report->is_of_graph ? "activity" : "instruction",
                      harpe_format_time(number, report->reference.time_s));
    harpe_text_printf(out, "%s per iteration.",
                      harpe_format_energy(number, report->reference.energy_j));
    if (report->one_clock_count > 0)
        put(out, " One clock is the best clock for all GPUs in the same time.");
    put(out, "</p>\n");
}

static harpe_status put_frontier(const harpe_report *report, harpe_text *out, harpe_error *error) {
    harpe_point *points =
        harpe_calloc(report->plan_count + report->one_clock_count, sizeof *points);
    if (!points) return harpe_fail_memory(error);
    for (size_t i = 0; i < report->plan_count; i++)
        points[i] = (harpe_point){report->plans[i].time_s, report->plans[i].energy_j};
    harpe_point *one_clock = points + report->plan_count;
    for (size_t i = 0; i < report->one_clock_count; i++)
        one_clock[i] = (harpe_point){report->one_clock[i].time_s, report->one_clock[i].energy_j};
    harpe_frontier_picture picture = {.bound = report->bound,
                                      .bound_count = report->bound_count,
                                      .plans = points,
                                      .plan_count = report->plan_count,
                                      .one_clock = one_clock,
                                      .one_clock_count = report->one_clock_count,
                                      .has_reference = report->has_reference,
                                      .reference = report->reference,
                                      .width = 900.0,
                                      .height = 460.0};
    put(out, "<section id=\"frontier\">\n<h2>Frontier</h2>\n<figure class=\"frontier wide\">\n");
    harpe_status status = harpe_draw_frontier(&picture, HARPE_IMAGE_HTML, out, error);
    picture.width = 400.0;
    picture.height = 380.0;
    put(out, "</figure>\n<figure class=\"frontier narrow\">\n");
    if (status == HARPE_OK) status = harpe_draw_frontier(&picture, HARPE_IMAGE_HTML, out, error);
    put(out, "</figure>\n");
    free(points);
    put(out, INTERACTIVE);
    harpe_report_put_tables(report, out);
    put(out, "</section>\n");
    return status;
}

static harpe_status put_pipelines(const harpe_report *report, harpe_text *out, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (report->pipeline_count == 0) return status;
    if (report->is_of_graph) {
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
        status = harpe_draw_pipeline(&report->pipelines[i], HARPE_IMAGE_HTML, out, error);
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
        status = harpe_draw_cost_model(&one, HARPE_IMAGE_HTML, out, error);
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
    const char *directory = report->directory ? report->directory : ".";
    size_t best = harpe_report_best_within(report, report->plans[0].time_s);
    put(out, "<section>\n<h2>Use a plan</h2>\n<p>Let Harpe choose one, for example the plan of "
             "least energy that is at most 5 % slower:</p>\n<pre>harpe choose ");
    put_argument(out, directory);
    put(out, " --max-slowdown 1.05</pre>\n<p>");
    if (report->is_of_graph) {
        put(out, "or read the option of every activity from a plan's file, for example");
    } else {
        put(out, "or have <code>harpe serve</code> hand one to a training "
                 "job, with a plan's file as its <code>solution_path</code>, for example");
    }
    put(out, "</p>\n<pre>");
    /* the directory and the name form one argument */
    harpe_text path = {0};
    if (report->is_of_graph)
        harpe_text_printf(&path, "%s/plan_%05d.json", directory, report->plans[best].number);
    else
        harpe_text_printf(&path, "%s/freqs_pipeline_%05d.py", directory,
                          report->plans[best].number);
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
    if (report->is_of_graph) {
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
            put_argument(out, report->arguments[i] ? report->arguments[i] : "");
        }
        put(out, "</pre>\n");
    }
    put(out, "</section>\n");
}

static harpe_status check_report(const harpe_report *report, harpe_error *error) {
    if (report->plan_count == 0)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "report: there is no plan to report");
    if (report->plan_count > POINTS_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "report: %zu plans, at most %d fit",
                          report->plan_count, POINTS_MAX);
    }
    for (size_t i = 0; i < report->plan_count; i++) {
        const harpe_report_plan *plan = &report->plans[i];
        const double numbers[] = {plan->time_s,
                                  plan->energy_j,
                                  plan->lower_bound_j,
                                  plan->compute_energy_j,
                                  plan->blocking_energy_j,
                                  plan->average_power_w,
                                  plan->overhead_energy_j,
                                  plan->peak_power_w,
                                  plan->swing_w};
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            if (!harpe_is_drawable(numbers[k])) {
                return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                                  "report: plan %d has a number that is not usable", plan->number);
            }
        }
    }
    return report->timeline ? harpe_report_check_timeline(report->timeline, error) : HARPE_OK;
}

static harpe_status put_page(const harpe_report *report, harpe_text *out, harpe_error *error) {
    put_head(report, out);
    harpe_text_printf(out,
                      "<header><p class=\"brand\">Harpe: time and energy of %straining</p><h1>",
                      report->is_of_graph ? "" : "pipeline ");
    put_text(out, report->title ? report->title : "Frontier");
    put(out, "</h1></header>\n");
    put_headlines(report, out);
    harpe_status status = put_frontier(report, out, error);
    if (status == HARPE_OK) status = put_pipelines(report, out, error);
    if (status != HARPE_OK) return status;
    put_use(report, out);
    status = put_cost_models(report, out, error);
    if (status != HARPE_OK) return status;
    put_reading(report, out);
    put_facts(report, out);
    put(out, "</main>\n");
    status = harpe_report_put_data(report, out, error);
    put(out, "<script type=\"module\">");
    harpe_text_append(out, (const char *)harpe_report_script, harpe_report_script_size);
    put(out, "</script>\n</body>\n</html>\n");
    return status;
}

harpe_status harpe_report_write(const harpe_report *report, harpe_text *out, harpe_error *error) {
    harpe_status status = check_report(report, error);
    if (status != HARPE_OK) return status;
    harpe_text page = {0};
    status = put_page(report, &page, error);
    if (status == HARPE_OK && page.failed) status = harpe_fail_memory(error);
    if (status == HARPE_OK) {
        size_t before = out->length;
        harpe_text_append(out, page.data, page.length);
        if (out->failed) {
            out->length = before;
            status = harpe_fail_memory(error);
        }
    }
    harpe_text_free(&page);
    return status;
}
