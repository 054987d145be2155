/* SPDX-License-Identifier: Apache-2.0 */
/* Reads iteration times from standard input, one per line. Prints for each time the lower bound and
 * the time and energy of our plan for it. Times below the shortest possible time have neither. For
 * times beyond that of least energy, the plan of least energy is used. bench.py compares published
 * frontiers in this way. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_case.h"

#define TIMES_MAX 1000000

static double *read_times(size_t *count) {
    double *times_s = calloc(TIMES_MAX, sizeof *times_s);
    char line[64];
    if (!times_s) abort();
    for (*count = 0; *count < TIMES_MAX && fgets(line, sizeof line, stdin); (*count)++)
        times_s[*count] = strtod(line, NULL);
    return times_s;
}

/* Selects the times for which a plan is possible, in their order. `out` has room for all. */
static size_t keep_achievable(const double *times_s, size_t count, double fastest_s, double *out) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (times_s[i] >= fastest_s) out[kept++] = times_s[i];
    return kept;
}

int main(int argc, char **argv) {
    bench_case which = bench_case_from_flags(argc, argv);
    harpe_problem *problem = bench_case_problem(&which);
    harpe_error error;
    harpe_frontier *frontier = NULL;
    bench_require(harpe_frontier_new(problem, NULL, &frontier, &error), &error);
    size_t vertex_count = 0, count = 0;
    const harpe_frontier_vertex *vertices = harpe_frontier_vertices(frontier, &vertex_count);
    double *times_s = read_times(&count);
    double *asked_s = calloc(count + 1, sizeof *asked_s);
    if (!asked_s) abort();
    size_t asked = keep_achievable(times_s, count, vertices[0].time_s, asked_s);
    harpe_plan_set *plans = NULL;
    if (which.runs > 0 && asked > 0) {
        harpe_plan_request request = {
            .choice = HARPE_PLANS_AT,
            .times_s = asked_s,
            .time_count = asked,
        };
        bench_require(harpe_plan_set_new(problem, &request, NULL, NULL, &plans, &error), &error);
    }
    json_t *bounds = json_array(), *energies = json_array(), *plan_times = json_array();
    for (size_t i = 0, next = 0; i < count; i++) {
        bool achievable = times_s[i] >= vertices[0].time_s;
        const harpe_plan *plan = achievable && plans ? harpe_plan_set_at(plans, next++) : NULL;
        json_array_append_new(bounds, achievable
                                          ? json_real(harpe_frontier_bound_at(frontier, times_s[i]))
                                          : json_null());
        json_array_append_new(energies, plan ? json_real(plan->energy_j) : json_null());
        json_array_append_new(plan_times, plan ? json_real(plan->time_s) : json_null());
    }
    json_t *result = bench_case_json(&which, problem);
    json_object_set_new(result, "fastest_s", json_real(vertices[0].time_s));
    json_object_set_new(result, "minimum_energy_s", json_real(vertices[vertex_count - 1].time_s));
    json_object_set_new(result, "lower_bound_j", bounds);
    json_object_set_new(result, "energy_j", energies);
    json_object_set_new(result, "time_s", plan_times);
    bench_print(result);
    harpe_plan_set_free(plans);
    harpe_frontier_free(frontier);
    harpe_problem_free(problem);
    free(times_s);
    free(asked_s);
    return 0;
}
