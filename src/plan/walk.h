/* SPDX-License-Identifier: Apache-2.0 */
/* Walks along the frontier: drives the solver from the minimum-energy time T* to T_min, records
 * the vertices on the way, and stops at the times of plans. The solver knows only events and flow;
 * the public frontier and plan sets use this file. */
#ifndef HARPE_PLAN_WALK_H
#define HARPE_PLAN_WALK_H

#include <stdbool.h>

#include "plan/assignment.h"
#include "plan/frontier_solver.h"

/* A lower bound for plans that take at most `longest_s`: at_0_j + slope_w * time. */
typedef struct harpe_bound_line {
    double longest_s, at_0_j, slope_w;
} harpe_bound_line;

struct harpe_frontier {
    harpe_frontier_vertex *vertices; /* slowest first during the walk, then fastest first */
    size_t count, capacity;
    harpe_bound_line *lines; /* for plans whose clocks hold; see clock_bound.h */
    size_t line_count, line_capacity;
    harpe_frontier_vertex *bound; /* corners of the bound with these lines; NULL: the vertices */
    size_t bound_count;
    double change_j;          /* energy of a change of clock; the lines contain the changes */
    double iteration_power_w; /* of the problem: blocking power of all ranks, and overhead */
    harpe_work work;
};

/* Returns the optimum of the relaxation: the bound of plans whose clocks change at once and without
 * energy. */
double harpe_frontier_relaxed_at(const harpe_frontier *frontier, double time_s);

/* Returns a lower bound of the energy, without that of the changes of clock, of all plans that take
 * as long as `plan` and have at most as many changes. */
double harpe_frontier_bound_of(const harpe_frontier *frontier, const harpe_problem *problem,
                               const harpe_plan *plan);

typedef struct harpe_walk {
    const harpe_problem *problem;
    const harpe_progress *progress; /* NULL: none */
    harpe_network network;
    harpe_frontier_solver solver;
    harpe_frontier frontier;
    bool in_segment;           /* the solver is on a segment whose end it has not reached */
    int64_t slowest_ps;        /* time at which the solver began */
    int64_t minimum_energy_ps; /* T* */
    int64_t fastest_ps;        /* T_min */
    uint32_t steps;            /* segments since the last report of progress */
} harpe_walk;

/* Returns how far a time may be below T_min and still count as T_min. */
double harpe_time_slack_s(double iteration_s);

/* Builds the network and walks to T*. After a failure there is nothing to clear. */
harpe_status harpe_walk_begin(harpe_walk *walk, const harpe_problem *problem,
                              const harpe_progress *progress, harpe_error *error);

/* Builds the network and stays at the longest iteration that is of use if the job takes a given
 * time: all instructions at their least effective energy. Vertices above T* are then recorded too,
 * and minimum_energy_ps is the time at which the walk begins. After a failure there is nothing to
 * clear. */
harpe_status harpe_walk_begin_slowest(harpe_walk *walk, const harpe_problem *problem,
                                      harpe_error *error);

/* Walks down to `time_ps` (not below T_min, not above the current time). */
harpe_status harpe_walk_to(harpe_walk *walk, int64_t time_ps, harpe_error *error);

/* Walks down to the next vertex. Stays at T_min. */
harpe_status harpe_walk_to_next_vertex(harpe_walk *walk, harpe_error *error);

/* Writes the optimal durations and prices at the current time. The arrays have room for all
 * instructions. */
void harpe_walk_read(const harpe_walk *walk, harpe_relaxed *relaxed);

/* Returns the lower bound (blocking included) at a time. For a time not walked yet, uses the
 * current slope. */
double harpe_walk_bound_j(const harpe_walk *walk, double time_s);

/* Walks to T_min, closes the list of vertices, joins them with the lines, and passes the frontier
 * to the caller. */
harpe_status harpe_walk_finish(harpe_walk *walk, harpe_frontier **out, harpe_error *error);

/* Does the same as harpe_walk_finish, but ends the walk at `time_ps`, which must be on the
 * frontier. */
harpe_status harpe_walk_finish_at(harpe_walk *walk, int64_t time_ps, harpe_frontier **out,
                                  harpe_error *error);

void harpe_walk_clear(harpe_walk *walk);

#endif
