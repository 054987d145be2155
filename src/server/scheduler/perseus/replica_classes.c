/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the profile and the plans of each class of replicas. Planning takes time for each class, so
 * the number of classes is limited. Replicas beyond it join the class of those that are as usual,
 * whose profile has the longest times of its members: its plans stay safe. */
#include "server/scheduler/perseus/replica_classes.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

enum { CLASSES_MAX = 16 };

/* Times that differ by less are taken as equal, because additions round them. */
#define ROUNDING 1e-9
/* The plans of faster replicas end this number of standard errors before the slowest replica, but
 * at most so much earlier. */
#define MARGIN_ERRORS 2.0
#define MARGIN_MAX 0.01

/* ---- Classes --------------------------------------------------------------------------------- */

static bool differs(const harpe_replica_curves *curves, int replica) {
    for (int p = 0; p < curves->rank_count; p++)
        if (harpe_replica_gpu_at(curves, replica, p)->differs) return true;
    return false;
}

/* Class 0 has the replicas that are as usual. If there are none, it stays without members. */
static void sort_into_classes(harpe_replica_classes *self, const harpe_replica_curves *curves) {
    self->count = 1;
    for (int r = 0; r < self->replica_count; r++) {
        bool is_own = differs(curves, r) && self->count < CLASSES_MAX;
        self->class_of[r] = is_own ? self->count++ : 0;
        self->list[self->class_of[r]].member_count++;
    }
    if (self->list[0].member_count > 0) return;
    for (int c = 1; c < self->count; c++)
        self->list[c - 1] = self->list[c];
    self->list[--self->count] = (harpe_replica_class){0};
    for (int r = 0; r < self->replica_count; r++)
        self->class_of[r]--;
}

static double margin_of(const harpe_replica_classes *self, const harpe_replica_curves *curves,
                        int class) {
    double error = 0;
    for (int r = 0; r < self->replica_count; r++)
        for (int p = 0; p < curves->rank_count && self->class_of[r] == class; p++)
            error = fmax(error, harpe_replica_curves_error(curves, r, p));
    return fmin(MARGIN_MAX, MARGIN_ERRORS * error);
}

/* ---- Profiles -------------------------------------------------------------------------------- */

static harpe_profile_point point_of_class(const harpe_replica_classes *self,
                                          const harpe_replica_curves *curves,
                                          const harpe_sweep *sweep, int class, int entry,
                                          int frequency_mhz) {
    harpe_profile_point sum = {.frequency_mhz = frequency_mhz};
    for (int r = 0; r < self->replica_count; r++) {
        harpe_profile_point own;
        if (self->class_of[r] != class ||
            !harpe_replica_curves_point(curves, sweep, r, entry, frequency_mhz, &own))
            continue;
        sum.time_s = fmax(sum.time_s, own.time_s);
        sum.energy_j += own.energy_j / self->list[class].member_count;
    }
    return sum;
}

static harpe_status make_profile(const harpe_replica_classes *self,
                                 const harpe_replica_curves *curves,
                                 const harpe_replica_classes_request *request, int class,
                                 harpe_profile **out, harpe_error *error) {
    const harpe_sweep *sweep = request->sweep;
    const harpe_online_pipeline *pipeline = sweep->pipeline;
    harpe_measurement *rows =
        harpe_calloc(pipeline->entry_count * sweep->frequency_count, sizeof *rows);
    size_t count = 0;
    if (!rows) return harpe_fail_memory(error);
    for (size_t e = 0; e < pipeline->entry_count; e++)
        for (size_t k = 0; k < sweep->lists[e].count; k++) {
            int mhz = sweep->lists[e].points[k].frequency_mhz;
            int rank = pipeline->entries[e].pipeline_rank;
            harpe_profile_point point = point_of_class(self, curves, sweep, class, (int)e, mhz);
            rows[count++] =
                (harpe_measurement){.stage = pipeline->entries[e].stage,
                                    .rank = -1,
                                    .instruction = pipeline->entries[e].instruction,
                                    .frequency_mhz = mhz,
                                    .time_s = point.time_s,
                                    .energy_j = point.energy_j,
                                    .gpu_count = request->gpus_per_stage,
                                    .switch_latency_s = harpe_online_latencies_planned_s(
                                        request->latencies, rank, mhz)};
        }
    harpe_status status = harpe_profile_new(rows, count, out, error);
    free(rows);
    return status;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static harpe_status plan_class(harpe_replica_classes *self, const harpe_replica_curves *curves,
                               const harpe_replica_classes_request *request, int class,
                               harpe_error *error) {
    harpe_profile *profile;
    harpe_replica_class *own = &self->list[class];
    harpe_status status = make_profile(self, curves, request, class, &profile, error);
    if (status != HARPE_OK) return status;
    status = harpe_online_plans_new(request->sweep->pipeline, profile, request->blocking_power_w,
                                    request->plan_count, 0, &own->plans, error);
    harpe_profile_free(profile);
    if (status != HARPE_OK) return status;
    own->margin = margin_of(self, curves, class);
    self->fastest_s = fmax(self->fastest_s, harpe_plan_set_at(own->plans->set, 0)->time_s);
    return HARPE_OK;
}

harpe_status harpe_replica_classes_new(const harpe_replica_curves *curves,
                                       const harpe_replica_classes_request *request,
                                       harpe_replica_classes **out, harpe_error *error) {
    harpe_replica_classes *self = harpe_calloc(1, sizeof *self);
    if (!self) return harpe_fail_memory(error);
    self->replica_count = curves->replica_count;
    self->list = harpe_calloc(CLASSES_MAX + 1, sizeof *self->list);
    self->class_of = harpe_calloc((size_t)curves->replica_count, sizeof *self->class_of);
    for (int p = 0; p < curves->rank_count; p++)
        self->waiting_w += request->blocking_power_w[p] * request->gpus_per_stage;
    harpe_status status = self->list && self->class_of ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) sort_into_classes(self, curves);
    for (int c = 0; c < self->count && status == HARPE_OK; c++)
        status = plan_class(self, curves, request, c, error);
    if (status != HARPE_OK) {
        harpe_replica_classes_free(self);
        return status;
    }
    *out = self;
    return HARPE_OK;
}

void harpe_replica_classes_free(harpe_replica_classes *self) {
    if (!self) return;
    for (int c = 0; self->list && c < self->count; c++)
        harpe_online_plans_free(self->list[c].plans);
    free(self->list);
    free(self->class_of);
    free(self);
}

/* ---- Choosing -------------------------------------------------------------------------------- */

static const harpe_plan *chosen_of(const harpe_replica_class *class) {
    return harpe_plan_set_at(class->plans->set, class->chosen);
}

void harpe_replica_classes_choose(harpe_replica_classes *self, double allowed_s) {
    for (int c = 0; c < self->count; c++) {
        harpe_replica_class *class = &self->list[c];
        const harpe_plan_set *set = class->plans->set;
        double reserve_s = allowed_s * (1 - class->margin);
        double limit_s = fmax(reserve_s, harpe_plan_set_at(set, 0)->time_s) * (1 + ROUNDING);
        class->chosen = 0;
        while (class->chosen + 1 < harpe_plan_set_count(set) &&
               harpe_plan_set_at(set, class->chosen + 1)->time_s <= limit_s)
            class->chosen++;
    }
}

harpe_status harpe_replica_classes_gain(const harpe_replica_classes *self, const int *shared_mhz,
                                        harpe_online_mean *out, harpe_error *error) {
    double own_s = 0, shared_s = 0, energy_j = 0;
    for (int c = 0; c < self->count; c++) {
        harpe_plan shared;
        const harpe_replica_class *class = &self->list[c];
        harpe_status status = harpe_online_plans_evaluate(class->plans, shared_mhz, &shared, error);
        if (status != HARPE_OK) return status;
        const harpe_plan *own = chosen_of(class);
        own_s = fmax(own_s, own->time_s);
        shared_s = fmax(shared_s, shared.time_s);
        /* The GPUs wait for the slowest replica; the times until its end are added below. */
        energy_j += class->member_count * (own->energy_j - shared.energy_j -
                                           self->waiting_w * (own->time_s - shared.time_s));
    }
    energy_j += self->replica_count * self->waiting_w * (own_s - shared_s);
    *out = (harpe_online_mean){own_s - shared_s, energy_j};
    return HARPE_OK;
}

const int *harpe_replica_classes_clocks(const harpe_replica_classes *self, int replica) {
    return chosen_of(&self->list[self->class_of[replica]])->frequency_mhz;
}
