/* SPDX-License-Identifier: Apache-2.0 */
/* Measures savings. Rounds at the highest clocks are the baseline of the rounds that run a plan.
 * The baseline is valid as long as the job does not change. When rounds of a plan become clearly
 * different, a new baseline begins: the next round runs at the highest clocks on purpose.
 * docs/online.md ("Savings") has the formulas. This file changes no plan. */
#include "server/scheduler/perseus/perseus_job.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

/* A change is clear if it exceeds this number of standard errors ... */
#define CLEARLY 3.5
/* ... and this share. */
#define CHANGE_MIN 0.005
/* If no round may run at the highest clocks, the change of the baseline is not known. It is assumed
 * to be at most this factor times the change of the rounds of the plan. */
#define UNSEEN_FACTOR 2.0
/* The usual values of a plan are means over at most this number of rounds. */
enum { USUAL_ROUNDS_MAX = 50 };

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

/* ---- Baselines ------------------------------------------------------------------------------- */

void harpe_perseus_renew_baseline(harpe_perseus *self) {
    harpe_savings_expect_baseline(&self->savings);
    self->usual = (harpe_perseus_usual){0};
    for (int64_t r = harpe_perseus_first_kept(self); r < self->round; r++)
        self->history[r % HARPE_PERSEUS_HISTORY].is_waiting = false;
}

bool harpe_perseus_may_run_highest(const harpe_perseus *self) {
    return self->phase == HARPE_PERSEUS_PLAN && !(self->requests.power_cap_w > 0) &&
           !(self->requests.plan_time_s > 0);
}

/* Each new baseline of a job that changes all the time must wait longer than the one before. */
static bool may_renew(const harpe_perseus *self) {
    const harpe_perseus_backoff *last = &self->references;
    return harpe_perseus_may_run_highest(self) &&
           (last->level == 0 || self->round - last->since >= (int64_t)1 << (last->level - 1));
}

static bool has_other_straggler(const harpe_perseus *self) {
    return self->told.slowdown != self->baseline_told.slowdown ||
           self->told.iteration_time_s != self->baseline_told.iteration_time_s;
}

/* Compares the rounds that have waited for this baseline with it. */
static void serve_waiting(harpe_perseus *self) {
    for (int64_t r = harpe_perseus_first_kept(self); r < self->round; r++) {
        harpe_perseus_measured *measured = &self->history[r % HARPE_PERSEUS_HISTORY];
        for (int q = 0; q < HARPE_QUANTITIES && measured->is_waiting; q++)
            measured->baseline[q] = harpe_savings_baseline(&self->savings, q).value;
        measured->is_waiting = false;
    }
}

/* Counts a round in which all instructions ran at the highest clocks, by a plan or on purpose. Such
 * a round saves nothing, even if its time and energy differ from the baseline. */
static void count_highest(harpe_perseus *self, const harpe_savings_round *own,
                          harpe_perseus_measured *measured) {
    if (has_other_straggler(self)) harpe_perseus_renew_baseline(self);
    self->baseline_told = self->told;
    harpe_savings_add_baseline(&self->savings, own);
    memcpy(measured->baseline, measured->value, sizeof measured->baseline);
    serve_waiting(self);
}

/* ---- Changes --------------------------------------------------------------------------------- */

/* Begins to watch another plan, or the same plan with another straggler. Before the first round,
 * the usual time and energy are the predicted ones. */
static void expect_plan(harpe_perseus_usual *usual, const harpe_online_mean *planned,
                        const harpe_online_mean *predicted) {
    if (usual->planned_s == planned->time_s && usual->planned_j == planned->energy_j) return;
    *usual = (harpe_perseus_usual){.planned_s = planned->time_s,
                                   .planned_j = planned->energy_j,
                                   .value = {predicted->time_s, predicted->energy_j}};
}

/* Returns the largest relative difference of a round from the usual values; 0: none is clear. */
static double clear_change(const harpe_perseus *self, const harpe_savings_round *own) {
    const harpe_perseus_usual *usual = &self->usual;
    double largest = 0;
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        double noise = harpe_savings_noise_of(&self->savings, q);
        if (!isfinite(noise)) noise = self->args.drift_tolerance / CLEARLY;
        double error = noise * sqrt((1 + 1 / fmax(1, usual->rounds)) / own->iterations);
        double change = fabs(own->value[q] / usual->value[q] - 1);
        if (change > fmax(CHANGE_MIN, CLEARLY * error)) largest = fmax(largest, change);
    }
    return largest;
}

static void learn_usual(harpe_perseus_usual *usual, const harpe_savings_round *own) {
    if (usual->rounds < USUAL_ROUNDS_MAX) usual->rounds++;
    for (int q = 0; q < HARPE_QUANTITIES; q++)
        usual->value[q] += (own->value[q] - usual->value[q]) / usual->rounds;
}

/* Compares a round of the running plan with the usual values. Returns the uncertainty of the
 * round's baseline, as a share. It is above 0 if the baseline may have changed and no round may run
 * at the highest clocks to show this. INFINITY: the baseline is not known. */
static double watch_baseline(harpe_perseus *self, const harpe_online_round *round,
                             const harpe_savings_round *own) {
    harpe_online_mean predicted, planned = harpe_perseus_planned(self, round, &predicted);
    bool is_other_straggler = has_other_straggler(self);
    expect_plan(&self->usual, &planned, &predicted);
    double change = clear_change(self, own);
    bool has_none =
        !self->savings.is_waiting && !harpe_savings_has_baseline(&self->savings, HARPE_ENERGY);
    bool is_changed = change > 0 || is_other_straggler || has_none;
    if (is_changed && !may_renew(self))
        return is_other_straggler || change > self->args.drift_tolerance ? INFINITY
                                                                         : UNSEEN_FACTOR * change;
    if (is_changed) {
        harpe_perseus_renew_baseline(self);
        harpe_perseus_put_off(&self->references, self->round);
        self->baseline_told = self->told;
        expect_plan(&self->usual, &planned, &predicted);
    }
    learn_usual(&self->usual, own);
    return 0;
}

/* ---- Counting rounds ------------------------------------------------------------------------- */

void harpe_perseus_count_planned(harpe_perseus *self, const int *frequency_mhz,
                                 const harpe_online_round *round,
                                 harpe_perseus_measured *measured) {
    harpe_savings_round own = harpe_perseus_savings_round(round, measured->round);
    bool is_whole = measured->value[HARPE_TIME] > 0 && measured->value[HARPE_ENERGY] > 0 &&
                    !round->ran_other_steps;
    const int *lowest_mhz = harpe_perseus_replicas_lowest(self);
    bool is_highest =
        harpe_explorer_are_highest(self->explorer, lowest_mhz ? lowest_mhz : frequency_mhz);
    double share = 0;
    if (is_whole && !is_highest && !self->explores) share = watch_baseline(self, round, &own);
    if (!is_whole || isinf(share)) {
        harpe_savings_use(&self->savings, &own);
    } else if (is_highest) {
        count_highest(self, &own, measured);
    } else {
        measured->is_waiting = self->savings.is_waiting;
        for (int q = 0; q < HARPE_QUANTITIES; q++) {
            double baseline = harpe_savings_baseline(&self->savings, q).value;
            measured->baseline[q] = measured->is_waiting ? 0 : baseline;
            measured->systematic[q] = share * baseline;
        }
        harpe_savings_add(&self->savings, &own, measured->systematic);
    }
    self->runs_highest_next = self->savings.is_waiting && harpe_perseus_may_run_highest(self);
}

void harpe_perseus_count_learning(harpe_perseus *self, const harpe_online_round *round,
                                  int64_t number) {
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
        harpe_savings_add(savings, &own, (double[HARPE_QUANTITIES]){0});
}
