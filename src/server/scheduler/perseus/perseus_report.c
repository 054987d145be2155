/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the savings of an online scheduler: as members of the frontier, and as figures for
 * /metrics and the lists of jobs. Every figure has an uncertainty. This file changes no state. */
#include "server/scheduler/perseus/perseus_report.h"

#include <math.h>
#include <string.h>

#include "server/scheduler/builtin.h"

enum { RECENT_ROUNDS = 10 };

/* Returns null for a number that is not known. */
static json_t *number_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- The baseline ---------------------------------------------------------------------------- */

static json_t *show_scaled(const harpe_perseus_scaled *scaled) {
    if (scaled->since_round < 0) return json_null();
    return json_pack("{s:f,s:f,s:I}", "time", scaled->factor[HARPE_TIME], "energy",
                     scaled->factor[HARPE_ENERGY], "since_round", (json_int_t)scaled->since_round);
}

json_t *harpe_perseus_show_baseline(const harpe_perseus *self) {
    const harpe_savings *savings = &self->savings;
    const harpe_baseline *baseline = &savings->baseline;
    const harpe_savings_mean *mean = &baseline->mean[HARPE_TIME];
    if (!(mean->rounds > 0)) return json_null();
    harpe_estimate time = harpe_savings_baseline(savings, HARPE_TIME);
    harpe_estimate energy = harpe_savings_baseline(savings, HARPE_ENERGY);
    return json_pack(
        "{s:f,s:o,s:f,s:o,s:I,s:I,s:[I,I],s:[I,I],s:o}", "time", time.value, "time_uncertainty",
        number_or_null(time.uncertainty), "energy", energy.value, "energy_uncertainty",
        number_or_null(energy.uncertainty), "iterations", (json_int_t)mean->iterations, "rounds",
        (json_int_t)mean->rounds, "between_rounds", (json_int_t)baseline->first_round,
        (json_int_t)baseline->last_round, "measured_at", (json_int_t)baseline->first_wall_s,
        (json_int_t)baseline->last_wall_s, "scaled", show_scaled(&self->scaled));
}

/* ---- Of single rounds ------------------------------------------------------------------------ */

/* Returns the sum over only this round of the history. */
static harpe_savings_sum sum_of_round(const harpe_perseus *self,
                                      const harpe_perseus_measured *measured, int quantity) {
    bool is_time = quantity == HARPE_TIME;
    double n = (double)measured->iterations;
    double value = is_time ? measured->time_s : measured->energy_j;
    double baseline = is_time ? measured->baseline_s : measured->baseline_j;
    double weight = is_time ? measured->weight_s : measured->weight_j;
    double own = self->savings.baseline.mean[quantity].mean;
    return (harpe_savings_sum){n,
                               n * value,
                               n * (baseline - own),
                               n * sqrt(weight),
                               n * weight * value * value,
                               n * (is_time ? measured->systematic_s : measured->systematic_j)};
}

static bool is_compared(const harpe_perseus_measured *measured) {
    return measured->baseline_s > 0 && measured->iterations > 0;
}

static double uncertainty_of(const harpe_perseus *self, const harpe_perseus_measured *measured,
                             int quantity) {
    if (!(measured->weight_s > 0)) return 0; /* a round at the highest clocks saves nothing */
    harpe_savings_sum sum = sum_of_round(self, measured, quantity);
    return harpe_savings_of_sum(&self->savings, &sum, quantity).uncertainty / sum.iterations;
}

json_t *harpe_perseus_show_round(const harpe_perseus *self,
                                 const harpe_perseus_measured *measured) {
    json_t *baseline = json_null(), *uncertainty = json_null();
    if (measured->baseline_s > 0)
        baseline = json_pack("[f,f]", measured->baseline_s, measured->baseline_j);
    if (is_compared(measured))
        uncertainty = json_pack("[o,o]", number_or_null(uncertainty_of(self, measured, HARPE_TIME)),
                                number_or_null(uncertainty_of(self, measured, HARPE_ENERGY)));
    json_t *ended_at =
        measured->ended_wall_s > 0 ? json_integer(measured->ended_wall_s) : json_null();
    return json_pack("{s:I,s:f,s:f,s:I,s:o,s:o,s:o}", "round", (json_int_t)measured->round, "time",
                     measured->time_s, "energy", measured->energy_j, "iterations",
                     (json_int_t)measured->iterations, "baseline", baseline, "uncertainty",
                     uncertainty, "ended_at", ended_at);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

static void add_sum(harpe_savings_sum *to, const harpe_savings_sum *from) {
    to->iterations += from->iterations;
    to->measured += from->measured;
    to->shift += from->shift;
    to->common += from->common;
    to->squares += from->squares;
    to->systematic += from->systematic;
}

/* Adds up the newest rounds that ran a plan, at most RECENT_ROUNDS. Returns their number. */
static int find_recent(const harpe_perseus *self, harpe_savings_sum *sums) {
    int rounds = 0;
    memset(sums, 0, HARPE_QUANTITIES * sizeof *sums);
    int64_t first = self->round > HARPE_PERSEUS_HISTORY ? self->round - HARPE_PERSEUS_HISTORY : 0;
    for (int64_t r = self->round - 1; r >= first && rounds < RECENT_ROUNDS; r--) {
        const harpe_perseus_measured *measured = &self->history[r % HARPE_PERSEUS_HISTORY];
        if (!is_compared(measured)) continue;
        rounds++;
        for (int q = 0; q < HARPE_QUANTITIES; q++) {
            harpe_savings_sum sum = sum_of_round(self, measured, q);
            add_sum(&sums[q], &sum);
        }
    }
    return rounds;
}

/* Returns the savings of the newest rounds as JSON. Each saving is divided by the baseline, so 0.1
 * means 10 %. Returns null if no round or no baseline was measured. */
static json_t *show_recent(const harpe_perseus *self) {
    harpe_savings_sum sums[HARPE_QUANTITIES];
    int rounds = find_recent(self, sums);
    harpe_estimate share[HARPE_QUANTITIES];
    if (rounds == 0 || !harpe_savings_has_baseline(&self->savings, HARPE_ENERGY))
        return json_null();
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        harpe_estimate saved = harpe_savings_of_sum(&self->savings, &sums[q], q);
        double baseline = saved.value + sums[q].measured;
        share[q] = (harpe_estimate){saved.value / baseline, saved.uncertainty / baseline};
    }
    return json_pack("{s:i,s:f,s:o,s:b,s:f,s:o,s:b}", "rounds", rounds, "energy",
                     share[HARPE_ENERGY].value, "energy_uncertainty",
                     number_or_null(share[HARPE_ENERGY].uncertainty), "energy_is_significant",
                     harpe_estimate_is_significant(share[HARPE_ENERGY]), "time",
                     0.0 - share[HARPE_TIME].value, "time_uncertainty",
                     number_or_null(share[HARPE_TIME].uncertainty), "time_is_significant",
                     harpe_estimate_is_significant(share[HARPE_TIME]));
}

/* Returns the savings since the start of the job. They include those of a sweep that is running. */
static harpe_savings all_savings(const harpe_perseus *self) {
    harpe_savings all = self->savings;
    harpe_savings_close(&all, &self->savings_again);
    return all;
}

json_t *harpe_perseus_show_saved(const harpe_perseus *self) {
    double energy_j, time_s;
    harpe_savings all = all_savings(self);
    harpe_estimate energy = harpe_savings_total(&all, HARPE_ENERGY, &energy_j);
    harpe_estimate time = harpe_savings_total(&all, HARPE_TIME, &time_s);
    bool is_known = harpe_savings_has_baseline(&self->savings, HARPE_ENERGY);
    return json_pack("{s:I,s:f,s:o,s:b,s:f,s:f,s:o,s:b,s:f,s:f,s:o}", "iterations",
                     (json_int_t)all.iterations, "energy", energy.value, "energy_uncertainty",
                     number_or_null(is_known ? energy.uncertainty : INFINITY),
                     "energy_is_significant", is_known && harpe_estimate_is_significant(energy),
                     "energy_baseline", energy_j, "time", 0.0 - time.value, "time_uncertainty",
                     number_or_null(is_known ? time.uncertainty : INFINITY), "time_is_significant",
                     is_known && harpe_estimate_is_significant(time), "time_baseline", time_s,
                     "confidence", 0.95, "recent", show_recent(self));
}

static double sweep_extra(const harpe_perseus *self, int quantity, double otherwise) {
    const harpe_savings *savings = self->sweep_again ? &self->savings_again : &self->savings;
    if (!harpe_savings_has_baseline(savings, quantity)) return otherwise;
    return 0.0 - harpe_savings_of_sum(savings, &savings->swept[quantity], quantity).value;
}

double harpe_perseus_sweep_extra_time_s(const harpe_perseus *self) {
    return sweep_extra(self, HARPE_TIME,
                       harpe_sweep_extra_time_s(harpe_perseus_sweep_under_way(self)));
}

double harpe_perseus_sweep_extra_energy_j(const harpe_perseus *self) {
    return sweep_extra(self, HARPE_ENERGY,
                       harpe_sweep_extra_energy_j(harpe_perseus_sweep_under_way(self)));
}

/* ---- Figures --------------------------------------------------------------------------------- */

static const char *const PHASES[] = {"count", "sweep", "plan", "hold", "explore"};

static void find_plan(const harpe_perseus *self, harpe_figures *out) {
    out->plan = -1;
    if (self->phase != HARPE_PERSEUS_PLAN || !self->plans) return;
    const harpe_plan *plan = harpe_plan_set_at(self->plans->set, self->running);
    out->plan = (int64_t)self->running;
    out->plan_count = (int64_t)harpe_plan_set_count(self->plans->set);
    const harpe_plan *highest = &self->plans->all_maximum;
    const harpe_plan *one_clock = harpe_online_plans_one_clock(self->plans, plan);
    double more_s = self->outside_time_s + self->shift_time_s;
    double more_j = self->outside_energy_j + self->shift_energy_j;
    out->plan_time_s = plan->time_s + more_s;
    out->plan_energy_j = plan->energy_j + more_j;
    out->highest_time_s = highest->time_s + more_s;
    out->highest_energy_j = highest->energy_j + more_j;
    out->one_clock_mhz = harpe_plan_one_clock_mhz(self->plans->problem, one_clock->frequency_mhz);
    out->one_clock_time_s = one_clock->time_s + more_s;
    out->one_clock_energy_j = one_clock->energy_j + more_j;
}

static void find_baseline(const harpe_savings *savings, harpe_figures_baseline *out) {
    const harpe_baseline *baseline = &savings->baseline;
    harpe_estimate time = harpe_savings_baseline(savings, HARPE_TIME);
    harpe_estimate energy = harpe_savings_baseline(savings, HARPE_ENERGY);
    *out = (harpe_figures_baseline){.time_s = time.value,
                                    .time_uncertainty_s = time.uncertainty,
                                    .energy_j = energy.value,
                                    .energy_uncertainty_j = energy.uncertainty,
                                    .iterations = (int64_t)baseline->mean[HARPE_TIME].iterations,
                                    .rounds = (int64_t)baseline->mean[HARPE_TIME].rounds,
                                    .first_round = baseline->first_round,
                                    .last_round = baseline->last_round,
                                    .first_wall_s = baseline->first_wall_s,
                                    .last_wall_s = baseline->last_wall_s};
}

void harpe_perseus_figures(const void *state, harpe_figures *out) {
    const harpe_perseus *self = state;
    harpe_savings all = all_savings(self);
    *out = (harpe_figures){.phase = PHASES[self->phase],
                           .iterations = all.iterations,
                           .used_time_s = all.used[HARPE_TIME],
                           .used_energy_j = all.used[HARPE_ENERGY]};
    find_plan(self, out);
    out->has_savings = harpe_savings_has_baseline(&all, HARPE_ENERGY) &&
                       harpe_savings_has_baseline(&all, HARPE_TIME);
    if (!out->has_savings) return;
    harpe_estimate energy = harpe_savings_total(&all, HARPE_ENERGY, &out->energy_baseline_j);
    harpe_estimate time = harpe_savings_total(&all, HARPE_TIME, &out->time_baseline_s);
    out->saved_energy_j = energy.value;
    out->saved_energy_uncertainty_j = energy.uncertainty;
    out->lost_time_s = 0.0 - time.value;
    out->lost_time_uncertainty_s = time.uncertainty;
    find_baseline(&self->savings, &out->baseline);
}
