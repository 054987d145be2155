/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of energy and of its cost. Energy is counted when a job reports it, with the price of that
 * moment, and with the overhead factor of the whole fleet. */
#include "server/fleet/price_energy.h"

#include "server/fleet/decide.h"

void harpe_fleet_energy_add(harpe_fleet_state *state, double at_s, double used_j, double saved_j) {
    harpe_fleet_energy *energy = &state->energy;
    double overhead = state->groups[0].budget.overhead;
    if (energy->since_s == 0) energy->since_s = at_s;
    used_j *= overhead;
    saved_j *= overhead;
    energy->used_j += used_j;
    energy->saved_j += saved_j;
    if (state->prices.count == 0) return;
    harpe_fleet_price price = harpe_decide_price(state, at_s);
    static const double joules = 3.6e6, grams = 1000;
    double carbon_kg_per_j = price.carbon_g_per_kwh / grams / joules;
    double cost_per_j = price.energy_per_kwh / joules + carbon_kg_per_j * price.carbon_per_kg;
    energy->has_price = true;
    energy->cost += used_j * cost_per_j;
    energy->cost_saved += saved_j * cost_per_j;
    energy->carbon_kg += used_j * carbon_kg_per_j;
    energy->carbon_kg_saved += saved_j * carbon_kg_per_j;
}
