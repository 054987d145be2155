/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of energy and of its cost. */
#ifndef HARPE_SERVER_FLEET_PRICE_ENERGY_H
#define HARPE_SERVER_FLEET_PRICE_ENERGY_H

#include "server/fleet/fleet_state.h"

/* What a job has used and saved since it began, in J. */
typedef struct harpe_fleet_used {
    double used_j, saved_j;
    double uncertainty_j; /* of saved_j */
} harpe_fleet_used;

/* Adds what the member has used and saved since the last call, with the price of this moment.
 * `is_steered` false: this energy does not count. */
void harpe_fleet_energy_take(harpe_fleet_state *state, harpe_member *member, double at_s,
                             harpe_fleet_used figures, bool is_steered);
/* Returns the uncertainty of the savings in the sums, in J. */
double harpe_fleet_energy_uncertainty_j(const harpe_fleet_state *state);

#endif
