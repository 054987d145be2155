/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how much energy a job used and saved. For every job, energy and time are summed over its
 * results. The sums are stored with each round that is handed out; after a restart, count_stored.c
 * adds the results that came after it. If the scheduler computes savings and stores their sums, the
 * scheduler's figures are used too. */
#include "server/engine/job_figures.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

#include "base/json_text.h"
#include "base/text.h"

/* ---- Counting -------------------------------------------------------------------------------- */

static void end_round(harpe_job *job) {
    const harpe_result_totals *totals = &job->round_totals;
    harpe_figures *figures = &job->figures;
    figures->iterations += (int64_t)totals->iterations;
    figures->used_time_s += totals->time_s;
    figures->used_energy_j += totals->energy_j;
    figures->power_w = totals->time_s > 0 ? totals->energy_j / totals->time_s : 0;
    harpe_conduct_sums_end_round(&figures->conduct, &job->conduct_round);
}

/* An iteration of a job takes as long as an iteration of its slowest rank. */
void harpe_job_count_result(harpe_job *job, int rank, const harpe_result_totals *totals) {
    harpe_result_totals *sum = &job->round_totals;
    if (job->totalled_round != job->round) {
        *sum = (harpe_result_totals){0};
        job->conduct_round = (harpe_conduct_round){0};
        job->totalled = 0;
        job->totalled_round = job->round;
    }
    int64_t reasons = totals->iterations == 0 ? 1 << HARPE_SPOIL_MISSING : 0;
    if (harpe_result_totals_can_be(totals, job->info.tp_degree))
        sum->energy_j += totals->energy_j;
    else
        reasons |= 1 << HARPE_SPOIL_IMPOSSIBLE;
    sum->time_s = fmax(sum->time_s, totals->time_s);
    if (totals->iterations > sum->iterations) sum->iterations = totals->iterations;
    harpe_conduct_sums_add_rank(&job->figures.conduct, &job->conduct_round, rank, reasons,
                                &totals->conduct);
    if (totals->conduct.tokens_per_step > 0)
        job->figures.tokens_per_step = totals->conduct.tokens_per_step;
    if (++job->totalled == job->info.world_size) end_round(job);
}

void harpe_job_take_figures(harpe_job *job, const harpe_figures *figures) {
    harpe_figures counted = job->figures;
    job->figures = *figures;
    job->figures.is_known = counted.is_known;
    job->figures.power_w = counted.power_w;
    job->figures.conduct = counted.conduct;
    job->figures.tokens_per_step = counted.tokens_per_step;
    /* These values must never decrease, so the larger one is used. */
    job->figures.iterations =
        counted.iterations > figures->iterations ? counted.iterations : figures->iterations;
    job->figures.used_time_s = fmax(counted.used_time_s, figures->used_time_s);
    job->figures.used_energy_j = fmax(counted.used_energy_j, figures->used_energy_j);
}

void harpe_job_take_conduct(harpe_job *job, const harpe_conduct_sums *conduct,
                            int64_t tokens_per_step) {
    harpe_figures *figures = &job->figures;
    if (conduct->rounds > 0) figures->conduct = *conduct;
    if (tokens_per_step > 0) figures->tokens_per_step = tokens_per_step;
}

/* ---- Sums over jobs -------------------------------------------------------------------------- */

void harpe_figure_sums_add(harpe_figure_sums *sums, double used_j, double power_w, double saved_j,
                           double uncertainty_j, double baseline_j) {
    if (!(used_j > 0)) return;
    sums->jobs++;
    sums->used_j += used_j;
    sums->power_w += power_w;
    if (!isfinite(uncertainty_j) || !(baseline_j > 0)) return;
    sums->compared++;
    sums->saved_j += saved_j;
    sums->variance += uncertainty_j * uncertainty_j;
    sums->baseline_j += baseline_j;
}

void harpe_figure_sums_append(harpe_text *text, const char *name, const harpe_figure_sums *sums) {
    harpe_text_printf(text, "%s{\"jobs\":%" PRId64 ",\"compared\":%" PRId64, name, sums->jobs,
                      sums->compared);
    harpe_json_number(text, ",\"energy\":", sums->used_j);
    harpe_json_number(text, ",\"power\":", sums->power_w);
    harpe_json_number(text, ",\"saved\":", sums->saved_j);
    harpe_json_number(text, ",\"saved_uncertainty\":", sqrt(sums->variance));
    harpe_json_number(text, ",\"energy_baseline\":", sums->baseline_j);
    harpe_text_printf(text, "}");
}

/* ---- The store ------------------------------------------------------------------------------- */

char *harpe_job_save_sums(const harpe_job *job) {
    const harpe_figures *figures = &job->figures;
    json_t *json =
        json_pack("{s:I,s:f,s:f,s:f,s:o}", "iterations", (json_int_t)figures->iterations, "time_s",
                  figures->used_time_s, "energy_j", figures->used_energy_j, "power_w",
                  figures->power_w, "conduct", harpe_conduct_sums_save(&figures->conduct));
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

bool harpe_job_load_sums(harpe_job *job, const harpe_change *record) {
    json_t *json = json_loadb(record->text, record->length, 0, NULL);
    harpe_figures *figures = &job->figures;
    bool is_read = json_is_object(json);
    figures->iterations = json_integer_value(json_object_get(json, "iterations"));
    figures->used_time_s = json_number_value(json_object_get(json, "time_s"));
    figures->used_energy_j = json_number_value(json_object_get(json, "energy_j"));
    figures->power_w = json_number_value(json_object_get(json, "power_w"));
    (void)harpe_conduct_sums_load(&figures->conduct, json_object_get(json, "conduct"));
    figures->tokens_per_step = figures->conduct.tokens_per_step;
    job->sums_from = record->round;
    json_decref(json);
    return is_read;
}

/* ---- Showing --------------------------------------------------------------------------------- */

static void append_saved(harpe_text *text, const harpe_figures *figures) {
    if (!figures->has_savings) {
        harpe_text_printf(text, ",\"saved\":null");
        return;
    }
    harpe_json_number(text, ",\"saved\":{\"energy\":", figures->saved_energy_j);
    harpe_json_number(text, ",\"energy_uncertainty\":", figures->saved_energy_uncertainty_j);
    harpe_json_number(text, ",\"energy_baseline\":", figures->energy_baseline_j);
    harpe_json_number(text, ",\"time\":", figures->lost_time_s);
    harpe_json_number(text, ",\"time_uncertainty\":", figures->lost_time_uncertainty_s);
    harpe_json_number(text, ",\"time_baseline\":", figures->time_baseline_s);
    harpe_text_printf(text, "}");
}

void harpe_job_append_figures(harpe_text *text, const harpe_job *job) {
    const harpe_figures *figures = &job->figures;
    bool is_known = figures->is_known, has_power = is_known && figures->power_w > 0;
    harpe_json_number(text, "{\"energy\":", is_known ? figures->used_energy_j : NAN);
    harpe_json_number(text, ",\"time\":", is_known ? figures->used_time_s : NAN);
    harpe_json_number(text, ",\"power\":", has_power ? figures->power_w : NAN);
    if (is_known)
        harpe_text_printf(text, ",\"iterations\":%" PRId64, figures->iterations);
    else
        harpe_text_printf(text, ",\"iterations\":null");
    append_saved(text, figures);
    if (figures->phase)
        harpe_text_printf(text, ",\"phase\":\"%s\"", figures->phase);
    else
        harpe_text_printf(text, ",\"phase\":null");
    if (!figures->phase || figures->plan < 0) {
        harpe_text_printf(text, ",\"plan\":null}");
        return;
    }
    harpe_text_printf(text, ",\"plan\":{\"number\":%" PRId64 ",\"of\":%" PRId64, figures->plan,
                      figures->plan_count);
    harpe_json_number(text, ",\"time\":", figures->plan_time_s);
    harpe_json_number(text, ",\"energy\":", figures->plan_energy_j);
    harpe_json_number(text, ",\"highest_clocks\":{\"time\":", figures->highest_time_s);
    harpe_json_number(text, ",\"energy\":", figures->highest_energy_j);
    harpe_text_printf(text, "},\"one_clock\":{\"frequency\":%d", figures->one_clock_mhz);
    harpe_json_number(text, ",\"time\":", figures->one_clock_time_s);
    harpe_json_number(text, ",\"energy\":", figures->one_clock_energy_j);
    harpe_text_printf(text, "}}}");
}
