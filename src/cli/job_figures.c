/* SPDX-License-Identifier: Apache-2.0 */
/* Formats the figures of a job. A saving is always shown with its uncertainty. If a saving is not
 * larger than its uncertainty, the text is "within noise" instead. */
#include "cli/job_figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- Fields ---------------------------------------------------------------------------------- */

double harpe_job_number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

double harpe_job_uncertainty_of(const json_t *object, const char *name) {
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

static bool is_significant(double value, double uncertainty) { return fabs(value) > uncertainty; }

static int place_of(double value, int digits) {
    return digits - 1 - (int)floor(log10(value) + 1e-9);
}

void harpe_job_append_within(harpe_text *text, double value, double uncertainty, harpe_unit unit) {
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
    else if (!is_significant(value, uncertainty))
        harpe_text_printf(&text, "within noise");
    else
        harpe_job_append_within(&text, value / whole, uncertainty / whole, (harpe_unit){"%", 100});
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
    double energy_j = harpe_job_number_of(json_object_get(plan, "one_clock"), "energy");
    return energy_j > 0 ? 1 - harpe_job_number_of(plan, "energy") / energy_j : NAN;
}

void harpe_job_figures_cells(const json_t *job, char cells[HARPE_JOB_CELLS][HARPE_JOB_CELL_SIZE]) {
    const json_t *figures = json_object_get(job, "figures");
    const json_t *saved = json_object_get(figures, "saved");
    double energy_j = harpe_job_number_of(figures, "energy"),
           power_w = harpe_job_number_of(figures, "power");
    for (int i = 0; i < HARPE_JOB_CELLS; i++)
        (void)snprintf(cells[i], HARPE_JOB_CELL_SIZE, "-");
    print_phase(cells[0], HARPE_JOB_CELL_SIZE, figures);
    if (energy_j > 0) harpe_format_energy(cells[1], energy_j);
    if (json_is_object(saved) && harpe_job_number_of(saved, "energy_baseline") > 0)
        print_share(cells[2], HARPE_JOB_CELL_SIZE, harpe_job_number_of(saved, "energy"),
                    harpe_job_uncertainty_of(saved, "energy_uncertainty"),
                    harpe_job_number_of(saved, "energy_baseline"));
    if (power_w > 0) harpe_format_power(cells[3], power_w);
    if (json_is_object(saved) && harpe_job_number_of(saved, "time_baseline") > 0)
        print_share(cells[4], HARPE_JOB_CELL_SIZE, harpe_job_number_of(saved, "time"),
                    harpe_job_uncertainty_of(saved, "time_uncertainty"),
                    harpe_job_number_of(saved, "time_baseline"));
    if (isfinite(against_one_clock(figures)))
        (void)snprintf(cells[5], HARPE_JOB_CELL_SIZE, "%.2f %%", 100 * against_one_clock(figures));
}

/* ---- One job --------------------------------------------------------------------------------- */

static void append_used(const json_t *figures, harpe_text *text) {
    if (!(harpe_job_number_of(figures, "energy") > 0)) return;
    json_int_t iterations = json_integer_value(json_object_get(figures, "iterations"));
    double power_w = harpe_job_number_of(figures, "power");
    harpe_text_printf(text, "  energy:     %s and %s in %" JSON_INTEGER_FORMAT " iteration%s\n",
                      HARPE_ENERGY(harpe_job_number_of(figures, "energy")),
                      HARPE_TIME(harpe_job_number_of(figures, "time")), iterations,
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
    harpe_job_append_within(text, value, uncertainty,
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
                      HARPE_TIME(harpe_job_number_of(plan, "time")),
                      HARPE_ENERGY(harpe_job_number_of(plan, "energy")));
}

/* Appends what one clock for all GPUs saves, as the plans' profile says: "  one clock:  1380 MHz,
 * saves 1.2 % at +0.0 % time". */
static void append_one_clock(const json_t *figures, harpe_text *text) {
    const json_t *plan = json_object_get(figures, "plan");
    const json_t *highest = json_object_get(plan, "highest_clocks");
    const json_t *one_clock = json_object_get(plan, "one_clock");
    double highest_j = harpe_job_number_of(highest, "energy"),
           highest_s = harpe_job_number_of(highest, "time");
    double energy_j = harpe_job_number_of(one_clock, "energy"),
           mhz = harpe_job_number_of(one_clock, "frequency");
    if (!(highest_j > 0) || !(highest_s > 0) || !(energy_j > 0)) return;
    harpe_text_printf(text, "  one clock:  ");
    if (mhz > 0)
        harpe_text_printf(text, "%.0f MHz, saves %.2f %% at %+.2f %% time", mhz,
                          100 * (1 - energy_j / highest_j),
                          100 * (harpe_job_number_of(one_clock, "time") / highest_s - 1));
    else
        harpe_text_printf(text, "none is better than the highest clocks");
    harpe_text_printf(text, "; the plan saves %.2f %% against it (computed from the profile)\n",
                      100 * against_one_clock(figures));
}

static void append_savings(const json_t *job, harpe_text *text) {
    const json_t *figures = json_object_get(job, "figures");
    const json_t *saved = json_object_get(figures, "saved");
    if (json_is_object(saved)) {
        append_estimate(text, "saved:", harpe_job_number_of(saved, "energy"),
                        harpe_job_uncertainty_of(saved, "energy_uncertainty"),
                        harpe_job_number_of(saved, "energy_baseline"), harpe_energy_unit);
        append_estimate(text, "time lost:", harpe_job_number_of(saved, "time"),
                        harpe_job_uncertainty_of(saved, "time_uncertainty"),
                        harpe_job_number_of(saved, "time_baseline"), harpe_time_unit);
    } else if (harpe_job_number_of(figures, "energy") > 0) {
        harpe_text_printf(text, "  saved:      no baseline measured\n");
    }
}

void harpe_job_figures_lines(const json_t *job, harpe_text *text) {
    const json_t *figures = json_object_get(job, "figures");
    if (!figures) return;
    append_plan(figures, text);
    append_one_clock(figures, text);
    append_used(figures, text);
    append_savings(job, text);
}

void harpe_job_figures_progress(const json_t *job, harpe_text *text) {
    char cells[HARPE_JOB_CELLS][HARPE_JOB_CELL_SIZE];
    harpe_job_figures_cells(job, cells);
    if (strcmp(cells[0], "-") != 0) harpe_text_printf(text, ", %s", cells[0]);
    if (strcmp(cells[1], "-") != 0) harpe_text_printf(text, ", %s used", cells[1]);
    if (strcmp(cells[3], "-") != 0) harpe_text_printf(text, ", %s", cells[3]);
    if (strcmp(cells[2], "-") != 0) harpe_text_printf(text, ", saved: %s", cells[2]);
}
