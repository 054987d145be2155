/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the ends of all instructions up to date while some durations change, so that a change costs
 * only the instructions that it moves, not the whole pipeline. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_LONGEST_PATH_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_LONGEST_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/scheduler/perseus/trials.h"

typedef struct harpe_longest_path {
    harpe_trials *trials; /* their durations and ends */
    int32_t *position;    /* [node]: in topological order */
    int32_t *first_after; /* [node + 1]: of the nodes that wait for a node, in `after` */
    int32_t *after;
    uint64_t
        *changed; /* one bit per position: the duration, or the end of a node before, changed */
    size_t first_word, end_word; /* all bits outside are 0 */
    int32_t *moved;              /* nodes that the present update has moved, and their old ends */
    double *moved_end_s;
    double most_s;        /* the longest that the iteration may take */
    size_t too_late;      /* nodes that end later */
    bool has_shorter;     /* a duration became shorter since the last update */
    bool has_failed;      /* the last update returned false */
    bool is_latest_known; /* no latest end is earlier than it must be */
    size_t work;          /* nodes and arcs visited so far */
    size_t latest_work;   /* the same when the latest ends were found */
} harpe_longest_path;

/* Begins with the durations of `trials`, which must outlive the path. Returns false if memory runs
 * out. Free with harpe_longest_path_end in any case. */
bool harpe_longest_path_begin(harpe_longest_path *self, harpe_trials *trials, double most_s);
void harpe_longest_path_end(harpe_longest_path *self);

/* Changes the duration of a node. Any number of calls may precede an update. */
void harpe_longest_path_set(harpe_longest_path *self, size_t node, double duration_s);
/* Finds the new ends. Returns false, and keeps the ends that were, if the iteration takes longer
 * than it may. The caller then sets the durations back, and calls harpe_longest_path_go_back. */
bool harpe_longest_path_update(harpe_longest_path *self);
/* Finds the ends after the durations were set back to those before the last update. */
void harpe_longest_path_go_back(harpe_longest_path *self);
/* Returns the length of the iteration. */
double harpe_longest_path_length_s(harpe_longest_path *self);

#endif
