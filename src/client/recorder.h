/* SPDX-License-Identifier: Apache-2.0 */
/* Passes time stamps from the training thread to the profiler's thread: a ring with one writer and
 * one reader. Writing is wait-free: no lock, no allocation, no system call. Reading
 * the clock is not a system call either. The recorder does not interpret the events. */
#ifndef HARPE_CLIENT_RECORDER_H
#define HARPE_CLIENT_RECORDER_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

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

/* Opens a recorder, which must be all zeros. It has room for at least `capacity` events. */
harpe_status harpe_recorder_open(harpe_recorder *recorder, size_t capacity, harpe_error *error);
void harpe_recorder_close(harpe_recorder *recorder);

/* ---- Writer ---------------------------------------------------------------------------------- */

/* Begins a step. If there is no room for an event, removes the events of its step and ignores all
 * events until the next step. */
void harpe_recorder_begin_step(harpe_recorder *recorder, int64_t series);
void harpe_recorder_end_step(harpe_recorder *recorder, harpe_event_kind how);
/* Records an event. `instruction` NULL: "unnamed". */
void harpe_recorder_begin(harpe_recorder *recorder, const char *instruction, int frequency_mhz);
void harpe_recorder_end(harpe_recorder *recorder);

/* ---- Reader ---------------------------------------------------------------------------------- */

/* Returns false if there is no new event. */
bool harpe_recorder_next(harpe_recorder *recorder, harpe_event *out);

#endif
