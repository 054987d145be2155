/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a problem into blocks and adds up their bounds; see tight_bound.h. */
#include "plan/tight_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* The bound is lowered by this part of the sums from which it was computed, more than the rounding
 * of some thousand additions. */
#define ROUNDING 1e-12
/* A sum of some ten thousand doubles has at most this relative error. */
#define SUM_ROUNDING 5e-12

/* ---- Making ---------------------------------------------------------------------------------- */

harpe_status harpe_bounder_init(harpe_bounder *bounder, const harpe_problem *problem,
                                const harpe_network *network, const harpe_relaxation_curves *curves,
                                harpe_error *error) {
    harpe_bounder b = {.problem = problem, .network = network};
    harpe_arena *arena = &b.arena;
    size_t edges = (size_t)network->edge_count, events = (size_t)network->node_count;
    size_t count = (size_t)problem->instruction_count;
    b.flow_uw = harpe_arena_alloc(arena, edges, sizeof *b.flow_uw);
    b.block_of = harpe_arena_alloc(arena, edges, sizeof *b.block_of);
    b.block_at = harpe_arena_alloc(arena, events, sizeof *b.block_at);
    b.earliest_ps = harpe_arena_alloc(arena, events, sizeof *b.earliest_ps);
    b.before_end_ps = harpe_arena_alloc(arena, events, sizeof *b.before_end_ps);
    b.order = harpe_arena_alloc(arena, count, sizeof *b.order);
    b.key = harpe_arena_alloc(arena, count, sizeof *b.key);
    b.wait_count = harpe_arena_alloc(arena, count + 1, sizeof *b.wait_count);
    bool complete = b.flow_uw && b.block_of && b.block_at && b.earliest_ps && b.before_end_ps &&
                    b.order && b.key && b.wait_count;
    harpe_status status = complete ? harpe_block_init(&b.block, problem, network, curves, error)
                                   : harpe_fail_memory(error);
    if (status != HARPE_OK) {
        harpe_arena_free(arena);
        return status;
    }
    *bounder = b;
    return HARPE_OK;
}

void harpe_bounder_clear(harpe_bounder *bounder) {
    harpe_block_clear(&bounder->block);
    harpe_arena_free(&bounder->arena);
    memset(bounder, 0, sizeof *bounder);
}

/* ---- Dividing -------------------------------------------------------------------------------- */

static int64_t fastest_ps(const harpe_bounder *b, int32_t edge) {
    if (edge >= b->network->instruction_count) return 0;
    const harpe_relaxation_curves *curves = b->block.curves;
    return curves->option_time_ps[curves->first_option[b->problem->choice_of[edge]]];
}

/* Computes the longest paths from the source and to the sink, all instructions at their fastest
 * option. */
static void measure(harpe_bounder *b) {
    const harpe_network *network = b->network;
    memset(b->earliest_ps, 0, (size_t)network->node_count * sizeof *b->earliest_ps);
    memset(b->before_end_ps, 0, (size_t)network->node_count * sizeof *b->before_end_ps);
    for (int32_t k = 0; k < network->node_count; k++) {
        int32_t v = network->topological_order[k];
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t e = network->incidences[a].edge, w = network->incidences[a].node;
            int64_t end_ps = b->earliest_ps[v] + fastest_ps(b, e);
            if (network->tail[e] == v && end_ps > b->earliest_ps[w]) b->earliest_ps[w] = end_ps;
        }
    }
    for (int32_t k = network->node_count - 1; k >= 0; k--) {
        int32_t v = network->topological_order[k];
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t e = network->incidences[a].edge, u = network->incidences[a].node;
            int64_t left_ps = b->before_end_ps[v] + fastest_ps(b, e);
            if (network->head[e] == v && left_ps > b->before_end_ps[u])
                b->before_end_ps[u] = left_ps;
        }
    }
}

static int compare_keys(const void *a, const void *b, void *keys) {
    double x = ((const double *)keys)[*(const int32_t *)a];
    double y = ((const double *)keys)[*(const int32_t *)b];
    if (x != y) return x < y ? -1 : 1;
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

static int rank_of(const harpe_bounder *b, int32_t instruction) {
    return harpe_problem_choice(b->problem, instruction)->list.rank;
}

/* Orders the instructions by groups of neighbouring ranks, and in a group by their time. */
static void order_instructions(harpe_bounder *b, const harpe_frontier_solver *solver,
                               int ranks_together) {
    double most = 2 * (double)solver->time_ps + 1;
    for (int32_t i = 0; i < b->network->instruction_count; i++) {
        int32_t tail = b->network->tail[i], head = b->network->head[i];
        double begin = (double)harpe_frontier_solver_event_ps(solver, tail);
        double end = (double)harpe_frontier_solver_event_ps(solver, head);
        int group = rank_of(b, i) / ranks_together;
        b->order[i] = i;
        b->key[i] = most * group + (begin + end) / 2;
    }
    qsort_r(b->order, (size_t)b->network->instruction_count, sizeof *b->order, compare_keys,
            b->key);
}

/* Gives each dependency to a block that has both of its events. */
static void give_waits(harpe_bounder *b) {
    const harpe_network *network = b->network;
    memset(b->wait_count, 0, (size_t)b->block_count * sizeof *b->wait_count);
    for (int32_t e = network->instruction_count; e < network->edge_count; e++) {
        b->block_of[e] = -1;
        if (b->flow_uw[e] == 0) continue;
        int32_t ends[2] = {network->tail[e], network->head[e]};
        for (int32_t a = network->first_incidence[ends[0]];
             a < network->first_incidence[ends[0] + 1] && b->block_of[e] < 0; a++) {
            int32_t i = network->incidences[a].edge;
            if (i >= network->instruction_count) continue;
            int32_t number = b->block_of[i];
            if (b->wait_count[number] == HARPE_BLOCK_MOST_WAITS / 2) continue;
            for (int32_t k = network->first_incidence[ends[1]];
                 k < network->first_incidence[ends[1] + 1]; k++) {
                int32_t j = network->incidences[k].edge;
                if (j >= network->instruction_count || b->block_of[j] != number) continue;
                b->block_of[e] = number;
                b->wait_count[number]++;
                break;
            }
        }
    }
}

void harpe_bounder_divide(harpe_bounder *bounder, const harpe_frontier_solver *solver,
                          const harpe_cut *cut) {
    harpe_bounder *b = bounder;
    int32_t count = b->network->instruction_count;
    int together = cut->ranks_together;
    size_t size = cut->block_size;
    for (int32_t e = 0; e < b->network->edge_count; e++)
        b->flow_uw[e] = solver->edges[e].flow;
    measure(b);
    order_instructions(b, solver, together);
    b->block_count = 0;
    size_t filled = size;
    for (int32_t k = 0; k < count; k++, filled++) {
        bool is_new_group =
            k > 0 && rank_of(b, b->order[k]) / together != rank_of(b, b->order[k - 1]) / together;
        if (filled == size || is_new_group) {
            filled = k == 0 ? cut->missing % size : 0;
            b->block_count++;
        }
        b->block_of[b->order[k]] = b->block_count - 1;
    }
    give_waits(b);
    b->division = (harpe_division){
        .is_flat = cut->is_flat,
        .deadline_ps = cut->deadline_ps,
        .flow_uw = b->flow_uw,
        .block_of = b->block_of,
        .earliest_ps = b->earliest_ps,
        .before_end_ps = b->before_end_ps,
    };
}

harpe_status harpe_bounder_block(harpe_bounder *bounder, const harpe_cut *cut, int32_t number,
                                 double *bound_j, bool *is_exact, harpe_error *error) {
    return harpe_block_bound(&bounder->block, &bounder->division, number, cut->most_boxes, bound_j,
                             is_exact, error);
}

harpe_status harpe_bounder_cut(harpe_bounder *bounder, const harpe_frontier_solver *solver,
                               harpe_cut *cut, harpe_error *error) {
    harpe_bounder *b = bounder;
    double sum_j = 0, size_j = 0;
    harpe_bounder_divide(b, solver, cut);
    cut->is_exact = true;
    for (int32_t k = 0; k < b->block_count; k++) {
        double bound_j = 0;
        bool is_exact = false;
        harpe_status status = harpe_bounder_block(b, cut, k, &bound_j, &is_exact, error);
        if (status != HARPE_OK) return status;
        cut->is_exact = cut->is_exact && is_exact;
        sum_j += bound_j;
        size_j += fabs(bound_j);
    }
    double flow_w = cut->is_flat ? 0 : (double)solver->flow_uw / HARPE_UW_PER_W;
    cut->flow_ps = solver->time_ps;
    cut->is_exact = cut->is_exact && b->block_count == 1;
    double deadline_s = (double)cut->deadline_ps / HARPE_PS_PER_S;
    double flow_rounding_j = HARPE_FLOW_ROUNDING_W * b->network->instruction_count * deadline_s;
    cut->energy_j = sum_j - ROUNDING * size_j - flow_rounding_j;
    cut->slope_w = harpe_problem_iteration_power_w(b->problem) - flow_w;
    return HARPE_OK;
}

int64_t harpe_cut_deadline_ps(int64_t time_ps, int32_t instruction_count) {
    return time_ps + instruction_count + (int64_t)(2 * SUM_ROUNDING * (double)time_ps) + 1;
}

bool harpe_cut_end_at(harpe_cut *cut, int64_t variant_ps, double iteration_w) {
    if (!isfinite(harpe_cut_at(cut, (double)variant_ps / HARPE_PS_PER_S))) return false;
    double deadline_s = (double)cut->deadline_ps / HARPE_PS_PER_S;
    double rounding_j = ROUNDING * fabs((cut->slope_w - iteration_w) * deadline_s);
    cut->energy_j += (cut->slope_w - iteration_w) * deadline_s - rounding_j;
    cut->slope_w = iteration_w;
    cut->variant_ps = variant_ps;
    return true;
}

double harpe_cut_at(const harpe_cut *cut, double time_s) {
    if (time_s * HARPE_PS_PER_S * (1 + SUM_ROUNDING) > (double)cut->deadline_ps) return -INFINITY;
    return cut->energy_j + cut->slope_w * time_s;
}
