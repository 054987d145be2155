/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan costs in money and carbon, for `harpe choose`. Amounts have the currency of the
 * prices, which the program does not know. */
#ifndef HARPE_CLI_PLAN_CHOOSE_COST_H
#define HARPE_CLI_PLAN_CHOOSE_COST_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/rows.h"

typedef struct harpe_prices {
    bool are_given;        /* the prices of energy and time; `carbon_price` is 0 if they are not */
    double energy_price;   /* of a kWh */
    double gpu_hour_price; /* value of one GPU for an hour */
    double carbon_price;   /* of 1000 kg of CO2 */
    bool has_carbon;
    double carbon_g_per_kwh;
    int iterations; /* the table shows the costs of so many iterations */
    int gpu_count;  /* of all ranks; read from the plan directory */
} harpe_prices;

/* The costs of one iteration. */
typedef struct harpe_cost {
    double energy;
    double gpu_time;
    double carbon;
    double total;
    double carbon_g; /* grams of CO2 */
} harpe_cost;

harpe_cost harpe_cost_of(const harpe_prices *prices, const harpe_frontier_row *row);

/* Prints a table with the costs of plans, or with their carbon alone if no prices are given. */
void harpe_costs_print(const harpe_prices *prices, const harpe_labelled_row *rows, size_t count);

/* Returns the costs of one iteration as an object. Values without a price are left out. */
json_t *harpe_cost_json(const harpe_prices *prices, const harpe_frontier_row *row);

#endif
