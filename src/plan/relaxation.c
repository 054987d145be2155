/* SPDX-License-Identifier: Apache-2.0 */
/* The network simplex method at a fixed iteration time; search_internal.h explains it. */
#include "plan/search_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* The gain of one microwatt of flow over one picosecond, in joules. */
#define J_PER_UW_PS 1e-18
/* Number of suspects among which a pivot takes the edge with the largest violation. */
#define PRICED_AT_ONCE 48

/* Flow in a curve of one point is limited only by 0. */
static const int64_t unlimited_uw[2] = {HARPE_FLOW_INFINITE, 0};
static const double nothing_j[1] = {0};
static const int64_t nothing_ps[1] = {0};
/* The curve of a dependency. */
static const harpe_relaxation_curve no_time = {0, nothing_ps, unlimited_uw, nothing_j};

/* ---- Curves ---------------------------------------------------------------------------------- */

/* Computes the energy at each point from the rounded rates, beginning with the slowest. */
static harpe_status copy_hull(harpe_relaxation_curves *curves, const harpe_network_curve *from,
                              harpe_relaxation_curve *to, harpe_error *error) {
    int32_t last = from->segment_count;
    double *energy_j = harpe_arena_alloc(&curves->arena, (size_t)last + 1, sizeof *energy_j);
    if (!energy_j) return harpe_fail_memory(error);
    energy_j[last] = from->slowest_energy_j;
    for (int32_t k = last; k > 0; k--) {
        double step_ps = (double)(from->time_ps[k] - from->time_ps[k - 1]);
        energy_j[k - 1] = energy_j[k] + (double)from->rate_uw[k] * step_ps * J_PER_UW_PS;
    }
    *to = (harpe_relaxation_curve){last, from->time_ps, from->rate_uw, energy_j};
    return HARPE_OK;
}

static void fill_options(harpe_relaxation_curves *curves, const harpe_problem *problem) {
    int32_t at = 0;
    for (size_t c = 0; c < problem->choice_count; c++) {
        const harpe_option_list *list = &problem->choices[c].list;
        curves->first_option[c] = at;
        for (size_t o = 0; o < list->option_count; o++, at++) {
            curves->option_time_ps[at] = harpe_round_down(list->options[o].time_s * HARPE_PS_PER_S);
            curves->option_energy_j[at] = list->options[o].effective_energy_j;
            curves->option[at] = (harpe_relaxation_curve){
                0, &curves->option_time_ps[at], unlimited_uw, &curves->option_energy_j[at]};
        }
    }
    curves->first_option[problem->choice_count] = at;
}

harpe_status harpe_relaxation_curves_init(harpe_relaxation_curves *curves,
                                          const harpe_problem *problem,
                                          const harpe_network *network, harpe_error *error) {
    harpe_relaxation_curves made = {0};
    size_t choices = problem->choice_count, curves_made = (size_t)network->curve_count - 1;
    size_t options = 0;
    for (size_t c = 0; c < choices; c++)
        options += problem->choices[c].list.option_count;
    made.hull = harpe_arena_alloc(&made.arena, curves_made, sizeof *made.hull);
    made.option = harpe_arena_alloc(&made.arena, options, sizeof *made.option);
    made.first_option = harpe_arena_alloc(&made.arena, choices + 1, sizeof *made.first_option);
    made.option_time_ps = harpe_arena_alloc(&made.arena, options, sizeof *made.option_time_ps);
    made.option_energy_j = harpe_arena_alloc(&made.arena, options, sizeof *made.option_energy_j);
    harpe_status status = made.arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
    for (size_t c = 0; status == HARPE_OK && c < curves_made; c++)
        status = copy_hull(&made, &network->curves[c + 1], &made.hull[c], error);
    if (status != HARPE_OK) {
        harpe_arena_free(&made.arena);
        return status;
    }
    fill_options(&made, problem);
    *curves = made;
    return HARPE_OK;
}

void harpe_relaxation_curves_clear(harpe_relaxation_curves *curves) {
    harpe_arena_free(&curves->arena);
    memset(curves, 0, sizeof *curves);
}

/* ---- Making ---------------------------------------------------------------------------------- */

harpe_status harpe_relaxation_init(harpe_relaxation *relaxation, const harpe_network *network,
                                   harpe_error *error) {
    size_t nodes = (size_t)network->node_count;
    size_t edges = (size_t)network->edge_count + 1; /* one from the sink to the source */
    harpe_relaxation r = {.node_count = network->node_count};
    harpe_arena *arena = &r.arena;
    (void)harpe_relaxation_state_make(&r.now, arena, network);
    r.first_incidence = harpe_arena_alloc(arena, nodes + 2, sizeof *r.first_incidence);
    r.incidences = harpe_arena_alloc(arena, 2 * edges, sizeof *r.incidences);
    r.subtree = harpe_arena_alloc(arena, nodes + 1, sizeof *r.subtree);
    r.is_inside = harpe_arena_alloc(arena, nodes, sizeof *r.is_inside);
    r.mark = harpe_arena_alloc(arena, nodes, sizeof *r.mark);
    if (arena->has_failed) {
        harpe_arena_free(arena);
        return harpe_fail_memory(error);
    }
    *relaxation = r;
    return HARPE_OK;
}

void harpe_relaxation_clear(harpe_relaxation *relaxation) {
    harpe_arena_free(&relaxation->arena);
    memset(relaxation, 0, sizeof *relaxation);
}

/* ---- Edges ----------------------------------------------------------------------------------- */

static void set_segment(harpe_relaxation_edge *edge, int32_t segment) {
    const harpe_relaxation_curve *curve = edge->curve;
    edge->segment = segment;
    edge->lowest = curve->rate_uw[segment + 1];
    edge->highest = curve->rate_uw[segment];
}

static int64_t room(const harpe_relaxation_edge *edge, bool along) {
    if (!along) return edge->flow - edge->lowest;
    return edge->highest == HARPE_FLOW_INFINITE ? HARPE_FLOW_INFINITE : edge->highest - edge->flow;
}

static bool is_in_tree(const harpe_relaxation *r, int32_t e) {
    return r->now.parent_edge[r->now.edges[e].head] == e ||
           r->now.parent_edge[r->now.edges[e].tail] == e;
}

static void suspect(harpe_relaxation *r, int32_t e) {
    if (r->now.is_suspect[e]) return;
    r->now.is_suspect[e] = 1;
    r->now.suspects[r->now.suspect_count++] = e;
}

/* How an edge outside of the tree may enter it. */
typedef struct entrance {
    int64_t violation_ps; /* by how much the edge's time is wrong; -1: the edge need not enter */
    int64_t room;         /* flow that the edge itself allows */
    int32_t segment;      /* in which the flow changes */
    bool along;           /* flow is added, not taken away */
} entrance;

/* An edge whose time is shorter than its segment gains flow. An edge whose time is longer than that
 * of the next slower segment loses flow. An edge with a flow inside of its segment, which happens
 * after a change of its curve, must enter the tree or lose its flow, even if its time is right. */
static entrance find_entrance(const harpe_relaxation *r, int32_t e) {
    const harpe_relaxation_edge *edge = &r->now.edges[e];
    const harpe_relaxation_curve *curve = edge->curve;
    int64_t span = harpe_relaxation_span_ps(r, e), time_ps = curve->time_ps[edge->segment];
    if (span < time_ps) return (entrance){time_ps - span, room(edge, true), edge->segment, true};
    if (edge->flow > edge->lowest)
        return (entrance){span - time_ps, edge->flow - edge->lowest, edge->segment, false};
    if (edge->segment < curve->segment_count && span > curve->time_ps[edge->segment + 1])
        return (entrance){span - curve->time_ps[edge->segment + 1],
                          edge->flow - curve->rate_uw[edge->segment + 2], edge->segment + 1, false};
    return (entrance){.violation_ps = -1};
}

/* ---- The tree -------------------------------------------------------------------------------- */

/* Moves the events below `top` in the tree by `shift_ps`, and makes suspects of the edges that may
 * violate the conditions afterwards. */
static void move_subtree(harpe_relaxation *r, int32_t top, int64_t shift_ps) {
    int32_t count = 1;
    r->subtree[0] = top;
    r->is_inside[top] = 1;
    for (int32_t i = 0; i < count; i++) {
        int32_t v = r->subtree[i];
        for (int32_t a = r->first_incidence[v]; a < r->first_incidence[v + 1]; a++) {
            int32_t w = r->incidences[a].node;
            int32_t is_child = !r->is_inside[w] & (r->now.parent_edge[w] == r->incidences[a].edge);
            r->subtree[count] = w;
            count += is_child;
            r->is_inside[w] |= (uint8_t)is_child;
        }
    }
    for (int32_t i = 0; i < count; i++)
        r->now.position[r->subtree[i]] += shift_ps;
    for (int32_t i = 0; i < count; i++) {
        int32_t v = r->subtree[i];
        for (int32_t a = r->first_incidence[v]; a < r->first_incidence[v + 1]; a++) {
            int32_t e = r->incidences[a].edge;
            if (r->is_inside[r->incidences[a].node] || r->now.is_suspect[e]) continue;
            if (find_entrance(r, e).violation_ps >= 0) suspect(r, e);
        }
    }
    for (int32_t i = 0; i < count; i++)
        r->is_inside[r->subtree[i]] = 0;
}

/* Returns the lowest event that is above both `a` and `b` in the tree. */
static int32_t find_apex(harpe_relaxation *r, int32_t a, int32_t b) {
    if (++r->stamp == 0) {
        memset(r->mark, 0, (size_t)r->node_count * sizeof *r->mark);
        r->stamp = 1;
    }
    while (a >= 0 || b >= 0) {
        if (a >= 0) {
            if (r->mark[a] == r->stamp) return a;
            r->mark[a] = r->stamp;
            a = r->now.parent[a];
        }
        if (b >= 0) {
            if (r->mark[b] == r->stamp) return b;
            r->mark[b] = r->stamp;
            b = r->now.parent[b];
        }
    }
    return -1; /* cannot happen: both are below the root */
}

/* ---- One pivot ------------------------------------------------------------------------------- */

/* The cycle that an entering edge closes: from the apex down to `from`, over the edge to `to`, and
 * up to the apex. `leaving` is the lower event of the tree edge that limits the flow, -1 if the
 * entering edge itself does. */
typedef struct cycle {
    int32_t from, to, apex;
    int32_t leaving;
    bool leaves_before; /* the leaving edge is on the way from the apex to `from` */
    int64_t flow;
} cycle;

/* If several edges limit the flow, the first one in the direction of the flow, seen from the apex,
 * leaves. This keeps the tree strongly feasible. */
static cycle find_cycle(harpe_relaxation *r, int32_t e, const entrance *enters) {
    const harpe_relaxation_edge *edge = &r->now.edges[e];
    cycle c = {.from = enters->along ? edge->tail : edge->head,
               .to = enters->along ? edge->head : edge->tail,
               .leaving = -1,
               .flow = HARPE_FLOW_INFINITE};
    c.apex = find_apex(r, c.from, c.to);
    for (int32_t v = c.from; v != c.apex; v = r->now.parent[v]) {
        const harpe_relaxation_edge *tree = &r->now.edges[r->now.parent_edge[v]];
        int64_t most = room(tree, tree->head == v);
        if (most > c.flow || most == HARPE_FLOW_INFINITE) continue;
        c.flow = most;
        c.leaving = v;
        c.leaves_before = true;
    }
    if (enters->room < c.flow) {
        c.flow = enters->room;
        c.leaving = -1;
    }
    for (int32_t v = c.to; v != c.apex; v = r->now.parent[v]) {
        const harpe_relaxation_edge *tree = &r->now.edges[r->now.parent_edge[v]];
        int64_t most = room(tree, tree->tail == v);
        if (most >= c.flow) continue;
        c.flow = most;
        c.leaving = v;
        c.leaves_before = false;
    }
    return c;
}

static void send_flow(harpe_relaxation *r, const cycle *c) {
    for (int32_t v = c->from; v != c->apex; v = r->now.parent[v]) {
        harpe_relaxation_edge *tree = &r->now.edges[r->now.parent_edge[v]];
        tree->flow += tree->head == v ? c->flow : -c->flow;
    }
    for (int32_t v = c->to; v != c->apex; v = r->now.parent[v]) {
        harpe_relaxation_edge *tree = &r->now.edges[r->now.parent_edge[v]];
        tree->flow += tree->tail == v ? c->flow : -c->flow;
    }
}

/* Gives an edge outside of the tree the segment whose lowest flow it has. */
static void rest(harpe_relaxation_edge *edge) {
    if (edge->segment > 0 && edge->flow == edge->highest) set_segment(edge, edge->segment - 1);
}

/* Lets edge `e` enter. Returns false if the flow has no limit. */
static bool pivot(harpe_relaxation *r, int32_t e, const entrance *enters) {
    cycle c = find_cycle(r, e, enters);
    if (c.flow >= HARPE_FLOW_INFINITE) return false;
    harpe_relaxation_edge *edge = &r->now.edges[e];
    r->pivots++;
    if (c.flow > 0) {
        send_flow(r, &c);
        edge->flow += enters->along ? c.flow : -c.flow;
        r->now.objective_j += (double)c.flow * (double)enters->violation_ps * J_PER_UW_PS;
    }
    set_segment(edge, enters->segment);
    if (c.leaving < 0) {
        rest(edge);
        if (find_entrance(r, e).violation_ps >= 0) suspect(r, e);
        return true;
    }
    rest(&r->now.edges[r->now.parent_edge[c.leaving]]);
    /* The side of the leaving edge that has no root moves, so that the entering edge gets its
     * time. */
    int32_t joint = c.leaves_before ? c.from : c.to, other = c.leaves_before ? c.to : c.from;
    bool moves_later = (joint == edge->head) == enters->along;
    move_subtree(r, c.leaving, moves_later ? enters->violation_ps : -enters->violation_ps);
    harpe_tree_rehang(r->now.parent, r->now.parent_edge, c.leaving, joint, other, e);
    return true;
}

/* Takes the suspect with the largest violation among the next ones off the list. Returns -1 if no
 * edge violates the conditions. */
static int32_t next_entering(harpe_relaxation *r, entrance *enters) {
    int32_t best = -1, best_at = -1, priced = 0;
    while (r->now.suspect_count > 0 && priced < PRICED_AT_ONCE && priced < r->now.suspect_count) {
        if (r->now.next_suspect >= r->now.suspect_count) r->now.next_suspect = 0;
        int32_t at = r->now.next_suspect, e = r->now.suspects[at];
        entrance found = {.violation_ps = -1};
        if (!is_in_tree(r, e)) found = find_entrance(r, e);
        if (found.violation_ps < 0) {
            int32_t last = --r->now.suspect_count;
            r->now.suspects[at] = r->now.suspects[last];
            r->now.is_suspect[e] = 0;
            if (best_at == last) best_at = at;
            continue;
        }
        if (best < 0 || found.violation_ps > enters->violation_ps) {
            best = e;
            best_at = at;
            *enters = found;
        }
        r->now.next_suspect++;
        priced++;
    }
    if (best < 0) return -1;
    r->now.suspects[best_at] = r->now.suspects[--r->now.suspect_count];
    r->now.is_suspect[best] = 0;
    return best;
}

harpe_relaxation_outcome harpe_relaxation_solve(harpe_relaxation *relaxation, double limit_j) {
    harpe_relaxation *r = relaxation;
    entrance enters = {0};
    for (;;) {
        if (r->now.objective_j >= limit_j) return HARPE_RELAXATION_ABOVE;
        int32_t e = next_entering(r, &enters);
        if (e < 0) return HARPE_RELAXATION_OPTIMAL;
        if (pivot(r, e, &enters)) continue;
        suspect(r, e);
        return HARPE_RELAXATION_INFEASIBLE;
    }
}

/* ---- Changing a curve ------------------------------------------------------------------------ */

/* Returns the segment of the edge's curve for its flow. A flow between two segments counts to the
 * faster one, in which it can grow, unless it must be able to shrink. */
static int32_t segment_for(const harpe_relaxation_edge *edge, bool must_shrink) {
    const harpe_relaxation_curve *curve = edge->curve;
    int32_t segment = curve->segment_count;
    while (segment > 0 && (edge->flow > curve->rate_uw[segment] ||
                           (edge->flow == curve->rate_uw[segment] && !must_shrink)))
        segment--;
    return segment;
}

/* Returns the edge's part of the dual objective: its least cost plus flow times time. */
static double dual_term_j(const harpe_relaxation_edge *edge) {
    return edge->curve->energy_j[edge->segment] +
           (double)edge->flow * (double)edge->curve->time_ps[edge->segment] * J_PER_UW_PS;
}

void harpe_relaxation_change(harpe_relaxation *relaxation, int32_t edge,
                             const harpe_relaxation_curve *curve) {
    harpe_relaxation *r = relaxation;
    harpe_relaxation_edge *changed = &r->now.edges[edge];
    if (changed->curve == curve) return;
    bool to_head = r->now.parent_edge[changed->head] == edge;
    bool to_tail = r->now.parent_edge[changed->tail] == edge;
    r->now.objective_j -= dual_term_j(changed);
    changed->curve = curve;
    set_segment(changed, segment_for(changed, to_tail));
    r->now.objective_j += dual_term_j(changed);
    if (to_head || to_tail) {
        int64_t shift_ps = curve->time_ps[changed->segment] - harpe_relaxation_span_ps(r, edge);
        int32_t below = to_head ? changed->head : changed->tail;
        if (shift_ps != 0) move_subtree(r, below, to_head ? shift_ps : -shift_ps);
    } else if (find_entrance(r, edge).violation_ps >= 0) {
        suspect(r, edge);
    }
}

/* ---- The graph of a walk --------------------------------------------------------------------- */

static void add_edge(harpe_relaxation *r, int32_t tail, int32_t head,
                     const harpe_relaxation_curve *curve) {
    r->now.edges[r->edge_count++] =
        (harpe_relaxation_edge){.curve = curve, .tail = tail, .head = head};
}

/* Lists the edges of each event. */
static void index_edges(harpe_relaxation *r) {
    int32_t *first = r->first_incidence;
    memset(first, 0, ((size_t)r->node_count + 2) * sizeof *first);
    for (int32_t e = 0; e < r->edge_count; e++) {
        first[r->now.edges[e].tail + 2]++;
        first[r->now.edges[e].head + 2]++;
    }
    for (int32_t v = 1; v < r->node_count; v++)
        first[v + 1] += first[v];
    for (int32_t e = 0; e < r->edge_count; e++) {
        int32_t tail = r->now.edges[e].tail, head = r->now.edges[e].head;
        r->incidences[first[tail + 1]++] = (harpe_incidence){.edge = e, .node = head};
        r->incidences[first[head + 1]++] = (harpe_incidence){.edge = e, .node = tail};
    }
}

/* The walk's two trees are connected by the edge from the sink to the source. Before the walk's
 * first pivot there is only one tree, and that edge is outside of it. */
void harpe_relaxation_load(harpe_relaxation *relaxation, const harpe_relaxation_curves *curves,
                           const harpe_frontier_solver *solver) {
    harpe_relaxation *r = relaxation;
    const harpe_network *network = solver->network;
    r->source = network->source;
    r->sink = network->sink;
    r->edge_count = 0;
    r->deadline_ps = solver->time_ps;
    for (int32_t i = 0; i < r->now.suspect_count; i++)
        r->now.is_suspect[r->now.suspects[i]] = 0;
    r->now.suspect_count = r->now.next_suspect = 0;
    for (int32_t e = 0; e < network->edge_count; e++) {
        const harpe_edge_state *from = &solver->edges[e];
        add_edge(r, from->tail, from->head,
                 from->curve > 0 ? &curves->hull[from->curve - 1] : &no_time);
        r->now.edges[e].flow = from->flow;
        set_segment(&r->now.edges[e], from->segment);
    }
    int32_t back = r->edge_count;
    r->back_ps = -r->deadline_ps;
    r->back = (harpe_relaxation_curve){0, &r->back_ps, unlimited_uw, nothing_j};
    add_edge(r, r->sink, r->source, &r->back);
    r->now.edges[back].flow = solver->flow_uw;
    set_segment(&r->now.edges[back], 0);
    index_edges(r);
    for (int32_t v = 0; v < network->node_count; v++) {
        r->now.position[v] = harpe_frontier_solver_event_ps(solver, v);
        r->now.parent[v] = solver->parent[v];
        r->now.parent_edge[v] = solver->parent_edge[v];
    }
    if (r->now.parent[r->sink] < 0 && r->sink != r->source) {
        r->now.parent[r->sink] = r->source;
        r->now.parent_edge[r->sink] = back;
    }
    r->now.objective_j = harpe_frontier_solver_energy_j(solver);
}

/* ---- Solutions that are set aside ------------------------------------------------------------ */

bool harpe_relaxation_state_make(harpe_relaxation_state *state, harpe_arena *arena,
                                 const harpe_network *network) {
    size_t nodes = (size_t)network->node_count, edges = (size_t)network->edge_count + 1;
    harpe_relaxation_state s = {0};
    s.edges = harpe_arena_alloc(arena, edges, sizeof *s.edges);
    s.position = harpe_arena_alloc(arena, nodes, sizeof *s.position);
    s.parent = harpe_arena_alloc(arena, nodes, sizeof *s.parent);
    s.parent_edge = harpe_arena_alloc(arena, nodes, sizeof *s.parent_edge);
    s.suspects = harpe_arena_alloc(arena, edges, sizeof *s.suspects);
    s.is_suspect = harpe_arena_alloc(arena, edges, sizeof *s.is_suspect);
    bool complete =
        s.edges && s.position && s.parent && s.parent_edge && s.suspects && s.is_suspect;
    if (complete) *state = s;
    return complete;
}

void harpe_relaxation_state_copy(const harpe_relaxation *relaxation, harpe_relaxation_state *to,
                                 const harpe_relaxation_state *from) {
    size_t nodes = (size_t)relaxation->node_count, edges = (size_t)relaxation->edge_count;
    for (int32_t i = 0; i < to->suspect_count; i++)
        to->is_suspect[to->suspects[i]] = 0;
    for (int32_t i = 0; i < from->suspect_count; i++) {
        to->suspects[i] = from->suspects[i];
        to->is_suspect[from->suspects[i]] = 1;
    }
    memcpy(to->edges, from->edges, edges * sizeof *to->edges);
    memcpy(to->position, from->position, nodes * sizeof *to->position);
    memcpy(to->parent, from->parent, nodes * sizeof *to->parent);
    memcpy(to->parent_edge, from->parent_edge, nodes * sizeof *to->parent_edge);
    to->suspect_count = from->suspect_count;
    to->next_suspect = from->next_suspect;
    to->objective_j = from->objective_j;
}
