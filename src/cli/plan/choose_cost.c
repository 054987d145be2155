/* SPDX-License-Identifier: Apache-2.0 */
/* Computes and prints the cost of plans: energy times its price, plus the time of all GPUs times
 * its value, plus carbon times its price. */
#include "cli/plan/choose_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/command.h"

#define S_PER_H 3600
#define G_PER_TONNE 1e6

harpe_cost harpe_cost_of(const harpe_prices *prices, const harpe_frontier_row *row) {
    double energy_kwh = row->energy_j / HARPE_JOULES_PER_KWH;
    double gpu_hours = prices->gpu_count * row->time_s / S_PER_H;
    harpe_cost cost = {
        .energy = energy_kwh * prices->energy_price,
        .gpu_time = gpu_hours * prices->gpu_hour_price,
        .carbon_g = energy_kwh * prices->carbon_g_per_kwh,
    };
    cost.carbon = cost.carbon_g / G_PER_TONNE * prices->carbon_price;
    cost.total = cost.energy + cost.gpu_time + cost.carbon;
    return cost;
}

static void print_heading(const harpe_prices *prices, int width) {
    char what[64];
    snprintf(what, sizeof what, "%s of %d iteration%s", prices->are_given ? "cost" : "carbon",
             prices->iterations, prices->iterations == 1 ? "" : "s");
    printf("%s  %-*s", harpe_bold_start(), width, what);
    if (prices->are_given) printf(" %14s %14s", "energy", "GPU time");
    if (prices->carbon_price > 0) printf(" %14s", "carbon");
    if (prices->are_given) printf(" %14s", "total");
    if (prices->has_carbon) printf(" %14s", "CO2");
    printf("%s\n", harpe_bold_end());
}

void harpe_costs_print(const harpe_prices *prices, const harpe_labelled_row *rows, size_t count) {
    int width = 28, decimals = 0, carbon_decimals = 0;
    for (size_t i = 0; i < count; i++) {
        harpe_cost cost = harpe_cost_of(prices, &rows[i].row);
        int length = (int)strlen(rows[i].label);
        int for_total = harpe_row_decimals(cost.total * prices->iterations, 6);
        int for_carbon = harpe_row_decimals(cost.carbon_g / 1e3 * prices->iterations, 6);
        width = length > width ? length : width;
        decimals = for_total > decimals ? for_total : decimals;
        carbon_decimals = for_carbon > carbon_decimals ? for_carbon : carbon_decimals;
    }
    print_heading(prices, width);
    for (size_t i = 0; i < count; i++) {
        harpe_cost cost = harpe_cost_of(prices, &rows[i].row);
        double times = prices->iterations;
        printf("  %-*s", width, rows[i].label);
        if (prices->are_given)
            printf(" %14.*f %14.*f", decimals, times * cost.energy, decimals,
                   times * cost.gpu_time);
        if (prices->carbon_price > 0) printf(" %14.*f", decimals, times * cost.carbon);
        if (prices->are_given) printf(" %14.*f", decimals, times * cost.total);
        if (prices->has_carbon) printf(" %11.*f kg", carbon_decimals, times * cost.carbon_g / 1e3);
        printf("\n");
    }
}

json_t *harpe_cost_json(const harpe_prices *prices, const harpe_frontier_row *row) {
    harpe_cost cost = harpe_cost_of(prices, row);
    json_t *object = json_object();
    if (prices->are_given) {
        json_object_set_new(object, "energy", json_real(cost.energy));
        json_object_set_new(object, "gpu_time", json_real(cost.gpu_time));
        json_object_set_new(object, "carbon", json_real(cost.carbon));
        json_object_set_new(object, "total", json_real(cost.total));
    }
    if (prices->has_carbon) json_object_set_new(object, "carbon_g", json_real(cost.carbon_g));
    return object;
}
