/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates the time and energy that an iteration with a plan would have needed at the highest
 * clocks: the measured baseline, shifted only by changes that affect both. docs/online.md
 * ("Savings") has the reasons and the formulas. This file changes no plan. */
#include "server/scheduler/perseus/perseus_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "plan/evaluate.h"

/* A change must exceed this number of standard errors. */
#define CLEARLY 3.5
/* Changes below this share of the baseline are part of the uncertainty. */
#define CHANGE_MIN 0.005
/* After this many rounds, more rounds do not improve the estimate of the deviation from the plan.
 */
enum { USUAL_ROUNDS_MAX = 50 };

/* Time and energy of one entry relative to the sweep; 1: no change. */
typedef struct entry_change {
    bool is_known;
    double ran[HARPE_QUANTITIES];        /* at the clocks of the plan */
    double highest[HARPE_QUANTITIES];    /* at the highest clock */
    double systematic[HARPE_QUANTITIES]; /* uncertainty of `highest` */
} entry_change;

/* A computed iteration: the time and energy of the pipeline from the profile, without the time and
 * energy outside of the pipeline. */
typedef struct modelled {
    double value[HARPE_QUANTITIES];
} modelled;

typedef struct comparison {
    harpe_perseus *self;
    const harpe_online_round *round;
    const harpe_savings_round *measured;
    const int *frequency_mhz; /* of the plan that ran */
    harpe_online_mean *highest;
    entry_change *changes;
    double error[HARPE_QUANTITIES]; /* standard error of the round's values */
    modelled swept_highest, now_highest, now_ran;
    harpe_savings_terms terms; /* the answer */
} comparison;

static double value_of(const harpe_profile_point *point, int quantity) {
    return quantity == HARPE_TIME ? point->time_s : point->energy_j;
}

static double mean_of(const harpe_online_mean *mean, int quantity) {
    return quantity == HARPE_TIME ? mean->time_s : mean->energy_j;
}

/* Writes an entry's time and energy as the sweep measured them, without later corrections for
 * drift. Returns false if the sweep has not measured it. */
static bool swept_point(const harpe_explorer *explorer, int entry, int mhz,
                        harpe_profile_point *out) {
    if (!harpe_explorer_point(explorer, entry, mhz, out)) return false;
    out->time_s /= explorer->entries[entry].time_ratio;
    out->energy_j /= explorer->entries[entry].energy_ratio;
    return true;
}

static int highest_mhz(const harpe_perseus *self, int entry) {
    return harpe_explorer_highest_mhz(self->explorer, entry);
}

/* ---- How much the instructions have changed -------------------------------------------------- */

typedef struct expectation {
    double value[HARPE_QUANTITIES], mhz; /* sums over the runs of an entry */
} expectation;

static bool expect_entries(const comparison *self, expectation *expected) {
    const harpe_online_pipeline *pipeline = self->self->pipeline;
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        int entry = pipeline->entry_of[i];
        harpe_profile_point point;
        if (!swept_point(self->self->explorer, entry, self->frequency_mhz[i], &point)) return false;
        for (int q = 0; q < HARPE_QUANTITIES; q++)
            expected[entry].value[q] += value_of(&point, q);
        expected[entry].mhz += self->frequency_mhz[i];
    }
    return true;
}

/* Returns the mean change of the entries that ran at the highest clock on a pipeline rank (-1: on
 * any rank), weighted by energy, or 0 if there are none. */
static double mean_change(const comparison *self, int pipeline_rank, int quantity) {
    const harpe_perseus *perseus = self->self;
    double sum = 0, weights = 0;
    for (size_t e = 0; e < perseus->pipeline->entry_count; e++) {
        const harpe_online_entry *entry = &perseus->pipeline->entries[e];
        const harpe_profile_point *swept = &perseus->explorer->entries[e].points[0];
        if (!(self->highest[e].time_s > 0)) continue;
        if (pipeline_rank >= 0 && entry->pipeline_rank != pipeline_rank) continue;
        double weight = swept->energy_j * (double)entry->run_count;
        sum += weight * mean_of(&self->highest[e], quantity) / value_of(swept, quantity);
        weights += weight;
    }
    return weights > 0 ? sum / weights : 0;
}

/* Estimates the change of an entry on a GPU on which no instruction ran at the highest clock. A
 * clock that is lower by some factor makes an instruction longer by at most this factor. If the
 * change that other GPUs show is possible under this rule, this function uses it, and assumes that
 * the sweep measured the lower clock wrongly. Otherwise it uses the entry's own change, and adds
 * the difference to the systematic uncertainty. If no instruction on any GPU ran at the highest
 * clock, the change there is not known. */
static void guess_change(entry_change *change, const double *ran, double from_highest,
                         double clock_share, const double *common) {
    double others = common[HARPE_TIME] > 0 ? common[HARPE_TIME] : 1;
    bool may_be_as_others =
        from_highest * clock_share <= others && others <= from_highest && common[HARPE_TIME] > 0;
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        double known = common[q] > 0 ? common[q] : 1;
        bool is_same = fabs(ran[q] - known) <= CHANGE_MIN;
        change->highest[q] = common[q] <= 0 || (may_be_as_others && !is_same) ? known : ran[q];
        change->systematic[q] = may_be_as_others ? 0 : fabs(ran[q] - known);
    }
}

static void find_change(comparison *self, size_t e, const expectation *expected,
                        const double *common) {
    const harpe_perseus *perseus = self->self;
    const harpe_online_entry *entry = &perseus->pipeline->entries[e];
    const harpe_profile_point *swept = &perseus->explorer->entries[e].points[0];
    double runs = (double)entry->run_count;
    entry_change *change = &self->changes[e];
    change->is_known = self->round->entries[e].time_s > 0;
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        double own = self->highest[e].time_s > 0
                         ? mean_of(&self->highest[e], q) / value_of(swept, q)
                         : mean_change(self, entry->pipeline_rank, q);
        change->ran[q] = mean_of(&self->round->entries[e], q) * runs / expected->value[q];
        change->highest[q] = own > 0 ? own : common[q] > 0 ? common[q] : 1;
        if (!change->is_known) change->ran[q] = change->highest[q];
    }
    bool has_run_highest = mean_change(self, entry->pipeline_rank, HARPE_TIME) > 0;
    if (!has_run_highest && change->is_known)
        guess_change(change, change->ran, self->round->entries[e].time_s / swept->time_s,
                     expected->mhz / runs / highest_mhz(perseus, (int)e), common);
}

static bool find_changes(comparison *self) {
    size_t count = self->self->pipeline->entry_count;
    expectation *expected = harpe_calloc(count, sizeof *expected);
    bool is_found = expected && expect_entries(self, expected);
    double common[HARPE_QUANTITIES] = {0};
    for (int q = 0; q < HARPE_QUANTITIES && is_found; q++)
        common[q] = mean_change(self, -1, q);
    for (size_t e = 0; e < count && is_found; e++)
        find_change(self, e, &expected[e], common);
    free(expected);
    return is_found;
}

/* ---- What an iteration takes by the profile -------------------------------------------------- */

typedef enum of_what { SWEPT_HIGHEST, NOW_HIGHEST, NOW_HIGHEST_UPPER, NOW_RAN } of_what;

static double factor_of(const entry_change *change, of_what what, int quantity) {
    switch (what) {
    case NOW_HIGHEST: return change->highest[quantity];
    case NOW_HIGHEST_UPPER: return change->highest[quantity] + change->systematic[quantity];
    case NOW_RAN: return change->ran[quantity];
    default: return 1;
    }
}

static bool model(const comparison *self, of_what what, modelled *out) {
    const harpe_perseus *perseus = self->self;
    const harpe_online_pipeline *pipeline = perseus->pipeline;
    size_t count = pipeline->instruction_count;
    harpe_profile_point *points = harpe_calloc(count, sizeof *points);
    const harpe_profile_point **list = harpe_calloc(count, sizeof *list);
    double *start_s = harpe_calloc(count, sizeof *start_s);
    bool is_done = points && list && start_s;
    for (size_t i = 0; i < count && is_done; i++) {
        int entry = pipeline->entry_of[i];
        int mhz = what == NOW_RAN ? self->frequency_mhz[i] : highest_mhz(perseus, entry);
        is_done = swept_point(perseus->explorer, entry, mhz, &points[i]);
        points[i].time_s *= factor_of(&self->changes[entry], what, HARPE_TIME);
        points[i].energy_j *= factor_of(&self->changes[entry], what, HARPE_ENERGY);
        list[i] = &points[i];
    }
    if (is_done) {
        harpe_plan plan = harpe_evaluate_points(perseus->plans->problem, list, start_s);
        *out = (modelled){{plan.time_s, plan.energy_j}};
    }
    free(points);
    free(list);
    free(start_s);
    return is_done;
}

static bool model_all(comparison *self, modelled *upper) {
    return model(self, SWEPT_HIGHEST, &self->swept_highest) &&
           model(self, NOW_HIGHEST, &self->now_highest) && model(self, NOW_HIGHEST_UPPER, upper) &&
           model(self, NOW_RAN, &self->now_ran);
}

/* ---- From the changes to the baseline of the round ------------------------------------------- */

static double baseline_of(const harpe_perseus *self, int quantity) {
    return harpe_savings_baseline(&self->savings, quantity).value;
}

static double clear_change(const comparison *self, int quantity, double errors) {
    return fmax(CHANGE_MIN * baseline_of(self->self, quantity),
                CLEARLY * errors * self->error[quantity]);
}

/* Returns the standard error of the instructions' mean change, computed from the differences among
 * them. The error is large if runs are few or short, because the energy counter moves in steps. */
static double scatter(const comparison *self, int quantity) {
    const harpe_perseus *perseus = self->self;
    double count = 0, mean = 0, squares = 0;
    for (size_t e = 0; e < perseus->pipeline->entry_count; e++) {
        if (!(self->highest[e].time_s > 0)) continue;
        double change = mean_of(&self->highest[e], quantity) /
                        value_of(&perseus->explorer->entries[e].points[0], quantity);
        double from_mean = change - mean;
        count++;
        mean += from_mean / count;
        squares += from_mean * (change - mean);
    }
    return count < 2 ? perseus->args.drift_tolerance / CLEARLY
                     : sqrt(squares / (count - 1) / count);
}

/* Shifts the baseline by the changes of instructions. An instruction that has clearly changed would
 * have the same change at the highest clocks. */
static void shift_by_instructions(comparison *self, const modelled *upper) {
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        double change = self->now_highest.value[q] - self->swept_highest.value[q];
        double noise = CLEARLY * scatter(self, q) * baseline_of(self->self, q);
        self->terms.systematic[q] = fabs(upper->value[q] - self->now_highest.value[q]);
        if (fabs(change) > fmax(noise, clear_change(self, q, M_SQRT2))) {
            self->terms.shift[q] = change;
            self->terms.weight[q] += 2; /* noise of this round's changes, and of the sweep */
        } else {
            self->terms.systematic[q] += fabs(change);
        }
    }
}

/* Returns the time of an iteration that waits for a straggler, or 0 if no straggler was reported to
 * the server. */
static double held_until_s(const comparison *self) {
    const harpe_perseus *perseus = self->self;
    harpe_online_outside outside = harpe_perseus_outside(perseus);
    double allowed_s = harpe_online_straggler_time_s(perseus->plans, &perseus->requests, outside);
    if (!(allowed_s > 0)) return 0;
    allowed_s += outside.time_s;
    double measured_s = self->measured->value[HARPE_TIME];
    bool is_held = fabs(measured_s - allowed_s) <= CLEARLY * self->error[HARPE_TIME];
    return is_held ? allowed_s : fmin(measured_s, allowed_s);
}

static double waiting_power_w(const harpe_perseus *self) {
    return self->blocking_power_w * self->job->job->world_size;
}

/* Computes the part of the difference between a round and its plan that the changes of instructions
 * do not explain. */
static void find_deviation(const comparison *self, double held_s, double *deviation) {
    const harpe_perseus *perseus = self->self;
    double expected[HARPE_QUANTITIES];
    harpe_online_mean gain = harpe_perseus_replicas_gain(perseus);
    for (int q = 0; q < HARPE_QUANTITIES; q++)
        expected[q] = self->now_ran.value[q] + baseline_of(perseus, q) -
                      self->swept_highest.value[q] + mean_of(&gain, q);
    double wait_s = fmax(0, held_s - expected[HARPE_TIME]);
    expected[HARPE_TIME] += wait_s;
    expected[HARPE_ENERGY] += waiting_power_w(perseus) * wait_s;
    for (int q = 0; q < HARPE_QUANTITIES; q++)
        deviation[q] = self->measured->value[q] - expected[q];
}

/* Shifts the baseline by a deviation from the plan. If the deviation has existed since the first
 * round of a plan, the plan may have caused it, and it is added to the systematic uncertainty. If
 * the deviation appears later, its cause is outside of the instructions, and it would also exist at
 * the highest clocks. The smallest deviation of all rounds is taken as the usual deviation, because
 * large deviations do not last. */
static void shift_by_deviation(comparison *self, const double *deviation) {
    harpe_perseus *perseus = self->self;
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        harpe_perseus_usual *usual = &perseus->usual[q];
        double change = deviation[q] - usual->deviation;
        bool is_clear = usual->rounds > 0 && fabs(change) > clear_change(self, q, M_SQRT2);
        if (is_clear && fabs(deviation[q]) > fabs(usual->deviation)) {
            self->terms.shift[q] += change;
            self->terms.weight[q] += 1 / usual->rounds;
        } else {
            if (is_clear) *usual = (harpe_perseus_usual){0};
            if (usual->rounds < USUAL_ROUNDS_MAX) usual->rounds++;
            usual->deviation += (deviation[q] - usual->deviation) / usual->rounds;
        }
        double known = harpe_savings_baseline(&perseus->savings, q).uncertainty +
                       CLEARLY * self->error[q] / sqrt(usual->rounds);
        if (fabs(usual->deviation) > fmax(known, CHANGE_MIN * baseline_of(perseus, q)))
            self->terms.systematic[q] += fabs(usual->deviation);
    }
}

/* Returns the uncertainty of a GPU's blocking power: half the width of its 95 % confidence
 * interval. */
static double blocking_uncertainty_w(const harpe_perseus *self) {
    const harpe_explorer_cost *cost = &self->explorer->cost;
    if (harpe_perseus_args_have_blocking_power(&self->args) || !(cost->waiting.time_s > 0) ||
        cost->rounds == 0)
        return 0;
    double noise = harpe_savings_noise_of(&self->savings, HARPE_ENERGY);
    double iterations = (double)cost->iterations / (double)cost->rounds; /* in a round */
    if (!isfinite(noise) || !(iterations > 0)) return self->blocking_power_w;
    return 2 * noise * baseline_of(self, HARPE_ENERGY) * sqrt((double)cost->rounds / iterations) /
           cost->waiting.time_s;
}

/* Adds the wait for a straggler to the baseline. At the highest clocks, GPUs would also wait for
 * the straggler, and they would wait longer. */
static void wait_for_straggler(comparison *self, double held_s) {
    const harpe_perseus *perseus = self->self;
    double wait_s = held_s - baseline_of(perseus, HARPE_TIME) - self->terms.shift[HARPE_TIME];
    if (wait_s <= 0) return;
    self->terms.shift[HARPE_TIME] += wait_s;
    self->terms.shift[HARPE_ENERGY] += waiting_power_w(perseus) * wait_s;
    self->terms.systematic[HARPE_ENERGY] +=
        perseus->job->job->world_size * wait_s * blocking_uncertainty_w(perseus);
}

static void compare(comparison *self) {
    harpe_perseus *perseus = self->self;
    modelled upper;
    double deviation[HARPE_QUANTITIES];
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        double noise = harpe_savings_noise_of(&perseus->savings, q);
        self->terms.weight[q] = 1;
        if (!isfinite(noise)) noise = perseus->args.drift_tolerance / CLEARLY;
        self->error[q] = noise * self->measured->value[q] / sqrt(self->measured->iterations);
    }
    double held_s = held_until_s(self);
    if (!find_changes(self) || !model_all(self, &upper)) { /* not measured, or out of memory */
        self->terms.systematic[HARPE_TIME] = self->terms.systematic[HARPE_ENERGY] = INFINITY;
        return;
    }
    shift_by_instructions(self, &upper);
    find_deviation(self, held_s, deviation);
    shift_by_deviation(self, deviation);
    harpe_perseus_scaled *scaled = &perseus->scaled;
    bool is_scaled = self->terms.shift[HARPE_TIME] != 0 || self->terms.shift[HARPE_ENERGY] != 0;
    if (!is_scaled) scaled->since_round = -1;
    if (is_scaled && scaled->since_round < 0) scaled->since_round = self->measured->number;
    for (int q = 0; q < HARPE_QUANTITIES; q++)
        scaled->factor[q] = 1 + self->terms.shift[q] / baseline_of(perseus, q);
    wait_for_straggler(self, held_s);
}

/* ---- Counting rounds ------------------------------------------------------------------------- */

harpe_savings_round harpe_perseus_savings_round(const harpe_online_round *round, int64_t number) {
    double freedom = round->spread_iterations > 1 ? (double)round->spread_iterations - 1 : 0;
    return (harpe_savings_round){
        .number = number,
        .wall_s = harpe_clock_wall_whole_s(),
        .iterations = (double)round->iterations,
        .value = {round->iteration_time_s, round->iteration_energy_j},
        .total = {round->total_time_s, round->total_energy_j},
        .spread = {round->time_spread_s, round->energy_spread_j},
        .freedom = {round->iteration_time_s > 0 ? freedom : 0,
                    round->iteration_energy_j > 0 ? freedom : 0},
    };
}

/* Counts a round of a plan with only the highest clocks. Such a plan saves nothing, even if its
 * time and energy differ from the baseline. */
static void count_highest(harpe_perseus *self, const harpe_savings_round *own,
                          harpe_perseus_measured *measured) {
    const harpe_online_requests *requests = &self->requests;
    if (requests->slowdown > 0 || requests->iteration_time_s > 0)
        harpe_savings_use(&self->savings, own); /* it may have waited for the straggler */
    else
        harpe_savings_add_baseline(&self->savings, own);
    memcpy(measured->baseline, measured->value, sizeof measured->baseline);
}

/* Reads the runs at the highest clocks. If clocks change late, these are not those that were asked
 * for. */
static harpe_status read_highest(const harpe_perseus *self, const int *asked_mhz, comparison *into,
                                 harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    harpe_online_reports reports = harpe_perseus_late_reports(self);
    int *ran_mhz = harpe_calloc(pipeline->instruction_count, sizeof *ran_mhz);
    if (!ran_mhz) return harpe_fail_memory(error);
    harpe_find_real_clocks(pipeline, &reports, asked_mhz, HARPE_MAIN_SHARE_MIN, ran_mhz);
    harpe_status status = harpe_online_round_read_highest(
        pipeline, &reports, ran_mhz, self->explorer->clocks, into->highest, error);
    free(ran_mhz);
    return status;
}

harpe_status harpe_perseus_count_planned(harpe_perseus *self, const int *frequency_mhz,
                                         const harpe_online_round *round,
                                         harpe_perseus_measured *measured, harpe_error *error) {
    harpe_savings_round own = harpe_perseus_savings_round(round, measured->round);
    bool is_whole = measured->value[HARPE_TIME] > 0 && measured->value[HARPE_ENERGY] > 0 &&
                    !round->ran_other_steps;
    bool is_known = harpe_savings_has_baseline(&self->savings, HARPE_TIME) &&
                    harpe_savings_has_baseline(&self->savings, HARPE_ENERGY);
    const int *lowest_mhz = harpe_perseus_replicas_lowest(self);
    if (!lowest_mhz) lowest_mhz = frequency_mhz;
    if (is_whole && harpe_explorer_are_highest(self->explorer, lowest_mhz)) {
        count_highest(self, &own, measured);
        return HARPE_OK;
    }
    if (!is_whole || !is_known) {
        harpe_savings_use(&self->savings, &own);
        return HARPE_OK;
    }
    size_t entries = self->pipeline->entry_count;
    comparison compared = {.self = self,
                           .round = round,
                           .measured = &own,
                           .frequency_mhz = frequency_mhz,
                           .highest = harpe_calloc(entries, sizeof *compared.highest),
                           .changes = harpe_calloc(entries, sizeof *compared.changes)};
    harpe_status status =
        compared.highest && compared.changes ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = read_highest(self, lowest_mhz, &compared, error);
    if (status == HARPE_OK) {
        compare(&compared);
        if (isinf(compared.terms.systematic[HARPE_TIME])) {
            harpe_savings_use(&self->savings, &own);
        } else {
            for (int q = 0; q < HARPE_QUANTITIES; q++)
                measured->baseline[q] = baseline_of(self, q) + compared.terms.shift[q];
            memcpy(measured->systematic, compared.terms.systematic, sizeof measured->systematic);
            memcpy(measured->weight, compared.terms.weight, sizeof measured->weight);
            harpe_savings_add(&self->savings, self->savings.planned, &own, &compared.terms);
        }
    }
    free(compared.highest);
    free(compared.changes);
    return status;
}

/* ---- A new baseline -------------------------------------------------------------------------- */

void harpe_perseus_renew_baseline(harpe_perseus *self) {
    harpe_savings before = self->savings;
    self->savings = (harpe_savings){0};
    harpe_savings_close(&self->savings, &before);
    memset(self->usual, 0, sizeof self->usual);
    self->scaled = (harpe_perseus_scaled){.since_round = -1};
}

/* Counts a round of the sweep, or the round at the highest clocks after the sweep. Call it before
 * the sweep uses the round. */
void harpe_perseus_count_sweep(harpe_perseus *self, const harpe_online_round *round,
                               int64_t number) {
    static const harpe_savings_terms plain = {.weight = {1, 1}};
    harpe_savings *savings = &self->savings;
    harpe_savings_round own = harpe_perseus_savings_round(round, number);
    bool is_at_highest = self->explorer->position == 0 || harpe_explorer_is_over(self->explorer);
    /* A warm-up is a worse baseline than a round with a probe. */
    if (round->has_probe) is_at_highest = harpe_savings_had_warm_up(savings, &own);
    if (round->ran_other_steps)
        harpe_savings_use(savings, &own);
    else if (is_at_highest)
        harpe_savings_add_baseline(savings, &own);
    else
        harpe_savings_add(savings, savings->swept, &own, &plain);
}
