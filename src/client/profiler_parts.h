/* SPDX-License-Identifier: Apache-2.0 */
/* An instruction profiler from inside. Shared by profiler.c (making one, its thread) and
 * profiler_result.c (what it is asked for). */
#ifndef HARPE_CLIENT_PROFILER_PARTS_H
#define HARPE_CLIENT_PROFILER_PARTS_H

#include <pthread.h>

#include <harpe/instruction_profiler.h>

#include "client/energy_curve.h"
#include "client/profiler_energy.h"
#include "client/profiler_steps.h"
#include "client/recorder.h"
#include "monitor/source.h"
#include "monitor/ticker.h"

/* CLOCK_MONOTONIC and GPU time at one moment. */
typedef struct harpe_clock_pair {
    int64_t real_ns, gpu_ns;
} harpe_clock_pair;

/* What goes wrong is told once until it goes well again. */
typedef struct harpe_profiler_doubts {
    bool is_unreadable_told;
    uint64_t restarts, restarts_told;
    bool is_no_room_told, is_spoiled_told;
    bool is_counter_still, is_counter_still_told; /* power is read instead */
    bool is_power_missing, is_power_missing_told; /* ... and that cannot be: times only */
} harpe_profiler_doubts;

struct harpe_instruction_profiler {
    harpe_recorder recorder;
    harpe_energy_source source;
    bool has_energy;  /* false: times only; changes under the lock */
    bool has_counter; /* false: power is integrated */
    int gpu;
    int64_t period_ns; /* GPU time */
    harpe_log log;
    bool has_thread; /* false: ticks are the caller's (tests) */
    harpe_ticker *ticker;
    bool has_low_slack; /* of the thread's timers; the thread's own */

    pthread_mutex_t lock; /* all below */
    harpe_clock_pair origin, latest;
    int64_t last_event_ns; /* GPU time */
    harpe_energy_curve curve;
    harpe_step_builder builder;
    harpe_step_keys keys;
    harpe_step *steps; /* whole ones, in the order of time */
    size_t step_count, step_capacity;
    size_t known_count;          /* the first ones, whose energy is known */
    size_t span_count;           /* in all steps */
    harpe_power_model forgotten; /* what was seen of steps that are no longer here */
    harpe_profiler_doubts doubts;
};

/* harpe_instruction_profiler_new on any source. With `has_thread` false nothing happens but in
 * harpe_profiler_tick (tests). `options->gpus` is not looked at. */
harpe_status harpe_profiler_new_on(const harpe_instruction_profiler_options *options,
                                   const harpe_energy_source *source, bool has_thread,
                                   harpe_instruction_profiler **out, harpe_error *error);

/* Reads the energy once, takes what was recorded, sees which steps are known now. Returns how many
 * ns of real time to wait until the next. `user` is the profiler. */
int64_t harpe_profiler_tick(void *user);

/* False in a forked child, where the lock may be held by a thread that is not there. */
bool harpe_profiler_is_ours(const harpe_instruction_profiler *profiler);

/* Forgets the first `count` steps, after what they tell was added to the rest. Under the lock. */
void harpe_profiler_forget(harpe_instruction_profiler *profiler, size_t count);

#endif
