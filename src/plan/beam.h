/* SPDX-License-Identifier: Apache-2.0 */
/* Fixes the instructions of a relaxation one after another to measured options. For each
 * instruction it solves the relaxation of the rest with up to four options near the instruction's
 * duration. A beam search keeps the best few ways to fix the instructions so far, its width, not
 * only the best one: which of two options is better often shows only a few instructions later. */
#ifndef HARPE_PLAN_BEAM_H
#define HARPE_PLAN_BEAM_H

#include "plan/problem.h"
#include "plan/relaxation_state.h"

typedef struct harpe_beam {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_relaxation_curves *curves;
    double same_bound_j;
    size_t most_nodes, most_edges, most_instructions;
    int most_width, slot_count;
    /* Each way to fix the instructions so far has a slot: a solution of its relaxation, and the
     * options that are fixed. Slots are allocated when they are first needed. */
    harpe_relaxation_state *state; /* [slot] */
    int32_t **fixed;               /* [slot][edge] */
    int *alive, *next_alive;       /* slots in use, the lowest bound first */
    int alive_count;
    uint8_t *is_taken;          /* [slot]: working memory */
    struct harpe_beam_way *way; /* [width]: the best ways to fix one more instruction */
    int way_count;
    double energy_j; /* of the result, without blocking energy */
    /* Called before each instruction. Returns true to end the search. NULL: none. */
    bool (*is_over)(void *user);
    void *user;
} harpe_beam;

/* Prepares for relaxations of at most so many events, edges and instructions, and a width of at
 * most `most_width`. */
harpe_status harpe_beam_init(harpe_beam *beam, const harpe_problem *problem,
                             const harpe_relaxation_curves *curves, size_t most_nodes,
                             size_t most_edges, size_t most_instructions, int most_width,
                             harpe_error *error);
void harpe_beam_clear(harpe_beam *beam);

/* Fixes the instructions of an optimal solution of a relaxation. Edge k is instruction
 * instruction_of[k]; `order` lists `count` edges. Writes the options by edge. Returns false if no
 * plan below `limit_j` is found, if the search is ended, or if there is no memory for a single
 * slot. The relaxation then needs a new beginning. With less memory for slots the width is smaller.
 * The result depends only on the arguments. */
bool harpe_beam_fix(harpe_beam *beam, harpe_relaxation *relaxation, const int32_t *instruction_of,
                    const int32_t *order, int32_t count, int width, double limit_j,
                    int32_t *option);

#endif
