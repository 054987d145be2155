/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of energy and of its cost. */
#ifndef HARPE_SERVER_FLEET_PRICE_ENERGY_H
#define HARPE_SERVER_FLEET_PRICE_ENERGY_H

#include "server/fleet/fleet_state.h"

/* Adds energy that members used and saved until `at_s`, with the price of this moment. */
void harpe_fleet_energy_add(harpe_fleet_state *state, double at_s, double used_j, double saved_j);

#endif
