/* SPDX-License-Identifier: Apache-2.0 */
/* Reports how long changes of the clock take, and at which clocks the instructions of a round
 * really ran. The controller shows its requests and what it has learnt in its slot. */
#include <stdlib.h>

#include "base/array.h"
#include "client/clock_asks.h"
#include "client/clock_shares.h"
#include "client/controller.h"
#include "client/optimizer_internal.h"
#include "client/profiler_internal.h"
#include "pfo/rank_clocks.h"

static void take_latencies(const harpe_switch_table *table, harpe_rank_clocks *clocks) {
    for (size_t i = 0; i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(table, i);
        if (entry.mhz == 0) return;
        if (entry.samples < HARPE_SWITCH_USABLE) continue;
        clocks->latencies[clocks->latency_count++] =
            (harpe_clock_latency){.mhz = (int)entry.mhz,
                                  .median_s = entry.median_us * 1e-6,
                                  .p95_s = entry.p95_us * 1e-6};
    }
}

static uint64_t begin_of_step(const harpe_profiler_spans *spans, size_t step) {
    const uint64_t *us = spans->us + 2 * spans->run_count * step;
    uint64_t begin_us = UINT64_MAX;
    for (size_t k = 0; k < spans->run_count; k++)
        if (us[2 * k] < begin_us) begin_us = us[2 * k];
    return begin_us;
}

static void add_step(const harpe_profiler_spans *spans, size_t step, size_t added,
                     const harpe_clock_timeline *timeline, harpe_rank_clocks *clocks) {
    const uint64_t *us = spans->us + 2 * spans->run_count * step;
    for (size_t k = 0; k < spans->run_count; k++) {
        harpe_run_clocks run = harpe_clock_shares_of(timeline, us[2 * k], us[2 * k + 1]);
        harpe_clock_shares_add(&clocks->runs[k], added, &run);
    }
}

/* Computes the means over the steps that begin at `from_us` or later. All clocks here are requests
 * of the schedule, which no driver has rounded. So clocks that differ are different clocks. */
static void take_runs(const harpe_profiler_spans *spans, const harpe_clock_timeline *timeline,
                      uint64_t from_us, harpe_rank_clocks *clocks) {
    size_t added = 0;
    for (size_t s = 0; s < spans->step_count; s++)
        if (begin_of_step(spans, s) >= from_us) add_step(spans, s, added++, timeline, clocks);
    for (size_t k = 0; k < spans->run_count; k++) {
        harpe_run_clocks *mean = &clocks->runs[k];
        bool is_as_asked = mean->count == 1 && spans->asked_mhz[k] > 0 &&
                           mean->parts[0].mhz == spans->asked_mhz[k];
        if (is_as_asked) *mean = (harpe_run_clocks){0};
        if (added == 0) *mean = (harpe_run_clocks){.count = -1};
    }
}

/* Returns the time before which steps are left out. If nobody learns how long changes take, no
 * clock is known. The steps of a round are alike, so those before the oldest kept request can be
 * left out. */
static uint64_t first_step_us(const harpe_controller_slot *slot,
                              const harpe_clock_timeline *timeline, bool has_lost) {
    if (!atomic_load(&slot->learns_switches)) return UINT64_MAX;
    return has_lost ? harpe_clock_timeline_begin(timeline) : 0;
}

static bool find_clocks(const harpe_controller_slot *slot, const harpe_profiler_spans *spans,
                        harpe_rank_clocks *out) {
    harpe_clock_timeline timeline = {0};
    harpe_clock_ask *asks = harpe_calloc(HARPE_CONTROLLER_ASKS, sizeof *asks);
    *out = (harpe_rank_clocks){.is_known = true, .run_count = spans->run_count};
    out->latencies = harpe_calloc(HARPE_SWITCH_TARGETS, sizeof *out->latencies);
    out->runs = harpe_calloc(spans->run_count, sizeof *out->runs);
    bool has_lost = false;
    size_t count = asks ? harpe_clock_asks_copy(slot, asks, &has_lost) : 0;
    bool is_made = asks && out->latencies && out->runs &&
                   harpe_clock_timeline_make(&timeline, asks, count, &slot->switch_table);
    if (is_made) {
        take_latencies(&slot->switch_table, out);
        if (count > 0)
            take_runs(spans, &timeline, first_step_us(slot, &timeline, has_lost), out);
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
