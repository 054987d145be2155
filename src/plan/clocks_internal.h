/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in which each clock holds for a minimum time, and their bound. Private to src/plan. */
#ifndef HARPE_PLAN_CLOCKS_INTERNAL_H
#define HARPE_PLAN_CLOCKS_INTERNAL_H

#include "plan/problem.h"
#include "plan/solver.h"

/* ---- Clocks of a rank ------------------------------------------------------------------------ */

/* Chooses the clocks of one rank for given prices of time, exactly, by dynamic programming over
 * runs: a run is a part of the rank's list that has one clock. clock_runs.c makes plans with it,
 * and clock_bound.c proves a lower bound. */

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

/* ---- Bound ----------------------------------------------------------------------------------- */

/* A lower bound for plans whose changes of clock take time or cost energy.
 *
 * The proof. Take any flow through the network (solver.h) that is conserved at every node, F W in
 * all from source to sink, and any plan of the time t <= T. Add, over all edges, flow times (time
 * of the tail + length - time of the head): because the flow is conserved, the times of all nodes
 * but source and sink cancel. The energy of the plan is therefore exactly (P - F) t, where P is the
 * power of the whole iteration, plus, for each instruction, its effective energy and its flow times
 * its duration, plus, for each edge, its flow times its slack, plus the energy of the changes. A
 * wait of a rank is slack of the edges between two neighbours of its list, so a second of it costs
 * at least the least flow of these edges. All other slack costs at least 0. The
 * remaining sum has one part for each rank. If a rank changes its clock, the runs of instructions
 * at one clock form a circle, and each of them lasts, with the waits in it and after it, as long as
 * its clock must hold; a run that is shorter waits for what is missing, at no less than the least
 * price of its waits. rank_clocks.c finds the least cost of a rank exactly, but for the run that
 * contains the cut of the circle, which need not hold, and is thus never above the plan's. Runs
 * that no iteration of at most T has room for are left out; so are all changes if T has no room for
 * two clocks that hold. As F >= P, the sum is least at t = T. Where doubles do not quite conserve
 * the flow, the times of the nodes, at most T, do not quite cancel, and the bound is lowered by
 * what is lost times T. */

typedef struct harpe_flow {
    const harpe_network *network;
    double total_w;
    double *edge_w; /* [edge], >= 0 */
    double *time_s; /* [node]: near the times that explain the lengths of the last step */
    double *memory; /* 4 numbers for each node */
} harpe_flow;

typedef struct harpe_clock_bound {
    harpe_rank_clocks clocks;
    harpe_rank_proof proof;
    harpe_flow flow;
    harpe_arena arena;
    double best_j, best_total_w, *best_w; /* of the flow that proves most; [edge] */
    double *length_s;                     /* [edge]: mean of the last steps */
    int32_t *wait_edge;       /* [instruction]: the edge of the wait before it, or below 0 */
    double *wait_w;           /* [instruction]: its price */
    double *early_s, *tail_s; /* [instruction]: the least time before its start, after its end */
    bool *is_free; /* [rank]: its instructions have no clock in common, so it need not hold one */
} harpe_clock_bound;

harpe_status harpe_clock_bound_init(harpe_clock_bound *bound, const harpe_problem *problem,
                                    const harpe_clock_switch *cost, const harpe_network *network,
                                    harpe_error *error);
void harpe_clock_bound_clear(harpe_clock_bound *bound);

/* Adds to the walk's frontier the bound that its present flow proves for plans that take at most
 * `longest_s`. */
harpe_status harpe_clock_bound_add(harpe_clock_bound *bound, harpe_walk *walk, double longest_s,
                                   harpe_error *error);

/* ---- Runs of one clock ----------------------------------------------------------------------- */

/* Makes plans in which each clock holds for a minimum time. */

/* Searches plans that take at most `deadline_s` and need little energy, with that of the changes of
 * clock. The instructions between two changes take at least as long as a clock must hold
 * (harpe_clock_switch_hold_s). On a rank whose instructions have no clock in common, clocks hold if
 * they can; if they cannot, the rank has as few changes as possible. If no plan is fast enough, the
 * time of the fastest plan found takes the place of the deadline. `price_uw` has the price of a
 * second of each instruction in microwatts: the flow of the relaxation near the deadline.
 * `frequency_mhz` receives the best plans found, one after the other, the best first, and `*found`
 * their number, from 1 to `room`; `room` is at most 16. The work grows with the instructions times
 * the clocks of a rank. The same arguments give the same plans. */
harpe_status harpe_clock_runs_find(const harpe_problem *problem, const harpe_clock_switch *cost,
                                   const int64_t *price_uw, double deadline_s, size_t room,
                                   int *frequency_mhz, size_t *found, harpe_error *error);

/* ---- Moves of changes ------------------------------------------------------------------------ */

/* Improves a plan with few changes of clock: moves its changes, removes some, and adds some where
 * they pay. */

/* Improves `count` plans, which are one after the other in `plans_mhz` and are scratch afterwards,
 * and writes the best into `frequency_mhz`. The clocks of a plan must hold
 * (harpe_clock_switch_hold_s), and so do those of the result, which takes at most `deadline_s`, or
 * as long as the plan if that is longer, and needs at most as much energy. A plan whose clocks do
 * not hold is not improved; if this is true of all, the result is the first. The work grows with
 * the square of the instructions; it is limited. */
harpe_status harpe_change_moves_improve(const harpe_problem *problem,
                                        const harpe_clock_switch *cost, double deadline_s,
                                        int *plans_mhz, size_t count, int *frequency_mhz,
                                        harpe_error *error);

#endif
