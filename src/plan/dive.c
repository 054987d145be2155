/* SPDX-License-Identifier: Apache-2.0 */
/* Dives and windows; see dive.h. */
#include "plan/dive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* A difference in energy below this is a rounding error. */
#define SMALLEST_SAVING_J 1e-7
/* The widest beams: of a dive, and of a window. The states of a dive take at most about this much
 * memory. */
#define MOST_DIVE_WIDTH 256
#define MOST_WINDOW_WIDTH 16
#define MOST_STATE_BYTES ((size_t)64 << 20)
#define BYTES_PER_EDGE ((size_t)64)
/* Limits for a window: instructions, events, and edges between its events. The edges limit the
 * longest paths outside of the window that are kept. Each event may have two edges more, from the
 * source and to the sink. */
#define MOST_RELEASED 160
#define MOST_NODES (2 * MOST_RELEASED + 2)
#define MOST_EDGES 6000
#define WINDOW_WIDTH 4
/* Mean number of instructions of a window. */
#define MEAN_RELEASED 25

/* ---- Making ---------------------------------------------------------------------------------- */

static harpe_status allocate(harpe_diver *d, harpe_error *error) {
    size_t n = (size_t)d->problem->instruction_count, nodes = (size_t)d->network->node_count;
    harpe_arena *arena = &d->arena;
    d->option = harpe_arena_alloc(arena, n, sizeof *d->option);
    d->instruction_of = harpe_arena_alloc(arena, n, sizeof *d->instruction_of);
    d->fixed_option = harpe_arena_alloc(arena, n, sizeof *d->fixed_option);
    d->order = harpe_arena_alloc(arena, n, sizeof *d->order);
    d->key = harpe_arena_alloc(arena, n, sizeof *d->key);
    d->is_released = harpe_arena_alloc(arena, n, sizeof *d->is_released);
    d->place = harpe_arena_alloc(arena, nodes, sizeof *d->place);
    d->after_source_ps = harpe_arena_alloc(arena, nodes, sizeof *d->after_source_ps);
    d->before_sink_ps = harpe_arena_alloc(arena, nodes, sizeof *d->before_sink_ps);
    d->reach_ps = harpe_arena_alloc(arena, nodes, sizeof *d->reach_ps);
    d->number = harpe_arena_alloc(arena, nodes, sizeof *d->number);
    d->node_at = harpe_arena_alloc(arena, MOST_NODES + 2, sizeof *d->node_at);
    bool complete = d->option && d->instruction_of && d->fixed_option && d->order && d->key &&
                    d->is_released && d->place && d->after_source_ps && d->before_sink_ps &&
                    d->reach_ps && d->number && d->node_at;
    if (!complete) return harpe_fail_memory(error);
    harpe_status status =
        harpe_relaxation_init(&d->part, MOST_NODES, MOST_EDGES + 2 * MOST_NODES, error);
    if (status != HARPE_OK) return status;
    return harpe_beam_init(&d->part_beam, d->problem, d->curves, MOST_NODES,
                           MOST_EDGES + 2 * MOST_NODES, MOST_RELEASED, MOST_WINDOW_WIDTH, error);
}

harpe_status harpe_diver_init(harpe_diver *diver, const harpe_problem *problem,
                              const harpe_network *network, const harpe_relaxation_curves *curves,
                              harpe_error *error) {
    harpe_diver d = {.problem = problem, .network = network, .curves = curves, .random = 1};
    harpe_status status = allocate(&d, error);
    if (status != HARPE_OK) {
        harpe_diver_clear(&d);
        return status;
    }
    for (int32_t k = 0; k < network->node_count; k++) {
        d.place[network->topological_order[k]] = k;
        d.number[k] = -1;
        d.reach_ps[k] = -1;
    }
    for (int32_t i = 0; i < problem->instruction_count; i++) {
        int microbatch = problem->action_of[i].microbatch;
        if (microbatch >= d.microbatch_count) d.microbatch_count = microbatch + 1;
    }
    *diver = d;
    return HARPE_OK;
}

void harpe_diver_clear(harpe_diver *diver) {
    harpe_relaxation_clear(&diver->whole);
    harpe_relaxation_clear(&diver->part);
    harpe_beam_clear(&diver->whole_beam);
    harpe_beam_clear(&diver->part_beam);
    harpe_arena_free(&diver->arena);
    memset(diver, 0, sizeof *diver);
}

/* ---- Options --------------------------------------------------------------------------------- */

static const harpe_option_list *options_of(const harpe_diver *d, int32_t instruction) {
    return &harpe_problem_choice(d->problem, instruction)->list;
}

static const int64_t *times_of(const harpe_diver *d, int32_t instruction) {
    return d->curves->option_time_ps + d->curves->first_option[d->problem->choice_of[instruction]];
}

static double energy_of(const harpe_diver *d, int32_t instruction, int32_t option) {
    return options_of(d, instruction)->options[option].effective_energy_j;
}

static const harpe_relaxation_curve *hull_of(const harpe_diver *d, int32_t instruction) {
    return &d->curves->hull[d->problem->choice_of[instruction]];
}

/* ---- Diving ---------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b, void *keys) {
    double x = ((const double *)keys)[*(const int32_t *)a];
    double y = ((const double *)keys)[*(const int32_t *)b];
    if (x != y) return x < y ? -1 : 1;
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

static double order_key(const harpe_diver *d, const harpe_relaxation *r, int32_t edge,
                        harpe_dive_order order) {
    double start = (double)harpe_relaxation_event_ps(r, r->edges[edge].tail);
    switch (order) {
    case HARPE_DIVE_BACKWARDS: return -start;
    case HARPE_DIVE_OUTWARDS: return fabs(start - 0.5 * (double)d->deadline_ps);
    case HARPE_DIVE_INWARDS: return -fabs(start - 0.5 * (double)d->deadline_ps);
    default: return start;
    }
}

static void order_free(harpe_diver *d, const harpe_relaxation *r, harpe_dive_order order) {
    for (int32_t e = 0; e < d->free_count; e++) {
        d->order[e] = e;
        d->key[e] = order_key(d, r, e, order);
    }
    qsort_r(d->order, (size_t)d->free_count, sizeof *d->order, compare_keys, d->key);
}

/* Fixes all free instructions. Returns false if no plan below the limit is found. */
static bool fix_all(harpe_diver *d, harpe_relaxation *r, harpe_beam *beam, harpe_dive_order order,
                    int width, double limit_j) {
    bool found = harpe_relaxation_solve(r, limit_j) == HARPE_RELAXATION_OPTIMAL;
    if (found) {
        order_free(d, r, order);
        found = harpe_beam_fix(beam, r, d->instruction_of, d->order, d->free_count, width, limit_j,
                               d->fixed_option);
    }
    d->visits += r->visits;
    r->visits = 0;
    return found;
}

static void sum_energy(harpe_diver *d) {
    d->energy_j = 0;
    for (int32_t i = 0; i < d->problem->instruction_count; i++)
        d->energy_j += energy_of(d, i, d->option[i]);
}

/* Allocates what only dives need. */
static harpe_status prepare_dives(harpe_diver *d, harpe_error *error) {
    size_t nodes = (size_t)d->network->node_count, edges = (size_t)d->network->edge_count;
    size_t width = MOST_STATE_BYTES / ((edges + 1) * BYTES_PER_EDGE);
    if (width > MOST_DIVE_WIDTH) width = MOST_DIVE_WIDTH;
    if (width < 1) width = 1;
    harpe_status status = HARPE_OK;
    if (!d->whole.edges) status = harpe_relaxation_init(&d->whole, nodes, edges, error);
    if (status == HARPE_OK && !d->whole_beam.state)
        status = harpe_beam_init(&d->whole_beam, d->problem, d->curves, nodes, edges,
                                 (size_t)d->problem->instruction_count, (int)width, error);
    return status;
}

harpe_status harpe_diver_dive(harpe_diver *diver, const harpe_frontier_solver *solver,
                              harpe_dive_order order, int width, bool *found, harpe_error *error) {
    harpe_diver *d = diver;
    harpe_status status = prepare_dives(d, error);
    if (status != HARPE_OK) return status;
    harpe_relaxation_load(&d->whole, d->curves, solver);
    d->deadline_ps = solver->time_ps;
    d->free_count = d->problem->instruction_count;
    for (int32_t i = 0; i < d->free_count; i++)
        d->instruction_of[i] = i;
    d->whole_beam.is_over = d->is_over;
    d->whole_beam.user = d->user;
    *found = fix_all(d, &d->whole, &d->whole_beam, order, width, INFINITY);
    if (!*found) return HARPE_OK;
    memcpy(d->option, d->fixed_option, (size_t)d->free_count * sizeof *d->option);
    sum_energy(d);
    return HARPE_OK;
}

void harpe_diver_take(harpe_diver *diver, const int32_t *option, int64_t deadline_ps) {
    memcpy(diver->option, option, (size_t)diver->problem->instruction_count * sizeof *option);
    diver->deadline_ps = deadline_ps;
    sum_energy(diver);
}

/* ---- Windows: the graph ---------------------------------------------------------------------- */

/* Returns the length of an edge outside of the window, or -1 for a released instruction. */
static int64_t outside_ps(const harpe_diver *d, int32_t edge) {
    if (edge >= d->network->instruction_count) return 0;
    return d->is_released[edge] ? -1 : times_of(d, edge)[d->option[edge]];
}

/* Computes the longest paths from the source and to the sink that avoid the released
 * instructions. */
static void measure_outside(harpe_diver *d) {
    const harpe_network *network = d->network;
    int32_t nodes = network->node_count;
    for (int32_t v = 0; v < nodes; v++)
        d->after_source_ps[v] = d->before_sink_ps[v] = -1;
    d->after_source_ps[network->source] = d->before_sink_ps[network->sink] = 0;
    for (int32_t k = 0; k < nodes; k++) {
        int32_t v = network->topological_order[k];
        if (d->after_source_ps[v] < 0) continue;
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t e = network->incidences[a].edge, w = network->incidences[a].node;
            if (network->tail[e] != v) continue;
            int64_t length = outside_ps(d, e), end = d->after_source_ps[v] + length;
            if (length >= 0 && end > d->after_source_ps[w]) d->after_source_ps[w] = end;
        }
    }
    for (int32_t k = nodes - 1; k >= 0; k--) {
        int32_t v = network->topological_order[k];
        if (d->before_sink_ps[v] < 0) continue;
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t e = network->incidences[a].edge, u = network->incidences[a].node;
            if (network->head[e] != v) continue;
            int64_t length = outside_ps(d, e), left = d->before_sink_ps[v] + length;
            if (length >= 0 && left > d->before_sink_ps[u]) d->before_sink_ps[u] = left;
        }
    }
    d->visits += 2 * (uint64_t)nodes;
}

static int compare_places(const void *a, const void *b, void *places) {
    int32_t x = ((const int32_t *)places)[*(const int32_t *)a];
    int32_t y = ((const int32_t *)places)[*(const int32_t *)b];
    return (x > y) - (x < y);
}

/* Numbers the events of the released instructions in their topological order, with the source first
 * and the sink last. Returns their number. */
static int32_t number_nodes(harpe_diver *d) {
    const harpe_network *network = d->network;
    int32_t count = 0;
    d->node_at[count++] = network->source;
    d->node_at[count++] = network->sink;
    d->number[network->source] = d->number[network->sink] = 0;
    for (int32_t k = 0; k < d->free_count; k++) {
        int32_t ends[2] = {network->tail[d->instruction_of[k]],
                           network->head[d->instruction_of[k]]};
        for (int e = 0; e < 2; e++) {
            if (d->number[ends[e]] >= 0) continue;
            d->number[ends[e]] = 0;
            d->node_at[count++] = ends[e];
        }
    }
    qsort_r(d->node_at, (size_t)count, sizeof *d->node_at, compare_places, d->place);
    for (int32_t k = 0; k < count; k++)
        d->number[d->node_at[k]] = k;
    return count;
}

static void forget_numbers(harpe_diver *d, int32_t count) {
    for (int32_t k = 0; k < count; k++)
        d->number[d->node_at[k]] = -1;
}

/* Follows the edges out of an event, to events that are outside of the window's graph or after
 * it. */
static void reach_from(harpe_diver *d, int32_t v, int64_t begin_ps, int32_t *furthest,
                       int32_t last_place) {
    const harpe_network *network = d->network;
    for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
        int32_t e = network->incidences[a].edge, w = network->incidences[a].node;
        if (network->tail[e] != v || d->place[w] > last_place) continue;
        int64_t length = outside_ps(d, e);
        if (length < 0 || begin_ps + length <= d->reach_ps[w]) continue;
        d->reach_ps[w] = begin_ps + length;
        if (d->place[w] > *furthest) *furthest = d->place[w];
    }
}

/* Adds an edge for each longest path from event `from` to another event of the window's graph that
 * passes no third one. Returns false if there is no room. */
static bool add_paths(harpe_diver *d, int32_t from, int32_t last_place) {
    int32_t furthest = d->place[from];
    bool has_room = true;
    reach_from(d, from, 0, &furthest, last_place);
    for (int32_t k = d->place[from] + 1; k <= furthest; k++) {
        int32_t v = d->network->topological_order[k];
        d->visits++;
        if (d->reach_ps[v] < 0) continue;
        if (d->number[v] < 0)
            reach_from(d, v, d->reach_ps[v], &furthest, last_place);
        else if (d->part.edge_count < MOST_EDGES)
            harpe_relaxation_add_rigid(&d->part, d->number[from], d->number[v], d->reach_ps[v]);
        else
            has_room = false;
        d->reach_ps[v] = -1;
    }
    return has_room;
}

/* Builds the relaxation of the window in `part`. Returns false if it is too large. */
static bool build_part(harpe_diver *d) {
    harpe_relaxation *r = &d->part;
    int32_t nodes = number_nodes(d), sink = nodes - 1;
    bool fits = true;
    measure_outside(d);
    harpe_relaxation_begin(r, nodes, d->deadline_ps);
    for (int32_t k = 0; k < d->free_count; k++) {
        int32_t i = d->instruction_of[k];
        harpe_relaxation_add(r, d->number[d->network->tail[i]], d->number[d->network->head[i]],
                             hull_of(d, i));
    }
    int32_t last_place = d->place[d->node_at[sink > 0 ? sink - 1 : 0]];
    for (int32_t k = 1; k < sink && fits; k++)
        fits = add_paths(d, d->node_at[k], last_place);
    for (int32_t k = 1; k < sink; k++) {
        int32_t v = d->node_at[k];
        if (d->after_source_ps[v] >= 0) harpe_relaxation_add_rigid(r, 0, k, d->after_source_ps[v]);
        if (d->before_sink_ps[v] >= 0) harpe_relaxation_add_rigid(r, k, sink, d->before_sink_ps[v]);
    }
    harpe_relaxation_add_rigid(r, 0, sink, d->after_source_ps[d->network->sink]);
    forget_numbers(d, nodes);
    if (fits) harpe_relaxation_start(r);
    return fits;
}

/* ---- Windows: choosing them ------------------------------------------------------------------ */

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static double uniform(harpe_diver *d) {
    uint64_t z = (d->random += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

typedef enum window_kind {
    WINDOW_SPAN,         /* a span of time, all ranks */
    WINDOW_NEIGHBOURS,   /* a longer span of time, two neighbouring ranks */
    WINDOW_MICROBATCHES, /* two microbatches, some neighbouring ranks */
    WINDOW_SCATTERED,    /* instructions at random in a long span of time */
    WINDOW_KINDS,
} window_kind;

/* The instructions of a window are those between two moments, on some ranks, of some microbatches,
 * and each of them with a probability. Places in the topological order stand for moments. */
typedef struct window {
    double first, last; /* share of the topological order */
    int first_rank, rank_count;
    int microbatch; /* this one and the next; -1: all */
    double probability;
} window;

static window choose_window(harpe_diver *d, window_kind kind) {
    int ranks = d->problem->rank_count;
    double n = d->problem->instruction_count, size = MEAN_RELEASED * (0.5 + uniform(d));
    double middle = uniform(d), width = size / n;
    window w = {.first_rank = (int)(uniform(d) * ranks),
                .rank_count = ranks,
                .microbatch = -1,
                .probability = 1};
    if (kind == WINDOW_NEIGHBOURS && ranks > 2) {
        w.rank_count = 2;
        width *= ranks / 2.0;
    } else if (kind == WINDOW_MICROBATCHES && d->microbatch_count > 0) {
        w.microbatch = (int)(middle * d->microbatch_count);
        w.rank_count = (int)fmin(ranks, fmax(1, 0.5 * size));
        width = 2;
    } else if (kind == WINDOW_SCATTERED) {
        w.probability = fmin(1, fmax(0.25, width));
        width /= w.probability;
    }
    w.first = middle - width / 2;
    w.last = middle + width / 2;
    return w;
}

static bool is_in_window(harpe_diver *d, const window *w, int32_t instruction) {
    int rank = options_of(d, instruction)->rank, ranks = d->problem->rank_count;
    int microbatch = d->problem->action_of[instruction].microbatch;
    if ((rank - w->first_rank + ranks) % ranks >= w->rank_count) return false;
    if (w->microbatch >= 0 && microbatch != w->microbatch && microbatch != w->microbatch + 1)
        return false;
    double at = (double)d->place[d->network->tail[instruction]] / d->network->node_count;
    return at >= w->first && at <= w->last && (w->probability >= 1 || uniform(d) < w->probability);
}

/* Releases the instructions of a window that have more than one option. Returns their energy. */
static double release(harpe_diver *d, const window *w) {
    double energy_j = 0;
    d->free_count = 0;
    for (int32_t i = 0; i < d->problem->instruction_count; i++) {
        if (d->free_count == MOST_RELEASED) break;
        if (options_of(d, i)->option_count < 2 || !is_in_window(d, w, i)) continue;
        d->instruction_of[d->free_count++] = i;
        d->is_released[i] = 1;
        energy_j += energy_of(d, i, d->option[i]);
    }
    d->visits += (uint64_t)d->problem->instruction_count / 4;
    return energy_j;
}

static void try_window(harpe_diver *d, window_kind kind) {
    window w = choose_window(d, kind);
    double energy_j = release(d, &w);
    harpe_dive_order order = (harpe_dive_order)(uniform(d) * HARPE_DIVE_ORDERS);
    bool is_better =
        d->free_count > 1 && build_part(d) &&
        fix_all(d, &d->part, &d->part_beam, order, WINDOW_WIDTH, energy_j - SMALLEST_SAVING_J);
    for (int32_t k = 0; k < d->free_count; k++) {
        int32_t i = d->instruction_of[k];
        d->is_released[i] = 0;
        if (is_better) d->option[i] = d->fixed_option[k];
    }
    if (is_better) sum_energy(d);
}

void harpe_diver_improve(harpe_diver *diver, uint64_t visit_budget) {
    uint64_t limit = diver->visits + visit_budget;
    for (int kind = 0; diver->visits < limit; kind = (kind + 1) % WINDOW_KINDS) {
        diver->visits++; /* ends even if all windows are empty */
        try_window(diver, (window_kind)kind);
    }
}
