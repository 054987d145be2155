/* SPDX-License-Identifier: Apache-2.0 */
/* The table of how long changes of a GPU's clock take, by target clock, and the code that learns
 * it. It learns from samples of the GPU's clock after the controller's own requests. One thread
 * learns. The code reads no clock itself: samples and requests are arguments. */
#ifndef HARPE_CLIENT_SWITCH_LEARNING_H
#define HARPE_CLIENT_SWITCH_LEARNING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HARPE_SWITCH_TARGETS = 128,
    HARPE_SWITCH_USABLE = 3,           /* a latency with fewer samples is not used */
    HARPE_SWITCH_ENOUGH = 8,           /* with so many samples, a latency is known */
    HARPE_SWITCH_KEPT = 16,            /* samples of a clock, the last ones */
    HARPE_SWITCH_SAMPLES_MAX = 255,    /* the table counts up to here */
    HARPE_SWITCH_LONGEST_US = 0xFFFFF, /* about a second */
};

/* Times are in us of GPU time, from the request to the new clock. */
typedef struct harpe_switch_entry {
    uint32_t mhz; /* 0: the entry is not used, and is the last one */
    uint32_t samples;
    uint32_t median_us, p95_us;
} harpe_switch_entry;

/* The table is in memory that the controller shares with the trainer. Only the controller's thread
 * that reads clocks writes to it. All threads of both may read it, without a lock, because each
 * word is a whole entry. */
typedef struct harpe_switch_table {
    _Atomic uint64_t word[HARPE_SWITCH_TARGETS];
} harpe_switch_table;

static inline uint64_t harpe_switch_pack(const harpe_switch_entry *entry) {
    uint32_t samples =
        entry->samples < HARPE_SWITCH_SAMPLES_MAX ? entry->samples : HARPE_SWITCH_SAMPLES_MAX;
    uint32_t median_us =
        entry->median_us < HARPE_SWITCH_LONGEST_US ? entry->median_us : HARPE_SWITCH_LONGEST_US;
    uint32_t p95_us =
        entry->p95_us < HARPE_SWITCH_LONGEST_US ? entry->p95_us : HARPE_SWITCH_LONGEST_US;
    return (uint64_t)(entry->mhz & 0xFFFF) << 48 | (uint64_t)samples << 40 |
           (uint64_t)median_us << 20 | p95_us;
}

static inline harpe_switch_entry harpe_switch_entry_at(const harpe_switch_table *table, size_t i) {
    uint64_t word = atomic_load_explicit(&table->word[i], memory_order_relaxed);
    return (harpe_switch_entry){.mhz = (uint32_t)(word >> 48),
                                .samples = (uint32_t)(word >> 40) & 0xFF,
                                .median_us = (uint32_t)(word >> 20) & 0xFFFFF,
                                .p95_us = (uint32_t)word & 0xFFFFF};
}

/* Returns the entry of a clock if it has enough samples to be used. Otherwise returns an entry with
 * `mhz` 0 and the longest times of all entries that have enough samples. If none has enough, all of
 * it is 0. */
static inline harpe_switch_entry harpe_switch_find(const harpe_switch_table *table, uint32_t mhz) {
    harpe_switch_entry longest = {0};
    for (size_t i = 0; i < HARPE_SWITCH_TARGETS; i++) {
        harpe_switch_entry entry = harpe_switch_entry_at(table, i);
        if (entry.mhz == 0) break;
        if (entry.samples < HARPE_SWITCH_USABLE) continue;
        if (entry.mhz == mhz) return entry;
        longest.samples = HARPE_SWITCH_USABLE;
        if (entry.median_us > longest.median_us) longest.median_us = entry.median_us;
        if (entry.p95_us > longest.p95_us) longest.p95_us = entry.p95_us;
    }
    return longest;
}

/* A request for a clock. Times are in us of GPU time. */
typedef struct harpe_clock_ask {
    uint64_t asked_us;
    uint32_t mhz; /* 0: the request before it failed */
} harpe_clock_ask;

typedef struct harpe_switch_target {
    uint32_t mhz;
    uint32_t count; /* of all samples; the oldest is replaced */
    uint32_t us[HARPE_SWITCH_KEPT];
} harpe_switch_target;

typedef struct harpe_switch_learning {
    harpe_switch_table *table;
    uint32_t held_mhz;   /* at the last sample; 0: there was none */
    uint64_t sample_us;  /* time of the last sample */
    uint64_t changed_us; /* time of the last sample that showed another clock than before */
    size_t target_count;
    harpe_switch_target targets[HARPE_SWITCH_TARGETS];
} harpe_switch_learning;

/* Initialises `*learning`. It begins with the entries of the table, which must outlive it. */
void harpe_switch_learning_start(harpe_switch_learning *learning, harpe_switch_table *table);

/* Takes a sample: the GPU has the clock `held_mhz` at `at_us`. `asks` are the last requests, newest
 * first. */
void harpe_switch_learning_sample(harpe_switch_learning *learning, const harpe_clock_ask *asks,
                                  size_t ask_count, uint64_t at_us, uint32_t held_mhz);

/* Returns true if the two clocks are the same. A driver may round a clock to a step of the GPU. */
bool harpe_switch_is_same(uint32_t mhz, uint32_t other_mhz);

#endif
