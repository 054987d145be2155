/* SPDX-License-Identifier: Apache-2.0 */
/* The dependency graph of one iteration: which instruction must end before another may start. It
 * is built only from the ranks' lists and does not depend on times, energies, profiles or the kind
 * of schedule. */
#ifndef HARPE_PLAN_DAG_H
#define HARPE_PLAN_DAG_H

#include <stddef.h>
#include <stdint.h>

#include <harpe/schedule.h>
#include <harpe/status.h>

#include "base/array.h"

/* Nodes are instructions, numbered in the order of rank 0's list, then rank 1's, and so on. */
typedef struct harpe_dag {
    harpe_arena arena;
    int32_t node_count;
    int32_t arc_count;
    int32_t *arc_from; /* arc_from[a] must end before arc_to[a] starts */
    int32_t *arc_to;
    int32_t
        *first_arc_into; /* [node_count + 1]: node v's arcs are first_arc_into[v] .. [v + 1] - 1 */
    int32_t *topological_order; /* node_count nodes */
} harpe_dag;

/* A dependency that does not follow from the operations: node `after` may start when node `before`
 * has ended. */
typedef struct harpe_wait {
    int32_t before;
    int32_t after;
} harpe_wait;

/* Builds the graph. `lists[r]` contains the counts[r] instructions of rank r. Arcs connect
 * neighbours in a rank's list, and each action with the actions for which its operation waits (see
 * harpe_operation). `waits` are further arcs, sorted by `after` and then by `before`, and name
 * nodes of the lists. Duplicate arcs, and arcs that the order of a rank's list implies, are left
 * out. The arcs into one node are stored together, in the order of nodes. An overlapped pair waits
 * for every instruction for which at least one of its two actions waits. Fails with
 * HARPE_INVALID_INPUT if two instructions are the same action, if an action for which another waits
 * is missing, if a stage lacks a microbatch below its highest microbatch, or if the order can never
 * finish (the message names the instructions on the cycle). O(instructions). */
harpe_status harpe_dag_build(const harpe_instruction *const *lists, const size_t *counts,
                             int rank_count, const harpe_wait *waits, size_t wait_count,
                             harpe_dag *out, harpe_error *error);
void harpe_dag_clear(harpe_dag *dag);

/* Allocates the arrays of an empty graph, whose counts stay 0. Clear it also after a failure. */
harpe_status harpe_dag_allocate(harpe_dag *dag, size_t nodes, size_t arcs, harpe_error *error);

/* Computes the earliest end of each node, and the longest path from its end to the end of the
 * iteration, if the nodes take `time_s`. `tail_s` NULL: only the ends. Returns the time of the
 * iteration. */
double harpe_dag_run(const harpe_dag *dag, const double *time_s, double *end_s, double *tail_s);

#endif
