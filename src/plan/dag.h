/* SPDX-License-Identifier: Apache-2.0 */
/* The dependency graph of one iteration: which instruction must end before which may start. Built
 * from the ranks' lists alone; knows nothing of time, energy or profiles, and nothing of which
 * schedule made the lists. */
#ifndef HARPE_PLAN_DAG_H
#define HARPE_PLAN_DAG_H

#include <stddef.h>
#include <stdint.h>

#include <harpe/schedule.h>
#include <harpe/status.h>

/* Nodes are instructions, numbered rank 0's list first, then rank 1's, and so on. */
typedef struct harpe_dag {
    int32_t node_count;
    int32_t arc_count;
    int32_t *arc_from; /* arc_from[a] must end before arc_to[a] starts */
    int32_t *arc_to;
    int32_t
        *first_arc_into; /* [node_count + 1]: node v's arcs are first_arc_into[v] .. [v + 1] - 1 */
    int32_t *topological_order; /* node_count nodes */
} harpe_dag;

/* `lists[r]` holds counts[r] instructions of rank r. Arcs: neighbours in a rank's list, and what
 * each action's operation waits for (see harpe_operation). Duplicate arcs and arcs that the rank's
 * own order already implies are left out; the arcs into one node stand together, nodes ascending.
 * An overlapped pair waits for what either of its actions waits for. Fails with HARPE_INVALID_INPUT
 * when two instructions are the same action, when an action that another waits for is missing, when
 * a stage does nothing for a microbatch below the highest, or when the order can never finish
 * (naming the instructions on the cycle). O(instructions). */
harpe_status harpe_dag_build(const harpe_instruction *const *lists, const size_t *counts,
                             int rank_count, harpe_dag *out, harpe_error *error);
void harpe_dag_clear(harpe_dag *dag);

#endif
