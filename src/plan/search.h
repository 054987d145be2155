/* SPDX-License-Identifier: Apache-2.0 */
/* Improves drafts of plans: by local search, by dives, and by joining neighbours. Each function
 * works on all drafts, on the threads of a crew, and always does the same work. */
#ifndef HARPE_PLAN_SEARCH_H
#define HARPE_PLAN_SEARCH_H

#include "plan/crew.h"

/* Problems with more instructions get no dive, because the time of a dive grows faster than the
 * number of instructions. */
#define HARPE_MOST_DIVED 2000

/* Dives at the solver's time with the tools of one thread, and improves the result by local search
 * that recomputes at most `visits` positions. If `*found` becomes true, tools->assignment has the
 * result. */
harpe_status harpe_search_dive(harpe_tools *tools, const harpe_frontier_solver *solver, int width,
                               uint64_t visits, bool *found, harpe_error *error);

/* A plan that is not finished. */
typedef struct harpe_draft {
    int32_t *option;     /* by position, as in harpe_assignment */
    int64_t deadline_ps; /* longest time of the draft */
    int64_t longest_ps;  /* if changes have a cost, longest time of the plan, even above T* */
    int64_t *price_uw;   /* if changes have a cost, the relaxation's price of each instruction */
    bool is_asked;       /* deadline_ps is a time that was asked for */
    double time_s, energy_j; /* blocking included */
    int *frequency_mhz; /* the finished plan, by instruction; NULL before harpe_search_finish */
} harpe_draft;

typedef struct harpe_search {
    const harpe_problem *problem;
    const harpe_frontier *frontier;
    const harpe_frontier_solver *fastest; /* at T_min; no thread walks there again */
    harpe_crew *crew;
    harpe_draft *drafts;
    size_t draft_count;
    /* Receives the part of a function's work that is done, 0 to 1. Returns false to stop. NULL:
     * none. */
    bool (*report)(void *user, double done);
    void *user;
} harpe_search;

/* Copies an assignment into a draft, but not the deadline. */
void harpe_draft_take(harpe_draft *draft, const harpe_assignment *assignment);

/* Improves each draft by local search, and then by a dive at its deadline, unless the problem
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
