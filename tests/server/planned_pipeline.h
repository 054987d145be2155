/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated pipelines with finished plans, and their plans. Include after cmocka.h. */
#ifndef HARPE_TESTS_SERVER_PLANNED_PIPELINE_H
#define HARPE_TESTS_SERVER_PLANNED_PIPELINE_H

#include "server/simulated_pipeline.h"

/* Energies per frequency of forward and backward, from 1500 MHz down in steps of 100. */
static inline harpe_profile *profile_of(const double *forward_j, const double *backward_j,
                                        int count) {
    harpe_measurement rows[64];
    harpe_error error = {0};
    harpe_profile *profile;
    int n = 0;
    for (int stage = 0; stage < 2; stage++) {
        for (int i = 0; i < count; i++) {
            rows[n++] = (harpe_measurement){
                stage, -1, "forward", 1500 - 100 * i, 1 + i, forward_j[i], 1, 0, 0};
            rows[n++] = (harpe_measurement){
                stage, -1, "backward", 1500 - 100 * i, 2 + 2 * i, backward_j[i], 1, 0, 0};
        }
    }
    if (harpe_profile_new(rows, (size_t)n, &profile, &error)) fail_msg("%s", error.message);
    return profile;
}

static inline simulated_pipeline *planned(const char *args) {
    simulated_pipeline *s = simulate(4, 1, 1, 8, NULL);
    start(s, "Perseus", args);
    rounds_until(s, "plan");
    next(s);
    return s;
}

/* Returns a plan, fastest first. A negative `index` counts from the end. */
static inline double plan_number(simulated_pipeline *s, int index, const char *name) {
    json_t *json = frontier(s);
    const json_t *plans = json_object_get(json, "plans");
    size_t i = index >= 0 ? (size_t)index : json_array_size(plans) - (size_t)-index;
    double value = json_number_value(json_object_get(json_array_get(plans, i), name));
    json_decref(json);
    return value;
}

/* Returns the time of the slowest plan that takes at most `limit_s`. */
static inline double slowest_within(simulated_pipeline *s, double limit_s) {
    json_t *json = frontier(s);
    const json_t *plans = json_object_get(json, "plans");
    double found_s = 0;
    for (size_t i = 0; i < json_array_size(plans); i++) {
        double time_s = json_number_value(json_object_get(json_array_get(plans, i), "time"));
        if (time_s <= limit_s * (1 + 1e-9)) found_s = time_s;
    }
    json_decref(json);
    return found_s;
}

#endif
