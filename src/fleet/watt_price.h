/* SPDX-License-Identifier: Apache-2.0 */
/* The relaxation: the price of a watt in each group. */
#ifndef HARPE_FLEET_WATT_PRICE_H
#define HARPE_FLEET_WATT_PRICE_H

#include "fleet/fleet_state.h"

/* Solves the relaxation, in which a job may mix two plans: sets `least_uw`, `limit_uw`,
 * `threshold`, `spare_uw` and `price` of each group that has changed, and `vertex` of each job.
 * Groups that have not changed keep their thresholds. All jobs have hulls. On failure, all groups
 * must be solved again. */
harpe_status harpe_fleet_price_watts(harpe_fleet *fleet, harpe_error *error);

#endif
