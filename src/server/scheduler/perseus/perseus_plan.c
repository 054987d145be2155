/* SPDX-License-Identifier: Apache-2.0 */
/* From measurements to plans: begins to learn, connects the explorer with the job, computes profile
 * and plans from the measurements, and compares later measurements with the plan. Old plans are
 * kept until new plans are made.
 *
 * If iterations differ from the plan for some rounds in a row, the profile is corrected: the time
 * and energy of each (stage, instruction) at the frequencies that ran are compared with the
 * profile. Then new plans are made. If an instruction has changed too much for a correction, the
 * profile is measured again. After each correction or measurement, the next one needs more rounds
 * that differ. */
#include "server/scheduler/perseus/perseus_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/profiles.h"
#include "server/scheduler/builtin.h"

/* After this many rounds in a row that took longer than promised, the measurements are of no use:
 * the job has changed. If it changes all the time, the exploration goes on with what there is. */
enum { SURPRISES_MAX = 3, RESTARTS_MAX = 2 };

/* The largest relative change of an entry that is corrected. If an entry has changed more, the
 * shape of its curve has probably changed too. */
#define CORRECTION_MAX 0.2

/* Each level of the back-off doubles the number of rounds that must pass. A level is dropped after
 * FORGET_AFTER times that number of rounds. */
enum { MEASURED_APART = 2, FORGET_AFTER = 16 };

/* ---- Steps that several sources need --------------------------------------------------------- */

void harpe_perseus_log(const harpe_perseus *self, harpe_log_level level, const char *format, ...) {
    char prefix[208];
    (void)snprintf(prefix, sizeof prefix, "%.200s: ", self->job->job->job_id);
    va_list arguments;
    va_start(arguments, format);
    harpe_log_prefixed_line(&self->job->log, level, prefix, format, arguments);
    va_end(arguments);
}

harpe_online_outside harpe_perseus_outside(const harpe_perseus *self) {
    return (harpe_online_outside){self->outside_time_s > 0 ? self->outside_time_s : 0,
                                  self->outside_energy_j > 0 ? self->outside_energy_j : 0};
}

void harpe_perseus_forget(harpe_perseus *self) {
    self->seen.is_known = false;
    harpe_perseus_replicas_free(self->replicas);
    harpe_online_plans_free(self->plans);
    harpe_explorer_free(self->explorer);
    harpe_online_pipeline_free(self->pipeline);
    json_decref(self->before);
    self->replicas = NULL;
    self->plans = NULL;
    self->explorer = NULL;
    self->pipeline = NULL;
    self->before = NULL;
}

void harpe_perseus_begin_learning(harpe_perseus *self) {
    self->explores = self->explores_next = false;
    self->runs_highest = self->runs_highest_next = false;
    self->phase = self->args.learns_by_sweep ? HARPE_PERSEUS_SWEEP : HARPE_PERSEUS_EXPLORE;
}

void harpe_perseus_find_blocking_power(harpe_perseus *self) {
    int ranks = self->job->job->pp_degree;
    const json_t *given = self->args.blocking_power;
    double sum_w = 0;
    for (int p = 0; p < ranks; p++) {
        const json_t *own = json_is_array(given) ? json_array_get(given, (size_t)p) : given;
        self->blocking_powers_w[p] =
            own ? json_number_value(own) : harpe_explorer_blocking_power_w(self->explorer, p);
        sum_w += self->blocking_powers_w[p];
    }
    self->blocking_power_w = sum_w / ranks;
}

harpe_status harpe_perseus_begin(harpe_perseus *self, int microbatches, harpe_error *error) {
    const harpe_scheduler_job *job = self->job;
    const harpe_perseus_args *args = &self->args;
    harpe_online_pipeline *pipeline;
    harpe_explorer *explorer;
    harpe_status status = harpe_online_pipeline_new(&args->schedule, job->job->pp_degree,
                                                    microbatches, &pipeline, error);
    if (status != HARPE_OK) return status;
    status = harpe_explorer_new(pipeline, job->ranks, job->job->world_size, args->frequency_stride,
                                args->learns_by_sweep ? args->rises_to_stop : 0, &explorer, error);
    if (status != HARPE_OK) {
        harpe_online_pipeline_free(pipeline);
        return status;
    }
    harpe_perseus_forget(self);
    self->pipeline = pipeline;
    self->explorer = explorer;
    harpe_perseus_begin_learning(self);
    return HARPE_OK;
}

harpe_online_reports harpe_perseus_late_reports(const harpe_perseus *self) {
    harpe_online_reports reports = self->reports;
    if (!harpe_online_latencies_are_late(self->explorer->latencies)) reports.clocks = NULL;
    return reports;
}

void harpe_perseus_log_learnt(const harpe_perseus *self) {
    const harpe_explorer_cost *cost = &self->explorer->cost;
    harpe_online_mean extra = harpe_explorer_extra(self->explorer);
    bool sweeps = self->phase == HARPE_PERSEUS_SWEEP;
    harpe_perseus_log(self, HARPE_LOG_INFO,
                      "%s finished: %zu rounds, %zu iterations, %zu clocks measured; it took %s %s "
                      "and %s %s than at the highest frequency",
                      sweeps ? "sweep" : "exploration", cost->rounds, cost->iterations,
                      harpe_explorer_measured(self->explorer), HARPE_TIME(fabs(extra.time_s)),
                      extra.time_s > 0 ? "longer" : "less", HARPE_ENERGY(fabs(extra.energy_j)),
                      extra.energy_j > 0 ? "more" : "less");
}

/* ---- The profile ----------------------------------------------------------------------------- */

void harpe_perseus_hand_over_profile(harpe_perseus *self) {
    const char *directory = self->args.profile_path ? NULL : self->job->directory;
    harpe_profile *profile = NULL;
    harpe_text path = {0}, text = {0};
    harpe_error error = {0};
    if (!self->args.profile_path && !directory) return;
    harpe_perseus_find_blocking_power(self);
    harpe_text_printf(&path, "%s%s", directory ? directory : self->args.profile_path,
                      directory ? "/profile.csv" : "");
    harpe_status status =
        harpe_explorer_profile(self->explorer, self->blocking_powers_w, &profile, &error);
    if (status == HARPE_OK) harpe_profile_print_csv(profile, &text);
    harpe_profile_free(profile);
    harpe_scheduler_file file = {.path = path.data,
                                 .text = text.data,
                                 .length = text.length,
                                 .directory = directory ? strdup(directory) : NULL};
    if (path.failed || text.failed || (directory && !file.directory))
        status = harpe_fail_memory(&error);
    self->is_profile_made = status == HARPE_OK;
    if (status == HARPE_OK) {
        harpe_scheduler_file_free(&self->file);
        self->file = file;
        return;
    }
    harpe_scheduler_file_free(&file);
    harpe_perseus_log(self, HARPE_LOG_WARNING, "the profile is not made: %s", error.message);
}

void harpe_perseus_take_file(void *state, harpe_scheduler_file *out) {
    harpe_perseus *self = state;
    if (!self->file.path) return;
    harpe_scheduler_file_free(out);
    *out = self->file;
    self->file = (harpe_scheduler_file){0};
}

/* ---- Plans ----------------------------------------------------------------------------------- */

harpe_status harpe_perseus_make_plans(harpe_perseus *self, double undisturbed_s,
                                      harpe_error *error) {
    harpe_profile *profile;
    harpe_online_plans *plans;
    harpe_status status =
        harpe_explorer_profile(self->explorer, self->blocking_powers_w, &profile, error);
    if (status != HARPE_OK) return status;
    status = harpe_online_plans_new(self->pipeline, profile, self->blocking_powers_w,
                                    self->args.plans, undisturbed_s, &plans, error);
    harpe_profile_free(profile);
    if (status != HARPE_OK) return status;
    self->seen.is_known = false;
    harpe_online_plans_free(self->plans);
    self->plans = plans;
    self->plans_number++;
    return HARPE_OK;
}

size_t harpe_perseus_chosen(const harpe_perseus *self) {
    return harpe_online_plans_choose(self->plans, self->args.slowdown, &self->requests,
                                     harpe_perseus_outside(self));
}

static void log_plan(const harpe_perseus *self) {
    const harpe_plan *plan = harpe_plan_set_at(self->plans->set, harpe_perseus_chosen(self));
    const harpe_plan *all = &self->plans->all_maximum;
    harpe_perseus_log(self, HARPE_LOG_INFO,
                      "planned: iterations of %s (highest frequency: %s) and %s, %.1f %% less; "
                      "blocking power %s; "
                      "%zu plans",
                      HARPE_TIME(plan->time_s), HARPE_TIME(all->time_s),
                      HARPE_ENERGY(plan->energy_j), 100 * (1 - plan->energy_j / all->energy_j),
                      HARPE_POWER(self->blocking_power_w), harpe_plan_set_count(self->plans->set));
}

/* ---- From learning to a plan ----------------------------------------------------------------- */

void harpe_perseus_hold(harpe_perseus *self, const char *reason) {
    self->phase = HARPE_PERSEUS_HOLD;
    if (self->explorer) harpe_explorer_run_highest(self->explorer);
    (void)snprintf(self->hold_reason, sizeof self->hold_reason, "%s", reason);
    if (!*reason) return;
    harpe_perseus_log(self, HARPE_LOG_ERROR, "runs at its highest frequencies from now on: %s",
                      reason);
}

void harpe_perseus_keep_plan(harpe_perseus *self, const char *reason) {
    bool is_back = !self->before || harpe_explorer_load(self->explorer, self->before);
    json_decref(self->before);
    self->before = NULL;
    if (!is_back) {
        harpe_perseus_hold(self, "there is no memory for the measurements of the present plan");
        return;
    }
    harpe_perseus_find_blocking_power(self);
    self->phase = HARPE_PERSEUS_PLAN;
    self->drift_rounds = 0;
    self->explores = self->explores_next = false;
    harpe_perseus_log(self, HARPE_LOG_WARNING, "continues with its present plan: %s", reason);
}

/* Computes the time and energy outside of the pipeline: the measured values of the first
 * round minus the predicted values. */
static void calibrate_outside(harpe_perseus *self) {
    const harpe_explorer_cost *cost = &self->explorer->cost;
    const harpe_plan *all = &self->plans->all_maximum;
    self->outside_time_s = cost->first_time_s > 0 ? cost->first_time_s - all->time_s : 0;
    self->outside_energy_j = cost->first_energy_j > 0 ? cost->first_energy_j - all->energy_j : 0;
    self->shift_time_s = self->shift_energy_j = 0;
}

bool harpe_perseus_plan_learnt(harpe_perseus *self) {
    harpe_error error = {0};
    bool is_again = self->plans != NULL;
    double before_s = is_again ? self->plans->undisturbed_s : INFINITY;
    if (!is_again) harpe_perseus_hand_over_profile(self);
    harpe_perseus_find_blocking_power(self);
    if (harpe_perseus_make_plans(self, 0, &error) != HARPE_OK) {
        if (is_again)
            harpe_perseus_keep_plan(self, error.message);
        else
            harpe_perseus_hold(self, error.message);
        return false;
    }
    /* A straggler may have made iterations longer since then, so the smaller time is used. */
    self->plans->undisturbed_s = fmin(self->plans->undisturbed_s, before_s);
    json_decref(self->before);
    self->before = NULL;
    if (is_again) harpe_perseus_hand_over_profile(self);
    calibrate_outside(self);
    self->phase = HARPE_PERSEUS_PLAN;
    self->drift_rounds = 0;
    log_plan(self);
    return true;
}

/* ---- Back-off -------------------------------------------------------------------------------- */

/* Returns the number of rounds from the beginning of one measurement to the beginning of the next,
 * so that measurements take at most a quarter of all rounds. */
static int64_t rounds_to_measure(const harpe_perseus *self) {
    return (int64_t)(MEASURED_APART * self->explorer->cost.rounds) << self->measuring.level;
}

static int rounds_to_drift(const harpe_perseus *self) {
    return self->args.rounds_to_drift << self->corrections.level;
}

void harpe_perseus_put_off(harpe_perseus_backoff *backoff, int64_t round) {
    if (backoff->level < HARPE_PERSEUS_LEVEL_MAX) backoff->level++;
    backoff->since = round;
}

static void forget(harpe_perseus_backoff *backoff, int64_t round, int64_t rounds) {
    if (backoff->level == 0 || round - backoff->since < FORGET_AFTER * rounds) return;
    backoff->level--;
    backoff->since = round;
}

bool harpe_perseus_may_measure(const harpe_perseus *self) {
    return self->measuring.level == 0 ||
           self->round - self->measuring.since >= rounds_to_measure(self);
}

const harpe_plan *harpe_perseus_running_plan(const harpe_perseus *self) {
    if (self->runs_highest) return &self->plans->all_maximum;
    return harpe_plan_set_at(self->plans->set, self->running);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Returns the time for which GPUs wait for a straggler at blocking power. This wait is not drift.
 */
static double straggler_wait_s(const harpe_perseus *self, const harpe_plan *plan,
                               double measured_s) {
    double allowed_s = harpe_online_straggler_time_s(self->plans->undisturbed_s, &self->requests,
                                                     harpe_perseus_outside(self));
    double inside_s = measured_s - self->outside_time_s - self->shift_time_s;
    double wait_s = fmin(inside_s, allowed_s) - plan->time_s;
    return wait_s > 0 ? wait_s : 0;
}

static bool is_off(double measured, double predicted, double tolerance) {
    return fabs(measured - predicted) > tolerance * predicted;
}

/* Predicts time and energy of a round of `plan`. */
static harpe_online_mean predict(const harpe_perseus *self, const harpe_plan *plan,
                                 const harpe_online_round *round) {
    double wait_s = straggler_wait_s(self, plan, round->iteration_time_s);
    double waiting_j = self->blocking_power_w * self->job->job->world_size * wait_s;
    harpe_online_mean gain = harpe_perseus_replicas_gain(self);
    return (harpe_online_mean){
        plan->time_s + self->outside_time_s + self->shift_time_s + wait_s + gain.time_s,
        plan->energy_j + self->outside_energy_j + self->shift_energy_j + waiting_j + gain.energy_j};
}

harpe_online_mean harpe_perseus_planned(const harpe_perseus *self, const harpe_online_round *round,
                                        harpe_online_mean *predicted) {
    const harpe_plan *plan = harpe_perseus_running_plan(self);
    harpe_online_mean gain = harpe_perseus_replicas_gain(self);
    *predicted = predict(self, plan, round);
    return (harpe_online_mean){plan->time_s + gain.time_s, plan->energy_j + gain.energy_j};
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
        if (!harpe_explorer_point(self->explorer, entry, run->parts[i].mhz, &point)) return false;
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
    return harpe_explorer_point(self->explorer, entry, ran_mhz, out);
}

/* Computes the ratio of the measured value to the predicted value of each entry at the frequencies
 * that ran. It is 1 for an entry with a run whose frequency is not known. Each replica that runs
 * its own plan was measured at the clocks of the shared plan. */
static harpe_status find_ratios(const harpe_perseus *self, const harpe_online_round *round,
                                const int *frequency_mhz, harpe_error *error) {
    const harpe_online_pipeline *pipeline = self->pipeline;
    harpe_online_reports reports = harpe_perseus_late_reports(self);
    if (harpe_perseus_replicas_lowest(self)) reports.clocks = NULL;
    int *ran_mhz = self->explorer->ran_mhz;
    harpe_online_mean *ratios = self->explorer->ratios;
    memset(ratios, 0, pipeline->entry_count * sizeof *ratios);
    harpe_find_real_clocks(pipeline, &reports, frequency_mhz, 0, ran_mhz);
    for (size_t i = 0; i < pipeline->instruction_count; i++) {
        harpe_online_mean *sum = &ratios[pipeline->entry_of[i]];
        harpe_profile_point point;
        bool is_known = predict_run(self, i, ran_mhz[i], &point);
        if (!is_known && ran_mhz[i] == frequency_mhz[i])
            return harpe_fail(error, HARPE_INTERNAL, "a plan runs '%.64s' at %d MHz, unmeasured",
                              pipeline->entries[pipeline->entry_of[i]].instruction,
                              frequency_mhz[i]);
        sum->time_s += is_known ? point.time_s : NAN;
        sum->energy_j += is_known ? point.energy_j : NAN;
    }
    for (size_t e = 0; e < pipeline->entry_count; e++) {
        double runs = (double)pipeline->entries[e].run_count;
        bool is_known = !isnan(ratios[e].time_s);
        ratios[e].time_s = is_known ? round->entries[e].time_s * runs / ratios[e].time_s : 1;
        ratios[e].energy_j = is_known ? round->entries[e].energy_j * runs / ratios[e].energy_j : 1;
    }
    return HARPE_OK;
}

/* Returns the entry that has changed most since it was measured. */
static size_t find_largest(const harpe_explorer *explorer, double *largest) {
    const harpe_online_mean *ratios = explorer->ratios;
    size_t where = 0;
    *largest = 0;
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++) {
        const harpe_explorer_entry *list = &explorer->entries[e];
        double change = fmax(fabs(list->time_ratio * ratios[e].time_s - 1),
                             fabs(list->energy_ratio * ratios[e].energy_j - 1));
        if (change > *largest) {
            *largest = change;
            where = e;
        }
    }
    return where;
}

/* Adds the part of the difference that the corrected profile does not explain to the time and
 * energy outside of the instructions. */
static void calibrate_shift(harpe_perseus *self, const harpe_online_round *round,
                            const int *frequency_mhz) {
    harpe_plan ran;
    if (harpe_online_plans_evaluate(self->plans, frequency_mhz, &ran, NULL)) return;
    self->shift_time_s = self->shift_energy_j = 0;
    harpe_online_mean predicted = predict(self, &ran, round);
    self->shift_time_s = round->iteration_time_s - predicted.time_s;
    if (round->iteration_energy_j > 0)
        self->shift_energy_j = round->iteration_energy_j - predicted.energy_j;
}

static harpe_status measure_again(harpe_perseus *self, const harpe_online_entry *entry,
                                  double change, harpe_error *error) {
    self->before = harpe_explorer_save(self->explorer);
    if (!self->before) return harpe_fail_memory(error);
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "drift: '%.64s' of stage %d changed by %.0f %%, too much to correct: "
                      "measures again",
                      entry->instruction, entry->stage, 100 * change);
    harpe_perseus_put_off(&self->measuring, self->round);
    harpe_explorer_begin(self->explorer);
    harpe_perseus_begin_learning(self);
    harpe_perseus_renew_baseline(self);
    return HARPE_OK;
}

/* Exchanges the ratios of each entry with those in explorer->ratios. */
static void exchange_ratios(harpe_explorer *explorer) {
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++) {
        harpe_explorer_entry *list = &explorer->entries[e];
        harpe_online_mean before = {list->time_ratio, list->energy_ratio};
        list->time_ratio = explorer->ratios[e].time_s;
        list->energy_ratio = explorer->ratios[e].energy_j;
        explorer->ratios[e] = before;
    }
}

/* Makes plans with the ratios in explorer->ratios. If this fails, the entries keep theirs. */
static harpe_status plan_with_ratios(harpe_perseus *self, harpe_error *error) {
    exchange_ratios(self->explorer);
    harpe_status status = harpe_perseus_make_plans(self, self->plans->undisturbed_s, error);
    if (status != HARPE_OK)
        exchange_ratios(self->explorer);
    else
        harpe_perseus_hand_over_profile(self);
    return status;
}

static harpe_status plan_again(harpe_perseus *self, const harpe_online_round *round,
                               const int *frequency_mhz, harpe_error *error) {
    for (size_t e = 0; e < self->pipeline->entry_count; e++) {
        self->explorer->ratios[e].time_s *= self->explorer->entries[e].time_ratio;
        self->explorer->ratios[e].energy_j *= self->explorer->entries[e].energy_ratio;
    }
    harpe_status status = plan_with_ratios(self, error);
    if (status != HARPE_OK) return status;
    calibrate_shift(self, round, frequency_mhz);
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
    size_t count = self->pipeline->instruction_count, where = 0;
    int *frequency_mhz = harpe_calloc(count, sizeof *frequency_mhz); /* the old plans are freed */
    if (!frequency_mhz) return harpe_fail_memory(error);
    memcpy(frequency_mhz, harpe_perseus_running_plan(self)->frequency_mhz,
           count * sizeof *frequency_mhz);
    double largest = 0;
    harpe_status status = find_ratios(self, round, frequency_mhz, error);
    if (status == HARPE_OK) where = find_largest(self->explorer, &largest);
    if (status == HARPE_OK && largest > CORRECTION_MAX && harpe_perseus_may_measure(self))
        status = measure_again(self, &self->pipeline->entries[where], largest, error);
    else if (status == HARPE_OK)
        status = plan_again(self, round, frequency_mhz, error);
    free(frequency_mhz);
    return status;
}

/* Sets explorer->ratios to 1. Returns true if an entry has another ratio. */
static bool prepare_no_drift(const harpe_explorer *explorer) {
    bool are_new = false;
    for (size_t e = 0; e < explorer->pipeline->entry_count; e++) {
        const harpe_explorer_entry *entry = &explorer->entries[e];
        are_new = are_new || entry->time_ratio != 1 || entry->energy_ratio != 1;
        explorer->ratios[e] = (harpe_online_mean){1, 1};
    }
    return are_new;
}

void harpe_perseus_forget_drift(harpe_perseus *self) {
    harpe_error reason = {0};
    if (!self->plans || !prepare_no_drift(self->explorer)) return;
    self->drift_rounds = 0;
    if (plan_with_ratios(self, &reason) == HARPE_OK)
        self->is_plan_new = true;
    else
        harpe_perseus_log(self, HARPE_LOG_WARNING, "drift is not forgotten: %s", reason.message);
}

/* Makes the first plans if a straggler is a GPU of this job. Makes plans without the straggler
 * first, because later measurements are compared with them, and then plans with the straggler. */
static void plan_beside_straggler(harpe_perseus *self) {
    harpe_error reason = {0};
    bool is_slow = prepare_no_drift(self->explorer);
    if (is_slow) exchange_ratios(self->explorer);
    if (harpe_perseus_plan_learnt(self) && is_slow && plan_with_ratios(self, &reason) != HARPE_OK)
        harpe_perseus_log(self, HARPE_LOG_WARNING, "the straggler is not in the plans: %s",
                          reason.message);
}

/* ---- Watching -------------------------------------------------------------------------------- */

static void log_drift(const harpe_perseus *self, const harpe_online_round *round,
                      const harpe_online_mean *predicted) {
    harpe_perseus_log(self, HARPE_LOG_WARNING,
                      "drift: iterations take %s and %s; %s and %s were expected",
                      HARPE_TIME(round->iteration_time_s), HARPE_ENERGY(round->iteration_energy_j),
                      HARPE_TIME(predicted->time_s), HARPE_ENERGY(predicted->energy_j));
}

harpe_status harpe_perseus_watch(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error) {
    forget(&self->corrections, self->round, rounds_to_drift(self));
    forget(&self->measuring, self->round, rounds_to_measure(self));
    forget(&self->references, self->round, (int64_t)1 << self->references.level);
    if (!(round->iteration_time_s > 0) || self->is_plan_new) return HARPE_OK;
    harpe_online_mean predicted = predict(self, harpe_perseus_running_plan(self), round);
    double tolerance = self->args.drift_tolerance;
    bool has_drifted = is_off(round->iteration_time_s, predicted.time_s, tolerance) ||
                       (round->iteration_energy_j > 0 &&
                        is_off(round->iteration_energy_j, predicted.energy_j, tolerance));
    self->drift_rounds = has_drifted ? self->drift_rounds + 1 : 0;
    /* This round has no values for a correction; the next round may have them. */
    if (self->drift_rounds < rounds_to_drift(self) || round->problem[0]) return HARPE_OK;
    self->drift_rounds = 0;
    harpe_perseus_put_off(&self->corrections, self->round);
    log_drift(self, round, &predicted);
    return correct(self, round, error);
}

/* ---- Exploring ------------------------------------------------------------------------------- */

/* Returns the time of an iteration outside of the pipeline. Before the first plan, it is known from
 * the rounds at the highest clocks. */
static harpe_online_outside outside_of(const harpe_perseus *self) {
    const harpe_explorer_cost *cost = &self->explorer->cost;
    double undisturbed_s = self->explorer->undisturbed_s;
    double fastest_s = undisturbed_s > 0 ? undisturbed_s : self->explorer->fastest_s;
    if (self->phase == HARPE_PERSEUS_PLAN) return harpe_perseus_outside(self);
    if (!(fastest_s > 0) || !(cost->first_time_s > 0)) return (harpe_online_outside){0, 0};
    return (harpe_online_outside){fmax(0, cost->first_time_s - fastest_s), 0};
}

/* Returns the clocks of the present round: for each instruction, the lowest clock of all replicas.
 * Returns NULL if the explorer has chosen the clocks. */
static const int *running_mhz(const harpe_perseus *self) {
    if (self->phase != HARPE_PERSEUS_PLAN || self->explores || self->is_plan_new || !self->plans)
        return NULL;
    const int *lowest_mhz = harpe_perseus_replicas_lowest(self);
    return lowest_mhz ? lowest_mhz : harpe_perseus_running_plan(self)->frequency_mhz;
}

static harpe_explorer_terms terms_of(const harpe_perseus *self) {
    return (harpe_explorer_terms){
        .slowdown = self->args.slowdown,
        .exploration_slowdown = self->args.exploration_slowdown,
        .requests = self->requests,
        .outside = outside_of(self),
        .undisturbed_s = self->plans ? self->plans->undisturbed_s : self->explorer->undisturbed_s,
        .blocking_power_w = self->blocking_powers_w,
        .ran_mhz = running_mhz(self),
    };
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

harpe_status harpe_perseus_learn(harpe_perseus *self, const harpe_online_round *round,
                                 harpe_error *error) {
    if (harpe_perseus_is_learning(self)) harpe_explorer_count(self->explorer, round);
    harpe_explorer_terms terms = terms_of(self);
    return harpe_explorer_observe(self->explorer, round, &self->reports, &terms, error);
}

/* Makes the first plans of an exploration. */
static void plan_first(harpe_perseus *self) {
    harpe_perseus_log_learnt(self);
    self->explorer->position = self->explorer->clock_count;
    self->is_plan_new = true;
    plan_beside_straggler(self);
}

/* Makes plans with more clocks than before. */
static harpe_status plan_more(harpe_perseus *self, harpe_error *error) {
    self->explores_next = false;
    self->is_plan_new = true;
    harpe_status status = harpe_perseus_make_plans(self, self->plans->undisturbed_s, error);
    if (status != HARPE_OK) return status;
    harpe_perseus_hand_over_profile(self);
    harpe_perseus_log(self, HARPE_LOG_INFO, "%zu clocks are measured now, and %zu plans are made",
                      harpe_explorer_measured(self->explorer),
                      harpe_plan_set_count(self->plans->set));
    return HARPE_OK;
}

static harpe_status advance(harpe_perseus *self, harpe_error *error) {
    harpe_explorer *explorer = self->explorer;
    bool is_finished;
    harpe_perseus_find_blocking_power(self);
    harpe_explorer_terms terms = terms_of(self);
    harpe_status status = harpe_explorer_plan(explorer, &terms, &is_finished, error);
    if (status != HARPE_OK) return status;
    bool is_first = self->phase == HARPE_PERSEUS_EXPLORE;
    bool is_begun =
        explorer->is_exploring || (explorer->looks > 0 && harpe_explorer_measured(explorer) > 0);
    if (is_first && is_begun && explorer->position == 0) explorer->position = 1;
    if (is_finished && is_first)
        plan_first(self);
    else if (is_finished)
        status = plan_more(self, error);
    else if (!is_first)
        self->explores_next = true;
    return status;
}

harpe_status harpe_perseus_explore_on(harpe_perseus *self, harpe_error *error) {
    bool is_first = self->phase == HARPE_PERSEUS_EXPLORE;
    if (self->explorer->misses > 0) {
        harpe_perseus_log(self, HARPE_LOG_WARNING,
                          "a round of the exploration had no use: measurements are missing");
        if (is_first && harpe_explorer_is_over(self->explorer)) plan_first(self);
        return HARPE_OK;
    }
    bool has_changed = self->explorer->surprises >= SURPRISES_MAX;
    if (has_changed && !is_first) {
        self->explores_next = false; /* the plan is watched, and drift is corrected */
        return HARPE_OK;
    }
    if (has_changed && self->explorer->restarts < RESTARTS_MAX) {
        harpe_perseus_log(
            self, HARPE_LOG_WARNING,
            "%d rounds in a row took longer than the measurements permit: measures again",
            self->explorer->surprises);
        harpe_explorer_restart(self->explorer);
        return HARPE_OK;
    }
    harpe_error reason = {0};
    harpe_status status = advance(self, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    if (self->plans) return harpe_fail(error, status, "%s", reason.message);
    harpe_perseus_hold(self, reason.message);
    return HARPE_OK;
}

void harpe_perseus_explore_request(harpe_perseus *self) {
    harpe_error reason = {0};
    bool has_begun = self->explorer && !self->args.learns_by_sweep &&
                     (self->explorer->is_exploring || self->explorer->looks > 0);
    if (!has_begun || (self->phase != HARPE_PERSEUS_PLAN && self->phase != HARPE_PERSEUS_EXPLORE))
        return;
    if (self->phase == HARPE_PERSEUS_PLAN) {
        self->explorer->rounds = 0;
        self->explorer->surprises = 0;
    }
    self->explorer->measured_before = self->explorer->stale_rounds = 0;
    bool had_plan = self->phase == HARPE_PERSEUS_PLAN && !self->explores && !self->explores_next;
    bool is_finished;
    harpe_explorer_terms terms = terms_of(self);
    harpe_status status = HARPE_OK;
    if (had_plan) {
        status = harpe_explorer_plan(self->explorer, &terms, &is_finished, &reason);
        self->explores_next = status == HARPE_OK && !is_finished;
    } else {
        status = advance(self, &reason);
    }
    if (status == HARPE_OK) return;
    harpe_perseus_log(self, HARPE_LOG_WARNING, "no clocks are tried for the job request: %s",
                      reason.message);
    self->explores_next = false;
    harpe_explorer_run_highest(self->explorer);
}
