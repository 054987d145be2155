/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the default plans of a problem. Reports their distance from the lower bound, and the time
 * that this took. harpe_plan_verify checks every plan. */
#include <math.h>

#include "base/clock.h"
#include "bench_case.h"

int main(int argc, char **argv) {
    bench_case which = bench_case_from_flags(argc, argv);
    harpe_problem *problem = bench_case_problem(&which);
    harpe_error error;
    harpe_frontier *frontier = NULL;
    harpe_plan_set *plans = NULL;
    double began_s = harpe_clock_s();
    bench_require(harpe_plan_set_new(problem, NULL, NULL, &frontier, &plans, &error), &error);
    double took_s = harpe_clock_s() - began_s;
    size_t count = harpe_plan_set_count(plans);
    double sum_percent = 0, worst_percent = 0, worst_time_s = 0;
    for (size_t i = 0; i < count; i++) {
        const harpe_plan *plan = harpe_plan_set_at(plans, i);
        bench_require(harpe_plan_verify(problem, frontier, plan, &error), &error);
        double gap_percent = 100 * (plan->energy_j / plan->lower_bound_j - 1);
        sum_percent += gap_percent;
        if (gap_percent > worst_percent) {
            worst_percent = gap_percent;
            worst_time_s = plan->time_s;
        }
    }
    harpe_plan maximum;
    bench_require(harpe_plan_all_maximum(problem, &maximum, &error), &error);
    const harpe_plan *slowest = harpe_plan_set_at(plans, count - 1);
    harpe_work work = harpe_frontier_work(frontier);
    json_t *result = bench_case_json(&which, problem);
    json_object_set_new(result, "plans", json_integer((json_int_t)count));
    json_object_set_new(result, "mean_gap_percent", json_real(sum_percent / (double)count));
    json_object_set_new(result, "worst_gap_percent", json_real(worst_percent));
    json_object_set_new(result, "worst_gap_time_s", json_real(worst_time_s));
    json_object_set_new(result, "largest_savings_percent",
                        json_real(100 * (1 - slowest->energy_j / maximum.energy_j)));
    json_object_set_new(result, "total_s", json_real(took_s));
    json_object_set_new(result, "work", bench_work_json(&work));
    json_object_set_new(result, "peak_memory_bytes", json_integer(bench_peak_memory_bytes()));
    bench_print(result);
    harpe_plan_set_free(plans);
    harpe_frontier_free(frontier);
    harpe_problem_free(problem);
    return 0;
}
