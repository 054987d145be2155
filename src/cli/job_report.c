/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one line for each part of a job's report. Each line says what a figure is compared with
 * and how certain it is. */
#include "cli/job_report.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/format.h"
#include "cli/job_figures.h"

static json_int_t count_of(const json_t *object, const char *name) {
    return json_integer_value(json_object_get(object, name));
}

/* ---- The baseline ---------------------------------------------------------------------------- */

static void append_time_of_day(harpe_text *text, json_int_t wall_s) {
    char shown[32] = "";
    time_t when = (time_t)wall_s;
    struct tm parts;
    if (localtime_r(&when, &parts)) (void)strftime(shown, sizeof shown, "%F %T", &parts);
    harpe_text_printf(text, "%s", shown);
}

static void append_baseline(harpe_text *text, const json_t *report) {
    const json_t *baseline = json_object_get(report, "baseline");
    if (!json_is_object(baseline)) return;
    const json_t *rounds = json_object_get(baseline, "between_rounds");
    const json_t *times = json_object_get(baseline, "measured_at");
    json_int_t iterations = count_of(baseline, "iterations");
    harpe_text_printf(text, "  baseline:   ");
    double time_s = harpe_job_number_of(baseline, "time"),
           energy_j = harpe_job_number_of(baseline, "energy");
    harpe_job_append_within(text, time_s, harpe_job_uncertainty_of(baseline, "time_uncertainty"),
                            harpe_time_unit(time_s));
    harpe_text_printf(text, " and ");
    harpe_job_append_within(text, energy_j,
                            harpe_job_uncertainty_of(baseline, "energy_uncertainty"),
                            harpe_energy_unit(energy_j));
    harpe_text_printf(
        text,
        " an iteration at the highest clocks, measured in %" JSON_INTEGER_FORMAT
        " iteration%s of rounds %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT " until ",
        iterations, iterations == 1 ? "" : "s", json_integer_value(json_array_get(rounds, 0)),
        json_integer_value(json_array_get(rounds, 1)));
    append_time_of_day(text, json_integer_value(json_array_get(times, 1)));
    harpe_text_printf(text, "\n");
}

/* ---- Rounds and steps ------------------------------------------------------------------------ */

static const struct {
    const char *name, *words;
} REASONS[] = {{"misfit", "steps did not fit the schedule"},
               {"disobeyed", "a GPU did not obey its clock"},
               {"jitter", "a burst of jitter"},
               {"missing", "a rank had no result"},
               {"impossible", "a GPU had an impossible energy"}};
enum { REASON_COUNT = sizeof REASONS / sizeof *REASONS };

static void append_rounds(harpe_text *text, const json_t *report) {
    const json_t *rounds = json_object_get(report, "rounds");
    const json_t *last = json_object_get(rounds, "last");
    if (count_of(rounds, "observed") == 0) return;
    harpe_text_printf(text,
                      "  rounds:     %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " spoiled",
                      count_of(rounds, "spoiled"), count_of(rounds, "observed"));
    const char *before = ": ";
    for (int i = 0; i < REASON_COUNT; i++) {
        json_int_t count = count_of(rounds, REASONS[i].name);
        if (count == 0) continue;
        harpe_text_printf(text, "%s%s in %" JSON_INTEGER_FORMAT, before, REASONS[i].words, count);
        before = ", ";
    }
    if (json_is_object(last))
        harpe_text_printf(
            text, "; the last was round %" JSON_INTEGER_FORMAT ", by rank %" JSON_INTEGER_FORMAT,
            count_of(last, "round"), count_of(last, "rank"));
    harpe_text_printf(text, "\n");
}

static void append_steps(harpe_text *text, const json_t *report) {
    const json_t *steps = json_object_get(report, "steps");
    if (!json_is_object(steps)) return;
    harpe_text_printf(
        text,
        "  steps:      %s %% ran as planned: %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
        ", summed over the ranks; %" JSON_INTEGER_FORMAT " left out of the measurements\n",
        HARPE_DIGITS(100 * harpe_job_number_of(steps, "share_as_planned"), 4),
        count_of(steps, "as_planned"), count_of(steps, "run"), count_of(steps, "left_out"));
    const json_t *clocks = json_object_get(steps, "disobedience");
    if (!json_is_object(clocks)) return;
    harpe_text_printf(text,
                      "  clocks:     in %" JSON_INTEGER_FORMAT
                      " step%s a GPU did not obey; the last: rank %" JSON_INTEGER_FORMAT
                      " at %" JSON_INTEGER_FORMAT " MHz, set to %" JSON_INTEGER_FORMAT " MHz\n",
                      count_of(steps, "disobeyed"), count_of(steps, "disobeyed") == 1 ? "" : "s",
                      count_of(clocks, "rank"), count_of(clocks, "held_mhz"),
                      count_of(clocks, "wanted_mhz"));
}

/* ---- Energies -------------------------------------------------------------------------------- */

static void append_pair(harpe_text *text, const json_t *pair) {
    double half = harpe_job_number_of(pair, "ratio_uncertainty");
    harpe_text_printf(text, "%.4f +- %.4f times the integrated power: ",
                      harpe_job_number_of(pair, "ratio"), half < 0.0001 ? 0.0001 : half);
    harpe_text_printf(text, json_is_true(json_object_get(pair, "agrees"))
                                ? "no difference beyond the uncertainty"
                                : "they differ by more than the uncertainty");
}

static void append_energy_check(harpe_text *text, const json_t *report) {
    const json_t *check = json_object_get(report, "energy_check");
    if (!json_is_object(check)) return;
    const json_t *worst = json_object_get(check, "worst");
    harpe_text_printf(text, "  counter:    ");
    append_pair(text, check);
    harpe_text_printf(text, " (%" JSON_INTEGER_FORMAT " rank%s)\n", count_of(check, "ranks"),
                      count_of(check, "ranks") == 1 ? "" : "s");
    if (count_of(check, "ranks") < 2 || json_is_true(json_object_get(worst, "agrees"))) return;
    harpe_text_printf(text, "              rank %" JSON_INTEGER_FORMAT ": ",
                      count_of(worst, "rank"));
    append_pair(text, worst);
    harpe_text_printf(text, "\n");
}

static void append_per_token(harpe_text *text, const json_t *report) {
    const json_t *tokens = json_object_get(report, "per_token");
    if (!json_is_object(tokens)) return;
    harpe_text_printf(
        text, "  per token:  %s, with %" JSON_INTEGER_FORMAT " tokens in a step; saved ",
        HARPE_ENERGY(harpe_job_number_of(tokens, "energy")), count_of(tokens, "tokens_per_step"));
    double saved_j = harpe_job_number_of(tokens, "saved");
    double uncertainty_j = harpe_job_uncertainty_of(tokens, "saved_uncertainty");
    if (!json_is_number(json_object_get(tokens, "saved"))) {
        harpe_text_printf(text, "is not known without a baseline\n");
        return;
    }
    harpe_job_append_within(text, saved_j, uncertainty_j, harpe_energy_unit(fabs(saved_j)));
    harpe_text_printf(text, " against %s at the highest clocks%s\n",
                      HARPE_ENERGY(harpe_job_number_of(tokens, "baseline")),
                      fabs(saved_j) > uncertainty_j ? "" : " (within noise)");
}

void harpe_job_report_conduct(const json_t *job, harpe_text *text) {
    const json_t *report = json_object_get(job, "report");
    append_rounds(text, report);
    append_steps(text, report);
}

void harpe_job_report_lines(const json_t *job, harpe_text *text) {
    const json_t *report = json_object_get(job, "report");
    if (!json_is_object(report)) return;
    append_baseline(text, report);
    harpe_job_report_conduct(job, text);
    append_energy_check(text, report);
    append_per_token(text, report);
}
