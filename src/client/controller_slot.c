/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's side of the slot: stores a request, which must cost the training thread almost
 * nothing, and reads the controller's counts. */
#include "client/controller_slot.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/wait.h"

/* ---- Requests -------------------------------------------------------------------------------- */

/* Wakes a parked controller. */
static void wake(harpe_controller_slot *slot) {
    if (atomic_exchange(&slot->is_parked, 0) == 0) return;
    harpe_wake(&slot->is_parked);
}

static void store_request(harpe_controller_slot *slot, int frequency_mhz, int64_t now_ns) {
    uint64_t clock_requests = atomic_load_explicit(&slot->clock_requests, memory_order_relaxed);
    atomic_store_explicit(&slot->clock_requests, clock_requests + 1, memory_order_relaxed);
    atomic_store(&slot->request, harpe_clock_request_make(now_ns, frequency_mhz));
    if (atomic_load(&slot->is_parked) == 0) return;
    atomic_fetch_add_explicit(&slot->wakes, 1, memory_order_relaxed);
    wake(slot);
}

/* The request is stored before is_parked is read, and the controller stores is_parked before its
 * last read of the request (both sequentially consistent). So at least one side sees the other's
 * store. */
void harpe_frequency_controller_set(harpe_frequency_controller *controller, int frequency_mhz) {
    if (!controller) return;
    store_request(controller->slot, frequency_mhz, harpe_clock_ns());
}

/* ---- Positions ------------------------------------------------------------------------------- */

static void store_note(harpe_controller_slot *slot, int64_t now_ns, uint64_t what) {
    uint64_t count = atomic_load_explicit(&slot->note_count, memory_order_relaxed);
    harpe_position_note *note = &slot->notes[count % HARPE_CONTROLLER_NOTES];
    atomic_store_explicit(&note->time_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&note->what, what, memory_order_relaxed);
    atomic_store_explicit(&slot->note_count, count + 1, memory_order_release);
}

/* The note comes before the request and has the same time, so the controller knows which note
 * belongs to a request. */
void harpe_controller_begin_instruction(harpe_frequency_controller *controller, int frequency_mhz,
                                        int64_t series, uint32_t position) {
    if (!controller) return;
    int64_t now_ns = harpe_clock_ns();
    store_note(controller->slot, now_ns,
               harpe_position_make(true, series, position, frequency_mhz));
    if (frequency_mhz > 0) store_request(controller->slot, frequency_mhz, now_ns);
}

void harpe_controller_end_instruction(harpe_frequency_controller *controller) {
    if (!harpe_controller_wants_ends(controller)) return;
    store_note(controller->slot, harpe_clock_ns(), harpe_position_make(false, 0, 0, 0));
}

/* ---- Obedience ------------------------------------------------------------------------------- */

harpe_frequency_controller_obedience
harpe_frequency_controller_obeys(const harpe_frequency_controller *controller) {
    if (!controller) return (harpe_frequency_controller_obedience){.looks = 0};
    const harpe_controller_slot *slot = controller->slot;
    return (harpe_frequency_controller_obedience){
        .looks = atomic_load(&slot->looks),
        .disobeyed = atomic_load(&slot->disobeyed),
        .disobeys = atomic_load(&slot->disobeys) != 0,
        .wanted_mhz = (int)atomic_load(&slot->wanted_mhz),
        .held_mhz = (int)atomic_load(&slot->held_mhz),
        .reasons = atomic_load(&slot->reasons),
    };
}

/* ---- Late clocks ----------------------------------------------------------------------------- */

size_t harpe_frequency_controller_switch_latencies(const harpe_frequency_controller *controller,
                                                   harpe_switch_latency *latencies,
                                                   size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; controller && i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(&controller->slot->switch_table, i);
        if (entry.mhz == 0) break;
        if (count < capacity) {
            latencies[count] = (harpe_switch_latency){.frequency_mhz = (int)entry.mhz,
                                                      .samples = (int)entry.samples,
                                                      .latency_s = entry.median_us * 1e-6,
                                                      .latency_p95_s = entry.p95_us * 1e-6};
        }
        count++;
    }
    return count;
}

harpe_frequency_controller_anticipation
harpe_frequency_controller_anticipates(const harpe_frequency_controller *controller) {
    if (!controller) return (harpe_frequency_controller_anticipation){.anticipated = 0};
    const harpe_controller_slot *slot = controller->slot;
    return (harpe_frequency_controller_anticipation){
        .is_active = atomic_load(&slot->wants_ends) != 0,
        .anticipated = atomic_load(&slot->anticipated),
        .returned = atomic_load(&slot->returned),
    };
}

/* ---- Counts ---------------------------------------------------------------------------------- */

static void summarize_latencies(const harpe_controller_slot *slot,
                                harpe_frequency_controller_counts *counts) {
    size_t count = counts->written < HARPE_CONTROLLER_LATENCIES ? (size_t)counts->written
                                                                : HARPE_CONTROLLER_LATENCIES;
    uint32_t *sorted = count > 0 ? malloc(count * sizeof *sorted) : NULL;
    if (!sorted) return;
    for (size_t i = 0; i < count; i++)
        sorted[i] = atomic_load_explicit(&slot->latency_ns[i], memory_order_relaxed);
    qsort(sorted, count, sizeof *sorted, harpe_compare_uint32);
    size_t median = count / 2;
    size_t p99 = (count - 1) * 99 / 100;
    counts->latency_median_s = sorted[median] * 1e-9;
    counts->latency_p99_s = sorted[p99] * 1e-9;
    counts->latency_maximum_s = sorted[count - 1] * 1e-9;
    free(sorted);
}

harpe_frequency_controller_counts
harpe_frequency_controller_count(const harpe_frequency_controller *controller) {
    harpe_frequency_controller_counts counts = {0};
    if (!controller) return counts;
    const harpe_controller_slot *slot = controller->slot;
    uint64_t taken = atomic_load(&slot->taken);
    bool one_waits = atomic_load(&slot->request) != atomic_load(&slot->taken_request);
    counts.clock_requests = atomic_load(&slot->clock_requests);
    counts.written = atomic_load(&slot->written);
    counts.skipped = atomic_load(&slot->skipped);
    counts.failed = atomic_load(&slot->failed);
    /* The counts may change between these reads, so the difference may be negative. */
    counts.superseded =
        counts.clock_requests > taken + one_waits ? counts.clock_requests - taken - one_waits : 0;
    summarize_latencies(slot, &counts);
    return counts;
}
