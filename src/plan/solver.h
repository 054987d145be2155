/* SPDX-License-Identifier: Apache-2.0 */
/* The exact frontier of the relaxation and what stands on it: the network of times, the solver, the
 * assignment of real frequencies, and the walk. Several sources define these functions. */
#ifndef HARPE_PLAN_SOLVER_H
#define HARPE_PLAN_SOLVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/array.h"
#include "plan/problem.h"

/* ---- Network of times ------------------------------------------------------------------------ */

/* The relaxation as a flow network. Nodes are events. An edge is an instruction (from its start to
 * its end, with a convex cost) or a dependency (length 0). An instruction's start and the end of
 * its single predecessor are one node. An instruction's end and the start of its single successor
 * are one node. If a wait of a rank is cheaper than the rank's other waits, it is an edge with a
 * cost too, and its ends are events of their own. A deadline is an edge of negative length from the
 * event that it limits back to the source. All numbers are whole: times in picoseconds, flow in
 * microwatts. frontier_solver.c solves the network. */

#define HARPE_PS_PER_S 1e12
#define HARPE_UW_PER_W 1e6
#define HARPE_FLOW_INFINITE (INT64_C(1) << 60)

/* Rounds `value` down to whole units. A value that doubles cannot distinguish from a whole number
 * becomes that number. A lower bound that is computed from rounded values is never too high. */
int64_t harpe_round_down(double value);

/* Limit for the energy saved per second by which an instruction becomes longer. A profile with a
 * steeper curve is refused. */
#define HARPE_STEEPEST_W 1e9

/* A convex cost in whole numbers. Segment k (0 .. segment_count) is an arc of length time_ps[k]
 * that carries flow between rate_uw[k + 1] and rate_uw[k]. rate_uw[k] is the energy saved per
 * second between time_ps[k - 1] and time_ps[k]. rate_uw[0] is infinite, and rate_uw[segment_count +
 * 1] is 0. */
typedef struct harpe_network_curve {
    int32_t segment_count;   /* K */
    int64_t *time_ps;        /* [K + 1], increasing */
    int64_t *rate_uw;        /* [K + 2], decreasing */
    double slowest_energy_j; /* effective energy at time_ps[K] */
} harpe_network_curve;

/* An edge from the view of one of its ends. */
typedef struct harpe_incidence {
    int32_t edge;
    int32_t node; /* the other end */
} harpe_incidence;

/* A wait that saves energy as it becomes longer, up to the longest wait of any plan. */
typedef struct harpe_network_wait {
    int32_t edge;
    int32_t rank;
    int32_t before, after; /* instructions of the rank; -1: the start, the end of the iteration */
    double saving_w;
} harpe_network_wait;

typedef struct harpe_network {
    harpe_arena arena;
    int32_t node_count;
    int32_t source, sink;
    int32_t edge_count; /* edges 0 .. instruction_count - 1 are the instructions */
    int32_t instruction_count;
    int32_t *tail, *head; /* [edge_count] */
    int32_t *curve_of;    /* [edge_count]; dependencies have curve 0 */
    int32_t curve_count;
    harpe_network_curve *curves; /* curves[0]: dependencies, one segment of length 0; then the
                                  * choices; then the waits */
    int32_t wait_count;
    harpe_network_wait *waits;
    int32_t *first_incidence;    /* [node_count + 1] */
    harpe_incidence *incidences; /* [2 * edge_count], by node */
    int32_t *topological_order;  /* [node_count] nodes, without the edges of deadlines */
    int64_t iteration_power_uw;  /* blocking power of all ranks together, and overhead */
    double slowest_energy_j;     /* sum of effective energies with all instructions at their
                                  * slowest */
} harpe_network;

/* Returns true if an edge is a deadline. All others lead away from the source. */
static inline bool harpe_network_is_deadline(const harpe_network *network, int32_t edge) {
    return network->head[edge] == network->source;
}

harpe_status harpe_network_build(const harpe_problem *problem, harpe_network *out,
                                 harpe_error *error);
void harpe_network_clear(harpe_network *network);

/* ---- Solver ---------------------------------------------------------------------------------- */

/* Walks along the exact frontier of the relaxation with a parametric network simplex method. The
 * walk begins at the longest useful iteration, goes from vertex to vertex, and ends at the shortest
 * iteration. The caller may stop it at any time and read the optimal durations and flows. The
 * solver does not use frequencies.
 *
 * The state is a spanning tree of tight edges and a cut through it. The source is on the early side
 * of the cut, the sink on the late side. One pivot does this:
 * 1. The iteration becomes shorter: all events of the late side move towards the early side, until
 *    an edge across the cut becomes tight.
 * 2. Flow is sent from the source through the early side, that edge and the late side to the sink,
 *    until an edge on this path is full.
 * 3. The full edge leaves the tree, and the part of the tree below it changes sides.
 * The sum of the flow that was sent is the marginal energy -dE/dT.
 *
 * After each pivot, flow can still be sent from the root to each event along the tree (a strongly
 * feasible tree: W. H. Cunningham, A network simplex method, 1976). Pivots that send no flow can
 * therefore not cycle. */

__extension__ typedef __int128 harpe_int128;

/* A segment of the frontier, from the iteration time `from_ps` to shorter times. */
typedef struct harpe_frontier_segment {
    int64_t from_ps;
    int64_t flow_uw; /* energy for each second by which the iteration becomes shorter */
    double energy_j; /* compute energy (effective) at from_ps */
} harpe_frontier_segment;

/* The flow of an edge. A walk along a path needs all of these members, so they are next to each
 * other in memory. */
typedef struct harpe_edge_state {
    /* In uW. The edge's curve is at the segment `segment`, whose flow limits are `lowest` and
     * `highest`. An edge that is not in the tree has the lowest flow. */
    int64_t flow, lowest, highest;
    int32_t tail, head;
    int32_t segment, curve;
} harpe_edge_state;

#define HARPE_MOST_GROUPS 128 /* at most 256 */

typedef struct harpe_frontier_solver {
    harpe_arena arena;
    const harpe_network *network;
    int32_t sink;    /* the event that moves: the network's sink, or one that has a deadline */
    int64_t time_ps; /* iteration time of the current tree */
    /* All events of a group are on the same side of the cut and move together. Event v is at
     * position[v] plus the offset of its group. */
    uint8_t *group; /* [node] */
    int64_t *position, offset_ps[HARPE_MOST_GROUPS];
    bool is_late[HARPE_MOST_GROUPS];
    int32_t group_count;
    /* The tree: the parent of each event, and the edge to the parent; -1 for the source and the
     * sink. */
    int32_t *parent, *parent_edge;
    harpe_edge_state *edges;
    /* The edges across the cut, ordered by the iteration time at which they become tight; the
     * longest time is first. The heap may also contain edges that no longer cross the cut. They are
     * removed when they reach the top. */
    int32_t *heap, *heap_index;
    int64_t *tight_at_ps;
    int32_t heap_size;
    int64_t flow_uw;    /* the sum of the flow that was sent */
    harpe_int128 spent; /* energy added since all instructions were at their slowest, in 1e-18 J */
    bool at_end;        /* the walk has reached T_min */
    int32_t entering, early_end, late_end; /* the edge that becomes tight next, and its ends */
    int32_t *subtree, *rest; /* working memory: events that change sides, and others that do not */
    harpe_work work;
} harpe_frontier_solver;

harpe_status harpe_frontier_solver_init(harpe_frontier_solver *solver, const harpe_network *network,
                                        harpe_error *error);
void harpe_frontier_solver_clear(harpe_frontier_solver *solver);

/* Makes pivots until the iteration can become shorter, writes the segment that begins here to
 * `*segment`, and returns true. The caller must then call harpe_frontier_solver_advance. Returns
 * false at T_min. */
bool harpe_frontier_solver_next(harpe_frontier_solver *solver, harpe_frontier_segment *segment);

/* Returns the iteration time at which the current segment ends, because the next edge becomes
 * tight. */
int64_t harpe_frontier_solver_segment_end_ps(const harpe_frontier_solver *solver);

/* Continues the walk to the iteration time `time_ps`, which must not be below the end of the
 * segment. */
void harpe_frontier_solver_advance(harpe_frontier_solver *solver, int64_t time_ps);

/* Returns the compute energy (effective, without blocking) at the current time. */
double harpe_frontier_solver_energy_j(const harpe_frontier_solver *solver);

/* Attaches the subtree of `top` to `new_parent` at the subtree's event `joint`. Reverses the path
 * between `top` and `joint`. */
void harpe_tree_rehang(int32_t *parent, int32_t *parent_edge, int32_t top, int32_t joint,
                       int32_t new_parent, int32_t new_edge);

static inline bool harpe_frontier_solver_is_late(const harpe_frontier_solver *solver,
                                                 int32_t node) {
    return solver->is_late[solver->group[node]];
}

/* Returns the time of an event in ps since the start of the iteration, if the iteration takes the
 * current iteration time. */
static inline int64_t harpe_frontier_solver_event_ps(const harpe_frontier_solver *solver,
                                                     int32_t node) {
    return solver->position[node] + solver->offset_ps[solver->group[node]];
}

/* ---- Assignment ------------------------------------------------------------------------------ */

/* Computes real frequencies from a relaxed solution: rounds every duration to a measured option,
 * spends the remaining slack where the slack saves the most energy, and then improves the result by
 * local search. All times are whole picoseconds. The result never exceeds the deadline. */

/* An optimal solution of the relaxation at one iteration time. The arrays are indexed by
 * instruction. */
typedef struct harpe_relaxed {
    int64_t time_ps;      /* the deadline */
    int64_t *duration_ps; /* time from the start event to the end event */
    int64_t *price_uw; /* flow through the instruction: the price of one second of its duration */
} harpe_relaxed;

/* The present assignment of one problem (an option for each instruction), and the working memory of
 * the functions below. Arrays are indexed by position. The position of an instruction is its place
 * in topological order. Every pass therefore reads memory forwards. */
typedef struct harpe_assignment {
    const harpe_problem *problem;
    harpe_arena arena;
    int32_t count;
    int32_t *instruction_at;        /* position -> instruction */
    int32_t *first_before, *before; /* predecessors, as positions */
    int32_t *first_after, *after;   /* successors */
    /* Options of each position: option o of position i is option_time_ps[first_option[i] + o]. */
    int32_t *first_option, *option_count;
    int64_t *option_time_ps;
    double *option_energy_j; /* effective */
    /* The present assignment. */
    int64_t deadline_ps;
    int32_t *option;        /* [count] */
    int64_t *end_ps;        /* earliest end */
    int64_t *last_start_ps; /* latest start that meets the deadline */
    double energy_j;        /* sum of the effective energies */
    /* Working memory. */
    struct harpe_assignment_change *changes; /* log for undoing the present trial */
    size_t change_count, change_capacity;
    int32_t *queue; /* heap of positions to be updated */
    uint8_t *queued;
    int32_t queue_size;
    int32_t *order;
    double *rank_key;
    int64_t *rank_end_ps; /* [rank_count]; NULL if no rank has several powers of waits */
    uint64_t visits;      /* number of positions recomputed so far, as a measure of work */
} harpe_assignment;

harpe_status harpe_assignment_init(harpe_assignment *assignment, const harpe_problem *problem,
                                   harpe_error *error);
void harpe_assignment_clear(harpe_assignment *assignment);

/* Chooses for each instruction the slowest measured option that fits into its relaxed duration.
 * Then spends all slack, beginning where a second saves the most energy. O(n log n) plus the time
 * to spend slack. */
harpe_status harpe_assignment_round(harpe_assignment *assignment, const harpe_relaxed *relaxed,
                                    harpe_error *error);

/* Restores an earlier assignment. */
void harpe_assignment_restore(harpe_assignment *assignment, const int32_t *option,
                              int64_t deadline_ps);

/* Spends all slack. The present options must meet the deadline. */
harpe_status harpe_assignment_settle(harpe_assignment *assignment, int64_t deadline_ps,
                                     harpe_error *error);

/* Runs the local search. Each trial makes one instruction faster by one to three options, and then
 * spends the slack that has become free on instructions near it. A trial that saves energy is kept,
 * and any other is undone. Stops when a whole pass saves nothing, or after `visit_budget`
 * recomputed positions. */
harpe_status harpe_assignment_improve(harpe_assignment *assignment, uint64_t visit_budget,
                                      harpe_error *error);

/* Returns the length of the iteration with the present options. */
int64_t harpe_assignment_time_ps(const harpe_assignment *assignment);

/* Returns the energy that the waits of the cheaper kinds save, compared with waits at the highest
 * waiting power of their rank, if all instructions start as early as possible. The search does not
 * count this energy. */
double harpe_assignment_wait_saving_j(const harpe_assignment *assignment);

/* Writes the frequencies in the problem's order. */
void harpe_assignment_frequencies(const harpe_assignment *assignment, int *frequency_mhz);

/* ---- Joins ----------------------------------------------------------------------------------- */

/* Working memory of harpe_splice. One splicer serves all problems with the same number of
 * instructions, one after another. */
typedef struct harpe_splicer {
    double *moment; /* [count] when an instruction starts, as a share of the iteration */
    int32_t *order; /* [count] positions by moment */
} harpe_splicer;

harpe_status harpe_splicer_init(harpe_splicer *splicer, int32_t count, harpe_error *error);
void harpe_splicer_clear(harpe_splicer *splicer);

/* Joins two plans at a moment of the iteration: instructions that start before this moment have
 * their options of one plan, and all others have their options of the other plan. If both plans are
 * close to the lower bound, the joined plan is also close to the bound. A rounded relaxed solution
 * of the same time is not as close, because it mixes both plans in every microbatch.
 *
 * Joins `fast`, which meets the deadline, and `slow`, which may be too slow, and leaves the result
 * in `assignment`. The result contains as much of `slow` as the deadline allows: at the start of
 * the iteration if `slow_first` is true, otherwise at the end. The remaining slack is spent. O(n
 * log n). */
harpe_status harpe_splice(harpe_splicer *splicer, harpe_assignment *assignment, const int32_t *fast,
                          const int32_t *slow, bool slow_first, int64_t deadline_ps,
                          harpe_error *error);

/* ---- Walk ------------------------------------------------------------------------------------ */

/* Walks along the frontier: drives the solver from the minimum-energy time T* to T_min, records
 * the vertices on the way, and stops at the times of plans. The solver knows only events and flow;
 * the public frontier and plan sets use this file. */

/* A lower bound for plans that take at most `longest_s`: at_0_j + slope_w * time. */
typedef struct harpe_bound_line {
    double longest_s, at_0_j, slope_w;
} harpe_bound_line;

struct harpe_frontier {
    harpe_frontier_vertex *vertices; /* slowest first during the walk, then fastest first */
    size_t count, capacity;
    harpe_bound_line *lines; /* for plans whose clocks hold; see clocks_internal.h */
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

/* Walks to `time_ps`, which must be on the frontier, and adds the last vertex. Joins the vertices
 * and the lines of the bound (harpe_frontier.lines) to one bound. Passes the frontier to the
 * caller. */
harpe_status harpe_walk_finish(harpe_walk *walk, int64_t time_ps, harpe_frontier **out,
                               harpe_error *error);

void harpe_walk_clear(harpe_walk *walk);

#endif
