/* SPDX-License-Identifier: Apache-2.0 */
/* Improves drafts of plans: by local search, by dives, by joining neighbours, and by windows. Each
 * function works on all drafts, on the threads of a crew. */
#ifndef HARPE_PLAN_SEARCH_H
#define HARPE_PLAN_SEARCH_H

#include "plan/crew.h"

/* A plan that is not finished. */
typedef struct harpe_draft {
    int32_t *option;     /* by position, as in harpe_assignment */
    int64_t deadline_ps; /* the draft takes at most this time */
    int64_t longest_ps;  /* with a cost of changes, the plan may take this time, even above T* */
    bool is_asked;       /* deadline_ps is a time that was asked for */
    double time_s, energy_j; /* blocking included */
    int *frequency_mhz; /* the finished plan, by instruction; NULL before harpe_search_finish */
    harpe_cut cut;      /* a bound at the deadline that is higher than the relaxation's, if any */
} harpe_draft;

typedef struct harpe_search {
    const harpe_problem *problem;
    const harpe_frontier *frontier;
    harpe_crew *crew;
    harpe_draft *drafts;
    size_t draft_count;
    /* Receives the part of a function's work that is done, 0 to 1, and the present mean gap of the
     * drafts (only harpe_search_for and harpe_search_bounds; otherwise NAN). Returns false to
     * stop. NULL: none. */
    bool (*report)(void *user, double done, double mean_gap);
    void *user;
} harpe_search;

/* Copies an assignment into a draft, but not the deadline. */
void harpe_draft_take(harpe_draft *draft, const harpe_assignment *assignment);

/* Returns the distance of a draft to the relaxation's bound at its time, relative to the bound. */
double harpe_draft_gap(const harpe_frontier *frontier, const harpe_draft *draft);

/* Improves each draft by local search, and replaces it by the best result of some dives at its
 * deadline, if this is nearer to the lower bound. Large problems are not dived. Fails with
 * HARPE_INTERRUPTED if `report` returns false. */
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

/* Improves the drafts with wide dives and with windows, in turn, for `effort_s`, or until all of
 * them reach their lower bounds. Sets `*stopped` and ends if `report` returns false. */
harpe_status harpe_search_for(const harpe_search *search, double effort_s, bool *stopped,
                              harpe_error *error);

/* Which turns of the search for bounds are taken. Each turn takes longer than the one before. */
typedef enum harpe_bound_turns {
    HARPE_BOUND_FIRST_TURN,
    HARPE_BOUND_LATER_TURNS,
} harpe_bound_turns;

/* Looks for higher lower bounds of the drafts, in turn, for `effort_s`, or until the turns are
 * taken or all drafts are known to be optimal. Sets `*stopped` and ends if `report` returns false.
 */
harpe_status harpe_search_bounds(const harpe_search *search, double effort_s,
                                 harpe_bound_turns turns, bool *stopped, harpe_error *error);

#endif
