/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the clock that a GPU has with the clock that was set. They can differ because of the
 * power limit, heat, a lock of an administrator, or another program that sets clocks. A thread of
 * the controller compares the clocks several times a second. It also learns how long changes take.
 * The thread that sets clocks makes no driver calls for this. */
#ifndef HARPE_CLIENT_CONTROLLER_OBEDIENCE_H
#define HARPE_CLIENT_CONTROLLER_OBEDIENCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>

#include "client/controller.h"
#include "client/controller_gpu.h"
#include "client/switch_learning.h"

enum { HARPE_OBEDIENCE_WRITES = 64, HARPE_OBEDIENCE_ASKS = 16 };

/* The clocks that were set last. Each element contains the time in us of GPU time (high 48 bits)
 * and the clock in MHz (low 16 bits). */
typedef struct harpe_obedience {
    _Atomic uint64_t writes[HARPE_OBEDIENCE_WRITES];
    _Atomic uint32_t count;       /* of all writes */
    _Atomic uint32_t calling_mhz; /* the clock of a driver call that has not returned; 0: none */
    /* The same for requests, before the driver call. */
    _Atomic uint64_t asks[HARPE_OBEDIENCE_ASKS];
    _Atomic uint32_t ask_count;
    uint64_t asked_us;       /* time of the last request, for the thread that sets clocks */
    uint32_t watched;        /* changes that were watched, for the thread that sets clocks */
    uint64_t next_watch_us;  /* not before, in GPU time */
    _Atomic bool has_change; /* a change must be watched */
    _Atomic bool is_over;    /* the thread must end */
    _Atomic uint32_t calls;  /* number of times that one of both was set */
    harpe_switch_learning learning;
    harpe_controller_slot *slot;
    const harpe_controller_gpu *gpu; /* used only to read */
    int64_t start_ns, start_gpu_ns;  /* the same moment on both clocks */
    pthread_t thread;
    bool has_thread;
    _Atomic bool has_ended;
} harpe_obedience;

/* Starts the thread. If that fails, the clocks are not compared, and nobody learns how long changes
 * take; the slot says so. `slot` and `gpu` must outlive the thread, and all calls below. */
void harpe_obedience_start(harpe_obedience *obedience, harpe_controller_slot *slot,
                           const harpe_controller_gpu *gpu);
/* Ends the thread. Returns false if the thread hangs in a driver call. Then the caller must not
 * free anything that the thread uses. */
bool harpe_obedience_stop(harpe_obedience *obedience);

/* Notes the clock that the GPU was given at the start. Nobody watches this change, because its
 * request is over. If the slot has requests of an earlier process, they do not hold any more. Call
 * it after harpe_obedience_start, and before the thread that sets clocks starts. */
void harpe_obedience_begin(harpe_obedience *obedience, uint32_t mhz);

/* Notes that a clock is about to be set. If too little is known about how long this change takes,
 * the other thread reads the clock in short intervals until the change is over. Called on the
 * thread that sets clocks. */
void harpe_obedience_ask(harpe_obedience *obedience, uint32_t mhz);

/* Notes that the last request failed. Called on the thread that sets clocks. */
void harpe_obedience_fail(harpe_obedience *obedience);

/* Notes that a clock was set. Called on the thread that sets clocks. */
void harpe_obedience_note(harpe_obedience *obedience, uint32_t mhz);

/* Returns true if a GPU with the clock `held_mhz` obeys. `lowest_mhz` and `highest_mhz` are the
 * range of the clocks that were set within the time that a change takes. */
bool harpe_obedience_holds(uint32_t held_mhz, uint32_t lowest_mhz, uint32_t highest_mhz);

#endif
