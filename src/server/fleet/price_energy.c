/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of energy and of its cost. Energy is counted when a job reports it, with the price of that
 * moment, and with the overhead factor of the whole fleet. While nothing steers the fleet, the
 * server seldom looks at its jobs, so that energy is not counted.
 *
 * Each job has an account: the figures up to which its energy is in the sums. Only what is above
 * them is added. Accounts and sums are one note of the store, so after a restart the next figures
 * of a job add exactly what the stored sums lack.
 *
 * The savings of a job are uncertain mainly because its baseline is. The same baseline serves all
 * its iterations. So if a part of the job's energy is counted, the same part of its uncertainty
 * counts. */
#include "server/fleet/price_energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/format.h"
#include "server/fleet/decide.h"

/* ---- Sums ------------------------------------------------------------------------------------ */

/* Amounts of two currencies have no sum, so the costs begin again with another currency. No
 * currency counts as a currency of its own. */
static void set_currency(harpe_fleet_energy *energy, const char *currency) {
    if (energy->has_currency && strcmp(energy->currency, currency) != 0)
        energy->cost = energy->cost_saved = 0;
    energy->has_currency = true;
    (void)snprintf(energy->currency, sizeof energy->currency, "%s", currency);
}

static double carbon_kg_per_j_of(const harpe_fleet_price *price) {
    return price->carbon_g_per_kwh / HARPE_GRAMS_PER_KG / HARPE_JOULES_PER_KWH;
}

double harpe_fleet_cost_per_j(const harpe_fleet_price *price) {
    return price->energy_per_kwh / HARPE_JOULES_PER_KWH +
           carbon_kg_per_j_of(price) * price->carbon_per_kg;
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
    double carbon_kg_per_j = carbon_kg_per_j_of(&price);
    double cost_per_j = harpe_fleet_cost_per_j(&price);
    set_currency(energy, state->prices.currency);
    energy->has_price = true;
    energy->cost += used_j * cost_per_j;
    energy->cost_saved += saved_j * cost_per_j;
    energy->carbon_kg += used_j * carbon_kg_per_j;
    energy->carbon_kg_saved += saved_j * carbon_kg_per_j;
}

/* ---- Accounts -------------------------------------------------------------------------------- */

harpe_fleet_account *harpe_fleet_account_need(harpe_fleet_state *state, const char *id,
                                              bool is_new) {
    harpe_fleet_energy *energy = &state->energy;
    for (size_t i = 0; i < energy->account_count; i++)
        if (strcmp(energy->accounts[i]->id, id) == 0) return energy->accounts[i];
    harpe_fleet_account *account = harpe_calloc(1, sizeof *account);
    if (account) account->id = strdup(id);
    if (!account || !account->id ||
        !HARPE_ARRAY_RESERVE(energy->accounts, energy->account_capacity,
                             energy->account_count + 1)) {
        if (account) free(account->id);
        free(account);
        return NULL;
    }
    account->has_used = account->has_saved = is_new;
    energy->accounts[energy->account_count++] = account;
    return account;
}

static void free_account(harpe_fleet_account *account) {
    free(account->id);
    free(account);
}

void harpe_fleet_account_close(harpe_fleet_state *state, size_t index) {
    harpe_fleet_energy *energy = &state->energy;
    energy->gone_variance += pow(energy->accounts[index]->uncertainty_j, 2);
    free_account(energy->accounts[index]);
    energy->accounts[index] = energy->accounts[--energy->account_count];
}

void harpe_fleet_accounts_free(harpe_fleet_state *state) {
    harpe_fleet_energy *energy = &state->energy;
    for (size_t i = 0; i < energy->account_count; i++)
        free_account(energy->accounts[i]);
    free(energy->accounts);
}

void harpe_fleet_energy_begin(harpe_fleet_state *state, double at_s) {
    if (state->energy.since_s == 0) state->energy.since_s = at_s;
    state->energy.is_counting = true;
}

void harpe_fleet_energy_end(harpe_fleet_state *state) {
    state->energy.is_counting = false;
    for (size_t i = 0; i < state->energy.account_count; i++)
        state->energy.accounts[i]->has_used = state->energy.accounts[i]->has_saved = false;
}

void harpe_fleet_account_take(harpe_fleet_state *state, harpe_fleet_account *account, double at_s,
                              harpe_fleet_used figures) {
    double used_j = account->has_used ? figures.used_j - account->used_j : 0;
    double saved_j =
        account->has_saved && figures.has_saved ? figures.saved_j - account->saved_j : 0;
    if (used_j < 0) return; /* it counts already */
    add(state, at_s, used_j, saved_j);
    account->counted_j += used_j;
    account->has_used = true;
    account->used_j = figures.used_j;
    if (!figures.has_saved) return;
    account->has_saved = true;
    account->saved_j = figures.saved_j;
    double part = figures.used_j > 0 ? fmin(1, account->counted_j / figures.used_j) : 0;
    account->uncertainty_j = part * figures.uncertainty_j;
}

double harpe_fleet_energy_uncertainty_j(const harpe_fleet_state *state) {
    double variance = state->energy.gone_variance;
    for (size_t i = 0; i < state->energy.account_count; i++)
        variance += pow(state->energy.accounts[i]->uncertainty_j, 2);
    return state->energy.kept_uncertainty_j + state->groups[0].budget.overhead * sqrt(variance);
}
