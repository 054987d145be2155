/* SPDX-License-Identifier: Apache-2.0 */
/* The parametric network simplex method that computes the frontier; solver.h explains
 * it. The two hot loops are the path walks in find_leaving_edge and the subtree walk in
 * move_subtree. */
#include "plan/solver.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* ---- The cut: a binary heap of edges, with the edge that becomes tight first on top ---------- */

static void sift_up(harpe_frontier_solver *s, int32_t index) {
    int32_t edge = s->heap[index];
    int64_t key = s->tight_at_ps[edge];
    while (index > 0) {
        int32_t above = (index - 1) / 2;
        if (s->tight_at_ps[s->heap[above]] >= key) break;
        s->heap[index] = s->heap[above];
        s->heap_index[s->heap[index]] = index;
        index = above;
    }
    s->heap[index] = edge;
    s->heap_index[edge] = index;
}

static void sift_down(harpe_frontier_solver *s, int32_t index) {
    int32_t edge = s->heap[index];
    int64_t key = s->tight_at_ps[edge];
    for (;;) {
        int32_t below = 2 * index + 1;
        if (below >= s->heap_size) break;
        if (below + 1 < s->heap_size &&
            s->tight_at_ps[s->heap[below + 1]] > s->tight_at_ps[s->heap[below]])
            below++;
        if (s->tight_at_ps[s->heap[below]] <= key) break;
        s->heap[index] = s->heap[below];
        s->heap_index[s->heap[index]] = index;
        index = below;
    }
    s->heap[index] = edge;
    s->heap_index[edge] = index;
}

static void remove_from_cut(harpe_frontier_solver *s, int32_t edge) {
    int32_t index = s->heap_index[edge];
    if (index < 0) return;
    s->heap_index[edge] = -1;
    int32_t last = s->heap[--s->heap_size];
    if (last == edge) return;
    s->heap[index] = last;
    s->heap_index[last] = index;
    sift_up(s, index);
    sift_down(s, s->heap_index[last]);
}

static void put_into_cut(harpe_frontier_solver *s, int32_t edge, int64_t tight_at_ps) {
    s->tight_at_ps[edge] = tight_at_ps;
    if (s->heap_index[edge] < 0) {
        s->heap_index[edge] = s->heap_size;
        s->heap[s->heap_size++] = edge;
        sift_up(s, s->heap_index[edge]);
        return;
    }
    sift_up(s, s->heap_index[edge]);
    sift_down(s, s->heap_index[edge]);
}

/* Recomputes the iteration time at which an edge across the cut becomes tight. A forward edge
 * (early tail, late head) shrinks to the length of its current segment. A backward edge carries
 * flow, and grows to the length of its next slower segment. The length of an edge within one side
 * does not change. */
static void refresh_cut_edge(harpe_frontier_solver *s, int32_t edge) {
    const harpe_edge_state *state = &s->edges[edge];
    if (harpe_frontier_solver_is_late(s, state->tail) ==
        harpe_frontier_solver_is_late(s, state->head))
        return;
    const harpe_network_curve *curve = &s->network->curves[state->curve];
    int64_t duration_ps = harpe_frontier_solver_event_ps(s, state->head) -
                          harpe_frontier_solver_event_ps(s, state->tail);
    if (harpe_frontier_solver_is_late(s, state->head))
        put_into_cut(s, edge, s->time_ps - (duration_ps - curve->time_ps[state->segment]));
    else if (state->segment < curve->segment_count)
        put_into_cut(s, edge, s->time_ps - (curve->time_ps[state->segment + 1] - duration_ps));
    else
        remove_from_cut(s, edge);
}

/* ---- Edges ----------------------------------------------------------------------------------- */

static void set_segment(harpe_frontier_solver *s, harpe_edge_state *state, int32_t segment) {
    const harpe_network_curve *curve = &s->network->curves[state->curve];
    state->segment = segment;
    state->lowest = curve->rate_uw[segment + 1];
    state->highest = curve->rate_uw[segment];
}

/* Returns the flow that can still be sent over a tree edge, along it or against it. */
static int64_t room(const harpe_edge_state *state, bool along) {
    if (!along) return state->flow - state->lowest;
    return state->highest == HARPE_FLOW_INFINITE ? HARPE_FLOW_INFINITE
                                                 : state->highest - state->flow;
}

/* ---- Every instruction at its slowest and as early as possible, no flow ---------------------- */

static void hang_all_on_source(harpe_frontier_solver *s) {
    const harpe_network *network = s->network;
    for (int32_t v = 0; v < network->node_count; v++) {
        s->parent[v] = -1;
        s->parent_edge[v] = -1;
    }
    for (int32_t i = 0; i < network->node_count; i++) {
        int32_t v = network->topological_order[i];
        for (int32_t a = network->first_incidence[v]; a < network->first_incidence[v + 1]; a++) {
            int32_t edge = network->incidences[a].edge;
            const harpe_edge_state *state = &s->edges[edge];
            if (state->tail != v || harpe_network_is_deadline(network, edge)) continue;
            int64_t arrival =
                s->position[v] + network->curves[state->curve].time_ps[state->segment];
            int32_t w = state->head;
            if (s->parent_edge[w] >= 0 && arrival <= s->position[w]) continue;
            s->position[w] = arrival;
            s->parent[w] = v;
            s->parent_edge[w] = edge;
        }
    }
}

static void reset_edges(harpe_frontier_solver *s) {
    const harpe_network *network = s->network;
    for (int32_t e = 0; e < network->edge_count; e++) {
        harpe_edge_state *state = &s->edges[e];
        state->tail = network->tail[e];
        state->head = network->head[e];
        state->curve = network->curve_of[e];
        state->flow = 0;
        set_segment(s, state, network->curves[state->curve].segment_count);
        s->heap_index[e] = -1;
    }
}

/* ---- One pivot ------------------------------------------------------------------------------- */

/* The tree edge that stops the flow, identified by its lower node. */
typedef struct leaving_edge {
    int64_t flow; /* flow that can be sent */
    int32_t node; /* -1: the entering edge itself becomes full first */
    bool on_late_side;
} leaving_edge;

static bool enters_along(const harpe_frontier_solver *s) {
    return s->edges[s->entering].tail == s->early_end;
}

static int64_t entering_room(const harpe_frontier_solver *s) {
    if (s->entering < 0) return HARPE_FLOW_INFINITE;
    const harpe_edge_state *state = &s->edges[s->entering];
    if (enters_along(s)) return room(state, true);
    const harpe_network_curve *curve = &s->network->curves[state->curve];
    return state->flow - curve->rate_uw[state->segment + 2];
}

/* Finds the leaving edge. If several edges stop the flow, takes the first one on the way from the
 * source, which keeps the tree strongly feasible. On the late side this is the edge nearest to the
 * entering edge. If that edge has no room, no flow moves. The early side always has some room, so
 * it is then not walked. */
static leaving_edge find_leaving_edge(harpe_frontier_solver *s) {
    leaving_edge leaving = {.flow = entering_room(s), .node = -1};
    uint64_t steps = 0;
    for (int32_t v = s->late_end; v >= 0 && s->parent[v] >= 0; v = s->parent[v], steps++) {
        const harpe_edge_state *state = &s->edges[s->parent_edge[v]];
        int64_t most = room(state, state->tail == v);
        if (most >= leaving.flow) continue;
        leaving = (leaving_edge){.flow = most, .node = v, .on_late_side = true};
        if (most == 0) break;
    }
    if (leaving.flow > 0) {
        for (int32_t v = s->early_end; s->parent[v] >= 0; v = s->parent[v], steps++) {
            const harpe_edge_state *state = &s->edges[s->parent_edge[v]];
            int64_t most = room(state, state->head == v);
            if (most > leaving.flow || most == HARPE_FLOW_INFINITE) continue;
            leaving = (leaving_edge){.flow = most, .node = v, .on_late_side = false};
        }
    }
    s->work.path_steps += steps;
    return leaving;
}

static void send_flow(harpe_frontier_solver *s, int64_t flow) {
    s->flow_uw += flow;
    for (int32_t v = s->late_end; v >= 0 && s->parent[v] >= 0; v = s->parent[v]) {
        harpe_edge_state *state = &s->edges[s->parent_edge[v]];
        state->flow += state->tail == v ? flow : -flow;
    }
    for (int32_t v = s->early_end; s->parent[v] >= 0; v = s->parent[v]) {
        harpe_edge_state *state = &s->edges[s->parent_edge[v]];
        state->flow += state->head == v ? flow : -flow;
    }
    if (s->entering >= 0) s->edges[s->entering].flow += enters_along(s) ? flow : -flow;
}

/* Places an edge that has left the tree between two segments: the slower segment is full, and the
 * faster segment, which becomes the edge's `segment`, is empty. */
static void rest_between_segments(harpe_frontier_solver *s, harpe_edge_state *state) {
    if (state->segment > 0 && state->flow == state->highest)
        set_segment(s, state, state->segment - 1);
}

/* Appends the children of an event to a list, except for one. The processor cannot predict whether
 * a neighbour is a child, so the list is written without a branch (it has one spare element). */
static int32_t append_children(const harpe_frontier_solver *s, int32_t v, int32_t except,
                               int32_t *list, int32_t count) {
    const int32_t *first = &s->network->first_incidence[v];
    const harpe_incidence *end = &s->network->incidences[first[1]];
    for (const harpe_incidence *at = &s->network->incidences[first[0]]; at < end; at++) {
        list[count] = at->node;
        count += (s->parent_edge[at->node] == at->edge) & (at->node != except);
    }
    return count;
}

/* Makes the early events group 0 and the late events group 1. */
static void join_groups(harpe_frontier_solver *s) {
    for (int32_t v = 0; v < s->network->node_count; v++) {
        s->position[v] = harpe_frontier_solver_event_ps(s, v);
        s->group[v] = harpe_frontier_solver_is_late(s, v);
    }
    s->offset_ps[0] = s->offset_ps[1] = 0;
    s->is_late[0] = false;
    s->is_late[1] = true;
    s->group_count = 2;
}

static uint8_t new_group(harpe_frontier_solver *s, bool is_late) {
    if (s->group_count == HARPE_MOST_GROUPS) join_groups(s);
    s->offset_ps[s->group_count] = 0;
    s->is_late[s->group_count] = is_late;
    return (uint8_t)s->group_count++;
}

/* Moves the tree below `top` to the other side, and puts the edges that now cross the cut into the
 * heap. The tree may contain nearly all events of its side, so it is listed in turn with the rest
 * of this side until one of the two lists is complete. If this is the rest, it becomes a new group,
 * and the other groups of the side move. This is the hot loop of the planner. */
static void move_subtree(harpe_frontier_solver *s, int32_t top) {
    bool was_late = harpe_frontier_solver_is_late(s, top);
    int32_t count = 1, rest_count = 1, listed = 0;
    s->subtree[0] = top;
    s->rest[0] = was_late ? s->sink : s->network->source;
    for (; listed < count && listed < rest_count; listed++) {
        count = append_children(s, s->subtree[listed], -1, s->subtree, count);
        rest_count = append_children(s, s->rest[listed], top, s->rest, rest_count);
    }
    bool splits = listed < count;
    const int32_t *regrouped = splits ? s->rest : s->subtree;
    int32_t across = was_late ? s->early_end : s->late_end;
    uint8_t group = splits ? new_group(s, was_late) : across >= 0 ? s->group[across] : 1;
    for (int32_t i = 0; i < listed; i++) {
        int32_t v = regrouped[i];
        s->position[v] += s->offset_ps[s->group[v]] - s->offset_ps[group];
        s->group[v] = group;
    }
    for (int32_t g = 0; splits && g < group; g++)
        if (s->is_late[g] == was_late) s->is_late[g] = !was_late;
    for (int32_t i = 0; i < listed; i++) {
        const int32_t *first = &s->network->first_incidence[regrouped[i]];
        const harpe_incidence *end = &s->network->incidences[first[1]];
        for (const harpe_incidence *at = &s->network->incidences[first[0]]; at < end; at++)
            if (s->group[at->node] != group) refresh_cut_edge(s, at->edge);
    }
    s->work.nodes_moved += (uint64_t)listed;
}

void harpe_tree_rehang(int32_t *parent, int32_t *parent_edge, int32_t top, int32_t joint,
                       int32_t new_parent, int32_t new_edge) {
    int32_t v = joint;
    for (;;) {
        int32_t old_parent = parent[v], old_edge = parent_edge[v];
        parent[v] = new_parent;
        parent_edge[v] = new_edge;
        if (v == top) return;
        new_parent = v;
        new_edge = old_edge;
        v = old_parent;
    }
}

static void rehang(harpe_frontier_solver *s, int32_t top, int32_t joint, int32_t new_parent,
                   int32_t new_edge) {
    harpe_tree_rehang(s->parent, s->parent_edge, top, joint, new_parent, new_edge);
}

/* Exchanges the leaving edge for the entering edge. */
static void exchange(harpe_frontier_solver *s, const leaving_edge *leaving) {
    rest_between_segments(s, &s->edges[s->parent_edge[leaving->node]]);
    if (s->entering >= 0) {
        remove_from_cut(s, s->entering);
        harpe_edge_state *state = &s->edges[s->entering];
        if (!enters_along(s)) set_segment(s, state, state->segment + 1);
    }
    move_subtree(s, leaving->node);
    if (s->entering < 0)
        rehang(s, leaving->node, s->sink, -1, -1);
    else if (leaving->on_late_side)
        rehang(s, leaving->node, s->late_end, s->early_end, s->entering);
    else
        rehang(s, leaving->node, s->early_end, s->late_end, s->entering);
}

/* Handles an entering edge that becomes full before any tree edge does. The edge moves to its next
 * segment and stays outside of the tree. */
static void pass_entering_edge(harpe_frontier_solver *s) {
    harpe_edge_state *state = &s->edges[s->entering];
    set_segment(s, state, state->segment + (enters_along(s) ? -1 : 1));
    refresh_cut_edge(s, s->entering);
}

/* Finds the edge across the cut that becomes tight next. Such an edge always exists: the cut
 * carries the flow, and above T_min no path across the cut has its shortest length. */
static void find_entering_edge(harpe_frontier_solver *s) {
    for (;;) {
        int32_t edge = s->heap_size > 0 ? s->heap[0] : -1;
        if (edge >= 0 && harpe_frontier_solver_is_late(s, s->edges[edge].tail) ==
                             harpe_frontier_solver_is_late(s, s->edges[edge].head)) {
            remove_from_cut(s, edge);
            continue;
        }
        s->entering = edge;
        if (edge < 0) return;
        const harpe_edge_state *state = &s->edges[edge];
        bool along = harpe_frontier_solver_is_late(s, state->head);
        s->early_end = along ? state->tail : state->head;
        s->late_end = along ? state->head : state->tail;
        return;
    }
}

/* Makes one pivot. Returns false at T_min: unlimited flow could be sent there, so the iteration
 * cannot become shorter. */
static bool pivot(harpe_frontier_solver *s) {
    leaving_edge leaving = find_leaving_edge(s);
    if (leaving.flow >= HARPE_FLOW_INFINITE) return false;
    s->work.pivots++;
    if (leaving.flow == 0) s->work.degenerate_pivots++;
    if (leaving.flow > 0) send_flow(s, leaving.flow);
    if (leaving.node >= 0)
        exchange(s, &leaving);
    else
        pass_entering_edge(s);
    find_entering_edge(s);
    return s->entering >= 0;
}

/* ---- The walk -------------------------------------------------------------------------------- */

int64_t harpe_frontier_solver_segment_end_ps(const harpe_frontier_solver *solver) {
    return solver->tight_at_ps[solver->entering];
}

bool harpe_frontier_solver_next(harpe_frontier_solver *solver, harpe_frontier_segment *segment) {
    if (solver->at_end) return false;
    do {
        if (!pivot(solver)) {
            solver->at_end = true;
            return false;
        }
    } while (harpe_frontier_solver_segment_end_ps(solver) >= solver->time_ps);
    segment->from_ps = solver->time_ps;
    segment->flow_uw = solver->flow_uw;
    segment->energy_j = harpe_frontier_solver_energy_j(solver);
    return true;
}

void harpe_frontier_solver_advance(harpe_frontier_solver *solver, int64_t time_ps) {
    int64_t step_ps = solver->time_ps - time_ps;
    solver->spent += (harpe_int128)step_ps * solver->flow_uw;
    for (int32_t g = 0; g < solver->group_count; g++)
        solver->offset_ps[g] -= solver->is_late[g] ? step_ps : 0;
    solver->time_ps = time_ps;
}

double harpe_frontier_solver_energy_j(const harpe_frontier_solver *solver) {
    return solver->network->slowest_energy_j +
           (double)solver->spent / (HARPE_PS_PER_S * HARPE_UW_PER_W);
}

/* ---- The start of the walk ------------------------------------------------------------------- */

/* Lets the walk begin at the present time of an event. All events are on the early side. */
static void begin_at(harpe_frontier_solver *s, int32_t sink) {
    for (int32_t v = 0; v < s->network->node_count; v++) {
        s->position[v] = harpe_frontier_solver_event_ps(s, v);
        s->group[v] = 0;
    }
    s->offset_ps[0] = s->offset_ps[1] = 0;
    s->is_late[0] = false;
    s->is_late[1] = true;
    s->group_count = 2;
    while (s->heap_size > 0)
        remove_from_cut(s, s->heap[s->heap_size - 1]);
    s->sink = s->early_end = sink;
    s->late_end = s->entering = -1;
    s->time_ps = s->position[sink];
    s->flow_uw = 0;
}

/* Walks as if the event of a deadline were the end of the iteration, until the deadline is met. The
 * deadline's edge then carries the flow back to the source. If the deadline is met while the walk
 * has no flow, the walk goes on until flow could be sent, because an edge without flow could let
 * later pivots cycle. In this case, the last edge that became tight connects both sides. */
static void meet_deadline(harpe_frontier_solver *s, int32_t edge) {
    const harpe_network *network = s->network;
    int64_t latest_ps = -network->curves[network->curve_of[edge]].time_ps[0];
    int32_t event = network->tail[edge];
    if (harpe_frontier_solver_event_ps(s, event) <= latest_ps) return;
    begin_at(s, event);
    while (s->time_ps > latest_ps || s->flow_uw == 0) {
        bool is_met = s->time_ps <= latest_ps;
        if ((is_met && find_leaving_edge(s).flow > 0) || !pivot(s)) break;
        int64_t end_ps = harpe_frontier_solver_segment_end_ps(s);
        if (s->flow_uw > 0 && end_ps < latest_ps) end_ps = latest_ps;
        if (end_ps < s->time_ps) harpe_frontier_solver_advance(s, end_ps);
    }
    if (s->flow_uw > 0) {
        s->edges[edge].flow = s->flow_uw;
        s->entering = edge;
        s->early_end = network->source;
        s->late_end = event;
    } else if (!enters_along(s)) {
        harpe_edge_state *state = &s->edges[s->entering];
        set_segment(s, state, state->segment + 1);
    }
    rehang(s, event, s->late_end, s->early_end, s->entering);
}

static void meet_deadlines(harpe_frontier_solver *s) {
    const int32_t *first = &s->network->first_incidence[s->network->source];
    for (int32_t a = first[0]; a < first[1]; a++) {
        int32_t edge = s->network->incidences[a].edge;
        if (harpe_network_is_deadline(s->network, edge)) meet_deadline(s, edge);
    }
}

/* Returns the number of bytes that a solver for `network` allocates. */
static uint64_t frontier_solver_bytes(const harpe_network *network) {
    uint64_t per_node = sizeof(int64_t) + sizeof(uint8_t) + 4 * sizeof(int32_t);
    uint64_t per_edge = sizeof(harpe_edge_state) + sizeof(int64_t) + 2 * sizeof(int32_t);
    return per_node * (uint64_t)network->node_count + per_edge * (uint64_t)network->edge_count;
}

harpe_status harpe_frontier_solver_init(harpe_frontier_solver *solver, const harpe_network *network,
                                        harpe_error *error) {
    harpe_frontier_solver s = {.network = network};
    size_t nodes = (size_t)network->node_count, edges = (size_t)network->edge_count;
    s.position = harpe_arena_alloc(&s.arena, nodes, sizeof *s.position);
    s.group = harpe_arena_alloc(&s.arena, nodes, sizeof *s.group);
    s.parent = harpe_arena_alloc(&s.arena, nodes, sizeof *s.parent);
    s.parent_edge = harpe_arena_alloc(&s.arena, nodes, sizeof *s.parent_edge);
    s.edges = harpe_arena_alloc(&s.arena, edges, sizeof *s.edges);
    s.heap = harpe_arena_alloc(&s.arena, edges, sizeof *s.heap);
    s.heap_index = harpe_arena_alloc(&s.arena, edges, sizeof *s.heap_index);
    s.tight_at_ps = harpe_arena_alloc(&s.arena, edges, sizeof *s.tight_at_ps);
    s.subtree = harpe_arena_alloc(&s.arena, nodes + 1, sizeof *s.subtree);
    s.rest = harpe_arena_alloc(&s.arena, nodes + 1, sizeof *s.rest);
    if (s.arena.has_failed) {
        harpe_arena_free(&s.arena);
        return harpe_fail_memory(error);
    }
    reset_edges(&s);
    hang_all_on_source(&s);
    s.work.memory_bytes = frontier_solver_bytes(network);
    meet_deadlines(&s);
    begin_at(&s, network->sink);
    *solver = s;
    return HARPE_OK;
}

void harpe_frontier_solver_clear(harpe_frontier_solver *solver) {
    harpe_arena_free(&solver->arena);
    memset(solver, 0, sizeof *solver);
}
