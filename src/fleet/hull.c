/* SPDX-License-Identifier: Apache-2.0 */
/* From the plans of a job to its options and their lower convex hull (Andrew's monotone chain). A
 * plan that needs no less power than another and costs no less is left out, whatever the budgets
 * are. */
#include "fleet/hull.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/units.h"

double harpe_fleet_cost(const harpe_fleet_member *job, const harpe_fleet_price *price,
                        double overhead, size_t plan) {
    double slowdown = job->plans[plan].time_s / job->plans[0].time_s;
    double per_j = (price->energy_per_kwh +
                    price->carbon_per_kg * price->carbon_g_per_kwh / HARPE_GRAMS_PER_KG) /
                   HARPE_JOULES_PER_KWH;
    double value = price->value_per_s > 0 ? price->value_per_s : 1;
    return value * job->weight * (slowdown - 1) +
           per_j * overhead * job->plans[plan].power_w * slowdown;
}

static int compare_options(const void *left, const void *right) {
    const harpe_fleet_option *a = left, *b = right;
    if (a->power_uw != b->power_uw) return a->power_uw < b->power_uw ? -1 : 1;
    if (a->cost != b->cost) return a->cost < b->cost ? -1 : 1;
    return (a->plan > b->plan) - (a->plan < b->plan);
}

/* Fills `options` with the plans that the job accepts, by increasing power. Returns their number.
 */
static size_t accepted_plans(const harpe_fleet_member *job, const harpe_fleet_price *price,
                             double overhead, harpe_fleet_option *options) {
    size_t count = 0;
    bool is_sorted = true;
    for (size_t k = job->plan_count; k-- > 0;) {
        double slowdown = job->plans[k].time_s / job->plans[0].time_s;
        if (job->max_slowdown > 0 && slowdown > job->max_slowdown) continue;
        options[count] = (harpe_fleet_option){.power_uw = llround(job->plans[k].power_w * 1e6),
                                              .cost = harpe_fleet_cost(job, price, overhead, k),
                                              .plan = k};
        if (count > 0 && compare_options(&options[count - 1], &options[count]) > 0)
            is_sorted = false;
        count++;
    }
    if (!is_sorted) qsort(options, count, sizeof *options, compare_options);
    return count;
}

/* Keeps the options that cost less than all options with less power. */
static size_t keep_best(harpe_fleet_option *options, size_t count) {
    size_t kept = 1;
    for (size_t i = 1; i < count; i++)
        if (options[i].cost < options[kept - 1].cost) options[kept++] = options[i];
    return kept;
}

static double gain_between(const harpe_fleet_option *low, const harpe_fleet_option *high) {
    return (low->cost - high->cost) / (double)(high->power_uw - low->power_uw);
}

/* Fills in the vertices and gains. Rounding cannot make two gains equal: a vertex whose two gains
 * are equal as doubles is left out. */
static void find_vertices(harpe_fleet_hull *hull) {
    size_t count = 0;
    for (size_t i = 0; i < hull->option_count; i++) {
        const harpe_fleet_option *option = &hull->options[i];
        double gain = 0;
        while (count > 0) {
            gain = gain_between(&hull->options[hull->vertices[count - 1]], option);
            if (count == 1 || gain < hull->gain[count - 2]) break;
            count--;
        }
        /* A gain below the smallest number is none. */
        if (count > 0 && !(gain > 0)) continue;
        if (count > 0) hull->gain[count - 1] = gain;
        hull->power_uw[count] = option->power_uw;
        hull->vertices[count++] = i;
    }
    hull->vertex_count = count;
}

harpe_status harpe_fleet_hull_make(harpe_fleet_member *job, const harpe_fleet_price *price,
                                   double overhead, harpe_error *error) {
    size_t count = job->plan_count;
    harpe_fleet_hull hull = {.options = harpe_calloc(count, sizeof *hull.options),
                             .vertices = harpe_calloc(count, sizeof *hull.vertices),
                             .power_uw = harpe_calloc(count, sizeof *hull.power_uw),
                             .gain = harpe_calloc(count, sizeof *hull.gain)};
    if (!hull.options || !hull.vertices || !hull.power_uw || !hull.gain) {
        harpe_fleet_hull_clear(&hull);
        return harpe_fail_memory(error);
    }
    hull.option_count = keep_best(hull.options, accepted_plans(job, price, overhead, hull.options));
    find_vertices(&hull);
    harpe_fleet_hull_clear(&job->hull);
    job->hull = hull;
    job->has_hull = true;
    job->vertex = 0;
    return HARPE_OK;
}

void harpe_fleet_hull_clear(harpe_fleet_hull *hull) {
    free(hull->options);
    free(hull->vertices);
    free(hull->power_uw);
    free(hull->gain);
    *hull = (harpe_fleet_hull){0};
}

size_t harpe_fleet_hull_above(const harpe_fleet_hull *hull, double gain, size_t low, size_t high,
                              size_t hint) {
    if (hint >= low && hint <= high && (hint == low || hull->gain[hint - 1] > gain) &&
        (hint == high || hull->gain[hint] <= gain))
        return hint;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (hull->gain[middle] > gain)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
