/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one step for each of many drafts of plans, or of many replicas, on several threads. Each
 * thread has its own tools. A step depends only on its own draft and on data that does not change
 * during the run, so the result does not depend on the number of threads. */
#ifndef HARPE_PLAN_CREW_H
#define HARPE_PLAN_CREW_H

#include <pthread.h>

#include "plan/assignment.h"
#include "plan/dive.h"
#include "plan/walk.h"

/* Working memory of one thread. */
typedef struct harpe_tools {
    harpe_assignment assignment;
    harpe_splicer splicer;
    harpe_diver diver;
    harpe_walk walk; /* begun by the first step that needs it */
    bool is_walking;
    harpe_progress walk_progress; /* ends the walk if the run must end */
    int32_t *option;              /* [instruction] */
    int32_t *ordered;             /* [position], as in harpe_assignment */
} harpe_tools;

typedef struct harpe_crew {
    const harpe_problem *problem;
    const harpe_network *network;
    harpe_relaxation_curves curves;
    struct harpe_crew_member *members; /* the first one is the calling thread */
    size_t member_count;
} harpe_crew;

/* One run. The crew calls `step` with the numbers 0 to count - 1, each once, in this order. */
typedef struct harpe_crew_run {
    size_t count;
    harpe_status (*step)(void *user, harpe_tools *tools, size_t number, harpe_error *error);
    /* Called by the calling thread with the number of steps that were begun. Returns false to stop.
     */
    bool (*report)(void *user, size_t begun);
    void *user;
} harpe_crew_run;

/* Makes a crew of at most `threads` members (0: one for each core that the process may use). The
 * problem and the network must outlive the crew, and the crew must stay at its address. If
 * `problem` is NULL, the tools are empty. After a failure there is nothing to clear. */
harpe_status harpe_crew_init(harpe_crew *crew, const harpe_problem *problem,
                             const harpe_network *network, int threads, harpe_error *error);
void harpe_crew_clear(harpe_crew *crew);

/* Returns true if the run must end. A step that takes long calls this function often. On the
 * calling thread of the run, this function also calls `report`. */
bool harpe_crew_is_over(harpe_tools *tools);

/* Returns the tools of the calling thread, for use between two runs. */
harpe_tools *harpe_crew_tools(harpe_crew *crew);

/* Runs all steps. After a failure no new step begins; the failure of the step with the lowest
 * number is returned. Fails with HARPE_INTERRUPTED if `report` returned false. */
harpe_status harpe_crew_do(harpe_crew *crew, const harpe_crew_run *run, harpe_error *error);

#endif
