/* SPDX-License-Identifier: Apache-2.0 */
/* From the relaxation to real plans. */
#ifndef HARPE_FLEET_ROUNDING_H
#define HARPE_FLEET_ROUNDING_H

#include "fleet/fleet_state.h"

/* Chooses an option of each job, and sets `power_uw` of each group. All groups have prices.
 * `*is_complete` is true if a search has shown that no choice is better. */
harpe_status harpe_fleet_round(harpe_fleet *fleet, bool *is_complete, harpe_error *error);

#endif
