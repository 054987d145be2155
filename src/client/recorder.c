/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of time stamps. The writer keeps a copy of the reader's position and reads it again
 * only when the ring seems full. So each event usually costs one store that is visible to the
 * other core. */
#include "client/recorder.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"

harpe_status harpe_recorder_open(harpe_recorder *recorder, size_t capacity, harpe_error *error) {
    size_t size = 1;
    while (size < capacity)
        size *= 2;
    recorder->events = harpe_calloc(size, sizeof *recorder->events);
    if (!recorder->events) return harpe_fail_memory(error);
    /* Writes to all pages now, so that no page fault happens on the training thread. */
    memset(recorder->events, 0xff, size * sizeof *recorder->events);
    recorder->mask = size - 1;
    return HARPE_OK;
}

void harpe_recorder_close(harpe_recorder *recorder) {
    free(recorder->events);
    recorder->events = NULL;
}

/* ---- Writer ---------------------------------------------------------------------------------- */

static bool has_room(harpe_recorder *recorder) {
    if (recorder->written - recorder->known_read <= recorder->mask) return true;
    recorder->known_read = atomic_load_explicit(&recorder->read, memory_order_acquire);
    return recorder->written - recorder->known_read <= recorder->mask;
}

static void drop_step(harpe_recorder *recorder) {
    recorder->is_recording = false;
    atomic_fetch_add_explicit(&recorder->dropped_steps, 1, memory_order_relaxed);
}

static void put(harpe_recorder *recorder, harpe_event event) {
    if (!has_room(recorder)) {
        drop_step(recorder);
        return;
    }
    recorder->events[recorder->written & recorder->mask] = event;
    recorder->written++;
    atomic_store_explicit(&recorder->published, recorder->written, memory_order_release);
}

/* Returns the index of a name. Longer names are cut. -1: the table is full. */
static int name_index(harpe_recorder *recorder, const char *name) {
    for (unsigned i = 0; i < recorder->name_count; i++)
        if (strncmp(recorder->names[i], name, HARPE_RECORDER_NAME_SIZE - 1) == 0) return (int)i;
    if (recorder->name_count == HARPE_RECORDER_NAMES) return -1;
    size_t length = strnlen(name, HARPE_RECORDER_NAME_SIZE - 1);
    memcpy(recorder->names[recorder->name_count], name, length);
    return (int)recorder->name_count++;
}

void harpe_recorder_begin_step(harpe_recorder *recorder, int64_t series) {
    recorder->is_recording = true;
    put(recorder, (harpe_event){harpe_clock_ns(), series, HARPE_EVENT_BEGIN_STEP, 0});
}

void harpe_recorder_end_step(harpe_recorder *recorder, harpe_event_kind how) {
    if (!recorder->is_recording) return;
    put(recorder, (harpe_event){harpe_clock_ns(), 0, (uint8_t)how, 0});
    recorder->is_recording = false;
}

void harpe_recorder_begin(harpe_recorder *recorder, const char *instruction, int frequency_mhz) {
    if (!recorder->is_recording) return;
    int name = name_index(recorder, instruction ? instruction : "unnamed");
    if (name < 0) {
        drop_step(recorder);
        return;
    }
    put(recorder, (harpe_event){harpe_clock_ns(), frequency_mhz, HARPE_EVENT_BEGIN, (uint8_t)name});
}

void harpe_recorder_end(harpe_recorder *recorder) {
    if (!recorder->is_recording) return;
    put(recorder, (harpe_event){harpe_clock_ns(), 0, HARPE_EVENT_END, 0});
}

/* ---- Reader ---------------------------------------------------------------------------------- */

bool harpe_recorder_next(harpe_recorder *recorder, harpe_event *out) {
    uint64_t read = atomic_load_explicit(&recorder->read, memory_order_relaxed);
    if (read == atomic_load_explicit(&recorder->published, memory_order_acquire)) return false;
    *out = recorder->events[read & recorder->mask];
    atomic_store_explicit(&recorder->read, read + 1, memory_order_release);
    return true;
}
