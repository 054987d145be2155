/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the clocks of one rank for given prices of time, exactly, by dynamic programming over
 * runs: a run is a part of the rank's list that has one clock. clock_runs.c makes plans with it,
 * and clock_bound.c proves a lower bound. Private to src/plan. */
#ifndef HARPE_PLAN_RANK_CLOCKS_H
#define HARPE_PLAN_RANK_CLOCKS_H

#include "plan/problem.h"

/* The instructions of a rank, and the clocks that they were measured at. */
typedef struct harpe_rank_run {
    int32_t first, length;
    int32_t shift; /* where in the list the first run begins. The last one may end in the next
                    * iteration. */
    int clock_count;
    const int *clock_mhz;        /* the highest first */
    int low, end;                /* the clocks that may be chosen: places in clock_mhz */
    double hold_s, least_hold_s; /* how long a clock must hold: the longest and the shortest time
                                  * over the clocks of the rank */
    double change_j;             /* the energy of a change */
} harpe_rank_run;

/* The further input and memory of a proof. In a proof, the runs of a rank form a circle, which is
 * cut before an instruction, and a run that is too short waits. */
typedef struct harpe_rank_proof {
    const double *wait_w; /* [instruction]: price of a second of waiting before it; for the first of
                           * a rank between two iterations */
    const double *early_s, *tail_s; /* [instruction]: the least time before its start, and after its
                                     * end */
    double longest_s;               /* no iteration takes longer */
    double *wait_s; /* [instruction]: how long the chosen clocks wait before it, where they must */
    int32_t *queue; /* [clock][place + 1]: starts of runs, the cheapest first */
    int32_t *queue_at, *queue_end; /* [clock] */
    int32_t *least_first;          /* [clock]: a run that begins before this place is too long */
} harpe_rank_proof;

/* The last run before a place: where it begins, its clock, and the cost of all instructions before
 * the place. */
typedef struct harpe_last_run {
    double cost_j;
    int32_t first, clock;
} harpe_last_run;

typedef struct harpe_rank_clocks {
    const harpe_problem *problem;
    const harpe_clock_switch *cost;
    harpe_arena arena;
    harpe_rank_run *ranks; /* [rank] */
    int most_clocks;
    int32_t longest;                    /* instructions of a rank, at most */
    const harpe_profile_point **points; /* [choice][clock of its rank]; NULL: not measured */
    double *effective_j, *point_s;      /* [choice][clock of its rank] */
    double *price_w;                    /* [instruction]: price of a second; the caller's */
    double *fastest_s;                  /* [instruction] */
    double *most_s;        /* [instruction]: longest time, see harpe_rank_clocks_limit */
    bool ignores_most;     /* instructions may take longer than most_s */
    int32_t *clock;        /* [instruction]: chosen, a place in clock_mhz; -1: it has no clocks */
    double *sum_j, *sum_s; /* [place][clock]: over the instructions before the place */
    harpe_last_run *last;  /* [place][2]: the cheapest last runs before it, with two clocks */
    /* For runs at each clock that end at the present place: where the cheapest run begins that is
     * long enough, its cost up to the sums, and the first place from which a run is too short. */
    int32_t *open_first;
    double *open_j;
    int32_t *next_first;
    bool *is_whole;          /* [clock]: all instructions before the present place can run at it */
    bool *begins_run;        /* [place]: whether a run may begin there */
    harpe_rank_proof *proof; /* NULL: plans are made, and runs do not wait */
} harpe_rank_clocks;

/* Lists the clocks and points of all ranks. Prices and longest times are 0. */
harpe_status harpe_rank_clocks_init(harpe_rank_clocks *clocks, const harpe_problem *problem,
                                    const harpe_clock_switch *cost, harpe_error *error);
void harpe_rank_clocks_clear(harpe_rank_clocks *clocks);

/* Leaves out clocks at which no iteration takes at most `longest_s`. Writes the earliest end of
 * each instruction, and the least time after its end, if all are at their fastest. */
void harpe_rank_clocks_limit(harpe_rank_clocks *clocks, double longest_s, double *end_s,
                             double *tail_s);

/* Chooses the clocks of a rank for the least sum of effective energies, prices and changes, such
 * that each run of instructions at one clock takes as long as a clock must hold. Returns this sum,
 * or INFINITY if no clocks hold; `clock` is then as before. */
double harpe_rank_clocks_choose(harpe_rank_clocks *clocks, const harpe_rank_run *rank);

#endif
