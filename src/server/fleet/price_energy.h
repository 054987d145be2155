/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of energy and of its cost. */
#ifndef HARPE_SERVER_FLEET_PRICE_ENERGY_H
#define HARPE_SERVER_FLEET_PRICE_ENERGY_H

#include "server/fleet/fleet_state.h"

/* What a job has used and saved since it began, in J. */
typedef struct harpe_fleet_used {
    double used_j, saved_j;
    double uncertainty_j; /* of saved_j */
    bool has_saved;       /* false: the two above are not known (yet) */
} harpe_fleet_used;

/* Returns what a joule at the meter costs, with the price of its carbon. */
double harpe_fleet_cost_per_j(const harpe_fleet_price *price);
/* Begins or ends to count. Energy counts while a budget, an event or a price is set. */
void harpe_fleet_energy_begin(harpe_fleet_state *state, double at_s);
void harpe_fleet_energy_end(harpe_fleet_state *state);
/* Returns the account of a job, or adds one. `is_new`: the job has begun while energy is counted,
 * so all of its energy counts. NULL: no memory. */
harpe_fleet_account *harpe_fleet_account_need(harpe_fleet_state *state, const char *id,
                                              bool is_new);
/* Adds what the job has used and saved since the last call, with the price of this moment. */
void harpe_fleet_account_take(harpe_fleet_state *state, harpe_fleet_account *account, double at_s,
                              harpe_fleet_used figures);
/* Closes the account with this place in the list: its job is evicted. */
void harpe_fleet_account_close(harpe_fleet_state *state, size_t index);
void harpe_fleet_accounts_free(harpe_fleet_state *state);
/* Returns the uncertainty of the savings in the sums, in J. */
double harpe_fleet_energy_uncertainty_j(const harpe_fleet_state *state);

#endif
