/* SPDX-License-Identifier: Apache-2.0 */
/* What an online scheduler makes of a sweep that is over: the profile as a file, the plans, and
 * what iterations take beyond them. Plans that there are stay until better ones are made. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "server/schedulers/perseus.h"

/* ---- The profile ----------------------------------------------------------------------------- */

/* NULL: nowhere. To be freed. */
static char *profile_path(const harpe_perseus *self) {
    char *path = NULL;
    int length = -1;
    if (self->args.profile_path)
        length = asprintf(&path, "%s", self->args.profile_path);
    else if (self->job->directory)
        length = asprintf(&path, "%s/profile.csv", self->job->directory);
    return length < 0 ? NULL : path;
}

void harpe_perseus_write_profile(harpe_perseus *self) {
    harpe_profile *profile = NULL;
    harpe_error error = {0};
    char *path = profile_path(self);
    if (!path) return;
    /* The dumps have usually made it. If it cannot be made, the write fails. */
    if (!self->args.profile_path) (void)harpe_make_directories(self->job->directory, 0700);
    harpe_status status = harpe_sweep_profile(self->sweep, &profile, &error);
    if (!status) status = harpe_profile_write_csv(profile, path, &error);
    if (status)
        harpe_perseus_log(self, HARPE_LOG_WARNING, "the profile is not written: %s", error.message);
    self->is_profile_written = status == HARPE_OK;
    harpe_profile_free(profile);
    free(path);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

harpe_status harpe_perseus_make_plans(harpe_perseus *self, double undisturbed_s,
                                      harpe_error *error) {
    harpe_profile *profile;
    harpe_online_plans *plans;
    harpe_status status = harpe_sweep_profile(self->sweep, &profile, error);
    if (status) return status;
    status = harpe_online_plans_new(self->pipeline, profile, self->blocking_power_w,
                                    self->args.plans, undisturbed_s, &plans, error);
    harpe_profile_free(profile);
    if (status) return status;
    harpe_perseus_forget_seen(self);
    harpe_online_plans_free(self->plans);
    self->plans = plans;
    return HARPE_OK;
}

size_t harpe_perseus_chosen(const harpe_perseus *self) {
    return harpe_online_plans_choose(self->plans, self->args.slowdown, &self->wishes,
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

void harpe_perseus_keep_plan(harpe_perseus *self, const char *reason) {
    harpe_sweep_free(self->sweep_again);
    self->sweep_again = NULL;
    harpe_perseus_drop_baseline(self);
    self->phase = HARPE_PERSEUS_PLAN;
    self->drift_rounds = 0;
    harpe_perseus_log(self, HARPE_LOG_WARNING, "goes on with the plan that it has: %s", reason);
}

/* What the sweep's first round took beyond its prediction lies outside of the pipeline. */
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
    double before_w = self->blocking_power_w, given_w = self->args.blocking_power_w;
    double before_s = self->plans ? self->plans->undisturbed_s : INFINITY;
    self->sweep = harpe_perseus_sweep_under_way(self);
    self->blocking_power_w = given_w >= 0 ? given_w : harpe_sweep_blocking_power_w(self->sweep);
    harpe_status status = harpe_perseus_make_plans(self, 0, &error);
    if (status && self->plans) {
        self->sweep = before;
        self->blocking_power_w = before_w;
        harpe_perseus_keep_plan(self, error.message);
        return;
    }
    if (status) {
        harpe_perseus_hold(self, error.message);
        return;
    }
    /* A later sweep may have met a straggler. */
    self->plans->undisturbed_s = fmin(self->plans->undisturbed_s, before_s);
    if (self->sweep_again) {
        harpe_sweep_free(before);
        self->sweep_again = NULL;
        harpe_perseus_renew_baseline(self);
        harpe_perseus_write_profile(self);
    }
    calibrate(self);
    self->phase = HARPE_PERSEUS_PLAN;
    self->drift_rounds = 0;
    log_plan(self);
}
