/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank reports about the clocks of its GPU in a round: how long changes take, and at which
 * clocks each instruction really ran. It is an optional member of a ProfilingResult. The published
 * server and older servers ignore the member. May be called on any thread. */
#ifndef HARPE_PFO_RANK_CLOCKS_H
#define HARPE_PFO_RANK_CLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

enum {
    HARPE_CLOCK_PARTS = 4,       /* of one run; more are not reported */
    HARPE_CLOCK_LATENCIES = 128, /* target clocks */
};

/* How long changes to a clock take, in seconds of GPU time. */
typedef struct harpe_clock_latency {
    int mhz;
    double median_s, p95_s;
} harpe_clock_latency;

/* The part of an instruction's time at one clock. */
typedef struct harpe_clock_part {
    int mhz;
    double share;
} harpe_clock_part;

/* The clocks of one instruction of the schedule, as means over the steps of the result. */
typedef struct harpe_run_clocks {
    int count; /* of parts; 0: the clock of the schedule; -1: not known */
    harpe_clock_part parts[HARPE_CLOCK_PARTS]; /* the sum of their shares is 1 */
} harpe_run_clocks;

/* Returns the share of a run's time at a clock. */
static inline double harpe_run_share(const harpe_run_clocks *run, int mhz) {
    double share = 0;
    for (int i = 0; i < run->count; i++)
        if (run->parts[i].mhz == mhz) share += run->parts[i].share;
    return share;
}

typedef struct harpe_rank_clocks {
    bool is_known; /* false: the result does not say it, and all other members are 0 */
    size_t latency_count;
    harpe_clock_latency *latencies; /* no target clock occurs twice */
    size_t run_count;
    harpe_run_clocks *runs; /* in the order of the rank's schedule */
} harpe_rank_clocks;

void harpe_rank_clocks_free(harpe_rank_clocks *clocks);
/* Free a list of `count` elements, and the list. `list` may be NULL. */
void harpe_rank_clocks_free_list(harpe_rank_clocks *list, size_t count);

/* Reads the member of a result's text. Without the member, or if it is wrong, the clocks are not
 * known. `runs_max` is the length of the rank's schedule. More runs are those of another schedule:
 * the result then has one run, which is not known, so that a rank cannot fill the memory. Returns
 * false if memory runs out. Free `out` with harpe_rank_clocks_free. */
bool harpe_rank_clocks_read(const char *text, size_t length, size_t runs_max,
                            harpe_rank_clocks *out);
/* Replaces `*json`, the text of a result, by the same text with the clocks. */
harpe_status harpe_rank_clocks_append(const harpe_rank_clocks *clocks, char **json,
                                      harpe_error *error);

#endif
