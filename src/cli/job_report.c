/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the figures and the report of a job. A saving is always shown with its uncertainty. If a
 * saving is not larger than its uncertainty, the text is "within noise" instead. Each line of the
 * report says what a figure is compared with and how certain it is. */
#include "cli/job_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/format.h"

/* ---- Fields ---------------------------------------------------------------------------------- */

/* Returns the number, or 0 if it is missing. */
static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

/* Returns the uncertainty, or INFINITY if it is not known. */
static double uncertainty_of(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : INFINITY;
}

/* Accepts only the known phases, because the text goes to a terminal. */
static const char *phase_of(const json_t *figures) {
    static const char *const phases[] = {"count", "sweep", "explore", "plan", "hold"};
    const char *phase = json_string_value(json_object_get(figures, "phase"));
    for (size_t i = 0; phase && i < sizeof phases / sizeof *phases; i++)
        if (strcmp(phases[i], phase) == 0) return phases[i];
    return NULL;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static int place_of(double value, int digits) {
    return digits - 1 - (int)floor(log10(value) + 1e-9);
}

/* Appends "42.480 kJ +- 0.089 kJ": the uncertainty has two significant digits, and the value ends
 * at the same place, but has at most six digits. `uncertainty` INFINITY: not known. */
static void append_within(harpe_text *text, double value, double uncertainty, harpe_unit unit) {
    char size[HARPE_NUMBER_SIZE], half[HARPE_NUMBER_SIZE];
    if (!isfinite(uncertainty) || !(uncertainty > 0)) {
        harpe_text_printf(text, "%s%s", harpe_format_in(size, value, unit),
                          isfinite(uncertainty) ? "" : " (uncertainty not known)");
        return;
    }
    value *= unit.per_si;
    uncertainty *= unit.per_si;
    int decimals = place_of(uncertainty, 2);
    if (uncertainty * pow(10, decimals) >= 99.5) decimals--; /* 0.0996 is shown as 0.10 */
    if (value != 0 && decimals > place_of(fabs(value), 6)) decimals = place_of(fabs(value), 6);
    if (decimals > 9) decimals = 9;
    double step = pow(10, -decimals);
    uncertainty = fmax(round(uncertainty / step), 1) * step; /* it must not be shown as 0 */
    value = round(value / step) * step;
    int shown = decimals > 0 ? decimals : 0;
    harpe_text_printf(text, "%s %s +- %s %s", harpe_format_fixed(size, value, shown), unit.name,
                      harpe_format_fixed(half, uncertainty, shown), unit.name);
}

/* Prints `value` in percent of `whole`. Prints "within noise" if it is not larger than its
 * uncertainty, and "not known yet" if the uncertainty is unknown. */
static void print_share(char *into, size_t size, double value, double uncertainty, double whole) {
    harpe_text text = {0};
    if (!isfinite(uncertainty) || !(uncertainty > 0) || !(whole > 0))
        harpe_text_printf(&text, "not known yet");
    else if (!(fabs(value) > uncertainty))
        harpe_text_printf(&text, "within noise");
    else
        append_within(&text, value / whole, uncertainty / whole, (harpe_unit){"%", 100});
    (void)snprintf(into, size, "%s", text.data ? text.data : "-");
    harpe_text_free(&text);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void print_phase(char *into, size_t size, const json_t *figures) {
    const char *phase = phase_of(figures);
    const json_t *plan = json_object_get(figures, "plan");
    if (json_is_object(plan))
        (void)snprintf(into, size, "plan %" JSON_INTEGER_FORMAT,
                       json_integer_value(json_object_get(plan, "number")));
    else
        (void)snprintf(into, size, "%s", phase ? phase : "-");
}

/* Returns which share of the energy of one clock for all GPUs the plan saves, as the profile says;
 * NAN: not known. */
static double against_one_clock(const json_t *figures) {
    const json_t *plan = json_object_get(figures, "plan");
    double energy_j = number_of(json_object_get(plan, "one_clock"), "energy");
    return energy_j > 0 ? 1 - number_of(plan, "energy") / energy_j : NAN;
}

void harpe_job_figures_cells(const json_t *job, char cells[HARPE_JOB_CELLS][HARPE_JOB_CELL_SIZE]) {
    const json_t *figures = json_object_get(job, "figures");
    const json_t *saved = json_object_get(figures, "saved");
    double energy_j = number_of(figures, "energy"), power_w = number_of(figures, "power");
    for (int i = 0; i < HARPE_JOB_CELLS; i++)
        (void)snprintf(cells[i], HARPE_JOB_CELL_SIZE, "-");
    print_phase(cells[0], HARPE_JOB_CELL_SIZE, figures);
    if (energy_j > 0) harpe_format_energy(cells[1], energy_j);
    if (json_is_object(saved) && number_of(saved, "energy_baseline") > 0)
        print_share(cells[2], HARPE_JOB_CELL_SIZE, number_of(saved, "energy"),
                    uncertainty_of(saved, "energy_uncertainty"),
                    number_of(saved, "energy_baseline"));
    if (power_w > 0) harpe_format_power(cells[3], power_w);
    if (json_is_object(saved) && number_of(saved, "time_baseline") > 0)
        print_share(cells[4], HARPE_JOB_CELL_SIZE, number_of(saved, "time"),
                    uncertainty_of(saved, "time_uncertainty"), number_of(saved, "time_baseline"));
    if (isfinite(against_one_clock(figures)))
        (void)snprintf(cells[5], HARPE_JOB_CELL_SIZE, "%.2f %%", 100 * against_one_clock(figures));
}

/* ---- One job --------------------------------------------------------------------------------- */

static void append_used(const json_t *figures, harpe_text *text) {
    if (!(number_of(figures, "energy") > 0)) return;
    json_int_t iterations = json_integer_value(json_object_get(figures, "iterations"));
    double power_w = number_of(figures, "power");
    harpe_text_printf(text, "  energy:     %s and %s in %" JSON_INTEGER_FORMAT " iteration%s\n",
                      HARPE_ENERGY(number_of(figures, "energy")),
                      HARPE_TIME(number_of(figures, "time")), iterations,
                      iterations == 1 ? "" : "s");
    if (power_w > 0)
        harpe_text_printf(text, "  power:      %s in the last round\n", HARPE_POWER(power_w));
    else
        harpe_text_printf(text, "  power:      not known since the server was restarted\n");
}

/* Appends "42.480 kJ +- 0.089 kJ (13.902 % +- 0.029 %)". */
static void append_estimate(harpe_text *text, const char *title, double value, double uncertainty,
                            double whole, harpe_unit (*unit_of)(double largest)) {
    if (!(uncertainty > 0)) {
        harpe_text_printf(text, "  %-11s nothing is compared yet\n", title);
        return;
    }
    char share[HARPE_JOB_CELL_SIZE];
    print_share(share, sizeof share, value, uncertainty, whole);
    harpe_text_printf(text, "  %-11s ", title);
    append_within(text, value, uncertainty,
                  unit_of(fmax(fabs(value), isfinite(uncertainty) ? uncertainty : 0)));
    harpe_text_printf(text, " (%s)\n", share);
}

static void append_plan(const json_t *figures, harpe_text *text) {
    const json_t *plan = json_object_get(figures, "plan");
    const char *phase = phase_of(figures);
    if (!phase) return;
    harpe_text_printf(text, "  phase:      %s\n", phase);
    if (!json_is_object(plan)) return;
    harpe_text_printf(text,
                      "  plan:       %" JSON_INTEGER_FORMAT " of 0 to %" JSON_INTEGER_FORMAT
                      ": iterations of %s and %s\n",
                      json_integer_value(json_object_get(plan, "number")),
                      json_integer_value(json_object_get(plan, "of")) - 1,
                      HARPE_TIME(number_of(plan, "time")), HARPE_ENERGY(number_of(plan, "energy")));
}

/* Appends what one clock for all GPUs saves, as the plans' profile says: "  one clock:  1380 MHz,
 * saves 1.2 % at +0.0 % time". */
static void append_one_clock(const json_t *figures, harpe_text *text) {
    const json_t *plan = json_object_get(figures, "plan");
    const json_t *highest = json_object_get(plan, "highest_clocks");
    const json_t *one_clock = json_object_get(plan, "one_clock");
    double highest_j = number_of(highest, "energy"), highest_s = number_of(highest, "time");
    double energy_j = number_of(one_clock, "energy"), mhz = number_of(one_clock, "frequency");
    if (!(highest_j > 0) || !(highest_s > 0) || !(energy_j > 0)) return;
    harpe_text_printf(text, "  one clock:  ");
    if (mhz > 0)
        harpe_text_printf(text, "%.0f MHz, saves %.2f %% at %+.2f %% time", mhz,
                          100 * (1 - energy_j / highest_j),
                          100 * (number_of(one_clock, "time") / highest_s - 1));
    else
        harpe_text_printf(text, "none is better than the highest clocks");
    harpe_text_printf(text, "; the plan saves %.2f %% against it (computed from the profile)\n",
                      100 * against_one_clock(figures));
}

static void append_savings(const json_t *figures, harpe_text *text) {
    const json_t *saved = json_object_get(figures, "saved");
    if (json_is_object(saved)) {
        append_estimate(text, "saved:", number_of(saved, "energy"),
                        uncertainty_of(saved, "energy_uncertainty"),
                        number_of(saved, "energy_baseline"), harpe_energy_unit);
        append_estimate(text, "time lost:", number_of(saved, "time"),
                        uncertainty_of(saved, "time_uncertainty"),
                        number_of(saved, "time_baseline"), harpe_time_unit);
    } else if (number_of(figures, "energy") > 0) {
        harpe_text_printf(text, "  saved:      no baseline measured\n");
    }
}

void harpe_job_figures_progress(const json_t *job, harpe_text *text) {
    char cells[HARPE_JOB_CELLS][HARPE_JOB_CELL_SIZE];
    harpe_job_figures_cells(job, cells);
    if (strcmp(cells[0], "-") != 0) harpe_text_printf(text, ", %s", cells[0]);
    if (strcmp(cells[1], "-") != 0) harpe_text_printf(text, ", %s used", cells[1]);
    if (strcmp(cells[3], "-") != 0) harpe_text_printf(text, ", %s", cells[3]);
    if (strcmp(cells[2], "-") != 0) harpe_text_printf(text, ", saved: %s", cells[2]);
}

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
    double time_s = number_of(baseline, "time"), energy_j = number_of(baseline, "energy");
    append_within(text, time_s, uncertainty_of(baseline, "time_uncertainty"),
                  harpe_time_unit(time_s));
    harpe_text_printf(text, " and ");
    append_within(text, energy_j, uncertainty_of(baseline, "energy_uncertainty"),
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
        HARPE_DIGITS(100 * number_of(steps, "share_as_planned"), 4), count_of(steps, "as_planned"),
        count_of(steps, "run"), count_of(steps, "left_out"));
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
    double half = number_of(pair, "ratio_uncertainty");
    harpe_text_printf(text, "%.4f +- %.4f times the integrated power: ", number_of(pair, "ratio"),
                      half < 0.0001 ? 0.0001 : half);
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
        HARPE_ENERGY(number_of(tokens, "energy")), count_of(tokens, "tokens_per_step"));
    double saved_j = number_of(tokens, "saved");
    double uncertainty_j = uncertainty_of(tokens, "saved_uncertainty");
    if (!json_is_number(json_object_get(tokens, "saved"))) {
        harpe_text_printf(text, "is not known without a baseline\n");
        return;
    }
    append_within(text, saved_j, uncertainty_j, harpe_energy_unit(fabs(saved_j)));
    harpe_text_printf(text, " against %s at the highest clocks%s\n",
                      HARPE_ENERGY(number_of(tokens, "baseline")),
                      fabs(saved_j) > uncertainty_j ? "" : " (within noise)");
}

void harpe_job_report_conduct(const json_t *job, harpe_text *text) {
    const json_t *report = json_object_get(job, "report");
    append_rounds(text, report);
    append_steps(text, report);
}

void harpe_job_report_lines(const json_t *job, harpe_text *text) {
    const json_t *figures = json_object_get(job, "figures"),
                 *report = json_object_get(job, "report");
    if (figures) {
        append_plan(figures, text);
        append_one_clock(figures, text);
        append_used(figures, text);
        append_savings(figures, text);
    }
    if (!json_is_object(report)) return;
    append_baseline(text, report);
    harpe_job_report_conduct(job, text);
    append_energy_check(text, report);
    append_per_token(text, report);
}
