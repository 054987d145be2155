/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of energy and of its cost. Energy is counted when a job reports it, with the price of that
 * moment, and with the overhead factor of the whole fleet. While nothing steers the fleet, the
 * server seldom looks at its jobs, so that energy is not counted.
 *
 * The savings of a job are uncertain mainly because its baseline is. The same baseline serves all
 * its iterations. So if a part of the job's energy is counted, the same part of its uncertainty
 * counts. For the same reason, what a server has counted before a restart and after it has
 * uncertainties that are added, not combined as independent ones. */
#include "server/fleet/price_energy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "server/fleet/decide.h"

/* Amounts of two currencies have no sum, so the costs begin again with another currency. No
 * currency counts as a currency of its own. */
static void set_currency(harpe_fleet_energy *energy, const char *currency) {
    if (energy->has_currency && strcmp(energy->currency, currency) != 0)
        energy->cost = energy->cost_saved = 0;
    energy->has_currency = true;
    (void)snprintf(energy->currency, sizeof energy->currency, "%s", currency);
}

static void add(harpe_fleet_state *state, double at_s, double used_j, double saved_j) {
    harpe_fleet_energy *energy = &state->energy;
    double overhead = state->groups[0].budget.overhead;
    used_j *= overhead;
    saved_j *= overhead;
    energy->used_j += used_j;
    energy->saved_j += saved_j;
    if (state->prices.count == 0) return;
    harpe_fleet_price price = harpe_decide_price(state, at_s);
    double carbon_kg_per_j = price.carbon_g_per_kwh / HARPE_GRAMS_PER_KG / HARPE_JOULES_PER_KWH;
    double cost_per_j =
        price.energy_per_kwh / HARPE_JOULES_PER_KWH + carbon_kg_per_j * price.carbon_per_kg;
    set_currency(energy, state->prices.currency);
    energy->has_price = true;
    energy->cost += used_j * cost_per_j;
    energy->cost_saved += saved_j * cost_per_j;
    energy->carbon_kg += used_j * carbon_kg_per_j;
    energy->carbon_kg_saved += saved_j * carbon_kg_per_j;
}

void harpe_fleet_energy_take(harpe_fleet_state *state, harpe_member *member, double at_s,
                             harpe_fleet_used figures, bool is_steered) {
    harpe_member_rounds *rounds = &member->rounds;
    if (is_steered && state->energy.since_s == 0) state->energy.since_s = at_s;
    if (is_steered && rounds->has_energy && figures.used_j >= rounds->used_j) {
        add(state, at_s, figures.used_j - rounds->used_j, figures.saved_j - rounds->saved_j);
        rounds->counted_j += figures.used_j - rounds->used_j;
    }
    rounds->used_j = figures.used_j;
    rounds->saved_j = figures.saved_j;
    rounds->has_energy = is_steered;
    double part = figures.used_j > 0 ? fmin(1, rounds->counted_j / figures.used_j) : 0;
    rounds->uncertainty_j = part * figures.uncertainty_j;
}

double harpe_fleet_energy_uncertainty_j(const harpe_fleet_state *state) {
    double variance = state->energy.gone_variance;
    for (size_t i = 0; i < state->member_count; i++)
        variance += pow(state->members[i]->rounds.uncertainty_j, 2);
    return state->energy.kept_uncertainty_j + state->groups[0].budget.overhead * sqrt(variance);
}
