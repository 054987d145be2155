/* SPDX-License-Identifier: Apache-2.0 */
/* A reader copies the ring, and then leaves out what the writer may have replaced meanwhile. Each
 * request is stored with release and loaded with acquire. So a reader that has loaded a new request
 * also sees at least the count that was stored before it. */
#include "client/clock_asks.h"

#include <string.h>

void harpe_clock_asks_add(harpe_controller_slot *slot, uint64_t at_us, uint32_t mhz) {
    uint64_t count = atomic_load_explicit(&slot->ask_count, memory_order_relaxed);
    atomic_store_explicit(&slot->asks[count % HARPE_CONTROLLER_ASKS], at_us << 16 | (mhz & 0xFFFF),
                          memory_order_release);
    atomic_store_explicit(&slot->ask_count, count + 1, memory_order_release);
}

/* Returns the number of the oldest request that is whole if `count` requests are complete. The next
 * one may be in progress. */
static uint64_t oldest_whole(uint64_t count) {
    return count < HARPE_CONTROLLER_ASKS ? 0 : count + 1 - HARPE_CONTROLLER_ASKS;
}

size_t harpe_clock_asks_copy(const harpe_controller_slot *slot, harpe_clock_ask *asks,
                             bool *has_lost) {
    uint64_t end = atomic_load_explicit(&slot->ask_count, memory_order_acquire);
    uint64_t first = oldest_whole(end);
    for (uint64_t i = first; i < end; i++) {
        uint64_t ask =
            atomic_load_explicit(&slot->asks[i % HARPE_CONTROLLER_ASKS], memory_order_acquire);
        asks[i - first] = (harpe_clock_ask){.asked_us = ask >> 16, .mhz = ask & 0xFFFF};
    }
    uint64_t now = atomic_load_explicit(&slot->ask_count, memory_order_relaxed);
    uint64_t whole = oldest_whole(now);
    if (whole > end) whole = end;
    size_t replaced = whole > first ? (size_t)(whole - first) : 0;
    size_t count = (size_t)(end - first) - replaced;
    memmove(asks, asks + replaced, count * sizeof *asks);
    *has_lost = first + replaced > 0;
    return count;
}
