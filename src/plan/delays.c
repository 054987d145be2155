/* SPDX-License-Identifier: Apache-2.0 */
/* Adds nodes for transfers to a graph; see delays.h. */
#include "plan/delays.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

#define LAG_MAX_S 1e6

typedef struct delayer {
    harpe_dag *dag;
    int *rank;       /* [node] */
    double *lag_s;   /* [node] */
    bool *is_late;   /* [arc]: it gets a delay */
    int32_t *before; /* [delay]: the node that ends before */
    harpe_delays *delays;
} delayer;

static harpe_status check_lag(double lag_s, harpe_error *error) {
    if (lag_s >= 0 && lag_s <= LAG_MAX_S) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "transfer time %g s is not between 0 and %.0f s", lag_s, LAG_MAX_S);
}

static harpe_status read_lags(delayer *d, const harpe_instruction *const *lists,
                              const size_t *counts, int rank_count, double transfer_time_s,
                              harpe_error *error) {
    int32_t next = 0;
    for (int rank = 0; rank < rank_count; rank++) {
        for (size_t i = 0; i < counts[rank]; i++, next++) {
            double lag_s = lists[rank][i].lag_s;
            harpe_status status = check_lag(lag_s, error);
            if (status != HARPE_OK) return status;
            d->rank[next] = rank;
            d->lag_s[next] = lag_s > 0 ? lag_s : transfer_time_s;
        }
    }
    return HARPE_OK;
}

/* Numbers the delays by the node that waits. */
static void list_delays(delayer *d) {
    const harpe_dag *dag = d->dag;
    harpe_delays *delays = d->delays;
    for (int32_t a = 0; a < dag->arc_count; a++) {
        int32_t from = dag->arc_from[a], to = dag->arc_to[a];
        d->is_late[a] = d->rank[from] != d->rank[to] && d->lag_s[to] > 0;
        if (!d->is_late[a]) continue;
        d->before[delays->count] = from;
        delays->after[delays->count] = to;
        delays->rank[delays->count] = d->rank[to];
        delays->lag_s[delays->count++] = d->lag_s[to];
    }
}

static void fill_arcs(const delayer *d, harpe_dag *to) {
    const harpe_dag *from = d->dag;
    int32_t next = 0, count = d->delays->count;
    for (int32_t v = 0; v < from->node_count; v++) {
        to->first_arc_into[v] = from->first_arc_into[v];
        for (int32_t a = from->first_arc_into[v]; a < from->first_arc_into[v + 1]; a++) {
            to->arc_from[a] = d->is_late[a] ? from->node_count + next++ : from->arc_from[a];
            to->arc_to[a] = v;
        }
    }
    for (int32_t k = 0; k < count; k++) {
        int32_t a = from->arc_count + k;
        to->first_arc_into[from->node_count + k] = a;
        to->arc_from[a] = d->before[k];
        to->arc_to[a] = from->node_count + k;
    }
    to->node_count = from->node_count + count;
    to->arc_count = from->arc_count + count;
    to->first_arc_into[to->node_count] = to->arc_count;
}

/* Each delay comes directly before the node that waits for it. */
static void fill_order(const delayer *d, harpe_dag *to) {
    const harpe_dag *from = d->dag;
    int32_t next = 0;
    for (int32_t k = 0; k < from->node_count; k++) {
        int32_t v = from->topological_order[k];
        for (int32_t a = to->first_arc_into[v]; a < to->first_arc_into[v + 1]; a++)
            if (to->arc_from[a] >= from->node_count)
                to->topological_order[next++] = to->arc_from[a];
        to->topological_order[next++] = v;
    }
}

static harpe_status extend(const delayer *d, harpe_error *error) {
    size_t nodes = (size_t)d->dag->node_count + (size_t)d->delays->count;
    size_t arcs = (size_t)d->dag->arc_count + (size_t)d->delays->count;
    harpe_dag dag = {
        .arc_from = harpe_calloc(arcs, sizeof *dag.arc_from),
        .arc_to = harpe_calloc(arcs, sizeof *dag.arc_to),
        .first_arc_into = harpe_calloc(nodes + 1, sizeof *dag.first_arc_into),
        .topological_order = harpe_calloc(nodes, sizeof *dag.topological_order),
    };
    if (!dag.arc_from || !dag.arc_to || !dag.first_arc_into || !dag.topological_order) {
        harpe_dag_clear(&dag);
        return harpe_fail_memory(error);
    }
    fill_arcs(d, &dag);
    fill_order(d, &dag);
    harpe_dag_clear(d->dag);
    *d->dag = dag;
    return HARPE_OK;
}

static harpe_status allocate(delayer *d, harpe_error *error) {
    size_t nodes = (size_t)d->dag->node_count, arcs = (size_t)d->dag->arc_count;
    d->rank = harpe_calloc(nodes, sizeof *d->rank);
    d->lag_s = harpe_calloc(nodes, sizeof *d->lag_s);
    d->is_late = harpe_calloc(arcs + 1, sizeof *d->is_late);
    d->before = harpe_calloc(arcs + 1, sizeof *d->before);
    d->delays->after = harpe_calloc(arcs + 1, sizeof *d->delays->after);
    d->delays->rank = harpe_calloc(arcs + 1, sizeof *d->delays->rank);
    d->delays->lag_s = harpe_calloc(arcs + 1, sizeof *d->delays->lag_s);
    bool complete = d->rank && d->lag_s && d->is_late && d->before && d->delays->after &&
                    d->delays->rank && d->delays->lag_s;
    return complete ? HARPE_OK : harpe_fail_memory(error);
}

harpe_status harpe_delays_add(harpe_dag *dag, const harpe_instruction *const *lists,
                              const size_t *counts, int rank_count, double transfer_time_s,
                              harpe_delays *out, harpe_error *error) {
    *out = (harpe_delays){0};
    delayer d = {.dag = dag, .delays = out};
    harpe_status status = check_lag(transfer_time_s, error);
    if (status == HARPE_OK) status = allocate(&d, error);
    if (status == HARPE_OK)
        status = read_lags(&d, lists, counts, rank_count, transfer_time_s, error);
    if (status == HARPE_OK) list_delays(&d);
    if (status == HARPE_OK && out->count > 0) status = extend(&d, error);
    free(d.rank);
    free(d.lag_s);
    free(d.is_late);
    free(d.before);
    return status;
}

void harpe_delays_clear(harpe_delays *delays) {
    free(delays->after);
    free(delays->rank);
    free(delays->lag_s);
    *delays = (harpe_delays){0};
}
