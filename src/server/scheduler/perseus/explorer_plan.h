/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the rounds of an exploration, and decides when enough is known. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_PLAN_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_EXPLORER_PLAN_H

#include "server/scheduler/perseus/explorer.h"

/* Makes the schedule of the next round. Sets `*is_finished` if the clocks that were measured are
 * enough for a plan under these terms; the schedule then does not change. */
harpe_status harpe_explorer_plan(harpe_explorer *explorer, const harpe_explorer_terms *terms,
                                 bool *is_finished, harpe_error *error);

#endif
