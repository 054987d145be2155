/* SPDX-License-Identifier: Apache-2.0 */
/* The energy, time and savings of a job: how they are counted, stored and shown, and the report
 * that says how far they can be trusted. */
#include "server/engine/engine_internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

#include "base/json_text.h"
#include "base/text.h"
#include "pfo/json_tree.h"

/* Computes how much energy a job used and saved. For every job, energy and time are summed over its
 * results. The sums are stored with each round that is handed out; after a restart, results.c
 * adds the results that came after it. If the scheduler computes savings and stores their sums, the
 * scheduler's figures are used too. */

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

/* ---- Stored sums ----------------------------------------------------------------------------- */

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

/* ---- Showing figures ------------------------------------------------------------------------- */

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

/* ---- The report ------------------------------------------------------------------------------ */

/* Writes the report of a job: the baseline of its savings, spoiled rounds and their reasons, steps
 * that ran as planned, energy counters against integrated power, and energy per token. A member is
 * null if nothing is known. docs/online.md describes the members. */

static const char *word_of(bool value) { return value ? "true" : "false"; }

/* ---- The report: savings --------------------------------------------------------------------- */

static void append_baseline(harpe_text *text, const harpe_figures *figures) {
    const harpe_figures_baseline *baseline = &figures->baseline;
    harpe_text_printf(text, "{\"baseline\":");
    if (!figures->has_savings) {
        harpe_text_printf(text, "null");
        return;
    }
    harpe_json_number(text, "{\"time\":", baseline->time_s);
    harpe_json_number(text, ",\"time_uncertainty\":", baseline->time_uncertainty_s);
    harpe_json_number(text, ",\"energy\":", baseline->energy_j);
    harpe_json_number(text, ",\"energy_uncertainty\":", baseline->energy_uncertainty_j);
    harpe_json_int(text, ",\"iterations\":", baseline->iterations);
    harpe_json_int(text, ",\"rounds\":", baseline->rounds);
    harpe_json_int(text, ",\"between_rounds\":[", baseline->first_round);
    harpe_json_int(text, ",", baseline->last_round);
    harpe_json_int(text, "],\"measured_at\":[", baseline->first_wall_s);
    harpe_json_int(text, ",", baseline->last_wall_s);
    harpe_text_printf(text, "]}");
}

static void append_significance(harpe_text *text, const harpe_figures *figures) {
    bool is_energy = fabs(figures->saved_energy_j) > figures->saved_energy_uncertainty_j;
    bool is_time = fabs(figures->lost_time_s) > figures->lost_time_uncertainty_s;
    harpe_text_printf(text, ",\"confidence\":0.95");
    harpe_text_printf(text, ",\"energy_is_significant\":%s",
                      word_of(figures->has_savings && is_energy));
    harpe_text_printf(text, ",\"time_is_significant\":%s",
                      word_of(figures->has_savings && is_time));
}

/* ---- The report: rounds and steps ------------------------------------------------------------ */

static void append_last_spoiled(harpe_text *text, const harpe_conduct_sums *sums) {
    if (sums->spoiled_rounds == 0) {
        harpe_text_printf(text, ",\"last\":null");
        return;
    }
    harpe_json_int(text, ",\"last\":{\"round\":", sums->last_round);
    harpe_json_int(text, ",\"rank\":", sums->last_rank);
    harpe_text_printf(text, ",\"reasons\":[");
    const char *comma = "";
    for (int s = 0; s < HARPE_SPOILS; s++) {
        if (!(sums->last_reasons >> s & 1)) continue;
        harpe_text_printf(text, "%s\"%s\"", comma, harpe_spoil_names[s]);
        comma = ",";
    }
    harpe_text_printf(text, "]}");
}

static void append_rounds(harpe_text *text, const harpe_conduct_sums *sums) {
    harpe_json_int(text, ",\"rounds\":{\"observed\":", sums->rounds);
    harpe_json_int(text, ",\"spoiled\":", sums->spoiled_rounds);
    for (int s = 0; s < HARPE_SPOILS; s++) {
        harpe_text_printf(text, ",\"%s\":", harpe_spoil_names[s]);
        harpe_json_int(text, "", sums->spoiled[s]);
    }
    append_last_spoiled(text, sums);
    harpe_text_printf(text, "}");
}

static void append_steps(harpe_text *text, const harpe_conduct_sums *sums) {
    harpe_text_printf(text, ",\"steps\":");
    if (sums->steps == 0) {
        harpe_text_printf(text, "null");
        return;
    }
    harpe_json_int(text, "{\"run\":", sums->steps);
    harpe_json_int(text, ",\"as_planned\":", sums->as_planned);
    harpe_json_number(text,
                      ",\"share_as_planned\":", (double)sums->as_planned / (double)sums->steps);
    harpe_json_int(text, ",\"misfit\":", sums->misfits);
    harpe_json_int(text, ",\"disobeyed\":", sums->disobeyed);
    harpe_json_int(text, ",\"lost\":", sums->lost);
    harpe_json_int(text, ",\"left_out\":", sums->left_out);
    harpe_text_printf(text, ",\"disobedience\":");
    if (sums->disobeyed > 0) {
        harpe_json_int(text, "{\"rank\":", sums->disobedient_rank);
        harpe_json_int(text, ",\"wanted_mhz\":", sums->wanted_mhz);
        harpe_json_int(text, ",\"held_mhz\":", sums->held_mhz);
        harpe_text_printf(text, "}}");
    } else {
        harpe_text_printf(text, "null}");
    }
}

/* ---- The report: energies -------------------------------------------------------------------- */

static void append_pair(harpe_text *text, const harpe_energy_pair *pair, int64_t ranks) {
    harpe_json_number(text, "\"counter\":", pair->counter_j);
    harpe_json_number(text, ",\"power\":", pair->power_j);
    harpe_json_number(text, ",\"ratio\":", pair->counter_j / pair->power_j);
    harpe_json_number(text, ",\"ratio_uncertainty\":", pair->uncertainty_j / pair->power_j);
    harpe_text_printf(text, ",\"agrees\":%s", word_of(harpe_energy_pair_agrees(pair, ranks)));
}

static void append_energy_check(harpe_text *text, const harpe_conduct_sums *sums) {
    harpe_text_printf(text, ",\"energy_check\":");
    if (sums->compared_ranks == 0) {
        harpe_text_printf(text, "null");
        return;
    }
    harpe_json_int(text, "{\"ranks\":", sums->compared_ranks);
    harpe_text_printf(text, ",");
    append_pair(text, &sums->all, 1);
    harpe_json_int(text, ",\"worst\":{\"rank\":", sums->worst_rank);
    harpe_text_printf(text, ",");
    append_pair(text, &sums->worst, sums->compared_ranks);
    harpe_text_printf(text, "}}");
}

static void append_per_token(harpe_text *text, const harpe_figures *figures) {
    harpe_text_printf(text, ",\"per_token\":");
    double tokens = (double)figures->tokens_per_step * (double)figures->iterations;
    if (!figures->is_known || !(tokens > 0) || !(figures->used_energy_j > 0)) {
        harpe_text_printf(text, "null}");
        return;
    }
    harpe_json_int(text, "{\"tokens_per_step\":", figures->tokens_per_step);
    harpe_json_number(text, ",\"energy\":", figures->used_energy_j / tokens);
    double known = figures->has_savings ? 1 : NAN;
    harpe_json_number(text, ",\"saved\":", known * figures->saved_energy_j / tokens);
    harpe_json_number(
        text, ",\"saved_uncertainty\":", known * figures->saved_energy_uncertainty_j / tokens);
    harpe_json_number(text, ",\"baseline\":", known * figures->energy_baseline_j / tokens);
    harpe_text_printf(text, "}}");
}

void harpe_job_append_report(harpe_text *text, const harpe_job *job) {
    const harpe_figures *figures = &job->figures;
    append_baseline(text, figures);
    append_significance(text, figures);
    append_rounds(text, &figures->conduct);
    append_steps(text, &figures->conduct);
    append_energy_check(text, &figures->conduct);
    append_per_token(text, figures);
}
