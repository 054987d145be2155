/* SPDX-License-Identifier: Apache-2.0 */
/* Improves drafts of plans: by local search, by dives, and by joining neighbours. Each function
 * works on all drafts, on the threads of a crew, and always does the same work. */
#ifndef HARPE_PLAN_SEARCH_H
#define HARPE_PLAN_SEARCH_H

#include "plan/draft.h"

/* Improves each draft by local search, and then by some dives at its deadline, unless the problem
 * is large. A draft keeps the result that needs the least energy. Drafts near the fastest plan have
 * the widest dives. Fails with HARPE_INTERRUPTED if `report` returns false. */
harpe_status harpe_search_refine(const harpe_search *search, harpe_error *error);

/* Joins, for each draft that is not on the lower convex hull of all drafts, its two neighbours on
 * the hull, in both orders. Replaces the draft by the best result. Sorts the drafts by time. Fails
 * with HARPE_INTERRUPTED if `report` returns false. */
harpe_status harpe_search_join(const harpe_search *search, harpe_error *error);

/* Gives each draft the frequencies of its plan. If changes of clock have a cost, removes changes,
 * and searches better plans among those with few changes. Fails with HARPE_INTERRUPTED if `report`
 * returns false. */
harpe_status harpe_search_finish(const harpe_search *search, const harpe_clock_switch *cost,
                                 harpe_error *error);

#endif
