/* SPDX-License-Identifier: Apache-2.0 */
/* Switching latencies: how long the GPUs of each stage take to change their clock. The ranks report
 * these times. They do not depend on plans or schedules. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_SWITCH_LATENCIES_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_SWITCH_LATENCIES_H

#include <jansson.h>

#include <harpe/pfo.h>

#include "pfo/rank_clocks.h"

/* The frequencies that are tried on one pipeline rank, the highest first. */
typedef struct harpe_tried_clocks {
    int *mhz;
    size_t count;
} harpe_tried_clocks;

/* The median and the 95th percentile of a switching latency, in s. Both are negative if the latency
 * is not known. */
typedef struct harpe_online_latency {
    double median_s, p95_s;
} harpe_online_latency;

typedef struct harpe_online_latencies {
    bool is_told;    /* a rank reports its clocks. If not, all changes count as immediate */
    bool can_change; /* a pipeline rank has several clocks */
    int rank_count;
    size_t *offset; /* [rank_count + 1]: first clock of each pipeline rank */
    int *mhz;
    harpe_online_latency *latency; /* one per clock */
    double shortest_s;             /* time of the shortest instruction so far; 0: not known */
    /* These follow from the others. */
    double longest_s;   /* of all clocks; 0: none is known */
    size_t known_count; /* of the clocks */
    bool is_late;
} harpe_online_latencies;

/* Makes an empty object. `clocks` has one element per pipeline rank and is copied. Returns NULL if
 * memory runs out. Free with harpe_online_latencies_free. */
harpe_online_latencies *harpe_online_latencies_new(const harpe_tried_clocks *clocks,
                                                   int rank_count);
void harpe_online_latencies_free(harpe_online_latencies *self);

/* Stores the latencies that ranks report in one round. If the ranks of a stage report different
 * latencies for a clock, the longest is stored. `ranks` and `clocks` have `count` elements each,
 * and clocks[i] is the report of ranks[i]. */
void harpe_online_latencies_take(harpe_online_latencies *self, const harpe_rank_info *ranks,
                                 const harpe_rank_clocks *clocks, size_t count);
/* Tells the object the time of an instruction, in s. The shortest time of all calls decides whether
 * changes are late. */
void harpe_online_latencies_take_time(harpe_online_latencies *self, double time_s);

/* Returns true if ranks report their clocks and can change these clocks, but have measured too few
 * changes. */
bool harpe_online_latencies_are_unknown(const harpe_online_latencies *self);
/* Returns true if changes are late: at least a tenth of the known medians are 0.5 ms or longer, and
 * 1 % of the shortest instruction or longer. Otherwise changes count as immediate. */
bool harpe_online_latencies_are_late(const harpe_online_latencies *self);

/* Returns a time, in s, within which nearly all changes to a clock are over. If this was not
 * measured on this pipeline rank, the function returns the longest time of the whole job. If no
 * pipeline rank has measured this clock, the function returns at least `guess_s`. 0: the change is
 * immediate. */
double harpe_online_latencies_bound_s(const harpe_online_latencies *self, int pipeline_rank,
                                      int mhz, double guess_s);
/* Returns the latency for plans, as a profile has it. 0: none is known, changes are immediate, or
 * `self` is NULL. */
double harpe_online_latencies_planned_s(const harpe_online_latencies *self, int pipeline_rank,
                                        int mhz);

/* Returns NULL if memory runs out. */
json_t *harpe_online_latencies_save(const harpe_online_latencies *self);
/* Returns false if the JSON is not what harpe_online_latencies_save writes for the same clocks. */
bool harpe_online_latencies_load(harpe_online_latencies *self, const json_t *saved);

#endif
