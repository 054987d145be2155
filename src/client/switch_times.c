/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the table of switching latencies into an array that is indexed by the clock, because a
 * prediction looks at many instructions. */
#include "client/switch_times.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"

#define UPDATE_NS INT64_C(100000000)

enum {
    CLOCKS = 4096,     /* MHz */
    SHORTEST_US = 500, /* of GPU time; shorter changes are not anticipated */
};

struct harpe_switch_times {
    const harpe_switch_table *table;
    int64_t next_update_ns;
    bool is_late;
    harpe_switch_time otherwise;
    bool is_given[CLOCKS];
    harpe_switch_time given[CLOCKS];
};

harpe_switch_times *harpe_switch_times_new(const harpe_switch_table *table) {
    harpe_switch_times *times = harpe_calloc(1, sizeof *times);
    if (times) times->table = table;
    return times;
}

void harpe_switch_times_free(harpe_switch_times *times) { free(times); }

static harpe_switch_time convert(const harpe_switch_entry *entry, double real_per_gpu_time) {
    double ns = 1000 * real_per_gpu_time;
    uint32_t spread_us = entry->p95_us > entry->median_us ? entry->p95_us - entry->median_us : 0;
    return (harpe_switch_time){.latency_ns = (int64_t)(entry->median_us * ns),
                               .spread_ns = (int64_t)(spread_us * ns)};
}

bool harpe_switch_times_update(harpe_switch_times *times, double real_per_gpu_time) {
    int64_t now_ns = harpe_clock_ns();
    if (now_ns < times->next_update_ns) return times->is_late;
    times->next_update_ns = now_ns + UPDATE_NS;
    times->is_late = false;
    times->otherwise = (harpe_switch_time){.latency_ns = 0};
    for (size_t i = 0; i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(times->table, i);
        if (entry.mhz == 0) break;
        if (entry.samples < HARPE_SWITCH_USABLE || entry.mhz >= CLOCKS) continue;
        harpe_switch_time time = convert(&entry, real_per_gpu_time);
        times->given[entry.mhz] = time;
        times->is_given[entry.mhz] = true;
        if (time.latency_ns >= times->otherwise.latency_ns) times->otherwise = time;
        if (entry.median_us >= SHORTEST_US) times->is_late = true;
    }
    return times->is_late;
}

harpe_switch_time harpe_switch_time_from_table(const void *times, uint32_t mhz) {
    const harpe_switch_times *all = times;
    return mhz < CLOCKS && all->is_given[mhz] ? all->given[mhz] : all->otherwise;
}
