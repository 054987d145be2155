/* SPDX-License-Identifier: Apache-2.0 */
/* A lower bound for plans of measured options that is higher than the relaxation's: the sum of the
 * bounds of blocks (block.h). */
#ifndef HARPE_PLAN_TIGHT_BOUND_H
#define HARPE_PLAN_TIGHT_BOUND_H

#include "plan/block.h"
#include "plan/frontier_solver.h"

/* Watts by which each instruction's part of a bound may be too high or too low, times the deadline.
 * Rates are rounded down to whole microwatts, so a box can have a bound that is lower by this
 * rounding than that of the box around it. */
#define HARPE_FLOW_ROUNDING_W 4e-6

/* Returns a deadline in ps for the proof of a bound for plans of a time. The evaluated time of a
 * plan is a sum of doubles, and each of its terms is rounded down to a picosecond in the proof. */
int64_t harpe_cut_deadline_ps(int64_t time_ps, int32_t instruction_count);

/* A bound that is a straight line: no plan of t seconds, if this is at most the deadline, needs
 * less than energy_j + slope_w * t, blocking and overhead included. */
typedef struct harpe_cut {
    int64_t deadline_ps; /* as harpe_cut_deadline_ps returns it; 0: no bound */
    int64_t flow_ps;     /* the iteration time whose flow the proof uses; written with the bound */
    double energy_j, slope_w;
    /* How it was found, so that it can be found again. */
    /* If true, the slope is the power of the iteration, and the bound is for all plans within the
     * deadline, whatever their time. Otherwise the slope is that of the relaxation. */
    bool is_flat;
    int ranks_together; /* the ranks of a block */
    size_t block_size;  /* instructions of a block, at most HARPE_BLOCK_MOST_MEMBERS */
    size_t missing;     /* instructions that the first block has less than the others */
    size_t most_boxes;  /* of a block */
    /* Above 0: the bound is for a graph with deadlines, and was found for its variant at this time,
     * in which the iteration ends at the deadline of the bound. */
    int64_t variant_ps;
    bool is_exact; /* no bound is higher: there is only one block, and it is exact */
} harpe_cut;

typedef struct harpe_bounder {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_network *network;
    harpe_block block;
    harpe_division division;
    int64_t *flow_uw;                     /* [edge] */
    int32_t *block_of;                    /* [edge] */
    int32_t *block_at;                    /* [event]: a block of its instructions */
    int64_t *earliest_ps, *before_end_ps; /* [event] */
    int32_t *order;                       /* [instruction] */
    double *key;                          /* [instruction] */
    int32_t *wait_count;                  /* [block] */
    int32_t block_count;
} harpe_bounder;

harpe_status harpe_bounder_init(harpe_bounder *bounder, const harpe_problem *problem,
                                const harpe_network *network, const harpe_relaxation_curves *curves,
                                harpe_error *error);
void harpe_bounder_clear(harpe_bounder *bounder);

/* Divides the problem into blocks of about `cut->block_size` instructions, with the flow and the
 * times of a walk, and writes the sum of their bounds. The deadline and the members
 * that say how to find the bound must be set. The deadline may be any time; the bound is highest if
 * the walk is there. */
harpe_status harpe_bounder_cut(harpe_bounder *bounder, const harpe_frontier_solver *solver,
                               harpe_cut *cut, harpe_error *error);

/* Turns the bound of a variant into one for the graph with deadlines, whatever the time of a plan
 * within the deadline. A faster plan is one of the variant if the iteration waits for its end.
 * Returns false if the bound says nothing about iterations of the variant's time, and therefore
 * nothing about the graph. */
bool harpe_cut_end_at(harpe_cut *cut, int64_t variant_ps, double iteration_w);

/* The parts of harpe_bounder_cut, to do it again: divides, and bounds one block. */
void harpe_bounder_divide(harpe_bounder *bounder, const harpe_frontier_solver *solver,
                          const harpe_cut *cut);
harpe_status harpe_bounder_block(harpe_bounder *bounder, const harpe_cut *cut, int32_t number,
                                 double *bound_j, bool *is_exact, harpe_error *error);

/* Returns the bound at a time; -INFINITY if the cut says nothing about it. The deadline must be
 * longer than the time by more than the rounding of a sum of doubles. */
double harpe_cut_at(const harpe_cut *cut, double time_s);

#endif
