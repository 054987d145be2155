/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the requests for clocks along time. */
#include "client/clock_shares.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"

/* A slow change takes so many times the 95th percentile. Some changes are never seen, because
 * another request replaces them, and these are the slow ones. */
#define SLOW_FACTOR 1.25
/* A fast change takes this share of the median. */
#define FAST_FACTOR 0.7
/* Shares that differ by less are the same. */
#define SAME_SHARE 0.03
/* A slow change takes so long if no latency is known: an assumption, with which the server begins,
 * too. */
#define UNKNOWN_US UINT32_C(500000)

/* ---- Changes --------------------------------------------------------------------------------- */

typedef enum speed { USUAL, FAST, SLOW } speed;

static uint32_t latency_us(const harpe_switch_table *table, uint32_t mhz, speed how) {
    if (mhz == 0) return 0;
    harpe_switch_entry entry = harpe_switch_find(table, mhz);
    if (how == FAST) return entry.mhz == 0 ? 0 : (uint32_t)(FAST_FACTOR * entry.median_us);
    if (how == USUAL) return entry.median_us;
    return entry.samples == 0 ? UNKNOWN_US : (uint32_t)(SLOW_FACTOR * entry.p95_us);
}

static size_t find_changes(const harpe_clock_ask *asks, size_t count,
                           const harpe_switch_table *table, speed how, harpe_clock_since *out) {
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t from_us = asks[i].asked_us + latency_us(table, asks[i].mhz, how);
        bool is_replaced = i + 1 < count && asks[i + 1].asked_us < from_us;
        if (is_replaced || (made > 0 && out[made - 1].mhz == asks[i].mhz)) continue;
        out[made++] = (harpe_clock_since){from_us, asks[i].mhz};
    }
    return made;
}

static bool are_in_order(const harpe_clock_ask *asks, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (asks[i].asked_us < asks[i - 1].asked_us) return false;
    return true;
}

bool harpe_clock_timeline_make(harpe_clock_timeline *timeline, const harpe_clock_ask *asks,
                               size_t count, const harpe_switch_table *table) {
    *timeline = (harpe_clock_timeline){0};
    if (!are_in_order(asks, count)) return true;
    harpe_clock_since *changes = harpe_calloc(HARPE_CLOCK_SPEEDS * count, sizeof *changes);
    if (!changes) return false;
    for (int how = 0; how < HARPE_CLOCK_SPEEDS; how++) {
        timeline->changes[how] = changes + (size_t)how * count;
        timeline->count[how] = find_changes(asks, count, table, (speed)how, timeline->changes[how]);
    }
    return true;
}

void harpe_clock_timeline_free(harpe_clock_timeline *timeline) {
    free(timeline->changes[0]);
    *timeline = (harpe_clock_timeline){0};
}

uint64_t harpe_clock_timeline_begin(const harpe_clock_timeline *timeline) {
    uint64_t begin_us = 0;
    for (int how = 0; how < HARPE_CLOCK_SPEEDS; how++) {
        if (timeline->count[how] == 0) return UINT64_MAX;
        if (timeline->changes[how][0].from_us > begin_us)
            begin_us = timeline->changes[how][0].from_us;
    }
    return begin_us;
}

/* ---- Shares ---------------------------------------------------------------------------------- */

/* Adds a part. Returns false if there is no room. */
static bool add_part(harpe_run_clocks *run, int mhz, double share) {
    int i = 0;
    while (i < run->count && run->parts[i].mhz != mhz)
        i++;
    if (i == HARPE_CLOCK_PARTS) return false;
    if (i == run->count) run->parts[run->count++] = (harpe_clock_part){mhz, 0};
    run->parts[i].share += share;
    return true;
}

/* Returns the number of changes that begin at or before a time. */
static size_t changes_until(const harpe_clock_since *changes, size_t count, uint64_t time_us) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (changes[middle].from_us <= time_us)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static harpe_run_clocks shares_of(const harpe_clock_since *changes, size_t count, uint64_t start_us,
                                  uint64_t end_us) {
    const harpe_run_clocks unknown = {.count = -1};
    harpe_run_clocks run = {0};
    size_t first = changes_until(changes, count, start_us);
    if (first == 0 || end_us <= start_us) return unknown;
    double length_us = (double)(end_us - start_us);
    uint64_t at_us = start_us;
    for (size_t i = first - 1; at_us < end_us; i++) {
        bool is_last = i + 1 == count || changes[i + 1].from_us >= end_us;
        uint64_t until_us = is_last ? end_us : changes[i + 1].from_us;
        if (changes[i].mhz == 0 ||
            !add_part(&run, (int)changes[i].mhz, (double)(until_us - at_us) / length_us))
            return unknown;
        at_us = until_us;
    }
    return run;
}

harpe_run_clocks harpe_clock_shares_of(const harpe_clock_timeline *timeline, uint64_t start_us,
                                       uint64_t end_us) {
    const harpe_run_clocks unknown = {.count = -1};
    harpe_run_clocks usual =
        shares_of(timeline->changes[USUAL], timeline->count[USUAL], start_us, end_us);
    for (int how = FAST; how <= SLOW; how++) {
        harpe_run_clocks other =
            shares_of(timeline->changes[how], timeline->count[how], start_us, end_us);
        for (int i = 0; i < usual.count; i++)
            if (fabs(usual.parts[i].share - harpe_run_share(&other, usual.parts[i].mhz)) >
                SAME_SHARE)
                return unknown;
    }
    return usual;
}

void harpe_clock_shares_add(harpe_run_clocks *mean, size_t runs, const harpe_run_clocks *run) {
    if (mean->count < 0) return;
    harpe_run_clocks sum = *mean;
    bool is_known = run->count >= 0;
    for (int i = 0; i < sum.count; i++)
        sum.parts[i].share *= (double)runs / (double)(runs + 1);
    for (int i = 0; i < run->count && is_known; i++)
        is_known = add_part(&sum, run->parts[i].mhz, run->parts[i].share / (double)(runs + 1));
    *mean = is_known ? sum : (harpe_run_clocks){.count = -1};
}
