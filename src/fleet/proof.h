/* SPDX-License-Identifier: Apache-2.0 */
/* The last search: over all jobs that could be part of a better choice. */
#ifndef HARPE_FLEET_PROOF_H
#define HARPE_FLEET_PROOF_H

#include "fleet/fleet_state.h"

/* Searches all jobs of which another option could be part of a better choice, if they are few.
 * `*is_complete` is true if the choice is then the best of all. */
harpe_status harpe_fleet_prove(harpe_fleet *fleet, bool *is_complete, harpe_error *error);

#endif
