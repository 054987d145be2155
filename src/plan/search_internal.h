/* SPDX-License-Identifier: Apache-2.0 */
/* The search for better plans than those that rounding gives. Private to src/plan. */
#ifndef HARPE_PLAN_SEARCH_INTERNAL_H
#define HARPE_PLAN_SEARCH_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "plan/problem.h"
#include "plan/solver.h"

/* ---- Relaxation at one time ------------------------------------------------------------------ */

/* Solves the relaxation at one iteration time, again and again while single instructions are fixed
 * to a measured option or released. The walk along the frontier (solver.h) changes the
 * iteration time and keeps the curves; this solver keeps the iteration time and changes curves.
 *
 * The dual of the relaxation is a circulation of maximum gain: the graph of events, with one more
 * edge of length -T from the sink to the source. Every flow is feasible for every curve, because
 * the only limit of a flow is that it is not negative. After a change of a curve the last flow is
 * therefore still feasible, and a few pivots of the primal network simplex method make it optimal
 * again. The objective of any feasible flow is a lower bound, so a trial can stop as soon as it is
 * above a known value.
 *
 * The spanning tree is strongly feasible (flow can be sent from the root to each event), so pivots
 * that move no flow cannot cycle. Changes of curves keep this property.
 *
 * Times are in picoseconds, flows in microwatts, energies in joules without blocking energy. */

/* A convex cost; the members are those of harpe_network_curve, and the energy of each point
 * according to the rounded rates. */
typedef struct harpe_relaxation_curve {
    int32_t segment_count;
    const int64_t *time_ps; /* [segment_count + 1] */
    const int64_t *rate_uw; /* [segment_count + 2] */
    const double *energy_j; /* [segment_count + 1] */
} harpe_relaxation_curve;

/* The curves of a problem. They do not change, and several solvers may share them. */
typedef struct harpe_relaxation_curves {
    harpe_arena arena;
    harpe_relaxation_curve *hull;   /* [choice]: free; then one for each wait of the network */
    harpe_relaxation_curve *option; /* one for each option of each choice: fixed */
    int32_t *first_option;          /* [choice + 1]: index of its first option */
    int64_t *option_time_ps;        /* [option] */
    double *option_energy_j;        /* [option], effective */
} harpe_relaxation_curves;

harpe_status harpe_relaxation_curves_init(harpe_relaxation_curves *curves,
                                          const harpe_problem *problem,
                                          const harpe_network *network, harpe_error *error);
void harpe_relaxation_curves_clear(harpe_relaxation_curves *curves);

/* The flow of an edge. An edge outside of the tree has the lowest flow of its segment, except
 * between a change of its curve and the next pivots. */
typedef struct harpe_relaxation_edge {
    const harpe_relaxation_curve *curve;
    int64_t flow, lowest, highest;
    int32_t tail, head;
    int32_t segment;
} harpe_relaxation_edge;

/* A solution: the part of a relaxation that pivots change. */
typedef struct harpe_relaxation_state {
    harpe_relaxation_edge *edges;
    int64_t *position;             /* time of each event, relative to the others */
    int32_t *parent, *parent_edge; /* the tree; the root is the source */
    int32_t *suspects;             /* edges that may violate the optimality conditions */
    uint8_t *is_suspect;
    int32_t suspect_count, next_suspect;
    double objective_j; /* of the flow */
} harpe_relaxation_state;

typedef struct harpe_relaxation {
    harpe_arena arena;
    int32_t node_count, edge_count;
    int32_t source, sink;
    int64_t deadline_ps;         /* T */
    harpe_relaxation_state now;  /* the present solution */
    harpe_relaxation_curve back; /* of the edge from the sink to the source */
    int64_t back_ps;             /* -T */
    int32_t *first_incidence;
    harpe_incidence *incidences;
    int32_t *subtree; /* working memory */
    uint8_t *is_inside;
    uint32_t *mark; /* stamps of the search for an apex */
    uint32_t stamp;
    uint64_t pivots;
} harpe_relaxation;

typedef enum harpe_relaxation_outcome {
    HARPE_RELAXATION_OPTIMAL,
    HARPE_RELAXATION_ABOVE,      /* the optimum is above the limit */
    HARPE_RELAXATION_INFEASIBLE, /* no durations meet the deadline */
} harpe_relaxation_outcome;

/* Allocates memory for the network. */
harpe_status harpe_relaxation_init(harpe_relaxation *relaxation, const harpe_network *network,
                                   harpe_error *error);
void harpe_relaxation_clear(harpe_relaxation *relaxation);

/* Takes over the whole network, and the optimal tree and flow of a walk at its present iteration
 * time. All instructions are free, and edge i is instruction i. O(edges). */
void harpe_relaxation_load(harpe_relaxation *relaxation, const harpe_relaxation_curves *curves,
                           const harpe_frontier_solver *solver);

/* Gives an edge another curve. harpe_relaxation_solve must be called afterwards. O(events). */
void harpe_relaxation_change(harpe_relaxation *relaxation, int32_t edge,
                             const harpe_relaxation_curve *curve);

/* Finds the optimum, or stops when the optimum is known to be at least `limit_j`. Whatever the
 * outcome, more changes may follow. */
harpe_relaxation_outcome harpe_relaxation_solve(harpe_relaxation *relaxation, double limit_j);

/* Allocates a state. Returns false if there is no memory. */
bool harpe_relaxation_state_make(harpe_relaxation_state *state, harpe_arena *arena,
                                 const harpe_network *network);

/* Exchanges the present solution and one that was set aside. Copies no array. */
static inline void harpe_relaxation_swap(harpe_relaxation *relaxation,
                                         harpe_relaxation_state *state) {
    harpe_relaxation_state present = relaxation->now;
    relaxation->now = *state;
    *state = present;
}

/* Copies a solution that was set aside. O(edges). */
void harpe_relaxation_state_copy(const harpe_relaxation *relaxation, harpe_relaxation_state *to,
                                 const harpe_relaxation_state *from);

/* Returns the time between the events at both ends of an edge. After an optimal solution, the
 * instruction may take this time. */
static inline int64_t harpe_relaxation_span_ps(const harpe_relaxation *relaxation, int32_t edge) {
    const harpe_relaxation_edge *of = &relaxation->now.edges[edge];
    return relaxation->now.position[of->head] - relaxation->now.position[of->tail];
}

/* Returns the time of an event since the start of the iteration. */
static inline int64_t harpe_relaxation_event_ps(const harpe_relaxation *relaxation, int32_t node) {
    return relaxation->now.position[node] - relaxation->now.position[relaxation->source];
}

/* ---- Dives ----------------------------------------------------------------------------------- */

/* Searches plans with the relaxation. A dive fixes the instructions to measured options one after
 * another, the last one first. For each instruction, the dive solves the relaxation of the others
 * with up to four options near the instruction's duration. All stages of a pipeline can be critical
 * at once; to make a single instruction faster then frees nothing, and local search finds no better
 * plan. The relaxation moves the others along.
 *
 * Which of two options is better often shows only a few instructions later. A dive therefore keeps
 * several ways to fix the instructions so far, those with the lowest bounds (beam search). Their
 * number is the dive's width. */

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

/* ---- Threads --------------------------------------------------------------------------------- */

/* Runs one step for each of many drafts of plans, or of many replicas, on several threads. Each
 * thread has its own tools. A step depends only on its own draft and on data that does not change
 * during the run, so the result does not depend on the number of threads. */

/* Working memory of one thread. */
typedef struct harpe_tools {
    harpe_assignment assignment;
    harpe_splicer splicer;
    harpe_diver diver;
    harpe_walk walk; /* begun by the first step that needs it */
    bool is_walking;
    harpe_progress walk_progress; /* ends the walk if the run must end */
    int32_t *option;              /* [instruction] */
    int32_t *ordered;             /* [position], as in harpe_assignment */
} harpe_tools;

typedef struct harpe_crew {
    const harpe_problem *problem;
    const harpe_network *network;
    harpe_relaxation_curves curves;
    struct harpe_crew_member *members; /* the first one is the calling thread */
    size_t member_count;
} harpe_crew;

/* One run. The crew calls `step` with the numbers 0 to count - 1, each once, in this order. */
typedef struct harpe_crew_run {
    size_t count;
    harpe_status (*step)(void *user, harpe_tools *tools, size_t number, harpe_error *error);
    /* Called by the calling thread with the number of steps that were begun. Returns false to stop.
     */
    bool (*report)(void *user, size_t begun);
    void *user;
} harpe_crew_run;

/* Makes a crew of at most `threads` members (0: one for each core that the process may use). The
 * problem and the network must outlive the crew, and the crew must stay at its address. If
 * `problem` is NULL, the tools are empty. After a failure there is nothing to clear. */
harpe_status harpe_crew_init(harpe_crew *crew, const harpe_problem *problem,
                             const harpe_network *network, int threads, harpe_error *error);
void harpe_crew_clear(harpe_crew *crew);

/* Returns true if the run must end. A step that takes long calls this function often. On the
 * calling thread of the run, this function also calls `report`. */
bool harpe_crew_is_over(harpe_tools *tools);

/* Returns the tools of the calling thread, for use between two runs. */
harpe_tools *harpe_crew_tools(harpe_crew *crew);

/* Runs all steps. After a failure no new step begins; the failure of the step with the lowest
 * number is returned. Fails with HARPE_INTERRUPTED if `report` returned false. */
harpe_status harpe_crew_do(harpe_crew *crew, const harpe_crew_run *run, harpe_error *error);

/* ---- Drafts ---------------------------------------------------------------------------------- */

/* Improves drafts of plans: by local search, by dives, and by joining neighbours. Each function
 * works on all drafts, on the threads of a crew, and always does the same work. */

/* A plan that is not finished. */
typedef struct harpe_draft {
    int32_t *option;     /* by position, as in harpe_assignment */
    int64_t deadline_ps; /* longest time of the draft */
    int64_t longest_ps;  /* if changes have a cost, longest time of the plan, even above T* */
    int64_t *price_uw;   /* if changes have a cost, the relaxation's price of each instruction */
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

/* Improves each draft by local search, and then by a dive at its deadline, unless the problem
 * is large. A draft keeps the result that needs the least energy. Drafts near the fastest plan have
 * the widest dives. Fails with HARPE_INTERRUPTED if `report` returns false. */
harpe_status harpe_search_refine(const harpe_search *search, harpe_error *error);

/* Joins, for each draft that is not on the lower convex hull of all drafts, its two neighbours on
 * the hull, in both orders. Replaces the draft by the best result. Sorts the drafts by time. Fails
 * with HARPE_INTERRUPTED if `report` returns false. */
harpe_status harpe_search_join(const harpe_search *search, harpe_error *error);

/* Gives each draft the frequencies of its plan. If changes of clock have a cost, removes changes,
 * and searches better plans among those with few changes. Fails with HARPE_INTERRUPTED if `report`
 * returns false. */
harpe_status harpe_search_finish(const harpe_search *search, const harpe_clock_switch *cost,
                                 harpe_error *error);

/* ---- Times of plans -------------------------------------------------------------------------- */

/* Chooses the iteration times for which plans are made. */

typedef struct harpe_wanted_time {
    int64_t time_ps;
    int64_t longest_ps; /* what was asked for; above T*, more time saves energy only if changes of
                         * clock have a cost */
    bool is_asked;
} harpe_wanted_time;

typedef struct harpe_wanted_times {
    harpe_wanted_time *items; /* the slowest first; free it */
    size_t count;
} harpe_wanted_times;

/* Lists the times of a request that does not ask for all vertices. For HARPE_PLANS_AT these are the
 * requested times (0: T_min) and, if the request's count is above 0, those for this count. No time
 * is asked for twice. Fails with HARPE_INFEASIBLE if a requested time is below T_min. */
harpe_status harpe_plan_times(const harpe_walk *walk, const harpe_plan_request *request,
                              harpe_wanted_times *out, harpe_error *error);

#endif
