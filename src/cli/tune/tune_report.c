/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the reports of `harpe tune`. Every saving stands beside its uncertainty, and one that
 * could be noise is called so. */
#include "cli/tune/tune_command_internal.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/format.h"
#include "cli/command.h"

#define NAME "harpe tune: "

static const char *const phase_names[] = {
    [HARPE_TUNING_WAITING] = "waiting",
    [HARPE_TUNING_MEASURING] = "measuring",
    [HARPE_TUNING_TRYING] = "trying",
    [HARPE_TUNING_SETTLED] = "settled",
    [HARPE_TUNING_UNMEASURABLE] = "unmeasurable",
    [HARPE_TUNING_STOPPED] = "stopped",
};

static const char unrestored[] =
    "a GPU could not be restored, or it is not known whether it is: run 'harpe gpus --restore'";

/* Appends a setting, such as "1185 MHz, 300 W". */
static void append_setting(harpe_text *text, int clock_mhz, int limit_w) {
    if (clock_mhz > 0) harpe_text_printf(text, "%d MHz", clock_mhz);
    if (limit_w > 0) harpe_text_printf(text, "%s%d W", clock_mhz > 0 ? ", " : "", limit_w);
    if (clock_mhz <= 0 && limit_w <= 0) harpe_text_printf(text, "the settings that were found");
}

/* Appends "23.1 % (+- 0.6 %) less energy". */
static void append_change(harpe_text *text, double less, double uncertain, const char *of_what) {
    harpe_text_printf(text, "%.1f %% (+- %.1f %%) %s %s", fabs(less) * 100, uncertain * 100,
                      less >= 0 ? "less" : "more", of_what);
}

/* ---- The live line --------------------------------------------------------------------------- */

void harpe_tune_live_draw(harpe_tune_live *live, const harpe_tuning_report *report) {
    if (!isatty(STDERR_FILENO)) return;
    harpe_text text = {0};
    double passed_s = report->time_s - live->last_time_s;
    harpe_text_printf(&text, "\r\033[K" NAME "%s", phase_names[report->phase]);
    if (report->now_mhz > 0 || report->now_w > 0) {
        harpe_text_printf(&text, ", ");
        append_setting(&text, report->now_mhz, report->now_w);
    }
    if (passed_s > 0)
        harpe_text_printf(&text, ", %s",
                          HARPE_POWER((report->energy_j - live->last_energy_j) / passed_s));
    if (report->chosen_j_per_work > 0)
        harpe_text_printf(&text, ", %s per unit", HARPE_ENERGY(report->chosen_j_per_work));
    if (report->trials > 0)
        harpe_text_printf(&text, ", saved %.1f %% +- %.1f %%", report->saved * 100,
                          report->saved_error * 100);
    if (text.data) fputs(text.data, stderr);
    harpe_text_free(&text);
    live->is_drawn = true;
    live->last_time_s = report->time_s;
    live->last_energy_j = report->energy_j;
}

void harpe_tune_live_clear(harpe_tune_live *live) {
    if (atomic_exchange(&live->is_drawn, false)) fputs("\r\033[K", stderr);
}

/* ---- The report ------------------------------------------------------------------------------ */

static double saved_kwh(const harpe_tuning_report *report) {
    return (report->highest_j - report->used_j) / HARPE_JOULES_PER_KWH;
}

static void append_work(harpe_text *text, const harpe_tuning_report *report) {
    bool has_energy = report->energy_j > 0;
    harpe_text_printf(text, NAME);
    if (report->meter)
        harpe_text_printf(text, "%s units of work, measured by %s%s", HARPE_DIGITS(report->work, 6),
                          report->meter, has_energy ? ", in " : "");
    if (has_energy)
        harpe_text_printf(text, "%s with %s kWh", HARPE_TIME(report->time_s),
                          HARPE_DIGITS(report->energy_j / HARPE_JOULES_PER_KWH, 4));
    else
        harpe_text_printf(text, "%sthe energy is not known", report->meter ? "; " : "");
    if (report->work > 0 && has_energy)
        harpe_text_printf(text, ", %s per unit", HARPE_ENERGY(report->energy_j / report->work));
    harpe_text_printf(text, "\n");
}

static void append_choice(harpe_text *text, const harpe_tuning_report *report) {
    bool is_settled = report->phase == HARPE_TUNING_SETTLED;
    harpe_text_printf(text, NAME "%s ", is_settled ? "chosen:" : "not settled yet; best so far:");
    append_setting(text, report->clock_mhz, report->limit_w);
    if (report->highest_j_per_work > 0 && report->saved_error > 0) {
        harpe_text_printf(text, "; against the highest setting, measured in turns (%d trial%s): ",
                          report->trials, report->trials == 1 ? "" : "s");
        append_change(text, report->saved, report->saved_error, "energy per unit");
        if (report->is_noise) harpe_text_printf(text, ", which could be noise");
        harpe_text_printf(text, ", ");
        append_change(text, -report->slowdown, report->slowdown_error, "time");
        harpe_text_printf(text, ", at most about %.1f %% in a minute",
                          report->slowest_minute * 100);
        harpe_text_printf(text, "; %s and then %s per unit",
                          HARPE_ENERGY(report->highest_j_per_work),
                          HARPE_ENERGY(report->chosen_j_per_work));
    } else if (is_settled && report->trials > 0) {
        harpe_text_printf(text,
                          ", the highest setting: of those tried (%d trial%s), it is the best",
                          report->trials, report->trials == 1 ? "" : "s");
    } else if (is_settled) {
        harpe_text_printf(text, ", the highest setting: no other one could be tried");
    }
    harpe_text_printf(text, "\n");
}

static void append_money(harpe_text *text, const harpe_tuning_report *report,
                         const harpe_tune_prices *prices) {
    double kwh = saved_kwh(report);
    /* As if all work were done at the chosen setting; 0: not known. */
    double error_kwh = report->saved_error * report->highest_j / HARPE_JOULES_PER_KWH;
    double carbon_kg = kwh * prices->carbon_g_per_kwh / HARPE_GRAMS_PER_KG;
    harpe_text_printf(text, NAME "saved so far: %s kWh", HARPE_DIGITS(kwh, 3));
    if (error_kwh > 0) harpe_text_printf(text, " (+- %s kWh)", HARPE_DIGITS(error_kwh, 2));
    if (!(error_kwh > 0) || fabs(kwh) <= error_kwh)
        harpe_text_printf(text, ", which could be noise");
    if (!isnan(prices->per_kwh))
        harpe_text_printf(text, ", %s for energy", HARPE_DIGITS(kwh * prices->per_kwh, 3));
    if (!isnan(carbon_kg)) harpe_text_printf(text, ", %s kg of CO2", HARPE_DIGITS(carbon_kg, 3));
    harpe_text_printf(text, "\n");
}

/* Says why there is no choice. */
static void append_reason(harpe_text *text, const harpe_tuning_report *report) {
    harpe_text_printf(text, NAME "%s: %s; %s\n",
                      report->phase == HARPE_TUNING_STOPPED ? "no setting was chosen"
                                                            : "cannot measure this program",
                      report->reason,
                      report->is_unrestored ? unrestored
                      : report->is_restored ? "the GPUs are as they were found"
                                            : "the GPUs were not changed");
}

static void append_dry(harpe_text *text, const harpe_tuning_report *report) {
    harpe_text_printf(text, NAME "nothing was changed (--dry-run)");
    if (report->guess_high > 0)
        harpe_text_printf(
            text,
            "; guessed from the power alone: a lower clock saves %.0f %% at 2 %% more "
            "time (19 of 20 measured programs: %.0f to %.0f %%)",
            report->saved * 100, report->guess_low * 100, report->guess_high * 100);
    harpe_text_printf(text, "\n");
}

void harpe_tune_report_print(const harpe_tuning_report *report, const harpe_tune_prices *prices,
                             bool is_dry) {
    harpe_text text = {0};
    append_work(&text, report);
    bool is_chosen = report->phase == HARPE_TUNING_MEASURING ||
                     report->phase == HARPE_TUNING_TRYING || report->phase == HARPE_TUNING_SETTLED;
    if (is_dry)
        append_dry(&text, report);
    else if (is_chosen)
        append_choice(&text, report);
    else
        append_reason(&text, report);
    if (!is_dry && report->highest_j > 0) append_money(&text, report, prices);
    if (is_chosen && (report->is_restored || report->is_unrestored))
        harpe_text_printf(&text, NAME "%s\n",
                          report->is_unrestored ? unrestored : "the GPUs are as they were found");
    if (text.data) fputs(text.data, stderr);
    harpe_text_free(&text);
}

/* Adds a number, or null if it is not known. */
static void put(json_t *object, const char *key, bool is_known, double value) {
    (void)json_object_set_new(object, key,
                              is_known ? harpe_command_json_number(value) : json_null());
}

harpe_status harpe_tune_report_print_json(const harpe_tuning_report *report,
                                          const harpe_tune_prices *prices, harpe_error *error) {
    bool is_compared = report->saved_error > 0;
    bool is_guessed = report->guess_high > 0;
    bool has_totals = report->highest_j > 0, has_energy = report->energy_j > 0;
    json_t *object =
        json_pack("{s:s, s:s?, s:s?, s:i, s:i, s:i, s:b, s:f, s:b, s:b}", "phase",
                  phase_names[report->phase], "meter", report->meter, "reason", report->reason,
                  "clock_mhz", report->clock_mhz, "power_limit_w", report->limit_w, "trials",
                  report->trials, "is_noise", report->is_noise, "work", report->work, "is_restored",
                  report->is_restored, "is_unrestored", report->is_unrestored);
    put(object, "time_s", has_energy, report->time_s);
    put(object, "energy_j", has_energy, report->energy_j);
    put(object, "saved", is_compared || is_guessed, report->saved);
    put(object, "saved_error", is_compared, report->saved_error);
    put(object, "guess_low", is_guessed, report->guess_low);
    put(object, "guess_high", is_guessed, report->guess_high);
    put(object, "slowdown", is_compared, report->slowdown);
    put(object, "slowdown_error", is_compared, report->slowdown_error);
    put(object, "slowest_minute", is_compared, report->slowest_minute);
    put(object, "highest_j_per_unit", is_compared, report->highest_j_per_work);
    put(object, "chosen_j_per_unit", is_compared, report->chosen_j_per_work);
    put(object, "highest_s_per_unit", is_compared, report->highest_s_per_work);
    put(object, "chosen_s_per_unit", is_compared, report->chosen_s_per_work);
    put(object, "latency_p95_s", report->latency_p95_s > 0, report->latency_p95_s);
    put(object, "saved_j", has_totals, report->highest_j - report->used_j);
    put(object, "saved_cost", has_totals, saved_kwh(report) * prices->per_kwh);
    put(object, "saved_carbon_g", has_totals, saved_kwh(report) * prices->carbon_g_per_kwh);
    return harpe_command_print_json(object, error);
}
