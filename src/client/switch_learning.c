/* SPDX-License-Identifier: Apache-2.0 */
/* Learns from two samples with different clocks. The change between them counts only if the samples
 * are close enough, and if the GPU had no other change in progress at the time of the request,
 * because changes are made one after the other. */
#include "client/switch_learning.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define AT_ONCE_US 2000  /* a change within this time counts as immediate */
#define CLOSE_US 1000    /* distance of samples that is close enough for every latency */
#define CLOSE_SHARE 0.3  /* or this share of the latency */
#define SETTLE_US 500000 /* longer than a change takes; see controller_obedience.c */

enum { TOLERANCE_MHZ = 7, SEEDED = HARPE_SWITCH_USABLE };

bool harpe_switch_is_same(uint32_t mhz, uint32_t other_mhz) {
    return mhz <= other_mhz + TOLERANCE_MHZ && other_mhz <= mhz + TOLERANCE_MHZ;
}

/* ---- The table ------------------------------------------------------------------------------- */

static void publish(harpe_switch_learning *learning, size_t i) {
    const harpe_switch_target *target = &learning->targets[i];
    uint32_t sorted[HARPE_SWITCH_KEPT];
    size_t count = target->count < HARPE_SWITCH_KEPT ? target->count : HARPE_SWITCH_KEPT;
    memcpy(sorted, target->us, sizeof sorted);
    qsort(sorted, count, sizeof *sorted, harpe_compare_uint32);
    harpe_switch_entry entry = {.mhz = target->mhz,
                                .samples = target->count,
                                .median_us = sorted[count / 2],
                                .p95_us = sorted[(count * 95 + 99) / 100 - 1]};
    atomic_store_explicit(&learning->table->word[i], harpe_switch_pack(&entry),
                          memory_order_relaxed);
}

static harpe_switch_target *find_target(harpe_switch_learning *learning, uint32_t mhz) {
    for (size_t i = 0; i < learning->target_count; i++)
        if (learning->targets[i].mhz == mhz) return &learning->targets[i];
    if (learning->target_count == HARPE_SWITCH_TARGETS) return NULL;
    harpe_switch_target *target = &learning->targets[learning->target_count++];
    *target = (harpe_switch_target){.mhz = mhz};
    return target;
}

static void record(harpe_switch_learning *learning, uint32_t mhz, uint64_t latency_us) {
    harpe_switch_target *target = find_target(learning, mhz);
    if (!target) return;
    target->us[target->count % HARPE_SWITCH_KEPT] =
        latency_us < HARPE_SWITCH_LONGEST_US ? (uint32_t)latency_us : HARPE_SWITCH_LONGEST_US;
    target->count++;
    if (target->count == 2 * HARPE_SWITCH_SAMPLES_MAX * HARPE_SWITCH_KEPT)
        target->count /= 2; /* a multiple of HARPE_SWITCH_KEPT */
    publish(learning, (size_t)(target - learning->targets));
}

void harpe_switch_learning_start(harpe_switch_learning *learning, harpe_switch_table *table) {
    *learning = (harpe_switch_learning){.table = table};
    for (size_t i = 0; i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(table, i);
        if (entry.mhz == 0) return;
        harpe_switch_target *target = &learning->targets[learning->target_count++];
        *target = (harpe_switch_target){.mhz = entry.mhz};
        while (target->count < entry.samples && target->count < SEEDED)
            target->us[target->count++] = entry.median_us;
    }
}

/* ---- Samples --------------------------------------------------------------------------------- */

/* Returns the index of the newest request for a clock; `ask_count`: there is none. */
static size_t find_ask(const harpe_clock_ask *asks, size_t ask_count, uint32_t mhz) {
    size_t i = 0;
    while (i < ask_count && !harpe_switch_is_same(asks[i].mhz, mhz))
        i++;
    return i;
}

/* Returns true if a GPU with the clock `held_mhz` had no change to the clock of the request
 * `before` in progress. The GPU has this clock, or a lower one for longer than a change takes: its
 * power limit keeps it there, or it has just woken up. */
static bool was_settled(const harpe_clock_ask *before, uint64_t asked_us, uint32_t held_mhz) {
    if (harpe_switch_is_same(before->mhz, held_mhz)) return true;
    return held_mhz < before->mhz && before->asked_us + SETTLE_US <= asked_us;
}

/* The clock has changed between the last sample and this one. */
static void learn_change(harpe_switch_learning *learning, const harpe_clock_ask *asks,
                         size_t ask_count, uint64_t at_us, uint32_t held_mhz) {
    size_t i = find_ask(asks, ask_count, held_mhz);
    if (i == ask_count || asks[i].asked_us > at_us || asks[i].asked_us < learning->changed_us)
        return;
    if (i + 1 >= ask_count || !was_settled(&asks[i + 1], asks[i].asked_us, learning->held_mhz))
        return;
    uint64_t asked_us = asks[i].asked_us;
    if (learning->sample_us <= asked_us) {
        if (at_us - asked_us <= AT_ONCE_US) record(learning, asks[i].mhz, 0);
        return;
    }
    uint64_t apart_us = at_us - learning->sample_us;
    uint64_t latency_us = learning->sample_us + apart_us / 2 - asked_us;
    if (apart_us <= CLOSE_US || (double)apart_us <= CLOSE_SHARE * (double)latency_us)
        record(learning, asks[i].mhz, latency_us);
}

void harpe_switch_learning_sample(harpe_switch_learning *learning, const harpe_clock_ask *asks,
                                  size_t ask_count, uint64_t at_us, uint32_t held_mhz) {
    if (learning->held_mhz != 0 && !harpe_switch_is_same(held_mhz, learning->held_mhz)) {
        learn_change(learning, asks, ask_count, at_us, held_mhz);
        learning->changed_us = at_us;
    }
    learning->held_mhz = held_mhz;
    learning->sample_us = at_us;
}
