/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: what the time stamps of one training step add up to. A step is a stretch of GPU time with
 * the instructions that ran in it; an instruction at a frequency is known by a key, its index in
 * one table of all that were ever seen. Stands between the recorder and the fit. */
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
    uint8_t name; /* the recorder's */
} harpe_step_key;

typedef struct harpe_step_keys {
    harpe_step_key *items;
    size_t count, capacity;
} harpe_step_keys;

/* Zero-initialise. */
typedef struct harpe_step_builder {
    harpe_step step;
    size_t capacity; /* of its spans */
    bool is_open, is_in_span;
    bool is_spoiled;        /* its instructions make no sense, or there is no memory */
    uint64_t spoiled_steps; /* ever */
} harpe_step_builder;

/* Takes an event that happened at `time_ns`, GPU time. True: a step is whole and moved to `*out`;
 * its spans are to be freed. */
bool harpe_step_builder_take(harpe_step_builder *builder, const harpe_event *event, int64_t time_ns,
                             harpe_step_keys *keys, harpe_step *out);
void harpe_step_builder_clear(harpe_step_builder *builder);

#endif
