/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a function for each of many numbers on several threads. Unlike a crew (crew.h), the threads
 * share no problem. Private to src/plan. */
#ifndef HARPE_PLAN_PARALLEL_H
#define HARPE_PLAN_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

typedef struct harpe_parallel_run {
    size_t count;
    int threads; /* the most threads; 0: one for each core that the process may use */
    harpe_status (*step)(void *user, size_t number, harpe_error *error);
    /* Called by the calling thread with the number of steps that have begun. Returns false to stop.
     * NULL: none. */
    bool (*report)(void *user, size_t begun);
    void *user;
} harpe_parallel_run;

/* Calls `step` with the numbers 0 to count - 1, each once. After a failure no new step begins; the
 * failure with the lowest number is returned. Sets `*stopped` if `report` returned false. */
harpe_status harpe_parallel_do(const harpe_parallel_run *run, bool *stopped, harpe_error *error);

#endif
