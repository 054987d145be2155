/* SPDX-License-Identifier: Apache-2.0 */
/* Steps made from the time stamps of a training step. A step is a period of GPU time with the
 * instructions that ran in it. A key identifies an instruction at a frequency; it is an index into
 * one table of all pairs seen so far. The recorder supplies events, and the fit uses steps. */
#ifndef HARPE_CLIENT_PROFILER_STEPS_H
#define HARPE_CLIENT_PROFILER_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/recorder.h"

enum { HARPE_STEP_KEYS_MAX = 2048 };

/* One run of an instruction, in GPU time. */
typedef struct harpe_span {
    int64_t start_ns, end_ns;
    size_t key;
} harpe_span;

typedef struct harpe_step {
    int64_t series, start_ns, end_ns;
    harpe_span *spans; /* one after the other */
    size_t span_count;
} harpe_step;

typedef struct harpe_step_key {
    int32_t frequency_mhz;
    uint8_t name; /* index of a name in the recorder */
} harpe_step_key;

typedef struct harpe_step_keys {
    harpe_step_key *items;
    size_t count, capacity;
} harpe_step_keys;

/* Initialise with zeros. */
typedef struct harpe_step_builder {
    harpe_step step;
    size_t capacity; /* capacity of `step.spans` */
    bool is_open, is_in_span;
    bool is_spoiled;        /* the step's instructions are invalid, or there was no memory */
    uint64_t spoiled_steps; /* number of spoiled steps since the start */
} harpe_step_builder;

/* Processes an event that happened at `time_ns` in GPU time. Returns true if a step is complete;
 * it is then moved to `*out`, and the caller frees its spans. */
bool harpe_step_builder_take(harpe_step_builder *builder, const harpe_event *event, int64_t time_ns,
                             harpe_step_keys *keys, harpe_step *out);
void harpe_step_builder_clear(harpe_step_builder *builder);

#endif
