/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the dependency graph of one iteration from the ranks' lists. Finds a topological order by
 * running the lists without times: every rank goes through its list until it must wait for another
 * rank. If no rank can continue before all lists end, the graph has a cycle, and the error names
 * the instructions on the cycle. */
#include "plan/dag.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <harpe/profile.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"

#define WAITS_MAX \
    3 /* of one action: a backward waits for the next stage, its forward and its recomputation */

/* The nodes that work on one microbatch at one stage. Each member is a node + 1, or 0 for none. */
typedef struct work {
    int32_t forward;
    int32_t backward; /* of any kind */
    int32_t weight;
    int32_t recomputation;
    bool is_backward_split;
} work;

typedef struct graph {
    const harpe_instruction *const *lists;
    const size_t *counts;
    int rank_count;
    int stage_count;
    int microbatch_count;
    const harpe_wait *waits;
    size_t wait_count;
    size_t next_wait;    /* while arcs are added: the first that is not added */
    size_t action_count; /* without standalone ones */
    int32_t *rank_start; /* rank r's nodes are rank_start[r] .. rank_start[r + 1] - 1 */
    work *works;         /* [stage * microbatch_count + microbatch] */
    harpe_dag dag;
} graph;

/* ---- Iterating over the lists ---------------------------------------------------------------- */

/* Initialise with zeros, then call next_action until it returns NULL. */
typedef struct action_cursor {
    int rank;     /* rank of the last action that was returned */
    int32_t node; /* node of that action */
    size_t index; /* where the search continues */
    int which;
} action_cursor;

/* Returns the next action that is not standalone. */
static const harpe_action *next_action(const graph *g, action_cursor *cursor) {
    while (cursor->rank < g->rank_count) {
        if (cursor->index >= g->counts[cursor->rank]) {
            cursor->rank++;
            cursor->index = 0;
            continue;
        }
        const harpe_instruction *instruction = &g->lists[cursor->rank][cursor->index];
        if (cursor->which >= instruction->action_count) {
            cursor->index++;
            cursor->which = 0;
            continue;
        }
        const harpe_action *action = &instruction->actions[cursor->which++];
        if (action->operation == HARPE_STANDALONE) continue;
        cursor->node = g->rank_start[cursor->rank] + (int32_t)cursor->index;
        return action;
    }
    return NULL;
}

static int rank_of(const graph *g, int32_t node) {
    int low = 0;
    int high = g->rank_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (g->rank_start[middle] <= node)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- Naming an action ------------------------------------------------------------------------ */
/* Uses the short form of torch.distributed.pipelining: 3F1 is stage 3's forward of microbatch 1. */

#define LABEL_SIZE 160

static const char letters[] = {
    [HARPE_FORWARD] = 'F',         [HARPE_BACKWARD] = 'B',      [HARPE_BACKWARD_INPUT] = 'I',
    [HARPE_BACKWARD_WEIGHT] = 'W', [HARPE_RECOMPUTATION] = 'R', [HARPE_FORWARD_BACKWARD] = 'B',
};

/* Writes "rank 2's forward 3F1". */
static void describe(const graph *g, int32_t node, char label[LABEL_SIZE]) {
    int rank = rank_of(g, node);
    const harpe_instruction *instruction = &g->lists[rank][node - g->rank_start[rank]];
    int length = snprintf(label, LABEL_SIZE, "rank %d's %.63s", rank, instruction->name);
    for (int i = 0; i < instruction->action_count; i++) {
        const harpe_action *action = &instruction->actions[i];
        if (action->operation == HARPE_STANDALONE) continue;
        length +=
            snprintf(label + length, LABEL_SIZE - (size_t)length, "%c%d%c%d", i == 0 ? ' ' : ';',
                     action->stage, letters[action->operation], action->microbatch);
    }
}

/* ---- Counting nodes, stages and microbatches ------------------------------------------------- */

static harpe_status number_nodes(graph *g, harpe_error *error) {
    g->rank_start = harpe_calloc((size_t)g->rank_count + 1, sizeof *g->rank_start);
    if (!g->rank_start) return harpe_fail_memory(error);
    size_t node_count = 0;
    for (int rank = 0; rank < g->rank_count; rank++) {
        /* An instruction has at most two actions, each of which waits for at most WAITS_MAX
         * others. */
        if (g->counts[rank] > INT32_MAX / (2 * WAITS_MAX + 1) - node_count)
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "more than %d instructions",
                              INT32_MAX / (2 * WAITS_MAX + 1));
        node_count += g->counts[rank];
        g->rank_start[rank + 1] = (int32_t)node_count;
    }
    if (g->wait_count > INT32_MAX - node_count * (2 * WAITS_MAX + 1))
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%zu instructions and %zu waits are too many", node_count, g->wait_count);
    g->dag.node_count = (int32_t)node_count;
    return HARPE_OK;
}

static harpe_status measure(graph *g, harpe_error *error) {
    action_cursor cursor = {0};
    for (const harpe_action *action; (action = next_action(g, &cursor));) {
        if (action->stage < 0 || action->stage > HARPE_STAGE_MAX || action->microbatch < 0 ||
            action->microbatch == INT_MAX) {
            char label[LABEL_SIZE];
            describe(g, cursor.node, label);
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: stages run from 0 to %d and microbatches from 0", label,
                              HARPE_STAGE_MAX);
        }
        if (action->stage >= g->stage_count) g->stage_count = action->stage + 1;
        if (action->microbatch >= g->microbatch_count) g->microbatch_count = action->microbatch + 1;
        g->action_count++;
    }
    return HARPE_OK;
}

/* Fails with the name of a (stage, microbatch) that has no action. Such a pair exists if there are
 * fewer actions than (stage, microbatch) pairs. */
static harpe_status fail_missing_work(const graph *g, harpe_error *error) {
    const harpe_action *action;
    harpe_status status = HARPE_OK;
    bool *is_present = NULL;
    size_t *actions_at = harpe_calloc((size_t)g->stage_count, sizeof *actions_at);
    if (!actions_at) return harpe_fail_memory(error);
    action_cursor cursor = {0};
    while ((action = next_action(g, &cursor)))
        actions_at[action->stage]++;
    int stage = 0;
    while (actions_at[stage] >= (size_t)g->microbatch_count)
        stage++;
    /* The stage has fewer actions than microbatches, so one of its first microbatches has none. */
    size_t count = actions_at[stage] + 1;
    is_present = harpe_calloc(count, sizeof *is_present);
    if (!is_present) {
        status = harpe_fail_memory(error);
        goto done;
    }
    cursor = (action_cursor){0};
    while ((action = next_action(g, &cursor)))
        if (action->stage == stage && (size_t)action->microbatch < count)
            is_present[action->microbatch] = true;
    int microbatch = 0;
    while (is_present[microbatch])
        microbatch++;
    status = harpe_fail(error, HARPE_INVALID_INPUT,
                        "stage %d does nothing for microbatch %d, though stages run up to %d and "
                        "microbatches up to %d",
                        stage, microbatch, g->stage_count - 1, g->microbatch_count - 1);
done:
    free(is_present);
    free(actions_at);
    return status;
}

/* ---- The table of work ----------------------------------------------------------------------- */

static work *work_at(const graph *g, int stage, int microbatch) {
    return &g->works[(size_t)stage * (size_t)g->microbatch_count + (size_t)microbatch];
}

static int32_t *place_of(work *done, harpe_operation operation) {
    switch (operation) {
    case HARPE_FORWARD: return &done->forward;
    case HARPE_BACKWARD:
    case HARPE_BACKWARD_INPUT:
    case HARPE_FORWARD_BACKWARD: return &done->backward;
    case HARPE_BACKWARD_WEIGHT: return &done->weight;
    case HARPE_RECOMPUTATION: return &done->recomputation;
    case HARPE_STANDALONE: break;
    }
    return NULL;
}

static harpe_status register_work(graph *g, harpe_error *error) {
    /* The table is never larger than the lists, because every stage runs every microbatch. */
    size_t pairs = (size_t)g->stage_count * (size_t)g->microbatch_count;
    if (pairs > g->action_count) return fail_missing_work(g, error);
    g->works = harpe_calloc(pairs, sizeof *g->works);
    if (!g->works) return harpe_fail_memory(error);
    action_cursor cursor = {0};
    for (const harpe_action *action; (action = next_action(g, &cursor));) {
        work *done = work_at(g, action->stage, action->microbatch);
        int32_t *place = place_of(done, action->operation);
        if (*place != 0) {
            char first[LABEL_SIZE];
            char second[LABEL_SIZE];
            describe(g, *place - 1, first);
            describe(g, cursor.node, second);
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s and %s do the same work: stage %d, microbatch %d", first, second,
                              action->stage, action->microbatch);
        }
        *place = cursor.node + 1;
        done->is_backward_split |= action->operation == HARPE_BACKWARD_INPUT;
    }
    return HARPE_OK;
}

/* ---- Arcs ------------------------------------------------------------------------------------ */

static harpe_status fail_missing_wait(const graph *g, int32_t node, const char *what, int stage,
                                      int microbatch, harpe_error *error) {
    char label[LABEL_SIZE];
    describe(g, node, label);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s waits for the %s of microbatch %d at stage %d, which no rank runs", label,
                      what, microbatch, stage);
}

/* Finds the nodes for which `action` of `node` waits, as node + 1; 0 for none. */
static harpe_status find_waits(const graph *g, const harpe_action *action, int32_t node,
                               int32_t waits[WAITS_MAX], harpe_error *error) {
    int stage = action->stage;
    int microbatch = action->microbatch;
    const work *own = work_at(g, stage, microbatch);
    waits[0] = waits[1] = waits[2] = 0;
    switch (action->operation) {
    case HARPE_FORWARD:
        if (stage == 0) return HARPE_OK;
        waits[0] = work_at(g, stage - 1, microbatch)->forward;
        if (waits[0] != 0) return HARPE_OK;
        return fail_missing_wait(g, node, "forward", stage - 1, microbatch, error);
    case HARPE_BACKWARD_WEIGHT:
        waits[0] = own->backward;
        if (own->is_backward_split) return HARPE_OK;
        return fail_missing_wait(g, node, "backward_input", stage, microbatch, error);
    case HARPE_BACKWARD:
    case HARPE_BACKWARD_INPUT:
    case HARPE_FORWARD_BACKWARD:
        if (stage < g->stage_count - 1) {
            waits[1] = work_at(g, stage + 1, microbatch)->backward;
            if (waits[1] == 0)
                return fail_missing_wait(g, node, "backward", stage + 1, microbatch, error);
        }
        waits[2] = own->recomputation;
        break;
    case HARPE_RECOMPUTATION:
    case HARPE_STANDALONE: break;
    }
    waits[0] = own->forward;
    if (waits[0] != 0) return HARPE_OK;
    return fail_missing_wait(g, node, "forward", stage, microbatch, error);
}

/* Adds an arc unless it exists. The arcs into one node are added one after the other, so a
 * duplicate is among the last few arcs. */
static void add_arc(graph *g, int32_t from, int32_t to) {
    harpe_dag *dag = &g->dag;
    for (int32_t a = g->dag.first_arc_into[to]; a < dag->arc_count; a++)
        if (dag->arc_from[a] == from) return;
    dag->arc_from[dag->arc_count] = from;
    dag->arc_to[dag->arc_count++] = to;
}

/* Adds the waits of `node`. Waits of one node differ, so each is compared only with the `limit`
 * arcs that its operations need. */
static void add_waits_into(graph *g, int32_t list_start, int32_t node) {
    harpe_dag *dag = &g->dag;
    int32_t first = dag->first_arc_into[node], limit = dag->arc_count;
    for (; g->next_wait < g->wait_count && g->waits[g->next_wait].after == node; g->next_wait++) {
        int32_t from = g->waits[g->next_wait].before;
        bool is_known = from >= list_start && from < node;
        for (int32_t a = first; a < limit; a++)
            is_known = is_known || dag->arc_from[a] == from;
        if (is_known) continue;
        dag->arc_from[dag->arc_count] = from;
        dag->arc_to[dag->arc_count++] = node;
    }
}

static harpe_status add_arcs_into(graph *g, int rank, int32_t node, harpe_error *error) {
    int32_t list_start = g->rank_start[rank];
    const harpe_instruction *instruction = &g->lists[rank][node - list_start];
    g->dag.first_arc_into[node] = g->dag.arc_count;
    if (node > list_start) add_arc(g, node - 1, node);
    for (int i = 0; i < instruction->action_count; i++) {
        const harpe_action *action = &instruction->actions[i];
        if (action->operation == HARPE_STANDALONE) continue;
        int32_t waits[WAITS_MAX];
        harpe_status status = find_waits(g, action, node, waits, error);
        if (status != HARPE_OK) return status;
        for (int w = 0; w < WAITS_MAX; w++) {
            int32_t from = waits[w] - 1;
            bool is_implied = from >= list_start && from < node;
            if (from >= 0 && !is_implied) add_arc(g, from, node);
        }
    }
    add_waits_into(g, list_start, node);
    return HARPE_OK;
}

static harpe_status add_arcs(graph *g, harpe_error *error) {
    size_t node_count = (size_t)g->dag.node_count;
    size_t arc_limit = node_count + g->action_count * WAITS_MAX + g->wait_count;
    harpe_status status = harpe_dag_allocate(&g->dag, node_count, arc_limit, error);
    if (status != HARPE_OK) return status;
    for (int rank = 0; rank < g->rank_count; rank++) {
        for (int32_t node = g->rank_start[rank]; node < g->rank_start[rank + 1]; node++) {
            status = add_arcs_into(g, rank, node, error);
            if (status != HARPE_OK) return status;
        }
    }
    g->dag.first_arc_into[node_count] = g->dag.arc_count;
    return HARPE_OK;
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* The state of a running iteration. A rank is either in the queue or waits for one node. */
typedef struct run_state {
    harpe_arena arena;
    int32_t *next_node;  /* of each rank */
    int32_t *waited_for; /* of each rank: the node for which it waits */
    int *queue;          /* ring of ranks that may continue */
    int queue_start, queue_count;
    bool *is_done;     /* of each node */
    int *first_waiter; /* of each node: rank + 1; 0: none */
    int *next_waiter;  /* of each rank: rank + 1; 0: none */
    int32_t done_count;
} run_state;

static bool run_state_new(run_state *run, const graph *g) {
    size_t ranks = (size_t)g->rank_count;
    size_t nodes = (size_t)g->dag.node_count;
    *run = (run_state){0};
    run->next_node = harpe_arena_alloc(&run->arena, ranks, sizeof *run->next_node);
    run->waited_for = harpe_arena_alloc(&run->arena, ranks, sizeof *run->waited_for);
    run->queue = harpe_arena_alloc(&run->arena, ranks, sizeof *run->queue);
    run->is_done = harpe_arena_alloc(&run->arena, nodes, sizeof *run->is_done);
    run->first_waiter = harpe_arena_alloc(&run->arena, nodes, sizeof *run->first_waiter);
    run->next_waiter = harpe_arena_alloc(&run->arena, ranks, sizeof *run->next_waiter);
    if (run->arena.has_failed) return false;
    for (int rank = 0; rank < g->rank_count; rank++) {
        run->next_node[rank] = g->rank_start[rank];
        run->queue[rank] = rank;
    }
    run->queue_count = g->rank_count;
    return true;
}

static void wake_waiters(run_state *run, const graph *g, int32_t node) {
    for (int rank = run->first_waiter[node] - 1; rank >= 0; rank = run->next_waiter[rank] - 1) {
        run->queue[(run->queue_start + run->queue_count) % g->rank_count] = rank;
        run->queue_count++;
    }
}

/* Returns the first unfinished node for which `node` waits, or -1. */
static int32_t find_blocker(const run_state *run, const graph *g, int32_t node) {
    for (int32_t a = g->dag.first_arc_into[node]; a < g->dag.first_arc_into[node + 1]; a++)
        if (!run->is_done[g->dag.arc_from[a]]) return g->dag.arc_from[a];
    return -1;
}

static void run_rank(run_state *run, const graph *g, int rank) {
    while (run->next_node[rank] < g->rank_start[rank + 1]) {
        int32_t node = run->next_node[rank];
        int32_t blocker = find_blocker(run, g, node);
        if (blocker >= 0) {
            run->waited_for[rank] = blocker;
            run->next_waiter[rank] = run->first_waiter[blocker];
            run->first_waiter[blocker] = rank + 1;
            return;
        }
        run->is_done[node] = true;
        g->dag.topological_order[run->done_count++] = node;
        run->next_node[rank]++;
        wake_waiters(run, g, node);
    }
}

/* Fails with the list of nodes that wait for each other in a cycle. */
static harpe_status fail_cycle(const run_state *run, const graph *g, harpe_error *error) {
    int rank = 0;
    while (run->next_node[rank] == g->rank_start[rank + 1])
        rank++;
    /* The walk goes from one waiting rank to the rank for which it waits. After as many steps as
     * there are ranks, the walk is on the cycle. */
    for (int i = 0; i < g->rank_count; i++)
        rank = rank_of(g, run->waited_for[rank]);
    harpe_text text = {0};
    char label[LABEL_SIZE];
    int start = rank;
    const int links_told = 4;
    describe(g, run->next_node[rank], label);
    harpe_text_printf(&text, "%s", label);
    for (int i = 0; i < links_told && (i == 0 || rank != start); i++) {
        int32_t waited_for = run->waited_for[rank];
        rank = rank_of(g, waited_for);
        describe(g, waited_for, label);
        harpe_text_printf(&text, "%s waits for %s", i > 0 ? ", which" : "", label);
        if (waited_for != run->next_node[rank]) {
            describe(g, run->next_node[rank], label);
            harpe_text_printf(&text, ", which comes after %s", label);
        }
    }
    harpe_status status =
        text.failed ? harpe_fail_memory(error)
                    : harpe_fail(error, HARPE_INVALID_INPUT, "the order can never finish: %s%s",
                                 text.data, rank != start ? ", and so on round" : "");
    harpe_text_free(&text);
    return status;
}

static harpe_status order_nodes(graph *g, harpe_error *error) {
    run_state run;
    harpe_status status = HARPE_OK;
    if (!run_state_new(&run, g)) {
        status = harpe_fail_memory(error);
        goto done;
    }
    while (run.queue_count > 0) {
        int rank = run.queue[run.queue_start];
        run.queue_start = (run.queue_start + 1) % g->rank_count;
        run.queue_count--;
        run_rank(&run, g, rank);
    }
    if (run.done_count < g->dag.node_count) status = fail_cycle(&run, g, error);
done:
    harpe_arena_free(&run.arena);
    return status;
}

/* ---- Interface ------------------------------------------------------------------------------- */

harpe_status harpe_dag_build(const harpe_instruction *const *lists, const size_t *counts,
                             int rank_count, const harpe_wait *waits, size_t wait_count,
                             harpe_dag *out, harpe_error *error) {
    graph g = {.lists = lists,
               .counts = counts,
               .rank_count = rank_count,
               .waits = waits,
               .wait_count = wait_count};
    harpe_status status = number_nodes(&g, error);
    if (status == HARPE_OK) status = measure(&g, error);
    if (status == HARPE_OK) status = register_work(&g, error);
    if (status == HARPE_OK) status = add_arcs(&g, error);
    if (status == HARPE_OK) status = order_nodes(&g, error);
    if (status == HARPE_OK) {
        *out = g.dag;
        g.dag = (harpe_dag){0};
    }
    harpe_dag_clear(&g.dag);
    free(g.rank_start);
    free(g.works);
    return status;
}

void harpe_dag_clear(harpe_dag *dag) {
    harpe_arena_free(&dag->arena);
    *dag = (harpe_dag){0};
}

harpe_status harpe_dag_allocate(harpe_dag *dag, size_t nodes, size_t arcs, harpe_error *error) {
    dag->arc_from = harpe_arena_alloc(&dag->arena, arcs, sizeof *dag->arc_from);
    dag->arc_to = harpe_arena_alloc(&dag->arena, arcs, sizeof *dag->arc_to);
    dag->first_arc_into = harpe_arena_alloc(&dag->arena, nodes + 1, sizeof *dag->first_arc_into);
    dag->topological_order = harpe_arena_alloc(&dag->arena, nodes, sizeof *dag->topological_order);
    return dag->arena.has_failed ? harpe_fail_memory(error) : HARPE_OK;
}

double harpe_dag_run(const harpe_dag *dag, const double *time_s, double *end_s, double *tail_s) {
    double length_s = 0;
    for (int32_t k = 0; k < dag->node_count; k++) {
        int32_t i = dag->topological_order[k];
        double start_s = 0;
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            if (end_s[dag->arc_from[a]] > start_s) start_s = end_s[dag->arc_from[a]];
        end_s[i] = start_s + time_s[i];
        if (tail_s) tail_s[i] = 0;
        length_s = fmax(length_s, end_s[i]);
    }
    for (int32_t k = tail_s ? dag->node_count - 1 : -1; k >= 0; k--) {
        int32_t i = dag->topological_order[k];
        double own_s = tail_s[i] + time_s[i];
        for (int32_t a = dag->first_arc_into[i]; a < dag->first_arc_into[i + 1]; a++)
            if (own_s > tail_s[dag->arc_from[a]]) tail_s[dag->arc_from[a]] = own_s;
    }
    return length_s;
}
