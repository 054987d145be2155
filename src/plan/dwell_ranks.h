/* SPDX-License-Identifier: Apache-2.0 */
/* The search for plans with few groups, such as one clock for each rank. It remembers long paths
 * through the iteration, and knows from them that most changes miss the deadline without computing
 * the iteration. Private to src/plan. */
#ifndef HARPE_PLAN_DWELL_RANKS_H
#define HARPE_PLAN_DWELL_RANKS_H

#include "plan/dwell_groups.h"

#define HARPE_DWELL_MOST_RANKS 32

typedef struct harpe_rank_search {
    harpe_groups *groups;
    double *path_s; /* [path][clock]: its time in the clock's group at this clock; then its fixed
                       time */
    int path_count, next_path; /* the path that is replaced next if there is no room */
    int hint;                  /* the path that was too long last */
    int32_t applied[HARPE_DWELL_MOST_RANKS]; /* [group]: the clock that its times are those of */
    uint64_t random, limit;
} harpe_rank_search;

/* Begins with the groups as they are, at most HARPE_DWELL_MOST_RANKS. They are not divided again
 * while the search is in use. */
harpe_status harpe_rank_search_init(harpe_rank_search *search, harpe_groups *groups,
                                    harpe_error *error);
void harpe_rank_search_clear(harpe_rank_search *search);

/* Improve the present plan of the groups, which needs `best_j`, leave the best plan found as the
 * present one, and return its energy. The first changes one or two clocks until that saves nothing.
 * The second tries all plans, as far as a limit of work allows; `*is_complete`: all were tried, and
 * the plan is the best. The third makes some groups faster by chance, many times, and improves the
 * result. */
double harpe_rank_search_improve(harpe_rank_search *search, double best_j);
double harpe_rank_search_all(harpe_rank_search *search, double best_j, bool *is_complete);
double harpe_rank_search_repeat(harpe_rank_search *search, double best_j);

#endif
