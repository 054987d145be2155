/* SPDX-License-Identifier: Apache-2.0 */
/* Learns from samples of the clock how long the controller's own changes take. Belongs to one
 * thread. It reads no clock: samples and requests are arguments. */
#ifndef HARPE_CLIENT_SWITCH_LEARNING_H
#define HARPE_CLIENT_SWITCH_LEARNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/switch_table.h"

enum { HARPE_SWITCH_ENOUGH = 8, HARPE_SWITCH_KEPT = 16 };

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

/* Begins with zeros, and with its table. */
typedef struct harpe_switch_learning {
    harpe_switch_table *table;
    uint32_t held_mhz;   /* at the last sample; 0: there was none */
    uint64_t sample_us;  /* time of the last sample */
    uint64_t changed_us; /* time of the last sample that showed another clock than before */
    size_t target_count;
    harpe_switch_target targets[HARPE_SWITCH_TARGETS];
} harpe_switch_learning;

/* Starts with what the table contains. */
void harpe_switch_learning_start(harpe_switch_learning *learning, harpe_switch_table *table);

/* Takes a sample of the clock. `asks` are the last requests, newest first. */
void harpe_switch_learning_sample(harpe_switch_learning *learning, const harpe_clock_ask *asks,
                                  size_t ask_count, uint64_t at_us, uint32_t held_mhz);

/* Returns true if the two clocks are the same. A driver may round a clock to a step of the GPU. */
bool harpe_switch_is_same(uint32_t mhz, uint32_t other_mhz);

#endif
