/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds a small part of a plan, a block, by branch and bound.
 *
 * The instructions of a problem are split into blocks. The relaxation's flow at some iteration time
 * says what a second at each event costs. If the events that two blocks share may have another time
 * in each of them, at this cost, then the blocks are independent of each other, and the sum of
 * their optima is a lower bound for the whole (Lagrangian relaxation; Geoffrion 1974). If the
 * durations of a block come from its curves, this sum is the bound that the relaxation gives. A
 * block is small enough to find its optimum with measured options only, or to get near it, and the
 * sum is then a higher bound.
 *
 * Times are in picoseconds, flows in microwatts, energies in joules without blocking energy. */
#ifndef HARPE_PLAN_BLOCK_H
#define HARPE_PLAN_BLOCK_H

#include "plan/relaxation.h"

/* The most instructions of a block, and the most dependencies that keep their place in it. */
#define HARPE_BLOCK_MOST_MEMBERS 64
#define HARPE_BLOCK_MOST_WAITS 256

/* A division of a problem into blocks, and what events cost. Arrays belong to the caller. */
typedef struct harpe_division {
    bool is_flat; /* the end of the iteration costs nothing; it must only meet the deadline */
    int64_t deadline_ps;        /* the bounds hold for iterations of at most this time */
    const int64_t *flow_uw;     /* [edge of the network]: conserved at each event */
    const int32_t *block_of;    /* [edge]: a block, or -1 for a dependency that belongs to none */
    const int64_t *earliest_ps; /* [event]: longest path from the source, at the fastest options */
    const int64_t *before_end_ps; /* [event]: longest path to the sink, at the fastest options */
} harpe_division;

/* A part of the options of a block: one instruction has only its options `first` to `last`, and the
 * others have those of the parent. */
typedef struct harpe_block_box {
    double bound_j;
    int32_t parent; /* -1: the box of all options */
    int32_t member; /* whose options are limited; -1: none */
    int32_t first, last;
    bool is_open; /* not divided further */
} harpe_block_box;

typedef struct harpe_block {
    harpe_arena arena;
    const harpe_problem *problem;
    const harpe_network *network;
    const harpe_relaxation_curves *curves;
    const harpe_division *division;
    harpe_relaxation relaxation; /* edge k < member_count is instruction instruction_of[k] */
    int32_t member_count, wait_count;
    int32_t *instruction_of;  /* [member] */
    int32_t *wait_of;         /* [wait]: edge of the network; edge member_count + k here */
    int32_t *place;           /* [event of the network]: index in the topological order */
    int32_t *number;          /* [event of the network]: its number here, -1: none */
    int32_t *event_at;        /* [number] */
    int64_t *balance_uw;      /* [number]: flow into the event minus flow out of it */
    int64_t (*price_time)[2]; /* [number]: curve of the event's price */
    int64_t (*price_rate)[3];
    double (*price_energy)[2];
    harpe_relaxation_curve *price;
    int32_t *first, *last; /* [member]: the present box */
    int32_t *order;        /* working memory */
    uint32_t *stamp;
    uint32_t present_stamp;
    harpe_block_box *boxes;
    size_t box_count, box_capacity;
    int32_t *open; /* heap of open boxes, the lowest bound first */
    size_t open_count, open_capacity;
    harpe_arena curve_arena;        /* curves of parts of the options */
    harpe_relaxation_curve ***part; /* [choice][first * options + last]; NULL: not made yet */
    uint64_t solved;                /* relaxations solved, as a measure of work */
    /* Called for each box. Returns true to end the search. NULL: none. */
    bool (*is_over)(void *user);
    void *user;
} harpe_block;

harpe_status harpe_block_init(harpe_block *block, const harpe_problem *problem,
                              const harpe_network *network, const harpe_relaxation_curves *curves,
                              harpe_error *error);
void harpe_block_clear(harpe_block *block);

/* Writes a lower bound of one block: the least sum, over its instructions, of effective energy, and
 * over its events, of time times balance. Divides boxes until the bound is the optimum
 * (`*is_exact`), or `most_boxes` were made. The division must live until the next call. The result
 * depends only on the arguments. */
harpe_status harpe_block_bound(harpe_block *block, const harpe_division *division, int32_t number,
                               size_t most_boxes, double *bound_j, bool *is_exact,
                               harpe_error *error);

/* Writes the options of the optimum that the last call has found, by instruction of the problem, if
 * it was exact. Leaves the options of other instructions as they are. */
void harpe_block_read(const harpe_block *block, int32_t *option);

/* Solves the relaxation of a box of the last call again, so that its flow can be read from
 * `block->relaxation`. Returns false if no durations of this box meet the deadline. */
bool harpe_block_enter(harpe_block *block, size_t box);

#endif
