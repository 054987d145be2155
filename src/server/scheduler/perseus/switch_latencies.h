/* SPDX-License-Identifier: Apache-2.0 */
/* How long changes of the clock take on the GPUs of each stage, as the ranks report it. It does not
 * depend on plans or schedules. */
#ifndef HARPE_SERVER_SCHEDULER_PERSEUS_SWITCH_LATENCIES_H
#define HARPE_SERVER_SCHEDULER_PERSEUS_SWITCH_LATENCIES_H

#include <jansson.h>

#include <harpe/pfo.h>

#include "pfo/rank_clocks.h"

/* The frequencies of one pipeline rank that are tried, the highest first. */
typedef struct harpe_sweep_clocks {
    int *mhz;
    size_t count;
} harpe_sweep_clocks;

/* The time until a GPU has a new clock, in s; both are negative if it is not known. */
typedef struct harpe_online_latency {
    double median_s, p95_s;
} harpe_online_latency;

typedef struct harpe_online_latencies {
    bool is_told;    /* a rank reports its clocks; otherwise all changes count as immediate */
    bool can_change; /* a pipeline rank has several clocks */
    int rank_count;
    size_t *offset; /* [rank_count + 1]: first clock of each pipeline rank */
    int *mhz;
    harpe_online_latency *latency; /* one per clock */
    double shortest_s;             /* time of the shortest instruction so far; 0: not known */
    /* These follow from the others. */
    harpe_online_latency *longest; /* one per clock: the longest latency on any pipeline rank */
    double longest_s;              /* of all clocks; 0: none is known */
    size_t known_count;            /* of the clocks */
    bool is_late;
} harpe_online_latencies;

/* Makes an empty object. `clocks` has one element per pipeline rank and is copied. Returns NULL if
 * memory runs out. Free with harpe_online_latencies_free. */
harpe_online_latencies *harpe_online_latencies_new(const harpe_sweep_clocks *clocks,
                                                   int rank_count);
void harpe_online_latencies_free(harpe_online_latencies *self);

/* Takes what the ranks report in one round; the longest latency of a stage's ranks counts.
 * `ranks` has the `count` ranks of `clocks`. */
void harpe_online_latencies_take(harpe_online_latencies *self, const harpe_rank_info *ranks,
                                 const harpe_rank_clocks *clocks, size_t count);
/* Takes the time of an instruction. */
void harpe_online_latencies_take_time(harpe_online_latencies *self, double time_s);

/* Returns true if ranks report clocks and can change them, but too few changes were measured to say
 * more. */
bool harpe_online_latencies_are_unknown(const harpe_online_latencies *self);
/* Returns true if changes are late: at least a tenth of the known medians are 0.5 ms or longer, and
 * 1 % of the shortest instruction or longer. Otherwise changes count as immediate. */
bool harpe_online_latencies_are_late(const harpe_online_latencies *self);

/* Returns the time in which nearly all changes to a clock are over. If it was not measured on this
 * pipeline rank, the result is the longest one of the job, and if it was measured on no rank, at
 * least `guess_s`. 0: the change is immediate. */
double harpe_online_latencies_bound_s(const harpe_online_latencies *self, int pipeline_rank,
                                      int mhz, double guess_s);
/* Returns the latency for plans, as a profile has it. 0: none is known, changes are immediate, or
 * `self` is NULL. */
double harpe_online_latencies_planned_s(const harpe_online_latencies *self, int pipeline_rank,
                                        int mhz);

/* Returns NULL if memory runs out. */
json_t *harpe_online_latencies_save(const harpe_online_latencies *self);
/* Returns false if the JSON is not what harpe_online_latencies_save writes. NULL: nothing is known.
 */
bool harpe_online_latencies_load(harpe_online_latencies *self, const json_t *saved);

#endif
