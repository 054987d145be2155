/* SPDX-License-Identifier: Apache-2.0 */
/* Times the exact frontier alone, several times in one process. This is the part of `harpe plan
 * --bound-only` between reading the profile and writing the result. Makes no plans. */
#include "base/clock.h"
#include "bench_case.h"

int main(int argc, char **argv) {
    bench_case which = bench_case_from_flags(argc, argv);
    harpe_problem *problem = bench_case_problem(&which);
    json_t *result = bench_case_json(&which, problem);
    json_t *runs = json_array();
    for (int run = 0; run < which.runs; run++) {
        harpe_error error;
        harpe_frontier *frontier = NULL;
        double began_s = harpe_clock_s();
        bench_require(harpe_frontier_new(problem, NULL, &frontier, &error), &error);
        double took_s = harpe_clock_s() - began_s;
        harpe_work work = harpe_frontier_work(frontier);
        json_t *entry = bench_work_json(&work);
        json_object_set_new(entry, "total_s", json_real(took_s));
        json_array_append_new(runs, entry);
        size_t vertices = 0;
        (void)harpe_frontier_vertices(frontier, &vertices);
        json_object_set_new(result, "vertices", json_integer((json_int_t)vertices));
        harpe_frontier_free(frontier);
    }
    json_object_set_new(result, "runs", runs);
    json_object_set_new(result, "peak_memory_bytes", json_integer(bench_peak_memory_bytes()));
    bench_print(result);
    harpe_problem_free(problem);
    return 0;
}
