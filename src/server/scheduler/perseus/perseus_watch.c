/* SPDX-License-Identifier: Apache-2.0 */
/* Compares measurements with the plan. If iterations differ from the plan for some rounds in a row,
 * the profile is corrected: the time and energy of each (stage, instruction) at the frequencies
 * that ran are compared with the profile. Then new plans are made. If an instruction has changed
 * too much for a correction, a new sweep measures the profile again. After each correction or
 * sweep, more rounds must differ before the next correction or sweep. */
#include "server/scheduler/perseus/perseus_watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "server/scheduler/perseus/perseus_plan.h"
#include "server/scheduler/perseus/perseus_replicas.h"

/* The largest relative change of an entry that is corrected. If an entry has changed more, the
 * shape of its curve has probably changed too. */
#define CORRECTION_MAX 0.2

/* Each level of the back-off doubles the number of rounds that must pass. A level is dropped after
 * FORGET_AFTER times that number of rounds. */
enum { SWEEPS_APART = 2, FORGET_AFTER = 16 };

/* In s and J, or relative to the expected values. */
typedef struct time_energy {
    double time, energy;
} time_energy;

static const harpe_plan *running_plan(const harpe_perseus *self) {
    return harpe_plan_set_at(self->plans->set, self->running);
}

/* ---- Back-off -------------------------------------------------------------------------------- */

/* Returns the number of rounds from the beginning of a sweep to the beginning of the next one, so
 * that sweeps take at most a quarter of the rounds. */
static int64_t rounds_between_sweeps(const harpe_perseus *self) {
    return (int64_t)(SWEEPS_APART * self->sweep->cost.rounds) << self->sweeps.level;
}

static int rounds_to_drift(const harpe_perseus *self) {
    return self->args.rounds_to_drift << self->corrections.level;
}

static void put_off(harpe_perseus_backoff *backoff, int64_t round) {
    if (backoff->level < HARPE_PERSEUS_LEVEL_MAX) backoff->level++;
    backoff->since = round;
}

static void forget(harpe_perseus_backoff *backoff, int64_t round, int64_t rounds) {
    if (backoff->level == 0 || round - backoff->since < FORGET_AFTER * rounds) return;
    backoff->level--;
    backoff->since = round;
}

bool harpe_perseus_may_sweep(const harpe_perseus *self) {
    return self->sweeps.level == 0 ||
           self->round - self->sweeps.since >= rounds_between_sweeps(self);
}

void harpe_perseus_put_sweep_off(harpe_perseus *self) { put_off(&self->sweeps, self->round); }

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Returns the time for which GPUs wait for a straggler at blocking power. This wait is not drift.
 */
static double straggler_wait_s(const harpe_perseus *self, const harpe_plan *plan,
                               double measured_s) {
    double allowed_s =
        harpe_online_straggler_time_s(self->plans, &self->requests, harpe_perseus_outside(self));
    double inside_s = measured_s - self->outside_time_s - self->shift_time_s;
    double wait_s = fmin(inside_s, allowed_s) - plan->time_s;
    return wait_s > 0 ? wait_s : 0;
}

static bool is_off(double measured, double predicted, double tolerance) {
    return fabs(measured - predicted) > tolerance * predicted;
}

/* Predicts time and energy of a round of `plan`. */
static time_energy predict(const harpe_perseus *self, const harpe_plan *plan,
                           const harpe_online_round *round) {
    double wait_s = straggler_wait_s(self, plan, round->iteration_time_s);
    double waiting_j = self->blocking_power_w * self->job->job->world_size * wait_s;
    harpe_online_mean gain = harpe_perseus_replicas_gain(self);
    return (time_energy){
        plan->time_s + self->outside_time_s + self->shift_time_s + wait_s + gain.time_s,
        plan->energy_j + self->outside_energy_j + self->shift_energy_j + waiting_j + gain.energy_j};
}

/* ---- Correcting ------------------------------------------------------------------------------ */

/* Predicts an instruction that ran at several clocks. It is one piece of work: a part s of its time
 * at a clock at which the whole instruction takes t does s * time / t of the work. Returns false if
 * one of the clocks was not measured. */
static bool predict_mixed(const harpe_perseus *self, int entry, const harpe_run_clocks *run,
                          harpe_profile_point *out) {
    double work_per_s = 0, power_w = 0;
    for (int i = 0; i < run->count; i++) {
        harpe_profile_point point;
        if (!harpe_sweep_point(self->sweep, entry, run->parts[i].mhz, &point)) return false;
        work_per_s += run->parts[i].share / point.time_s;
        power_w += run->parts[i].share * point.energy_j / point.time_s;
    }
    *out = (harpe_profile_point){0, 1 / work_per_s, power_w / work_per_s};
    return work_per_s > 0;
}

/* Predicts the time and energy of an instruction at the clocks that it had. Returns false if they
 * are not known. */
static bool predict_run(const harpe_perseus *self, size_t instruction, int ran_mhz,
                        harpe_profile_point *out) {
    int entry = self->pipeline->entry_of[instruction];
    const harpe_run_clocks *mixed =
        harpe_real_clocks_of_run(self->pipeline, &self->reports, ran_mhz);
    if (mixed) return predict_mixed(self, entry, mixed, out);
    return harpe_sweep_point(self->sweep, entry, ran_mhz, out);
}

/* Computes the ratio of the measured value to the predicted value of each entry at the frequencies
 * that ran. It is 1 for an entry with a run whose frequency is not known. Each replica that runs
 * its own plan was measured at the clocks of the shared plan. */
static harpe_status find_ratios(const harpe_perseus *self, const harpe_online_round *round,
                                const int *frequency_mhz, time_energy *ratios, harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    harpe_online_reports reports = harpe_perseus_late_reports(self);
    if (harpe_perseus_replicas_lowest(self)) reports.clocks = NULL;
    int *ran_mhz = harpe_calloc(pipeline->instruction_count, sizeof *ran_mhz);
    if (!ran_mhz) return harpe_fail_memory(error);
    harpe_find_real_clocks(pipeline, &reports, frequency_mhz, 0, ran_mhz);
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        time_energy *sum = &ratios[pipeline->entry_of[i]];
        harpe_profile_point point;
        bool is_known = predict_run(self, i, ran_mhz[i], &point);
        if (!is_known && ran_mhz[i] == frequency_mhz[i]) {
            free(ran_mhz);
            return harpe_fail(error, HARPE_INTERNAL, "a plan runs '%.64s' at %d MHz, unmeasured",
                              pipeline->entries[pipeline->entry_of[i]].instruction,
                              frequency_mhz[i]);
        }
        sum->time += is_known ? point.time_s : NAN;
        sum->energy += is_known ? point.energy_j : NAN;
    }
    free(ran_mhz);
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        double runs = (double)pipeline->entries[e].run_count;
        bool is_known = !isnan(ratios[e].time);
        ratios[e].time = is_known ? round->entries[e].time_s * runs / ratios[e].time : 1;
        ratios[e].energy = is_known ? round->entries[e].energy_j * runs / ratios[e].energy : 1;
    }
    return HARPE_OK;
}

/* Returns the entry that has changed most since the sweep. */
static size_t find_largest(const harpe_sweep *sweep, const time_energy *ratios, double *largest) {
    size_t where = 0;
    *largest = 0;
    for (size_t e = 0; e < sweep->pipeline->entry_count; e++) {
        const harpe_sweep_list *list = &sweep->lists[e];
        double change = fmax(fabs(list->time_ratio * ratios[e].time - 1),
                             fabs(list->energy_ratio * ratios[e].energy - 1));
        if (change > *largest) {
            *largest = change;
            where = e;
        }
    }
    return where;
}

/* Adds the part of the difference that the corrected profile does not explain to the time and
 * energy outside of the instructions. */
static void calibrate(harpe_perseus *self, const harpe_online_round *round,
                      const int *frequency_mhz) {
    harpe_plan ran;
    if (harpe_online_plans_evaluate(self->plans, frequency_mhz, &ran, NULL)) return;
    self->shift_time_s = self->shift_energy_j = 0;
    time_energy predicted = predict(self, &ran, round);
    self->shift_time_s = round->iteration_time_s - predicted.time;
    if (round->iteration_energy_j > 0)
        self->shift_energy_j = round->iteration_energy_j - predicted.energy;
}

static harpe_status sweep_again(harpe_perseus *self, const harpe_online_entry *entry, double change,
                                harpe_error *error) {
    harpe_status status = harpe_perseus_new_sweep(self, &self->sweep_again, error);
    if (status != HARPE_OK) return status;
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "drift: '%.64s' of stage %d changed by %.0f %%, too much to correct: "
                      "measures again",
                      entry->instruction, entry->stage, 100 * change);
    harpe_perseus_put_sweep_off(self);
    status = harpe_perseus_begin_learning(self, error);
    if (status != HARPE_OK) {
        harpe_sweep_free(self->sweep_again);
        self->sweep_again = NULL;
    }
    return status;
}

/* Exchanges the ratios of the profile with `ratios`. */
static void exchange_ratios(harpe_sweep *sweep, time_energy *ratios) {
    for (size_t e = 0; e < sweep->pipeline->entry_count; e++) {
        harpe_sweep_list *list = &sweep->lists[e];
        time_energy before = {list->time_ratio, list->energy_ratio};
        list->time_ratio = ratios[e].time;
        list->energy_ratio = ratios[e].energy;
        ratios[e] = before;
    }
}

/* Makes plans with these ratios. If that fails, nothing changes. */
static harpe_status plan_with_ratios(harpe_perseus *self, time_energy *ratios, harpe_error *error) {
    exchange_ratios(self->sweep, ratios);
    harpe_status status = harpe_perseus_make_plans(self, self->plans->undisturbed_s, error);
    if (status != HARPE_OK)
        exchange_ratios(self->sweep, ratios);
    else
        harpe_perseus_hand_over_profile(self);
    return status;
}

static harpe_status plan_again(harpe_perseus *self, const harpe_online_round *round,
                               const int *frequency_mhz, time_energy *ratios, harpe_error *error) {
    for (size_t e = 0; e < self->pipeline->entry_count; e++) {
        ratios[e].time *= self->sweep->lists[e].time_ratio;
        ratios[e].energy *= self->sweep->lists[e].energy_ratio;
    }
    harpe_status status = plan_with_ratios(self, ratios, error);
    if (status != HARPE_OK) return status;
    calibrate(self, round, frequency_mhz);
    const harpe_plan *fastest = harpe_plan_set_at(self->plans->set, 0);
    harpe_perseus_log(self, HARPE_LOG_INFO,
                      "planned again: T_min %s and %s; %s and %s an iteration lie outside of the "
                      "instructions",
                      HARPE_TIME(fastest->time_s), HARPE_ENERGY(fastest->energy_j),
                      HARPE_TIME(self->outside_time_s + self->shift_time_s),
                      HARPE_ENERGY(self->outside_energy_j + self->shift_energy_j));
    return HARPE_OK;
}

static harpe_status correct(harpe_perseus *self, const harpe_online_round *round,
                            harpe_error *error) {
    size_t count = self->pipeline->instruction_count;
    time_energy *ratios = harpe_calloc(self->pipeline->entry_count, sizeof *ratios);
    int *frequency_mhz = harpe_calloc(count, sizeof *frequency_mhz); /* the old plans are freed */
    harpe_status status = ratios && frequency_mhz ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) {
        memcpy(frequency_mhz, running_plan(self)->frequency_mhz, count * sizeof *frequency_mhz);
        status = find_ratios(self, round, frequency_mhz, ratios, error);
    }
    if (status == HARPE_OK) {
        double largest;
        size_t where = find_largest(self->sweep, ratios, &largest);
        if (largest > CORRECTION_MAX && harpe_perseus_may_sweep(self))
            status = sweep_again(self, &self->pipeline->entries[where], largest, error);
        else
            status = plan_again(self, round, frequency_mhz, ratios, error);
    }
    free(ratios);
    free(frequency_mhz);
    return status;
}

void harpe_perseus_forget_drift(harpe_perseus *self) {
    harpe_error reason = {0};
    bool has_drifted = false;
    for (size_t e = 0; self->plans && e < self->pipeline->entry_count; e++)
        has_drifted = has_drifted || self->sweep->lists[e].time_ratio != 1 ||
                      self->sweep->lists[e].energy_ratio != 1;
    if (!has_drifted) return;
    time_energy *ratios = harpe_calloc(self->pipeline->entry_count, sizeof *ratios);
    harpe_status status = ratios ? HARPE_OK : harpe_fail_memory(&reason);
    for (size_t e = 0; ratios && e < self->pipeline->entry_count; e++)
        ratios[e] = (time_energy){1, 1};
    if (status == HARPE_OK) status = plan_with_ratios(self, ratios, &reason);
    free(ratios);
    if (status != HARPE_OK) {
        harpe_perseus_log(self, HARPE_LOG_WARNING, "drift is not forgotten: %s", reason.message);
        return;
    }
    self->is_plan_new = true;
    self->drift_rounds = 0;
}

void harpe_perseus_plan_beside_straggler(harpe_perseus *self) {
    harpe_error reason = {0};
    harpe_sweep *sweep = harpe_perseus_sweep_under_way(self);
    time_energy *ratios = harpe_calloc(self->pipeline->entry_count, sizeof *ratios);
    bool is_slow = false;
    for (size_t e = 0; ratios && e < self->pipeline->entry_count; e++) {
        ratios[e] = (time_energy){1, 1};
        is_slow = is_slow || sweep->lists[e].time_ratio != 1;
    }
    if (is_slow) exchange_ratios(sweep, ratios);
    harpe_perseus_plan_swept(self);
    if (is_slow && self->sweep == sweep && self->plans &&
        plan_with_ratios(self, ratios, &reason) != HARPE_OK)
        harpe_perseus_log(self, HARPE_LOG_WARNING, "the straggler is not in the plans: %s",
                          reason.message);
    free(ratios);
}

/* ---- Watching -------------------------------------------------------------------------------- */

static void log_drift(const harpe_perseus *self, const harpe_online_round *round,
                      const time_energy *predicted) {
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "drift: iterations take %s and %s; %s and %s were expected",
                      HARPE_TIME(round->iteration_time_s), HARPE_ENERGY(round->iteration_energy_j),
                      HARPE_TIME(predicted->time), HARPE_ENERGY(predicted->energy));
}

harpe_status harpe_perseus_watch(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error) {
    forget(&self->corrections, self->round, rounds_to_drift(self));
    forget(&self->sweeps, self->round, rounds_between_sweeps(self));
    if (!(round->iteration_time_s > 0) || self->is_plan_new) return HARPE_OK;
    time_energy predicted = predict(self, running_plan(self), round);
    double tolerance = self->args.drift_tolerance;
    bool has_drifted = is_off(round->iteration_time_s, predicted.time, tolerance) ||
                       (round->iteration_energy_j > 0 &&
                        is_off(round->iteration_energy_j, predicted.energy, tolerance));
    self->drift_rounds = has_drifted ? self->drift_rounds + 1 : 0;
    /* This round has no values for a correction; the next round may have them. */
    if (self->drift_rounds < rounds_to_drift(self) || round->problem[0]) return HARPE_OK;
    self->drift_rounds = 0;
    put_off(&self->corrections, self->round);
    log_drift(self, round, &predicted);
    return correct(self, round, error);
}
