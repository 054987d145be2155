/* SPDX-License-Identifier: Apache-2.0 */
/* The bound for plans whose clocks hold; see clocks_internal.h for its proof. */
#include "plan/clocks_internal.h"

#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/plans.h"

/* ---- A flow ---------------------------------------------------------------------------------- */

/* Steps of a flow from the source to the sink of a network. The flow of an edge is the price of a
 * second of its length, in W. The step of an edge is its flow times the excess of its length over
 * the difference of the times of its nodes. These times are chosen such that the step is conserved:
 * they solve a system of linear equations with one weight for each edge, its flow, and one for the
 * way back from the sink to the source. The method of conjugate gradients finds them. */

#define MOST_ROUNDS 300
#define PRECISION 1e-16    /* of the squared residual */
#define SMALLEST_SHARE 0.1 /* of its flow that an edge keeps in a step */

static harpe_status flow_init(harpe_flow *flow, const harpe_network *network, harpe_arena *arena,
                              harpe_error *error) {
    size_t nodes = (size_t)network->node_count;
    *flow = (harpe_flow){.network = network};
    flow->edge_w = harpe_arena_alloc(arena, (size_t)network->edge_count + 1, sizeof *flow->edge_w);
    flow->time_s = harpe_arena_alloc(arena, nodes, sizeof *flow->time_s);
    flow->memory = harpe_arena_alloc(arena, 4 * nodes, sizeof *flow->memory);
    return arena->has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

/* Takes the flow of the relaxation. */
static void flow_read(harpe_flow *flow, const harpe_frontier_solver *solver) {
    flow->total_w = (double)solver->flow_uw / HARPE_UW_PER_W;
    for (int32_t e = 0; e < flow->network->edge_count; e++)
        flow->edge_w[e] = (double)solver->edges[e].flow / HARPE_UW_PER_W;
}

/* Distributes a share of the flow over all edges, so that no edge is without flow. */
static void flow_spread(harpe_flow *flow, double share) {
    const harpe_network *network = flow->network;
    double *arrived_w = flow->memory;
    memset(arrived_w, 0, (size_t)network->node_count * sizeof *arrived_w);
    arrived_w[network->source] = share * flow->total_w;
    for (int32_t k = 0; k < network->node_count; k++) {
        int32_t v = network->topological_order[k], out = 0;
        const harpe_incidence *first = &network->incidences[network->first_incidence[v]];
        const harpe_incidence *end = &network->incidences[network->first_incidence[v + 1]];
        for (const harpe_incidence *at = first; at < end; at++)
            out += network->tail[at->edge] == v;
        for (const harpe_incidence *at = first; at < end; at++) {
            if (network->tail[at->edge] != v) continue;
            flow->edge_w[at->edge] = (1 - share) * flow->edge_w[at->edge] + arrived_w[v] / out;
            arrived_w[at->node] += arrived_w[v] / out;
        }
    }
}

/* Returns by how much the flow is not conserved, summed over all nodes. */
static double flow_loss_w(harpe_flow *flow) {
    const harpe_network *network = flow->network;
    double *left_w = flow->memory, sum_w = 0;
    memset(left_w, 0, (size_t)network->node_count * sizeof *left_w);
    for (int32_t e = 0; e < network->edge_count; e++) {
        left_w[network->head[e]] += flow->edge_w[e];
        left_w[network->tail[e]] -= flow->edge_w[e];
    }
    left_w[network->source] += flow->total_w;
    left_w[network->sink] -= flow->total_w;
    for (int32_t v = 0; v < network->node_count; v++)
        sum_w += fabs(left_w[v]);
    return sum_w;
}

/* Adds to `sum`, at the ends of each edge, its flow times the difference of `x` of its nodes, less
 * its length (NULL: 0). */
static void add_differences(const harpe_flow *flow, const double *x, const double *length_s,
                            double limit_s, double *sum) {
    const harpe_network *network = flow->network;
    for (int32_t e = 0; e < network->edge_count; e++) {
        int32_t tail = network->tail[e], head = network->head[e];
        double more = flow->edge_w[e] * (x[head] - x[tail] - (length_s ? length_s[e] : 0));
        sum[head] += more;
        sum[tail] -= more;
    }
    double more = flow->total_w * (x[network->source] - x[network->sink] + limit_s);
    sum[network->source] += more;
    sum[network->sink] -= more;
}

/* Returns the sum of flow through a node, with that of the way back. */
static void sum_weights(const harpe_flow *flow, double *weight) {
    const harpe_network *network = flow->network;
    memset(weight, 0, (size_t)network->node_count * sizeof *weight);
    for (int32_t e = 0; e < network->edge_count; e++) {
        weight[network->tail[e]] += flow->edge_w[e];
        weight[network->head[e]] += flow->edge_w[e];
    }
    weight[network->source] += flow->total_w;
    weight[network->sink] += flow->total_w;
}

/* Returns the sum over the nodes of a^2 / weight; nodes without flow count nothing. */
static double size_of(const double *a, const double *weight, int32_t nodes) {
    double sum = 0;
    for (int32_t v = 0; v < nodes; v++)
        if (weight[v] > 0) sum += a[v] * a[v] / weight[v];
    return sum;
}

/* Finds the times. */
static void find_times(harpe_flow *flow, const double *length_s, double limit_s) {
    int32_t nodes = flow->network->node_count;
    double *rest = flow->memory, *way = rest + nodes, *change = way + nodes,
           *weight = change + nodes;
    size_t bytes = (size_t)nodes * sizeof *rest;
    memset(rest, 0, bytes);
    memset(way, 0, bytes);
    add_differences(flow, flow->time_s, length_s, limit_s, rest);
    sum_weights(flow, weight);
    double size = size_of(rest, weight, nodes), first = size, turned = 0;
    for (int round = 0; round < MOST_ROUNDS && size > PRECISION * first; round++) {
        double along = 0;
        for (int32_t v = 0; v < nodes; v++)
            way[v] = (weight[v] > 0 ? -rest[v] / weight[v] : 0) + turned * way[v];
        memset(change, 0, bytes);
        add_differences(flow, way, NULL, 0, change);
        for (int32_t v = 0; v < nodes; v++)
            along += way[v] * change[v];
        if (!(along > 0)) return;
        for (int32_t v = 0; v < nodes; v++) {
            flow->time_s[v] += size / along * way[v];
            rest[v] += size / along * change[v];
        }
        double next = size_of(rest, weight, nodes);
        turned = next / size;
        size = next;
    }
}

/* Raises the flow on paths that are longer than `limit_s`, and lowers it on those that are shorter,
 * if the edges have these lengths. `rate` is the step, relative to the excess of the lengths over
 * the limit. The flow from the source stays at `least_w` at least. Takes O(edges) for each of at
 * most 300 rounds. */
static void flow_step(harpe_flow *flow, const double *length_s, double limit_s, double rate,
                      double least_w) {
    const harpe_network *network = flow->network;
    find_times(flow, length_s, limit_s);
    const double *time_s = flow->time_s;
    double back_s = time_s[network->sink] - time_s[network->source] - limit_s, least_s = back_s;
    for (int32_t e = 0; e < network->edge_count; e++) {
        double excess_s = length_s[e] - time_s[network->head[e]] + time_s[network->tail[e]];
        if (flow->edge_w[e] > 0) least_s = fmin(least_s, excess_s);
    }
    double step = rate / limit_s;
    if (step * least_s < SMALLEST_SHARE - 1) step = (SMALLEST_SHARE - 1) / least_s;
    double total_w = flow->total_w * (1 + step * back_s), factor = fmax(1, least_w / total_w);
    for (int32_t e = 0; e < network->edge_count; e++) {
        double excess_s = length_s[e] - time_s[network->head[e]] + time_s[network->tail[e]];
        flow->edge_w[e] *= factor * (1 + step * excess_s);
    }
    flow->total_w = factor * total_w;
}

/* ---- Constants ------------------------------------------------------------------------------- */

#define ROUNDING 1e-12 /* relative: times are sums of doubles */
#define NO_WAIT (-1)   /* the instruction starts as soon as the one before it ends */
#define FREE_WAIT (-2)
#define CUTS 3 /* places at which the circle of runs is cut, of which the best counts */
/* Steps to better flows, if instructions times clocks times steps are at most the work. */
#define MOST_STEPS 12
#define MOST_WORK INT64_C(1000000)
#define SPREAD_SHARE 0.02
#define FIRST_RATE 10
#define RATE_GROWTH 3
#define RATE_FALL 0.3
#define LENGTH_SHARE 0.2 /* by how much mean lengths follow the last ones */

/* ---- The edges of waits ---------------------------------------------------------------------- */

static int32_t find_edge(const harpe_network *network, int32_t tail, int32_t head) {
    for (int32_t a = network->first_incidence[tail]; a < network->first_incidence[tail + 1]; a++) {
        int32_t edge = network->incidences[a].edge;
        if (edge >= network->instruction_count && network->tail[edge] == tail &&
            network->head[edge] == head)
            return edge;
    }
    return FREE_WAIT;
}

/* Finds the edge whose flow is the price of the wait before each instruction. Between instructions
 * that share a node, it is that of the instruction before. */
static void find_wait_edges(harpe_clock_bound *b) {
    const harpe_network *network = b->flow.network;
    const harpe_problem *problem = b->clocks.problem;
    const harpe_dag *dag = &problem->dag;
    for (int rank = 0; rank < problem->rank_count; rank++) {
        int32_t first = (int32_t)problem->rank_offset[rank];
        int32_t end = (int32_t)problem->rank_offset[rank + 1];
        for (int32_t i = first + 1; i < end; i++) {
            int32_t from = dag->first_arc_into[i];
            bool is_pinned = dag->first_arc_into[i + 1] == from + 1 && dag->arc_from[from] == i - 1;
            int32_t tail = network->head[i - 1], head = network->tail[i];
            b->wait_edge[i] = is_pinned      ? NO_WAIT
                              : tail == head ? i - 1
                                             : find_edge(network, tail, head);
        }
    }
    for (int32_t w = 0; w < network->wait_count; w++)
        if (network->waits[w].before >= 0 && network->waits[w].after >= 0)
            b->wait_edge[network->waits[w].after] = network->waits[w].edge;
}

/* ---- Prices ---------------------------------------------------------------------------------- */

static double flow_w(const harpe_clock_bound *b, int32_t edge) { return b->flow.edge_w[edge]; }

/* Returns the price of the wait before an instruction. */
static double wait_price_w(const harpe_clock_bound *b, int32_t i) {
    int32_t edge = b->wait_edge[i];
    if (edge == NO_WAIT) return INFINITY;
    if (edge == FREE_WAIT) return 0;
    double price_w = fmin(flow_w(b, edge), flow_w(b, i - 1));
    double saving_w = b->clocks.problem->wait_saving_w ? b->clocks.problem->wait_saving_w[i] : 0;
    return fmax(0, price_w - saving_w);
}

static double longest_wait_s(const harpe_network *network, int32_t edge) {
    return (double)network->curves[network->curve_of[edge]].time_ps[1] / HARPE_PS_PER_S;
}

/* Returns the least cost of all waits that save energy: it is below 0 where their flow costs less
 * than they save. */
static double cheap_waits_j(const harpe_clock_bound *b) {
    const harpe_network *network = b->flow.network;
    double sum_j = 0;
    for (int32_t w = 0; w < network->wait_count; w++) {
        const harpe_network_wait *wait = &network->waits[w];
        sum_j +=
            fmin(0, (flow_w(b, wait->edge) - wait->saving_w) * longest_wait_s(network, wait->edge));
    }
    return sum_j;
}

/* Returns the price of the wait between two iterations. */
static double pause_price_w(const harpe_clock_bound *b, int32_t first, int32_t last) {
    const harpe_network *network = b->flow.network;
    double before_w = network->tail[first] == network->source ? INFINITY : 0;
    double after_w = network->head[last] == network->sink ? flow_w(b, last) : 0;
    return fmin(before_w, after_w);
}

static void read_prices(harpe_clock_bound *b) {
    const harpe_problem *problem = b->clocks.problem;
    for (int32_t i = 0; i < problem->instruction_count; i++)
        b->clocks.price_w[i] = flow_w(b, i);
    for (int rank = 0; rank < problem->rank_count; rank++) {
        int32_t first = (int32_t)problem->rank_offset[rank];
        int32_t end = (int32_t)problem->rank_offset[rank + 1];
        for (int32_t i = first + 1; i < end; i++)
            b->wait_w[i] = wait_price_w(b, i);
        if (first < end) b->wait_w[first] = pause_price_w(b, first, end - 1);
    }
}

/* ---- The bound ------------------------------------------------------------------------------- */

/* Returns the least cost of a rank, with the circle cut at some places. */
static double rank_j(harpe_clock_bound *b, int number, int cuts) {
    harpe_rank_run rank = b->clocks.ranks[number];
    double best_j = -INFINITY;
    rank.hold_s = b->is_free[number] ? 0 : rank.least_hold_s;
    if (2 * rank.hold_s > b->proof.longest_s) rank.hold_s = INFINITY;
    if (rank.length < cuts || isinf(rank.hold_s)) cuts = 1;
    for (int k = 0; k < cuts; k++) {
        rank.shift = (int32_t)((int64_t)k * rank.length / cuts);
        best_j = fmax(best_j, harpe_rank_clocks_choose(&b->clocks, &rank));
    }
    return best_j;
}

/* Returns the cost of all instructions that have no clocks: of ranks without clocks, and delays. */
static double rest_j(const harpe_clock_bound *b) {
    const harpe_problem *problem = b->clocks.problem;
    double sum_j = 0;
    size_t own = harpe_problem_instruction_count(problem);
    for (int rank = 0; rank < problem->rank_count; rank++) {
        if (b->clocks.ranks[rank].clock_count > 0) continue;
        for (size_t i = problem->rank_offset[rank]; i < problem->rank_offset[rank + 1]; i++) {
            const harpe_choice *choice = harpe_problem_choice(problem, (int32_t)i);
            double time_s = choice->points[0].time_s;
            sum_j += choice->points[0].energy_j +
                     (b->clocks.price_w[i] - choice->blocking_power_w) * time_s;
        }
    }
    for (size_t i = own; i < (size_t)problem->instruction_count; i++)
        sum_j += b->clocks.price_w[i] * harpe_problem_choice(problem, (int32_t)i)->points[0].time_s;
    return sum_j;
}

/* Returns what the present flow proves at time 0. A flow that is not quite conserved proves less by
 * what is lost times the longest time of a node. */
static double proven_j(harpe_clock_bound *b, int cuts) {
    const harpe_problem *problem = b->clocks.problem;
    read_prices(b);
    double sum_j = rest_j(b) + cheap_waits_j(b);
    for (int rank = 0; rank < problem->rank_count; rank++)
        if (b->clocks.ranks[rank].clock_count > 0) sum_j += rank_j(b, rank, cuts);
    double rounding_j = ROUNDING * (fabs(sum_j) + b->flow.total_w * b->proof.longest_s);
    return sum_j - rounding_j - flow_loss_w(&b->flow) * b->proof.longest_s;
}

/* ---- Better flows ---------------------------------------------------------------------------- */

/* Moves the mean lengths of the edges towards those of the clocks that were chosen last: with them,
 * the bound rises most where paths are longer than the iteration. */
static void add_lengths(harpe_clock_bound *b, double share) {
    const harpe_problem *problem = b->clocks.problem;
    const harpe_network *network = b->flow.network;
    for (int32_t e = 0; e < network->edge_count; e++)
        b->length_s[e] *= 1 - share;
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        size_t row = (size_t)problem->choice_of[i] * (size_t)b->clocks.most_clocks;
        int32_t clock = b->clocks.clock[i], edge = b->wait_edge[i];
        b->length_s[i] += share * (clock < 0 ? harpe_problem_choice(problem, i)->points[0].time_s
                                             : b->clocks.point_s[row + (size_t)clock]);
        if (edge < 0 || !(b->proof.wait_s[i] > 0)) continue;
        if (flow_w(b, i - 1) < flow_w(b, edge)) edge = i - 1;
        b->length_s[edge] += share * b->proof.wait_s[i];
    }
    for (int32_t w = 0; w < network->wait_count; w++) {
        int32_t edge = network->waits[w].edge;
        if (flow_w(b, edge) < network->waits[w].saving_w)
            b->length_s[edge] += share * longest_wait_s(network, edge);
    }
}

/* Takes the present flow if it proves more than the best. */
static bool keep_better(harpe_clock_bound *b, double time_s) {
    double now_j = proven_j(b, 1) - b->flow.total_w * time_s;
    if (!(now_j > b->best_j)) return false;
    b->best_j = now_j;
    b->best_total_w = b->flow.total_w;
    memcpy(b->best_w, b->flow.edge_w, (size_t)b->flow.network->edge_count * sizeof *b->best_w);
    return true;
}

static void return_to_best(harpe_clock_bound *b) {
    b->flow.total_w = b->best_total_w;
    memcpy(b->flow.edge_w, b->best_w, (size_t)b->flow.network->edge_count * sizeof *b->best_w);
}

/* Begins with the flow of the relaxation, and makes some steps to flows that prove more. */
static void improve(harpe_clock_bound *b, double time_s, int steps) {
    double least_w = harpe_problem_iteration_power_w(b->clocks.problem), rate = FIRST_RATE;
    b->best_j = -INFINITY;
    (void)keep_better(b, time_s);
    if (steps == 0) return;
    memset(b->flow.time_s, 0, (size_t)b->flow.network->node_count * sizeof *b->flow.time_s);
    add_lengths(b, 1);
    flow_spread(&b->flow, SPREAD_SHARE);
    for (int k = 0; k < steps; k++) {
        bool is_better = keep_better(b, time_s);
        add_lengths(b, LENGTH_SHARE);
        rate *= is_better ? RATE_GROWTH : RATE_FALL;
        /* The spread flow has no edge without flow, which would keep none. */
        if (!is_better && k > 0) return_to_best(b);
        flow_step(&b->flow, b->length_s, time_s, rate, least_w);
    }
    (void)keep_better(b, time_s);
    return_to_best(b);
}

harpe_status harpe_clock_bound_add(harpe_clock_bound *b, harpe_walk *walk, double longest_s,
                                   harpe_error *error) {
    const harpe_problem *problem = b->clocks.problem;
    harpe_frontier *frontier = &walk->frontier;
    if (!HARPE_ARRAY_RESERVE(frontier->lines, frontier->line_capacity, frontier->line_count + 1))
        return harpe_fail_memory(error);
    int64_t work = (int64_t)problem->instruction_count * b->clocks.most_clocks + 1;
    int steps = (int)fmin(MOST_STEPS, (double)(MOST_WORK / work));
    flow_read(&b->flow, &walk->solver);
    b->proof.longest_s = longest_s * (1 + ROUNDING);
    harpe_rank_clocks_limit(&b->clocks, b->proof.longest_s, b->early_s, b->tail_s);
    for (int32_t i = 0; i < problem->instruction_count; i++)
        b->early_s[i] -= b->clocks.fastest_s[i];
    improve(b, longest_s, steps);
    double sum_j = proven_j(b, steps > 0 ? CUTS : 1);
    double slope_w = harpe_problem_iteration_power_w(problem) - b->flow.total_w;
    if (!isfinite(sum_j) || slope_w > 0) return HARPE_OK;
    frontier->change_j = b->clocks.cost->energy_j;
    frontier->lines[frontier->line_count++] =
        (harpe_bound_line){b->proof.longest_s, sum_j, slope_w};
    return HARPE_OK;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Returns whether the instructions of a rank have no clock in common. */
static bool has_no_common_clock(const harpe_clock_bound *b, int number) {
    const harpe_rank_run *rank = &b->clocks.ranks[number];
    for (int c = 0; c < rank->clock_count; c++) {
        int32_t k = 0;
        while (k < rank->length) {
            const harpe_choice *choice = harpe_problem_choice(b->clocks.problem, rank->first + k);
            if (!harpe_choice_reached(choice, rank->clock_mhz[c])) break;
            k++;
        }
        if (k == rank->length) return false;
    }
    return true;
}

harpe_status harpe_clock_bound_init(harpe_clock_bound *b, const harpe_problem *problem,
                                    const harpe_clock_switch *cost, const harpe_network *network,
                                    harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    *b = (harpe_clock_bound){0};
    harpe_status status = harpe_rank_clocks_init(&b->clocks, problem, cost, error);
    if (status == HARPE_OK) status = flow_init(&b->flow, network, &b->arena, error);
    if (status != HARPE_OK) return status;
    size_t clocks = (size_t)b->clocks.most_clocks, places = (size_t)b->clocks.longest + 1;
    b->wait_edge = harpe_arena_alloc(&b->arena, count + 1, sizeof *b->wait_edge);
    b->wait_w = harpe_arena_alloc(&b->arena, count + 1, sizeof *b->wait_w);
    b->early_s = harpe_arena_alloc(&b->arena, count + 1, sizeof *b->early_s);
    b->tail_s = harpe_arena_alloc(&b->arena, count + 1, sizeof *b->tail_s);
    b->is_free = harpe_arena_alloc(&b->arena, (size_t)problem->rank_count, sizeof *b->is_free);
    size_t edges = (size_t)network->edge_count + 1;
    b->best_w = harpe_arena_alloc(&b->arena, edges, sizeof *b->best_w);
    b->length_s = harpe_arena_alloc(&b->arena, edges, sizeof *b->length_s);
    harpe_rank_proof *proof = &b->proof;
    proof->wait_s = harpe_arena_alloc(&b->arena, count + 1, sizeof *proof->wait_s);
    proof->queue = harpe_arena_alloc(&b->arena, clocks * places + 1, sizeof *proof->queue);
    proof->queue_at = harpe_arena_alloc(&b->arena, clocks + 1, sizeof *proof->queue_at);
    proof->queue_end = harpe_arena_alloc(&b->arena, clocks + 1, sizeof *proof->queue_end);
    proof->least_first = harpe_arena_alloc(&b->arena, clocks + 1, sizeof *proof->least_first);
    if (b->arena.has_failed) return harpe_fail_memory(error);
    proof->wait_w = b->wait_w;
    proof->early_s = b->early_s;
    proof->tail_s = b->tail_s;
    b->clocks.proof = proof;
    find_wait_edges(b);
    for (int rank = 0; rank < problem->rank_count; rank++)
        b->is_free[rank] = has_no_common_clock(b, rank);
    return HARPE_OK;
}

void harpe_clock_bound_clear(harpe_clock_bound *b) {
    harpe_rank_clocks_clear(&b->clocks);
    harpe_arena_free(&b->arena);
}
