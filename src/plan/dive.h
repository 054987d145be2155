/* SPDX-License-Identifier: Apache-2.0 */
/* Searches plans with the relaxation. A dive fixes the instructions one after another to measured
 * options. For each it solves the relaxation of the rest with up to four options, and keeps the
 * cheapest. All stages of a pipeline can be critical at once; to make a single instruction faster
 * then frees nothing, and local search finds no better plan. The relaxation moves the others along.
 *
 * A window is a small set of instructions of a plan that are released and dived again, while all
 * others keep their options. The relaxation of a window has only the window's events; each longest
 * path outside of the window becomes one edge of fixed length. If the optimum of this relaxation is
 * not below the window's energy, no other options of the window can be better. */
#ifndef HARPE_PLAN_DIVE_H
#define HARPE_PLAN_DIVE_H

#include "plan/beam.h"

/* The order in which a dive fixes instructions. */
typedef enum harpe_dive_order {
    HARPE_DIVE_FORWARDS,  /* as they start */
    HARPE_DIVE_BACKWARDS, /* the last one first */
    HARPE_DIVE_OUTWARDS,  /* from the middle of the iteration to both ends */
    HARPE_DIVE_INWARDS,   /* from both ends to the middle */
    HARPE_DIVE_ORDERS,
} harpe_dive_order;

typedef struct harpe_diver {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_network *network;
    const harpe_relaxation_curves *curves;
    int64_t deadline_ps;
    int32_t *option;        /* [instruction]: the present plan */
    double energy_j;        /* effective energy of the present plan */
    harpe_relaxation whole; /* allocated by the first dive */
    harpe_relaxation part;  /* of a window */
    harpe_beam whole_beam, part_beam;
    /* The instructions of the present dive. Edge k of its relaxation is instruction
     * instruction_of[k]. */
    int32_t *instruction_of, *fixed_option; /* fixed_option -1: free */
    int32_t *order;
    int32_t free_count;
    double *key;
    /* Working memory for windows. */
    int32_t *place;           /* [node]: index in the topological order */
    int64_t *after_source_ps; /* [node]: longest path from the source outside of the window */
    int64_t *before_sink_ps;  /* [node]: longest path to the sink outside of the window */
    int64_t *reach_ps;        /* [node] */
    int32_t *number;          /* [node]: number in the window's graph, -1: outside */
    int32_t *node_at;         /* [number] */
    uint8_t *is_released;     /* [instruction] */
    int32_t microbatch_count;
    uint64_t random;
    uint64_t visits; /* work done, in events touched */
    /* Called during a dive. Returns true to end it without a result. NULL: none. */
    bool (*is_over)(void *user);
    void *user;
} harpe_diver;

harpe_status harpe_diver_init(harpe_diver *diver, const harpe_problem *problem,
                              const harpe_network *network, const harpe_relaxation_curves *curves,
                              harpe_error *error);
void harpe_diver_clear(harpe_diver *diver);

/* Dives from the solution of a walk at its present iteration time, which becomes the deadline, with
 * a beam of `width` (at least 1). The result is the present plan. `*found` is false if the dive
 * ends without a plan; the present plan is then not valid. */
harpe_status harpe_diver_dive(harpe_diver *diver, const harpe_frontier_solver *solver,
                              harpe_dive_order order, int width, bool *found, harpe_error *error);

/* Takes a plan (options by instruction) that meets the deadline as the present plan. */
void harpe_diver_take(harpe_diver *diver, const int32_t *option, int64_t deadline_ps);

/* Improves the present plan by windows, until about `visit_budget` events were touched. The result
 * depends only on the plan, the budget and the diver's random state. */
void harpe_diver_improve(harpe_diver *diver, uint64_t visit_budget);

#endif
