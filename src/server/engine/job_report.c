/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the report of a job: the baseline of its savings, spoiled rounds and their reasons, steps
 * that ran as planned, energy counters against integrated power, and energy per token. A member is
 * null if nothing is known. docs/online.md describes the members. */
#include "server/engine/job_report.h"

#include <inttypes.h>
#include <math.h>

#include "base/json_text.h"
#include "base/text.h"

/* ---- Numbers --------------------------------------------------------------------------------- */

static void append_count(harpe_text *text, const char *name, int64_t value) {
    harpe_text_printf(text, "%s%" PRId64, name, value);
}

static const char *word_of(bool value) { return value ? "true" : "false"; }

/* ---- Savings --------------------------------------------------------------------------------- */

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
    append_count(text, ",\"iterations\":", baseline->iterations);
    append_count(text, ",\"rounds\":", baseline->rounds);
    append_count(text, ",\"between_rounds\":[", baseline->first_round);
    append_count(text, ",", baseline->last_round);
    append_count(text, "],\"measured_at\":[", baseline->first_wall_s);
    append_count(text, ",", baseline->last_wall_s);
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

/* ---- Rounds and steps ------------------------------------------------------------------------ */

static void append_last_spoiled(harpe_text *text, const harpe_conduct_sums *sums) {
    if (sums->spoiled_rounds == 0) {
        harpe_text_printf(text, ",\"last\":null");
        return;
    }
    append_count(text, ",\"last\":{\"round\":", sums->last_round);
    append_count(text, ",\"rank\":", sums->last_rank);
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
    append_count(text, ",\"rounds\":{\"observed\":", sums->rounds);
    append_count(text, ",\"spoiled\":", sums->spoiled_rounds);
    for (int s = 0; s < HARPE_SPOILS; s++) {
        harpe_text_printf(text, ",\"%s\":", harpe_spoil_names[s]);
        append_count(text, "", sums->spoiled[s]);
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
    append_count(text, "{\"run\":", sums->steps);
    append_count(text, ",\"as_planned\":", sums->as_planned);
    harpe_json_number(text,
                      ",\"share_as_planned\":", (double)sums->as_planned / (double)sums->steps);
    append_count(text, ",\"misfit\":", sums->misfits);
    append_count(text, ",\"disobeyed\":", sums->disobeyed);
    append_count(text, ",\"lost\":", sums->lost);
    append_count(text, ",\"left_out\":", sums->left_out);
    harpe_text_printf(text, ",\"disobedience\":");
    if (sums->disobeyed > 0) {
        append_count(text, "{\"rank\":", sums->disobedient_rank);
        append_count(text, ",\"wanted_mhz\":", sums->wanted_mhz);
        append_count(text, ",\"held_mhz\":", sums->held_mhz);
        harpe_text_printf(text, "}}");
    } else {
        harpe_text_printf(text, "null}");
    }
}

/* ---- Energies -------------------------------------------------------------------------------- */

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
    append_count(text, "{\"ranks\":", sums->compared_ranks);
    harpe_text_printf(text, ",");
    append_pair(text, &sums->all, 1);
    append_count(text, ",\"worst\":{\"rank\":", sums->worst_rank);
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
    append_count(text, "{\"tokens_per_step\":", figures->tokens_per_step);
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
