/* SPDX-License-Identifier: Apache-2.0 */
/* Measures savings. Rounds at the highest clocks are the baseline of the rounds that run a plan.
 * The baseline is valid as long as the job does not change. When rounds of a plan become clearly
 * different, a new baseline begins: the next round runs at the highest clocks on purpose.
 *
 * The error of a baseline is the same in all rounds that are compared with it, so more rounds do
 * not make it smaller. But more rounds make the effect of noise smaller. Uncertainties are
 * half-widths of 95 % confidence intervals. docs/online.md ("Savings") has the formulas. */
#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "server/scheduler/builtin.h"
#include "server/scheduler/perseus/perseus_internal.h"

/* The factor from a median absolute deviation to a standard deviation, for normally distributed
 * noise. */
#define MAD_TO_DEVIATION 1.4826
/* The tolerance for numbers that were rounded in texts and sums. */
#define ROUNDING 1e-6
/* If the first two rounds at the highest clocks differ by more than this share, the first round was
 * a warm-up. */
#define WARM_UP 0.1

/* ---- Statistics ------------------------------------------------------------------------------ */

double harpe_student_quantile(double freedom) {
    const double z = 1.959964;
    if (freedom < 1.5) return 12.706;
    if (freedom < 2.5) return 4.303;
    double f = freedom, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z, z9 = z7 * z * z;
    /* Abramowitz and Stegun, 26.7.5. */
    return z + (z3 + z) / (4 * f) + (5 * z5 + 16 * z3 + 3 * z) / (96 * f * f) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * f * f * f) +
           (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * f * f * f * f);
}

double harpe_robust_spread(double *values, size_t count) {
    /* With few values the estimate is too small on average. These factors correct it. Source: Croux
     * and Rousseeuw, Time-efficient algorithms for two highly robust estimators of scale (1992). */
    static const double few[] = {0, 0, 1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107};
    if (count < 2) return 0;
    double median = harpe_median(values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = fabs(values[i] - median);
    double factor =
        count < sizeof few / sizeof few[0] ? few[count] : (double)count / ((double)count - 0.8);
    return MAD_TO_DEVIATION * factor * harpe_median(values, count);
}

static void add_to_mean(harpe_savings_mean *mean, double value, double iterations) {
    double from_mean = value - mean->mean;
    mean->rounds++;
    mean->iterations += iterations;
    mean->mean += from_mean * iterations / mean->iterations;
    /* Rounding can make the product of two tiny differences negative. */
    mean->squares += iterations * fmax(0, from_mean * (value - mean->mean));
}

static void add_noise(harpe_savings *savings, const harpe_savings_round *round) {
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        if (!(round->value[q] > 0) || !(round->freedom[q] > 0)) continue;
        double relative = round->spread[q] / round->value[q];
        savings->noise[q].squares += round->freedom[q] * relative * relative;
        savings->noise[q].freedom += round->freedom[q];
    }
}

/* Returns the relative variance of one iteration, computed from the differences between rounds; 0:
 * not known. */
static double variance_between(const harpe_savings_mean *mean) {
    if (mean->rounds < 2) return 0;
    return mean->squares / (mean->rounds - 1) / (mean->mean * mean->mean);
}

/* Returns the relative variance of one iteration, or INFINITY if it is not known. */
static double variance_of(const harpe_savings *savings, int quantity) {
    const harpe_noise *noise = &savings->noise[quantity];
    const harpe_savings_mean *mean = &savings->baseline.mean[quantity];
    if (noise->freedom > 0) return HARPE_MEDIAN_VARIANCE * noise->squares / noise->freedom;
    return mean->rounds >= 2 ? variance_between(mean) : INFINITY;
}

static double quantile_of(const harpe_savings *savings, int quantity) {
    double freedom = savings->noise[quantity].freedom;
    return harpe_student_quantile(freedom > 0 ? HARPE_ROBUST_EFFICIENCY * freedom
                                              : savings->baseline.mean[quantity].rounds - 1);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

void harpe_savings_use(harpe_savings *savings, const harpe_savings_round *round) {
    for (int q = 0; q < HARPE_QUANTITIES; q++)
        savings->used[q] += round->total[q];
}

static void count(harpe_savings *savings, const harpe_savings_round *round) {
    savings->iterations += (int64_t)round->iterations;
    harpe_savings_use(savings, round);
}

/* The first round of a job may include the start of the job: compilation, empty caches, new
 * connections. */
bool harpe_savings_is_warm_up(double before, double value) {
    return value > 0 && before > (1 + WARM_UP) * value;
}

/* Returns true if the baseline has only one round, and this round was a warm-up compared with
 * `round`. */
static bool had_warm_up(const harpe_savings *savings, const harpe_savings_round *round) {
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        const harpe_savings_mean *mean = &savings->baseline.mean[q];
        if (mean->rounds == 1 && harpe_savings_is_warm_up(mean->mean, round->value[q])) return true;
    }
    return false;
}

/* Adds the noise of rounds that have only one iteration. Their noise can be computed only from the
 * differences between successive rounds. */
static void add_noise_between(harpe_savings *savings, const harpe_savings_round *round) {
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        double before = savings->last_value[q], value = round->value[q];
        if (before > 0 && value > 0 && !(round->freedom[q] > 0) &&
            savings->last_number + 1 == round->number) {
            double relative = (value - before) / value;
            savings->noise[q].squares += round->iterations * relative * relative / 2;
            savings->noise[q].freedom++;
        }
        savings->last_value[q] = value;
    }
    savings->last_number = round->number;
}

void harpe_savings_add(harpe_savings *savings, const harpe_savings_round *round,
                       const double *systematic) {
    count(savings, round);
    add_noise(savings, round);
    add_noise_between(savings, round);
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        if (!(round->value[q] > 0)) continue;
        double n = round->iterations, value = round->value[q];
        harpe_savings_sum own = {n, n * value, n * value * value, n * systematic[q]};
        harpe_savings_sum_add(savings->is_waiting ? &savings->waiting[q] : &savings->sum[q], &own);
    }
}

/* ---- What it says ---------------------------------------------------------------------------- */

bool harpe_savings_has_baseline(const harpe_savings *savings, int quantity) {
    return savings->baseline.mean[quantity].rounds > 0;
}

harpe_estimate harpe_savings_baseline(const harpe_savings *savings, int quantity) {
    const harpe_savings_mean *mean = &savings->baseline.mean[quantity];
    if (mean->rounds < 1) return (harpe_estimate){0, INFINITY};
    /* Rounds may differ more from one another than the iterations within a round. */
    double variance =
        fmax(variance_of(savings, quantity), variance_between(mean)) / mean->iterations;
    double half = quantile_of(savings, quantity) * sqrt(variance);
    return (harpe_estimate){mean->mean, mean->mean * (half + ROUNDING)};
}

/* Returns the squared half-width of a sum. It has two parts: the baseline's error times the
 * iterations, and the noise of the rounds. */
static double squares_of(const harpe_savings *savings, const harpe_savings_sum *sum, int quantity) {
    harpe_estimate baseline = harpe_savings_baseline(savings, quantity);
    double common = sum->iterations * baseline.uncertainty;
    double quantile = quantile_of(savings, quantity);
    return common * common + quantile * quantile * variance_of(savings, quantity) * sum->squares;
}

harpe_estimate harpe_savings_of_sum(const harpe_savings *savings, const harpe_savings_sum *sum,
                                    int quantity) {
    if (!(sum->iterations > 0)) return (harpe_estimate){0, 0};
    harpe_estimate baseline = harpe_savings_baseline(savings, quantity);
    if (!(baseline.value > 0)) return (harpe_estimate){0, INFINITY};
    return (harpe_estimate){sum->iterations * baseline.value - sum->measured,
                            sqrt(squares_of(savings, sum, quantity)) + sum->systematic};
}

void harpe_savings_sum_add(harpe_savings_sum *to, const harpe_savings_sum *from) {
    to->iterations += from->iterations;
    to->measured += from->measured;
    to->squares += from->squares;
    to->systematic += from->systematic;
}

harpe_estimate harpe_savings_total(const harpe_savings *savings, int quantity, double *baseline) {
    const harpe_savings_closed *closed = &savings->closed[quantity];
    const harpe_savings_mean *mean = &savings->baseline.mean[quantity];
    harpe_savings_sum sum = savings->sum[quantity];
    bool is_open = sum.iterations > 0 && mean->rounds > 0;
    harpe_estimate open =
        is_open ? harpe_savings_of_sum(savings, &sum, quantity) : (harpe_estimate){0, 0};
    double squares = is_open ? squares_of(savings, &sum, quantity) : 0;
    double systematic = is_open ? sum.systematic : 0;
    if (baseline) *baseline = closed->baseline + mean->mean * (mean->iterations + sum.iterations);
    return (harpe_estimate){closed->saved + open.value,
                            sqrt(closed->squares + squares) + closed->systematic + systematic};
}

bool harpe_estimate_is_significant(harpe_estimate estimate) {
    return fabs(estimate.value) > estimate.uncertainty;
}

/* ---- Baselines ------------------------------------------------------------------------------- */

/* What is known of the noise holds for the next baseline too. */
static harpe_noise noise_of(const harpe_savings *savings, int quantity) {
    const harpe_savings_mean *mean = &savings->baseline.mean[quantity];
    harpe_noise noise = savings->noise[quantity];
    if (noise.freedom > 0 || mean->rounds < 2) return noise;
    return (harpe_noise){variance_between(mean) * (mean->rounds - 1), mean->rounds - 1};
}

/* Begins a new baseline. The savings of the rounds before are closed: they no longer change. */
static void renew(harpe_savings *savings) {
    harpe_savings before = *savings;
    *savings = (harpe_savings){.iterations = before.iterations};
    memcpy(savings->sum, before.waiting, sizeof savings->sum);
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        double baseline;
        harpe_estimate total = harpe_savings_total(&before, q, &baseline);
        savings->used[q] = before.used[q];
        savings->noise[q] = noise_of(&before, q);
        savings->closed[q] = before.closed[q];
        if (!isfinite(total.uncertainty)) continue; /* the savings are not known */
        double systematic = before.closed[q].systematic + before.sum[q].systematic;
        double half = fmax(0, total.uncertainty - systematic);
        savings->closed[q] =
            (harpe_savings_closed){total.value, baseline, half * half, total.uncertainty - half};
    }
}

void harpe_savings_expect_baseline(harpe_savings *savings) {
    memset(savings->waiting, 0, sizeof savings->waiting);
    savings->is_waiting = true;
}

void harpe_savings_add_baseline(harpe_savings *savings, const harpe_savings_round *round) {
    harpe_baseline *baseline = &savings->baseline;
    count(savings, round);
    if (!(round->iterations > 0) ||
        (round->value[HARPE_TIME] <= 0 && round->value[HARPE_ENERGY] <= 0))
        return;
    if (savings->is_waiting) renew(savings);
    if (had_warm_up(savings, round)) {
        memset(baseline, 0, sizeof *baseline);
        memset(savings->noise, 0, sizeof savings->noise);
    }
    add_noise(savings, round);
    if (baseline->mean[HARPE_TIME].rounds + baseline->mean[HARPE_ENERGY].rounds == 0) {
        baseline->first_round = round->number;
        baseline->first_wall_s = round->wall_s;
    }
    baseline->last_round = round->number;
    baseline->last_wall_s = round->wall_s;
    /* The machine's clock was set back. */
    if (baseline->first_wall_s > round->wall_s) baseline->first_wall_s = round->wall_s;
    for (int q = 0; q < HARPE_QUANTITIES; q++)
        if (round->value[q] > 0)
            add_to_mean(&baseline->mean[q], round->value[q], round->iterations);
}

/* ---- The stored state ------------------------------------------------------------------------ */

static const harpe_stored_member MEMBERS[] = {
    HARPE_STORED(harpe_savings, iterations, HARPE_STORED_COUNT),
    HARPE_STORED(harpe_savings, used, HARPE_STORED_ANY),
    HARPE_STORED(harpe_savings, baseline.first_round, HARPE_STORED_ANY),
    HARPE_STORED(harpe_savings, baseline.last_round, HARPE_STORED_ANY),
    HARPE_STORED(harpe_savings, baseline.first_wall_s, HARPE_STORED_ANY),
    HARPE_STORED(harpe_savings, baseline.last_wall_s, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_savings, baseline.mean, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_savings, noise, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_savings, sum, HARPE_STORED_ANY),
    HARPE_STORED_DOUBLES(harpe_savings, waiting, HARPE_STORED_ANY),
    HARPE_STORED(harpe_savings, is_waiting, 0, 1),
    HARPE_STORED_DOUBLES(harpe_savings, closed, HARPE_STORED_ANY),
    HARPE_STORED(harpe_savings, last_number, HARPE_STORED_ANY),
    HARPE_STORED(harpe_savings, last_value, HARPE_STORED_ANY),
};
static const harpe_stored TABLE = HARPE_STORED_TABLE(harpe_savings, MEMBERS);

json_t *harpe_savings_save(const harpe_savings *savings) {
    return harpe_stored_save(&TABLE, savings);
}

bool harpe_savings_load(harpe_savings *savings, const json_t *json) {
    harpe_savings loaded = {0};
    if (!harpe_stored_load(&TABLE, &loaded, json)) return false;
    for (int q = 0; q < HARPE_QUANTITIES; q++) {
        const harpe_savings_mean *mean = &loaded.baseline.mean[q];
        if (!(mean->rounds >= 0 && mean->squares >= 0 && loaded.noise[q].squares >= 0))
            return false;
        if (mean->rounds > 0 && !(mean->mean > 0 && mean->iterations > 0)) return false;
    }
    *savings = loaded;
    return true;
}

/* ---- Savings of a job ------------------------------------------------------------------------ */

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
        double noise = sqrt(variance_of(&self->savings, q));
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
    if (round->has_probe) is_at_highest = had_warm_up(savings, &own);
    if (round->ran_other_steps)
        harpe_savings_use(savings, &own);
    else if (is_at_highest)
        harpe_savings_add_baseline(savings, &own);
    else
        harpe_savings_add(savings, &own, (double[HARPE_QUANTITIES]){0});
}
