/* SPDX-License-Identifier: Apache-2.0 */
/* Sends events through a CUDA stream. Each event waits in a ring until the stream has reached it.
 * When the stream reaches an event, it writes a number to memory, and a thread sees the number. A
 * stream that cannot write runs a host function for each event instead, on a thread of the driver.
 * This file uses the driver's library only if the process has already loaded it. */
#include "client/stream_events.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/wait.h"
#include "client/stream_cell.h"

enum { RING_SIZE = 4096, DRAIN_TRIES = 200, TRIES_MAX = 3 };
#define DRAIN_PAUSE_NS 10000000 /* all pauses together take 2 s */

/* cuda.h: CUresult cuLaunchHostFunc(CUstream, CUhostFn, void *) */
typedef int launch_host_function(void *stream, void (*function)(void *user), void *user);
/* cuda.h: CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus *); 0: not capturing */
typedef int query_capture(void *stream, int *capture_status);

typedef struct waiting_event {
    harpe_stream_event event;
    char name[HARPE_INSTRUCTION_SIZE];
} waiting_event;

struct harpe_stream_events {
    harpe_stream_cell *cell; /* NULL: the stream runs host functions */
    int tries;               /* to make the cell */
    _Atomic bool has_called; /* a host function was launched */
    launch_host_function *launch;
    query_capture *query_capture; /* NULL: a driver without CUDA graphs */
    void *library;
    void *stream;
    /* Held while an event is handled, and by harpe_stream_events_free. harpe_stream_events_send
     * does not take it. */
    pthread_mutex_t lock;
    harpe_stream_event_handler *handler; /* NULL: closed */
    void *user;
    size_t sent; /* training thread */
    _Atomic size_t handled;
    waiting_event ring[RING_SIZE];
};

/* ---- Arrival --------------------------------------------------------------------------------- */

/* Handles the next event of the ring. */
static void arrive(harpe_stream_events *events) {
    size_t turn = atomic_load_explicit(&events->handled, memory_order_relaxed);
    const waiting_event *waiting = &events->ring[turn % RING_SIZE];
    harpe_lock(&events->lock);
    if (events->handler) events->handler(events->user, &waiting->event);
    harpe_unlock(&events->lock);
    atomic_store_explicit(&events->handled, turn + 1, memory_order_release);
}

/* This is the host function. A stream runs its host functions one after the other, in order. */
static void arrive_by_call(void *user) { arrive(user); }

/* The cell's thread calls this function. */
static void arrive_by_write(void *user, size_t reached) {
    harpe_stream_events *events = user;
    while (atomic_load_explicit(&events->handled, memory_order_relaxed) != reached)
        arrive(events);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Returns true if the stream is capturing. A function launched on a capturing stream does not run
 * now. It runs at every replay of the graph, even after harpe_stream_events_free. A failed query
 * also counts as capturing, because another stream's capture has prevented the query. */
static bool is_capturing(const harpe_stream_events *events) {
    int capture_status = 0;
    return events->query_capture &&
           (events->query_capture(events->stream, &capture_status) != 0 || capture_status != 0);
}

/* Handles the event at once. Returns false if earlier events are still on their way, because events
 * must keep their order. */
static bool handle_here(harpe_stream_events *events, const harpe_stream_event *event,
                        size_t handled) {
    if (handled != events->sent) return false;
    events->handler(events->user, event);
    return true;
}

/* Makes the cell, unless the stream captures a graph. The cell's trial write would become a part of
 * the graph. */
static void try_cell(harpe_stream_events *events) {
    if (events->tries >= TRIES_MAX || is_capturing(events)) return;
    events->tries++;
    events->cell = harpe_stream_cell_new(events->library, events->stream, arrive_by_write, events);
}

static bool send(harpe_stream_events *events) {
    if (events->cell) return harpe_stream_cell_send(events->cell, events->sent);
    if (events->launch(events->stream, arrive_by_call, events) != 0) return false;
    atomic_store_explicit(&events->has_called, true, memory_order_relaxed);
    return true;
}

bool harpe_stream_events_send(harpe_stream_events *events, const harpe_stream_event *event) {
    size_t handled = atomic_load_explicit(&events->handled, memory_order_acquire);
    if (is_capturing(events)) return handle_here(events, event, handled);
    if (events->sent - handled == RING_SIZE) return false;
    /* When `events` was made, the thread may have had no CUDA context, or the stream may have
     * captured a graph. */
    if (!events->cell && !atomic_load_explicit(&events->has_called, memory_order_relaxed))
        try_cell(events);
    waiting_event *waiting = &events->ring[events->sent % RING_SIZE];
    waiting->event = *event;
    if (event->name) {
        size_t length = strnlen(event->name, sizeof waiting->name - 1);
        memcpy(waiting->name, event->name, length);
        waiting->name[length] = '\0';
        waiting->event.name = waiting->name;
    }
    /* Counted before the launch, because the event may arrive at once. */
    events->sent++;
    bool is_sent = send(events);
    if (!is_sent) events->sent--;
    return is_sent;
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

harpe_stream_events *harpe_stream_events_new(void *cuda_stream, harpe_stream_event_handler *handler,
                                             void *user) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return NULL;
    harpe_stream_events *events = harpe_calloc(1, sizeof *events);
    void *symbol = dlsym(library, "cuLaunchHostFunc");
    if (!events || !symbol) {
        free(events);
        (void)dlclose(library);
        return NULL;
    }
    *(void **)&events->launch = symbol;
    *(void **)&events->query_capture = dlsym(library, "cuStreamIsCapturing");
    events->library = library;
    events->stream = cuda_stream;
    events->handler = handler;
    events->user = user;
    (void)pthread_mutex_init(&events->lock, NULL);
    try_cell(events);
    return events;
}

bool harpe_stream_events_call(const harpe_stream_events *events) {
    return atomic_load_explicit(&events->has_called, memory_order_relaxed);
}

void harpe_stream_events_free(harpe_stream_events *events) {
    if (!events) return;
    for (int i = 0; i < DRAIN_TRIES && atomic_load(&events->handled) != events->sent; i++)
        harpe_sleep_ns(DRAIN_PAUSE_NS);
    harpe_lock(&events->lock);
    events->handler = NULL;
    harpe_unlock(&events->lock);
    bool is_needed = !events->cell && atomic_load(&events->handled) != events->sent;
    harpe_stream_cell_free(events->cell);
    if (is_needed) return; /* leaked, because a host function that has not run yet needs it */
    (void)pthread_mutex_destroy(&events->lock);
    (void)dlclose(events->library);
    free(events);
}
