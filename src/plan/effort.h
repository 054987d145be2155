/* SPDX-License-Identifier: Apache-2.0 */
/* Improves drafts and their lower bounds for some time, on all threads of a crew. Several threads
 * may work on one draft. */
#ifndef HARPE_PLAN_EFFORT_H
#define HARPE_PLAN_EFFORT_H

#include "plan/draft.h"

/* Improves the drafts with wide dives and with windows, in turn, for `effort_s`, or until all of
 * them reach their lower bounds. Sets `*stopped` and ends if `report` returns false. */
harpe_status harpe_effort_improve(const harpe_search *search, double effort_s, bool *stopped,
                                  harpe_error *error);

/* Which turns of the search for bounds are taken. Each turn takes longer than the one before. */
typedef enum harpe_bound_turns {
    HARPE_BOUND_FIRST_TURN,
    HARPE_BOUND_LATER_TURNS,
} harpe_bound_turns;

/* Returns true if the bounds of a search can be raised. */
bool harpe_effort_can_bound(const harpe_search *search);

/* Looks for higher lower bounds of the drafts, in turn, for `effort_s`, or until the turns are
 * taken or all drafts are known to be optimal. Sets `*stopped` and ends if `report` returns false.
 */
harpe_status harpe_effort_bound(const harpe_search *search, double effort_s,
                                harpe_bound_turns turns, bool *stopped, harpe_error *error);

#endif
