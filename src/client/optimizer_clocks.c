/* SPDX-License-Identifier: Apache-2.0 */
/* Reports how long changes of the clock take, and at which clocks the instructions of a round
 * really ran. The controller shows its requests and what it has learnt in its slot. */
#include <stdlib.h>

#include "base/array.h"
#include "client/clock_shares.h"
#include "client/controller.h"
#include "client/optimizer_internal.h"
#include "client/profiler_internal.h"
#include "pfo/rank_clocks.h"

enum { ENOUGH_SAMPLES = 3 };

/* Copies the requests that are still there, in the order of time. Returns their number. */
static size_t copy_asks(const harpe_controller_slot *slot, harpe_clock_ask *asks) {
    uint64_t end = atomic_load_explicit(&slot->ask_count, memory_order_acquire);
    /* While this runs, the controller may replace the oldest ones. */
    const uint64_t room = HARPE_CONTROLLER_ASKS - HARPE_CONTROLLER_ASKS / 8;
    uint64_t first = end > room ? end - room : 0;
    size_t count = 0;
    for (uint64_t i = first; i < end; i++) {
        uint64_t ask =
            atomic_load_explicit(&slot->asks[i % HARPE_CONTROLLER_ASKS], memory_order_relaxed);
        asks[count++] = (harpe_clock_ask){.asked_us = ask >> 16, .mhz = ask & 0xFFFF};
    }
    return count;
}

static void take_latencies(const harpe_switch_table *table, harpe_rank_clocks *clocks) {
    for (size_t i = 0; i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(table, i);
        if (entry.mhz == 0) return;
        if (entry.samples < ENOUGH_SAMPLES) continue;
        clocks->latencies[clocks->latency_count++] =
            (harpe_clock_latency){.mhz = (int)entry.mhz,
                                  .median_s = entry.median_us * 1e-6,
                                  .p95_s = entry.p95_us * 1e-6};
    }
}

static void take_runs(const harpe_profiler_spans *spans, const harpe_clock_timeline *timeline,
                      harpe_rank_clocks *clocks) {
    for (size_t k = 0; k < spans->run_count; k++) {
        harpe_run_clocks *mean = &clocks->runs[k];
        for (size_t s = 0; s < spans->step_count; s++) {
            const uint64_t *us = spans->us + 2 * (spans->run_count * s + k);
            harpe_run_clocks run = harpe_clock_shares_of(timeline, us[0], us[1]);
            harpe_clock_shares_add(mean, s, &run);
        }
        bool is_as_asked =
            mean->count == 1 && spans->asked_mhz[k] > 0 &&
            harpe_switch_is_same((uint32_t)mean->parts[0].mhz, (uint32_t)spans->asked_mhz[k]);
        if (is_as_asked) *mean = (harpe_run_clocks){0};
    }
}

static bool find_clocks(const harpe_controller_slot *slot, const harpe_profiler_spans *spans,
                        harpe_rank_clocks *out) {
    harpe_clock_timeline timeline = {0};
    harpe_clock_ask *asks = harpe_calloc(HARPE_CONTROLLER_ASKS, sizeof *asks);
    *out = (harpe_rank_clocks){.is_known = true, .run_count = spans->run_count};
    out->latencies = harpe_calloc(HARPE_SWITCH_TARGETS, sizeof *out->latencies);
    out->runs = harpe_calloc(spans->run_count, sizeof *out->runs);
    size_t count = asks ? copy_asks(slot, asks) : 0;
    bool is_made = asks && out->latencies && out->runs &&
                   harpe_clock_timeline_make(&timeline, asks, count, &slot->switch_table);
    if (is_made) {
        take_latencies(&slot->switch_table, out);
        if (count > 0)
            take_runs(spans, &timeline, out);
        else
            out->run_count = 0; /* no change was asked for yet: all ran as the schedule asks */
    }
    harpe_clock_timeline_free(&timeline);
    free(asks);
    return is_made;
}

void harpe_pipeline_append_clocks(const harpe_pipeline *optimizer,
                                  const harpe_profiler_spans *spans, char **report) {
    const harpe_frequency_controller *controller =
        atomic_load_explicit(&optimizer->controller, memory_order_acquire);
    harpe_rank_clocks clocks;
    if (!controller || spans->run_count == 0) return;
    if (find_clocks(controller->slot, spans, &clocks))
        (void)harpe_rank_clocks_append(&clocks, report, NULL);
    harpe_rank_clocks_free(&clocks);
}
