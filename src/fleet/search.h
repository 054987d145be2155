/* SPDX-License-Identifier: Apache-2.0 */
/* A complete search over the options of some jobs, while all others keep theirs. */
#ifndef HARPE_FLEET_SEARCH_H
#define HARPE_FLEET_SEARCH_H

#include "fleet/fleet_state.h"

/* Returns the part of a job's Lagrangian above its minimum: how much worse than the best the
 * option is, at the price of the job's group. */
double harpe_fleet_excess(const harpe_fleet *fleet, const harpe_fleet_member *job, size_t option);

/* Looks for better options of the given jobs. Sets `option` of the jobs and `power_uw` of their
 * groups. Visits at most `nodes` nodes, and takes those that it visits from `nodes`. `*is_complete`
 * is true if no better choice exists for these jobs. */
harpe_status harpe_fleet_search(harpe_fleet *fleet, const int *jobs, size_t count, size_t *nodes,
                                bool *is_complete, harpe_error *error);

#endif
