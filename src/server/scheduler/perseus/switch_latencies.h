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
    bool is_told; /* a rank reports its clocks; otherwise all changes count as immediate */
    int rank_count;
    size_t *offset; /* [rank_count + 1]: first clock of each pipeline rank */
    int *mhz;
    harpe_online_latency *latency; /* one per clock */
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

/* Returns the time in which nearly all changes of a pipeline rank are over: the longest one known
 * of this rank or, if none is, of all ranks. 0: no rank reports clocks. Negative: not known yet. */
double harpe_online_latencies_longest_s(const harpe_online_latencies *self, int pipeline_rank);
/* Returns the median for a clock of a pipeline rank, or the longest median if this clock's is not
 * known. NAN: no latency is known. */
double harpe_online_latencies_median_s(const harpe_online_latencies *self, int pipeline_rank,
                                       int mhz);

/* Returns the same median for a profile; 0: it is not known, or `self` is NULL. */
double harpe_online_latencies_planned_s(const harpe_online_latencies *self, int pipeline_rank,
                                        int mhz);

/* Returns NULL if memory runs out. */
json_t *harpe_online_latencies_save(const harpe_online_latencies *self);
/* Returns false if the JSON is not what harpe_online_latencies_save writes. NULL: nothing is known.
 */
bool harpe_online_latencies_load(harpe_online_latencies *self, const json_t *saved);

#endif
