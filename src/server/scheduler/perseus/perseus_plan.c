/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the results of a finished sweep: the text of the profile, the plans, and the time and
 * energy of an iteration that plans do not include. Old plans are kept until new plans are made. */
#include "server/scheduler/perseus/perseus_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "plan/profile_csv.h"
#include "server/scheduler/builtin.h"
#include "server/scheduler/perseus/perseus_pipeline.h"
#include "server/scheduler/perseus/perseus_savings.h"

/* ---- The profile ----------------------------------------------------------------------------- */

static harpe_status name_file(const harpe_perseus *self, harpe_scheduler_file *file,
                              harpe_error *error) {
    const char *directory = self->args.profile_path ? NULL : self->job->directory;
    if (directory) file->directory = strdup(directory);
    int length = self->args.profile_path
                     ? asprintf(&file->path, "%s", self->args.profile_path)
                     : asprintf(&file->path, "%s/profile.csv", self->job->directory);
    if (length < 0) file->path = NULL;
    if (!file->path || (directory && !file->directory)) return harpe_fail_memory(error);
    return HARPE_OK;
}

static harpe_status print_profile(const harpe_perseus *self, harpe_scheduler_file *file,
                                  harpe_error *error) {
    harpe_profile *profile;
    harpe_text text = {0};
    harpe_status status =
        harpe_sweep_profile(self->sweep, self->blocking_powers_w, self->latencies, &profile, error);
    if (status != HARPE_OK) return status;
    harpe_profile_print_csv(profile, &text);
    harpe_profile_free(profile);
    if (text.failed) {
        harpe_text_free(&text);
        return harpe_fail_memory(error);
    }
    file->text = text.data;
    file->length = text.length;
    return HARPE_OK;
}

void harpe_perseus_hand_over_profile(harpe_perseus *self) {
    harpe_scheduler_file file = {0};
    harpe_error error = {0};
    if (!self->args.profile_path && !self->job->directory) return;
    harpe_perseus_find_blocking_power(self);
    harpe_status status = name_file(self, &file, &error);
    if (status == HARPE_OK) status = print_profile(self, &file, &error);
    self->is_profile_made = status == HARPE_OK;
    if (status != HARPE_OK) {
        harpe_scheduler_file_free(&file);
        harpe_perseus_log(self, HARPE_LOG_WARNING, "the profile is not made: %s", error.message);
        return;
    }
    harpe_scheduler_file_free(&self->file);
    self->file = file;
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
        harpe_sweep_profile(self->sweep, self->blocking_powers_w, self->latencies, &profile, error);
    if (status != HARPE_OK) return status;
    status = harpe_online_plans_new(self->pipeline, profile, self->blocking_powers_w,
                                    self->args.plans, undisturbed_s, &plans, error);
    harpe_profile_free(profile);
    if (status != HARPE_OK) return status;
    harpe_perseus_forget_seen(self);
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

/* ---- From a sweep to a plan ------------------------------------------------------------------ */

void harpe_perseus_hold(harpe_perseus *self, const char *reason) {
    self->phase = HARPE_PERSEUS_HOLD;
    (void)snprintf(self->hold_reason, sizeof self->hold_reason, "%s", reason);
    if (!*reason) return;
    harpe_perseus_log(self, HARPE_LOG_ERROR, "runs at its highest frequencies from now on: %s",
                      reason);
}

/* The explorer of a sweep that is no longer there ends. A new one knows the points of the plans. */
static void renew_explorer(harpe_perseus *self) {
    self->explores = self->explores_next = false;
    if (!self->explorer || self->explorer->sweep == self->sweep) return;
    harpe_explorer_free(self->explorer);
    self->explorer = NULL;
    if (harpe_explorer_new(self->pipeline, self->sweep, self->latencies, &self->explorer, NULL) ==
        HARPE_OK)
        harpe_explorer_seed(self->explorer);
}

void harpe_perseus_keep_plan(harpe_perseus *self, const char *reason) {
    harpe_sweep_free(self->sweep_again);
    self->sweep_again = NULL;
    harpe_perseus_drop_baseline(self);
    self->phase = HARPE_PERSEUS_PLAN;
    self->drift_rounds = 0;
    renew_explorer(self);
    harpe_perseus_log(self, HARPE_LOG_WARNING, "continues with its present plan: %s", reason);
}

/* Computes the time and energy outside of the pipeline: the measured values of the sweep's first
 * round minus the predicted values. */
static void calibrate(harpe_perseus *self) {
    const harpe_sweep_cost *cost = &self->sweep->cost;
    const harpe_plan *all = &self->plans->all_maximum;
    self->outside_time_s = cost->first_time_s > 0 ? cost->first_time_s - all->time_s : 0;
    self->outside_energy_j = cost->first_energy_j > 0 ? cost->first_energy_j - all->energy_j : 0;
    self->shift_time_s = self->shift_energy_j = 0;
}

void harpe_perseus_plan_swept(harpe_perseus *self) {
    harpe_error error = {0};
    harpe_sweep *before = self->sweep;
    double before_s = self->plans ? self->plans->undisturbed_s : INFINITY;
    self->sweep = harpe_perseus_sweep_under_way(self);
    harpe_perseus_find_blocking_power(self);
    harpe_status status = harpe_perseus_make_plans(self, 0, &error);
    if (status != HARPE_OK && self->plans) {
        self->sweep = before;
        harpe_perseus_find_blocking_power(self);
        harpe_perseus_keep_plan(self, error.message);
        return;
    }
    if (status != HARPE_OK) {
        harpe_perseus_hold(self, error.message);
        return;
    }
    /* A straggler may have made iterations longer in the later sweep, so the smaller time is
     * used. */
    self->plans->undisturbed_s = fmin(self->plans->undisturbed_s, before_s);
    if (self->sweep_again) {
        harpe_sweep_free(before);
        self->sweep_again = NULL;
        harpe_perseus_renew_baseline(self);
        harpe_perseus_hand_over_profile(self);
    }
    calibrate(self);
    self->phase = HARPE_PERSEUS_PLAN;
    self->drift_rounds = 0;
    log_plan(self);
}
