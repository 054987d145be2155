/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a flow; see flow.h. The step of an edge is its flow times the excess of its length over
 * the difference of the times of its nodes. These times are chosen such that the step is conserved:
 * they solve a system of linear equations with one weight for each edge, its flow, and one for the
 * way back from the sink to the source. The method of conjugate gradients finds them. */
#include "plan/flow.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

#define MOST_ROUNDS 300
#define PRECISION 1e-16    /* of the squared residual */
#define SMALLEST_SHARE 0.1 /* of its flow that an edge keeps in a step */

harpe_status harpe_flow_init(harpe_flow *flow, const harpe_network *network, harpe_arena *arena,
                             harpe_error *error) {
    size_t nodes = (size_t)network->node_count;
    *flow = (harpe_flow){.network = network};
    flow->edge_w = harpe_arena_alloc(arena, (size_t)network->edge_count + 1, sizeof *flow->edge_w);
    flow->time_s = harpe_arena_alloc(arena, nodes, sizeof *flow->time_s);
    flow->memory = harpe_arena_alloc(arena, 4 * nodes, sizeof *flow->memory);
    return flow->edge_w && flow->time_s && flow->memory ? HARPE_OK : harpe_fail_memory(error);
}

void harpe_flow_read(harpe_flow *flow, const harpe_frontier_solver *solver) {
    flow->total_w = (double)solver->flow_uw / HARPE_UW_PER_W;
    for (int32_t e = 0; e < flow->network->edge_count; e++)
        flow->edge_w[e] = (double)solver->edges[e].flow / HARPE_UW_PER_W;
}

void harpe_flow_spread(harpe_flow *flow, double share) {
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

double harpe_flow_loss_w(harpe_flow *flow) {
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

void harpe_flow_step(harpe_flow *flow, const double *length_s, double limit_s, double rate,
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
