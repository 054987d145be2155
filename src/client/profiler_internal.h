/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an instruction profiler. Shared by profiler.c (making, thread) and
 * profiler_result.c (results). */
#ifndef HARPE_CLIENT_PROFILER_INTERNAL_H
#define HARPE_CLIENT_PROFILER_INTERNAL_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/instruction_profiler.h>
#include <harpe/status.h>

#include "client/energy_check.h"
#include "client/energy_curve.h"
#include "client/profiler_energy.h"
#include "monitor/counter.h"
#include "monitor/ticker.h"

/* ---- The ring of time stamps ----------------------------------------------------------------- */

/* Passes time stamps from the training thread to the profiler's thread: a ring with one writer and
 * one reader. Writing is wait-free: no lock, no allocation, no system call. Reading
 * the clock is not a system call either. The recorder does not interpret the events. */

enum { HARPE_RECORDER_NAMES = 64, HARPE_RECORDER_NAME_SIZE = 64 };

typedef enum harpe_event_kind {
    HARPE_EVENT_BEGIN_STEP,
    HARPE_EVENT_END_STEP,
    HARPE_EVENT_CANCEL_STEP,
    HARPE_EVENT_BEGIN,
    HARPE_EVENT_END,
} harpe_event_kind;

typedef struct harpe_event {
    int64_t time_ns; /* CLOCK_MONOTONIC */
    int64_t value;   /* step: its series; instruction: its frequency in MHz */
    uint8_t kind;
    uint8_t name; /* instruction: index into `names` */
} harpe_event;

typedef struct harpe_recorder {
    /* Used by the writer. A name is stored before the first event that uses it. */
    alignas(64) uint64_t written;
    uint64_t known_read;
    unsigned name_count;
    bool is_recording; /* true during a step whose events have had room so far */
    char names[HARPE_RECORDER_NAMES][HARPE_RECORDER_NAME_SIZE];

    /* Written by the writer, read by both threads. */
    alignas(64) _Atomic uint64_t published;
    _Atomic uint64_t dropped_steps;
    harpe_event *events;
    uint64_t mask;

    alignas(64) _Atomic uint64_t read; /* number of events that the reader has read */
} harpe_recorder;

/* ---- Building steps -------------------------------------------------------------------------- */

enum { HARPE_STEP_KEYS_MAX = 2048 };

/* Initialise with zeros. */
typedef struct harpe_step_builder {
    harpe_step step;
    size_t capacity; /* capacity of `step.spans` */
    bool is_open, is_in_span;
    bool is_spoiled;        /* the step's instructions are invalid, or there was no memory */
    uint64_t spoiled_steps; /* number of spoiled steps since the start */
} harpe_step_builder;

/* ---- The profiler ---------------------------------------------------------------------------- */

/* CLOCK_MONOTONIC and GPU time at the same moment. */
typedef struct harpe_clock_pair {
    int64_t real_ns, gpu_ns;
} harpe_clock_pair;

/* The warnings, and which of them are logged (`_told`). */
typedef struct harpe_profiler_warnings {
    bool is_unreadable_told;
    uint64_t restarts, restarts_told;
    bool is_no_room_told, is_spoiled_told;
    bool is_counter_still, is_counter_still_told; /* power is read instead of the counter */
    bool is_power_missing, is_power_missing_told; /* power cannot be read either: only times */
} harpe_profiler_warnings;

struct harpe_instruction_profiler {
    harpe_recorder recorder;
    harpe_energy_source source;
    bool has_energy;    /* false: only times; changed with the lock held */
    bool has_counter;   /* false: power is integrated */
    bool has_no_power;  /* power cannot be compared with the counter; used only by the thread */
    bool has_had_power; /* power was read once; used only by the thread */
    harpe_counter counter;
    unsigned breaks; /* of the counter, at its last reading; used only by the thread */
    int gpu;
    int64_t period_ns; /* GPU time */
    harpe_log log;
    bool has_thread; /* false: the caller calls the ticks (for tests) */
    harpe_ticker *ticker;
    bool has_low_slack; /* true if the thread's timers have low slack; used only by the thread */
    int64_t reading_due_gpu_ns; /* when the energy is read next; used only by the thread */

    pthread_mutex_t lock; /* guards all members below */
    harpe_clock_pair origin, latest;
    int64_t last_event_ns; /* GPU time */
    harpe_energy_curve curve;
    harpe_step_builder builder;
    harpe_step_keys keys;
    harpe_step *steps; /* complete steps, in the order of time */
    size_t step_count, step_capacity;
    size_t known_count;          /* the energy of this many steps, from the first on, is known */
    size_t span_count;           /* number of spans in all steps */
    size_t kept_spans_max;       /* if there are more, the older half of the steps is removed */
    harpe_power_model forgotten; /* sums over the steps that were removed */
    harpe_profiler_warnings warnings;
    harpe_energy_check check;  /* compares the counter with the power */
    uint64_t impossible;       /* those of them whose energy cannot be */
    uint64_t unmeasured_steps; /* steps that were removed because their energy is not known */
};

/* Works like harpe_instruction_profiler_new with any source. If `has_thread` is false, only
 * harpe_profiler_tick does work (for tests). Ignores `options->gpus`. */
harpe_status harpe_profiler_new_on(const harpe_instruction_profiler_options *options,
                                   const harpe_energy_source *source, bool has_thread,
                                   harpe_instruction_profiler **out, harpe_error *error);

/* Reads the energy counter, and the power, if a reading is due. Then takes the recorded events out
 * of the ring and finds the steps whose energy is now known. Returns the real time in ns until the
 * next call. `user` is the profiler. */
int64_t harpe_profiler_tick(void *user);

/* Returns false in a forked child. There, the lock may be held by a thread that does not exist. */
bool harpe_profiler_is_ours(const harpe_instruction_profiler *profiler);

/* What a rank reports about its measurements. */
typedef struct harpe_profiler_conduct {
    uint64_t lost_steps; /* steps whose time stamps or energies were lost, since the start */
    uint64_t impossible; /* energies that cannot be, since the start */
    harpe_energy_comparison energy;
} harpe_profiler_conduct;
harpe_profiler_conduct harpe_profiler_conduct_of(harpe_instruction_profiler *profiler);

/* When the instructions of some steps ran. */
typedef struct harpe_profiler_spans {
    size_t step_count, run_count; /* run_count: instructions of each step; 0: they differ */
    int *asked_mhz;               /* [run]: of the first step */
    uint64_t *us;                 /* [step][run][2]: begin and end, in GPU time */
} harpe_profiler_spans;
/* Copies the spans of the first `steps` steps of a series whose energy is known, which are those of
 * the next result. Returns false if there are fewer, or no memory. Free with
 * harpe_profiler_spans_free. */
bool harpe_profiler_copy_spans(harpe_instruction_profiler *profiler, int64_t series, size_t steps,
                               harpe_profiler_spans *out);
void harpe_profiler_spans_free(harpe_profiler_spans *spans);

/* Removes the first `count` steps after adding them to the sums. Call it with the lock held. */
void harpe_profiler_forget(harpe_instruction_profiler *profiler, size_t count);

#endif
