/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and frees a fleet's state, whose parts belong to several files. */
#include "server/fleet/fleet_life.h"

#include <stdlib.h>

#include "server/fleet/decide.h"
#include "server/fleet/groups.h"
#include "server/fleet/member.h"
#include "server/fleet/price_energy.h"

bool harpe_fleet_begin(harpe_fleet_state *state) { return harpe_groups_begin(state); }

void harpe_fleet_end(harpe_fleet_state *state) {
    harpe_decide_free(state);
    for (size_t i = 0; i < state->member_count; i++)
        harpe_member_free(state->members[i]);
    for (size_t i = 0; i < state->override_count; i++)
        free(state->overrides[i].id);
    harpe_fleet_accounts_free(state);
    free(state->members);
    free(state->overrides);
    free(state->events);
    free(state->prices.points);
    harpe_groups_free(state);
    *state = (harpe_fleet_state){0};
}
