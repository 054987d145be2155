/* SPDX-License-Identifier: Apache-2.0 */
/* Is what is measured what was planned? When iterations differ for some rounds in a row, the
 * profile is corrected by what each (stage, instruction) took at the frequencies that ran, and
 * planned with again; when it has changed too much for that, it is measured anew. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/schedulers/perseus.h"

/* A curve that moved further than this has likely changed its shape too. */
#define CORRECTION_MAX 0.2

/* In s and J, or relative to what was expected. */
typedef struct time_energy {
    double time, energy;
} time_energy;

static const harpe_plan *running_plan(const harpe_perseus *self) {
    return harpe_plan_set_at(self->plans->set, self->running);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Up to the time that a straggler dictates, GPUs wait at blocking power: no drift. */
static double straggler_wait_s(const harpe_perseus *self, const harpe_plan *plan,
                               double measured_s) {
    double allowed_s =
        harpe_online_straggler_time_s(self->plans, &self->wishes, harpe_perseus_outside(self));
    double inside_s = measured_s - self->outside_time_s - self->shift_time_s;
    double wait_s = fmin(inside_s, allowed_s) - plan->time_s;
    return wait_s > 0 ? wait_s : 0;
}

static bool is_off(double measured, double predicted, double tolerance) {
    return fabs(measured - predicted) > tolerance * predicted;
}

/* What a round of `plan` should have taken. */
static time_energy predict(const harpe_perseus *self, const harpe_plan *plan,
                           const harpe_online_round *round) {
    double wait_s = straggler_wait_s(self, plan, round->iteration_time_s);
    double waiting_j = self->blocking_power_w * self->job->job->world_size * wait_s;
    return (time_energy){plan->time_s + self->outside_time_s + self->shift_time_s + wait_s,
                         plan->energy_j + self->outside_energy_j + self->shift_energy_j +
                             waiting_j};
}

/* ---- Correcting ------------------------------------------------------------------------------ */

/* Measured over predicted, of each entry at the frequencies that ran. */
static harpe_status find_ratios(const harpe_perseus *self, const harpe_online_round *round,
                                const int *frequency_mhz, time_energy *ratios, harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        int entry = pipeline->entry_of[i];
        const harpe_profile_point *point = harpe_sweep_point(self->sweep, entry, frequency_mhz[i]);
        if (!point)
            return harpe_fail(error, HARPE_INTERNAL, "a plan runs '%.64s' at %d MHz, unmeasured",
                              pipeline->entries[entry].instruction, frequency_mhz[i]);
        ratios[entry].time += point->time_s;
        ratios[entry].energy += point->energy_j;
    }
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        double runs = (double)pipeline->entries[e].run_count;
        ratios[e].time = round->entries[e].time_s * runs / ratios[e].time;
        ratios[e].energy = round->entries[e].energy_j * runs / ratios[e].energy;
    }
    return HARPE_OK;
}

static size_t find_largest(const harpe_online_pipeline *pipeline, const time_energy *ratios,
                           double *largest) {
    size_t where = 0;
    *largest = 0;
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        double change = fmax(fabs(ratios[e].time - 1), fabs(ratios[e].energy - 1));
        if (change > *largest) {
            *largest = change;
            where = e;
        }
    }
    return where;
}

/* Whatever the corrected profile does not explain lies outside of the instructions. */
static void calibrate(harpe_perseus *self, const harpe_online_round *round,
                      const int *frequency_mhz) {
    harpe_plan ran;
    if (harpe_plan_evaluate(self->plans->problem, frequency_mhz, &ran, NULL, NULL)) return;
    self->shift_time_s = self->shift_energy_j = 0;
    time_energy predicted = predict(self, &ran, round);
    self->shift_time_s = round->iteration_time_s - predicted.time;
    if (round->iteration_energy_j > 0)
        self->shift_energy_j = round->iteration_energy_j - predicted.energy;
}

static void sweep_again(harpe_perseus *self, const harpe_online_entry *entry, double change) {
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "drift: '%.64s' of stage %d changed by %.0f %%, too much to correct: sweeps "
                      "again",
                      entry->instruction, entry->stage, 100 * change);
    harpe_sweep_restart(self->sweep);
    harpe_online_plans_free(self->plans);
    self->plans = NULL;
    self->phase = HARPE_PERSEUS_SWEEP;
}

static harpe_status plan_again(harpe_perseus *self, const harpe_online_round *round,
                               const int *frequency_mhz, const time_energy *ratios) {
    harpe_error reason = {0};
    for (size_t e = 0; e < self->pipeline->entry_count; e++)
        harpe_sweep_scale(self->sweep, (int)e, ratios[e].time, ratios[e].energy);
    if (harpe_perseus_make_plans(self, &reason)) {
        harpe_perseus_hold(self, reason.message);
        return HARPE_OK;
    }
    calibrate(self, round, frequency_mhz);
    harpe_perseus_write_profile(self);
    const harpe_plan *fastest = harpe_plan_set_at(self->plans->set, 0);
    harpe_perseus_log(self, HARPE_LOG_INFO,
                      "planned again: T_min %.4g s and %.5g J; %.3g s and %.4g J an iteration lie "
                      "outside of the instructions",
                      fastest->time_s, fastest->energy_j, self->outside_time_s + self->shift_time_s,
                      self->outside_energy_j + self->shift_energy_j);
    return HARPE_OK;
}

static harpe_status correct(harpe_perseus *self, const harpe_online_round *round,
                            harpe_error *error) {
    size_t count = self->pipeline->instruction_count;
    time_energy *ratios = harpe_calloc(self->pipeline->entry_count, sizeof *ratios);
    int *frequency_mhz = harpe_calloc(count, sizeof *frequency_mhz); /* outlives the old plans */
    harpe_status status = ratios && frequency_mhz ? HARPE_OK : harpe_fail_memory(error);
    if (!status) {
        memcpy(frequency_mhz, running_plan(self)->frequency_mhz, count * sizeof *frequency_mhz);
        status = find_ratios(self, round, frequency_mhz, ratios, error);
    }
    if (!status) {
        double largest;
        size_t where = find_largest(self->pipeline, ratios, &largest);
        if (largest > CORRECTION_MAX)
            sweep_again(self, &self->pipeline->entries[where], largest);
        else
            status = plan_again(self, round, frequency_mhz, ratios);
    }
    free(ratios);
    free(frequency_mhz);
    return status;
}

/* ---- Watching -------------------------------------------------------------------------------- */

harpe_status harpe_perseus_watch(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error) {
    if (!(round->iteration_time_s > 0)) return HARPE_OK;
    time_energy predicted = predict(self, running_plan(self), round);
    double tolerance = self->args.drift_tolerance;
    bool has_drifted = is_off(round->iteration_time_s, predicted.time, tolerance) ||
                       (round->iteration_energy_j > 0 &&
                        is_off(round->iteration_energy_j, predicted.energy, tolerance));
    self->drift_rounds = has_drifted ? self->drift_rounds + 1 : 0;
    /* Nothing to correct by: the next round may have it. */
    if (self->drift_rounds < self->args.rounds_to_drift || round->problem[0]) return HARPE_OK;
    self->drift_rounds = 0;
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "drift: iterations take %.4g s and %.5g J, %.4g s and %.5g J were expected",
                      round->iteration_time_s, round->iteration_energy_j, predicted.time,
                      predicted.energy);
    return correct(self, round, error);
}
