/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of schedule files with any bytes. An accepted schedule must be complete, and
 * its dependency graph must have a valid topological order. A refused file must have an error of
 * one line and give no schedule. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/schedule.h>

#include "plan/dag.h"
#include "plan/schedule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_actions(const harpe_instruction *list, size_t count, int stages,
                          int microbatches) {
    for (size_t i = 0; i < count; i++) {
        require(list[i].name != NULL);
        require(list[i].action_count == 1 || list[i].action_count == 2);
        for (int a = 0; a < list[i].action_count; a++) {
            const harpe_action *action = &list[i].actions[a];
            require(action->stage >= 0 && action->stage < stages);
            if (action->operation == HARPE_STANDALONE) {
                require(action->microbatch == -1 && list[i].action_count == 1);
                continue;
            }
            require(action->operation <= HARPE_RECOMPUTATION);
            require(action->microbatch >= 0 && action->microbatch < microbatches);
        }
    }
}

static void check_dag(const harpe_dag *dag, size_t instruction_count) {
    require(dag->node_count >= 0 && (size_t)dag->node_count == instruction_count);
    int32_t *place = calloc(instruction_count + 1, sizeof *place);
    require(place != NULL);
    for (int32_t i = 0; i < dag->node_count; i++) {
        int32_t node = dag->topological_order[i];
        require(node >= 0 && node < dag->node_count && place[node] == 0);
        place[node] = i + 1;
    }
    for (int32_t a = 0; a < dag->arc_count; a++) {
        int32_t from = dag->arc_from[a];
        int32_t to = dag->arc_to[a];
        require(from >= 0 && from < dag->node_count && to >= 0 && to < dag->node_count);
        require(place[from] < place[to]);
    }
    free(place);
}

static void check_schedule(const harpe_schedule *schedule) {
    int ranks = harpe_schedule_rank_count(schedule);
    require(ranks > 0);
    const harpe_instruction **lists = calloc((size_t)ranks, sizeof *lists);
    size_t *counts = calloc((size_t)ranks, sizeof *counts);
    require(lists && counts);
    size_t total = 0;
    for (int rank = 0; rank < ranks; rank++) {
        lists[rank] = harpe_schedule_rank(schedule, rank, &counts[rank]);
        require(counts[rank] > 0);
        check_actions(lists[rank], counts[rank], harpe_schedule_stage_count(schedule),
                      harpe_schedule_microbatch_count(schedule));
        total += counts[rank];
    }
    require(total == harpe_schedule_instruction_count(schedule));
    harpe_dag dag = {0};
    require(harpe_dag_build(lists, counts, ranks, schedule->waits, schedule->wait_count, &dag,
                            NULL) == HARPE_OK);
    check_dag(&dag, total);
    harpe_dag_clear(&dag);
    free(counts);
    free(lists);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    harpe_schedule *schedule = NULL;
    harpe_error error = {0};
    harpe_status status =
        harpe_schedule_parse_csv((const char *)data, size, "fuzz.csv", &schedule, &error);
    if (status == HARPE_OK) {
        require(schedule != NULL);
        check_schedule(schedule);
    } else {
        require(!schedule && error.status == status && error.message[0] != '\0');
    }
    harpe_schedule_free(schedule);
    return 0;
}
