/* SPDX-License-Identifier: Apache-2.0 */
/* Searches plans with the relaxation. A dive fixes the instructions to measured options one after
 * another, the last one first. For each instruction, the dive solves the relaxation of the others
 * with up to four options near the instruction's duration. All stages of a pipeline can be critical
 * at once; to make a single instruction faster then frees nothing, and local search finds no better
 * plan. The relaxation moves the others along.
 *
 * Which of two options is better often shows only a few instructions later. A dive therefore keeps
 * several ways to fix the instructions so far, those with the lowest bounds (beam search). Their
 * number is the dive's width. */
#ifndef HARPE_PLAN_DIVE_H
#define HARPE_PLAN_DIVE_H

#include "plan/problem.h"
#include "plan/relaxation.h"

typedef struct harpe_diver {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_network *network;
    const harpe_relaxation_curves *curves;
    int32_t *option;             /* [instruction]: the plan of the last dive */
    double energy_j;             /* its effective energy */
    harpe_relaxation relaxation; /* allocated by the first dive, as all that follows */
    int32_t *order;              /* [instruction] */
    int64_t *start_ps;           /* [instruction] */
    double same_bound_j;
    int most_width, slot_count;
    /* Each way to fix the instructions so far has a slot: a solution of its relaxation, and the
     * options that are fixed. Slots are allocated when they are first needed. */
    harpe_relaxation_state *state; /* [slot] */
    int32_t **fixed;               /* [slot][instruction] */
    int *alive, *next_alive;       /* slots in use, the lowest bound first */
    int alive_count;
    uint8_t *is_taken;          /* [slot]: working memory */
    struct harpe_dive_way *way; /* [width]: the best ways to fix one more instruction */
    int way_count;
    /* Called before each instruction. Returns true to end the dive. NULL: none. */
    bool (*is_over)(void *user);
    void *user;
} harpe_diver;

/* The problem, the network and the curves must outlive the diver. */
harpe_diver harpe_diver_make(const harpe_problem *problem, const harpe_network *network,
                             const harpe_relaxation_curves *curves);
void harpe_diver_clear(harpe_diver *diver);

/* Dives from the solution of a walk at its present iteration time, which becomes the deadline. The
 * width is at least 1, and smaller than `width` if memory is short. The result depends only on the
 * walk's solution and the width. `*found` is false if the dive was ended; there is no
 * plan then. */
harpe_status harpe_diver_dive(harpe_diver *diver, const harpe_frontier_solver *solver, int width,
                              bool *found, harpe_error *error);

#endif
