/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of plans, and what a thread of a crew does with one of them. */
#ifndef HARPE_PLAN_DRAFT_H
#define HARPE_PLAN_DRAFT_H

#include "plan/crew.h"

/* Larger problems are not dived, because the time of a dive grows faster than the number of
 * instructions. */
#define HARPE_MOST_DIVED 2000
/* A relative gap below this is a rounding error: the draft cannot be improved. */
#define HARPE_CLOSED_GAP 1e-10

/* A plan that is not finished. */
typedef struct harpe_draft {
    int32_t *option;     /* by position, as in harpe_assignment */
    int64_t deadline_ps; /* the draft takes at most this time */
    int64_t longest_ps;  /* with a cost of changes, the plan may take this time, even above T* */
    int64_t *price_uw;   /* of the relaxation, by instruction, if changes have a cost; else NULL */
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

/* Returns the distance of a draft to the relaxation's bound at its deadline, relative to the
 * bound. */
double harpe_draft_gap(const harpe_frontier *frontier, const harpe_draft *draft);

/* Replaces the draft by the assignment if this needs less energy. */
void harpe_draft_keep_better(const harpe_search *search, harpe_draft *draft,
                             const harpe_assignment *assignment);

/* Dives at the draft's deadline, and keeps the result if it is better. */
harpe_status harpe_draft_dive(const harpe_search *search, harpe_tools *tools, harpe_draft *draft,
                              int width, harpe_error *error);

/* Writes the numbers of the drafts, the one with the slowest deadline first. Free `*order`. */
harpe_status harpe_draft_order(const harpe_search *search, size_t **order, harpe_error *error);

#endif
