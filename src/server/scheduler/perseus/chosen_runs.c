/* SPDX-License-Identifier: Apache-2.0 */
/* Computes one number from the values of some runs: their mean in each iteration, and then the
 * median over the iterations. Values that cannot be right are left out. */
#include "server/scheduler/perseus/chosen_runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "server/scheduler/stages.h"

enum { MEDIAN_OF_AT_LEAST = 3 };

/* ---- Values ---------------------------------------------------------------------------------- */

double harpe_typical_value(double *values, size_t count) {
    if (count == 0) return 0;
    if (count >= MEDIAN_OF_AT_LEAST) {
        qsort(values, count, sizeof *values, harpe_compare_doubles);
        return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
    }
    return count == 1 ? values[0] : 0.5 * (values[0] + values[1]);
}

/* ---- Results --------------------------------------------------------------------------------- */

size_t harpe_longest_list(const harpe_profiling_result *results, size_t count) {
    size_t longest = 0;
    for (size_t r = 0; r < count; r++) {
        const harpe_profiling_result *result = &results[r];
        size_t own = result->iteration_time_count > result->iteration_energy_count
                         ? result->iteration_time_count
                         : result->iteration_energy_count;
        for (size_t b = 0; b < result->time_breakdown_count; b++)
            if (result->time_breakdown[b].iteration_count > own)
                own = result->time_breakdown[b].iteration_count;
        for (size_t b = 0; b < result->energy_breakdown_count; b++)
            if (result->energy_breakdown[b].iteration_count > own)
                own = result->energy_breakdown[b].iteration_count;
        if (own > longest) longest = own;
    }
    return longest;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Returns the sum of the values of `entry` (-1: of all entries) in an iteration, or -1 if a value
 * is invalid. */
static double sum_of_runs(const double *values, size_t count, const int *entry_of_run, int entry) {
    double sum = 0;
    for (size_t k = 0; k < count; k++) {
        if (entry >= 0 && entry_of_run[k] != entry) continue;
        if (!(values[k] >= 0 && values[k] <= HARPE_RUN_MAX_J)) return -1;
        sum += values[k];
    }
    return sum;
}

/* Writes the mean value of the runs in each good iteration. Returns the number of iterations. */
static size_t collect_runs(const harpe_breakdown *breakdown, const harpe_chosen_runs *chosen,
                           double minimum, double maximum, double *scratch) {
    size_t good = 0, first = chosen->first;
    for (size_t i = 0; i < breakdown->iteration_count; i++) {
        if (breakdown->counts[i] != chosen->name->run_count) continue;
        double sum =
            sum_of_runs(breakdown->values + breakdown->offsets[i] + first, chosen->end - first,
                        chosen->name->entry_of_run + first, chosen->entry);
        double mean = sum / (double)chosen->count;
        if (mean >= minimum && mean <= maximum) scratch[good++] = mean;
    }
    return good;
}

/* Returns the typical value of one run, or 0. */
static double typical_run(const harpe_breakdown *breakdown, const harpe_chosen_runs *chosen,
                          double minimum, double maximum, double *scratch) {
    return harpe_typical_value(scratch, collect_runs(breakdown, chosen, minimum, maximum, scratch));
}

double harpe_typical_total(const harpe_breakdown *breakdown, double *scratch) {
    size_t good = 0;
    for (size_t i = 0; i < breakdown->iteration_count; i++) {
        double sum =
            sum_of_runs(breakdown->values + breakdown->offsets[i], breakdown->counts[i], NULL, -1);
        if (sum > 0) scratch[good++] = sum;
    }
    return harpe_typical_value(scratch, good);
}

harpe_online_mean harpe_chosen_runs_read(const harpe_profiling_result *result,
                                         const harpe_chosen_runs *chosen, double *scratch) {
    const char *instruction = chosen->name->instruction;
    const harpe_breakdown *times =
        harpe_find_breakdown(result->time_breakdown, result->time_breakdown_count, instruction);
    const harpe_breakdown *energies =
        harpe_find_breakdown(result->energy_breakdown, result->energy_breakdown_count, instruction);
    harpe_online_mean mean = {0, 0};
    if (times) mean.time_s = typical_run(times, chosen, HARPE_RUN_MIN_S, HARPE_RUN_MAX_S, scratch);
    if (energies)
        mean.energy_j = typical_run(energies, chosen, HARPE_RUN_MIN_J, HARPE_RUN_MAX_J, scratch);
    return mean;
}

size_t harpe_chosen_runs_times(const harpe_profiling_result *result,
                               const harpe_chosen_runs *chosen, double *times_s) {
    const harpe_breakdown *times = harpe_find_breakdown(
        result->time_breakdown, result->time_breakdown_count, chosen->name->instruction);
    return times ? collect_runs(times, chosen, HARPE_RUN_MIN_S, HARPE_RUN_MAX_S, times_s) : 0;
}

bool harpe_online_mean_add(harpe_online_mean *mean, harpe_online_mean own) {
    if (own.time_s > 0 && own.energy_j > 0 && mean->energy_j >= 0) {
        if (own.time_s > mean->time_s) mean->time_s = own.time_s;
        mean->energy_j += own.energy_j;
        return true;
    }
    mean->energy_j = -1;
    return false;
}
