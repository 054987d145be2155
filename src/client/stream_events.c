/* SPDX-License-Identifier: Apache-2.0 */
/* Sends events through a CUDA stream. Each event waits in a ring until the stream has reached it.
 * When the stream reaches an event, it writes a number to memory, and a thread sees the number. A
 * stream that cannot write runs a host function for each event instead, on a thread of the driver.
 * This file uses the driver's library only if the process has already loaded it. */
#include "client/optimizer_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/array.h"
#include "base/wait.h"

/* ---- The cell -------------------------------------------------------------------------------- */

/* A cell is a number in host memory. A CUDA stream writes to it when it reaches a mark
 * (cuStreamWriteValue32), and a thread looks at it. A write takes the stream no measurable time. A
 * host function takes tens of microseconds, and the stream does no other work meanwhile
 * (docs/gpu.md). The thread looks at fixed intervals while marks are on their way. The interval is
 * constant, so the delay of a mark does not depend on the time since the mark before it, and
 * durations are correct on average. While no mark is on its way, the thread sleeps. */
static const int64_t look_pause_ns = 50000;
static const unsigned long timer_slack_ns = 1000; /* with the usual slack of 50 us, the thread
                                                   * would look half as often */
enum { IDLE_LOOKS = 400 };

/* cuda.h: CUresult cuMemHostRegister(void *, size_t, unsigned flags), cuMemHostGetDevicePointer(
 * CUdeviceptr *, void *, unsigned flags), cuMemHostUnregister(void *),
 * cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned flags),
 * cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *) */
typedef int register_host(void *memory, size_t size, unsigned flags);
typedef int find_device_pointer(uint64_t *pointer, void *memory, unsigned flags);
typedef int unregister_host(void *memory);
typedef int write_value(void *stream, uint64_t pointer, uint32_t value, unsigned flags);
typedef int exchange_capture_mode(int *mode);
enum { HOST_MEMORY_PORTABLE = 1, HOST_MEMORY_MAPPED = 2 }; /* cuda.h: CU_MEMHOSTREGISTER_... */
enum { CAPTURE_MODE_RELAXED = 2 };                         /* cuda.h: CU_STREAM_CAPTURE_MODE_... */

/* ---- Events ---------------------------------------------------------------------------------- */

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
    void *library;
    void *stream;
    launch_host_function *launch;
    query_capture *query_capture; /* NULL: a driver without CUDA graphs */
    _Atomic bool has_called;      /* a host function was launched */
    /* The cell. */
    register_host *register_memory;
    find_device_pointer *find_pointer;
    unregister_host *unregister;
    write_value *write;
    exchange_capture_mode *exchange_mode; /* NULL: a driver without CUDA graphs */
    _Atomic uint32_t *reached;  /* a page of this process that is registered with CUDA; written by
                                 * the stream. It stays readable if the CUDA context ends. It is the
                                 * number of events that the stream has reached, and 1 for the trial.
                                 * NULL: the stream runs host functions */
    uint64_t device_pointer;    /* of `reached` */
    int tries;                  /* to make the cell */
    _Atomic uint32_t is_asleep; /* 0 or 1 */
    _Atomic bool is_closing;
    pthread_t thread;
    /* Held while an event is handled, and by harpe_stream_events_free. harpe_stream_events_send
     * does not take it. */
    pthread_mutex_t lock;
    harpe_stream_event_handler *handler; /* NULL: closed */
    void *user;
    _Atomic size_t sent; /* written by the training thread */
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

/* ---- The thread of a cell -------------------------------------------------------------------- */

/* Handles the events that the stream has reached since the last look. Returns false if the stream
 * has reached no event since. */
static bool look(harpe_stream_events *events) {
    size_t handled = atomic_load_explicit(&events->handled, memory_order_relaxed);
    uint32_t reached = atomic_load_explicit(events->reached, memory_order_acquire);
    uint32_t news = reached - 1 - (uint32_t)handled;
    if (news == 0 || news > (uint32_t)(atomic_load(&events->sent) - handled)) return false;
    for (; news > 0; news--)
        arrive(events);
    return true;
}

static bool is_idle(const harpe_stream_events *events) {
    return atomic_load(&events->sent) == atomic_load(&events->handled);
}

/* Sleeps until a mark is sent. This thread sets the flag before it compares the counts. The
 * training thread counts its mark before it reads the flag. So at least one of the two threads sees
 * the store of the other. */
static void sleep_until_sent(harpe_stream_events *events) {
    atomic_store(&events->is_asleep, 1);
    while (atomic_load(&events->is_asleep) && is_idle(events) && !atomic_load(&events->is_closing))
        (void)harpe_wait_while(&events->is_asleep, 1, -1);
    atomic_store(&events->is_asleep, 0);
}

static void *run_cell(void *user) {
    harpe_stream_events *events = user;
    (void)prctl(PR_SET_TIMERSLACK, timer_slack_ns, 0UL, 0UL, 0UL);
    int idle_looks = 0;
    while (!atomic_load(&events->is_closing)) {
        idle_looks = !look(events) && is_idle(events) ? idle_looks + 1 : 0;
        if (idle_looks >= IDLE_LOOKS) {
            sleep_until_sent(events);
            idle_looks = 0;
        } else {
            harpe_sleep_ns(look_pause_ns);
        }
    }
    return NULL;
}

static void wake(harpe_stream_events *events) {
    if (atomic_exchange(&events->is_asleep, 0)) harpe_wake(&events->is_asleep);
}

/* Enqueues the write for the last event, which is counted already. Makes a system call only if it
 * has to wake the cell's thread. Returns false if the stream does not accept the write. */
static bool write_last(harpe_stream_events *events) {
    uint32_t writes = (uint32_t)atomic_load(&events->sent) + 1; /* with the trial */
    if (events->write(events->stream, events->device_pointer, writes, 0) != 0) return false;
    if (atomic_load(&events->is_asleep)) wake(events);
    return true;
}

/* Returns true if the stream is capturing. A function launched on a capturing stream does not run
 * now. It runs at every replay of the graph, even after harpe_stream_events_free. A failed query
 * also counts as capturing, because another stream's capture has prevented the query. */
static bool is_capturing(const harpe_stream_events *events) {
    int capture_status = 0;
    return events->query_capture &&
           (events->query_capture(events->stream, &capture_status) != 0 || capture_status != 0);
}

/* ---- Making and freeing a cell --------------------------------------------------------------- */

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Another stream of this process may capture a graph. In the default mode of a capture, registering
 * memory would fail and spoil the capture. Exchanges the mode of this thread. */
static void exchange_mode(const harpe_stream_events *events, int *mode) {
    if (events->exchange_mode) (void)events->exchange_mode(mode);
}

/* Unregisters and frees a page. If CUDA refuses to unregister the page, the page is leaked, because
 * CUDA would mistake other memory at the same address for the page. */
static void give_back(const harpe_stream_events *events, void *page) {
    int mode = CAPTURE_MODE_RELAXED;
    exchange_mode(events, &mode);
    if (events->unregister(page) == 0) (void)munmap(page, page_size());
    exchange_mode(events, &mode);
}

static bool find_functions(harpe_stream_events *events) {
    void *library = events->library;
    *(void **)&events->register_memory = dlsym(library, "cuMemHostRegister_v2");
    *(void **)&events->find_pointer = dlsym(library, "cuMemHostGetDevicePointer_v2");
    *(void **)&events->unregister = dlsym(library, "cuMemHostUnregister");
    *(void **)&events->write = dlsym(library, "cuStreamWriteValue32_v2");
    *(void **)&events->exchange_mode = dlsym(library, "cuThreadExchangeStreamCaptureMode");
    return events->register_memory && events->find_pointer && events->unregister && events->write;
}

static bool register_page(const harpe_stream_events *events, void *page) {
    int mode = CAPTURE_MODE_RELAXED;
    exchange_mode(events, &mode);
    bool is_registered =
        events->register_memory(page, page_size(), HOST_MEMORY_PORTABLE | HOST_MEMORY_MAPPED) == 0;
    exchange_mode(events, &mode);
    return is_registered;
}

/* Makes the page and tries a write, which is the first of all. The page is shared with forked
 * children, because a private one would be copied, and the stream would write to the other copy. */
static bool make_page(harpe_stream_events *events) {
    void *page = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    memset(page, 0, sizeof *events->reached);
    if (!register_page(events, page)) {
        (void)munmap(page, page_size());
        return false;
    }
    if (events->find_pointer(&events->device_pointer, page, 0) == 0 &&
        events->write(events->stream, events->device_pointer, 1, 0) == 0) {
        events->reached = page;
        return true;
    }
    give_back(events, page);
    return false;
}

/* Makes the cell and starts its thread, unless the stream captures a graph: the first write, which
 * tries the stream out, would become a part of the graph. Fails if the driver, the stream or the
 * context of this thread has no such writes. */
static void try_cell(harpe_stream_events *events) {
    if (events->tries >= TRIES_MAX || is_capturing(events)) return;
    events->tries++;
    if (!find_functions(events) || !make_page(events)) return;
    /* Otherwise the page is leaked, because the stream may not have done the trial yet. */
    if (harpe_thread_start(&events->thread, "harpe-marks", run_cell, events) != 0)
        events->reached = NULL;
}

/* Ends the thread, so `handler` is not called afterwards. If the stream has not reached all marks,
 * the memory to which it still writes is leaked. */
static void end_cell(harpe_stream_events *events) {
    if (!events->reached) return;
    atomic_store(&events->is_closing, true);
    wake(events);
    harpe_thread_join(events->thread);
    if (atomic_load(events->reached) == (uint32_t)atomic_load(&events->sent) + 1)
        give_back(events, (void *)events->reached);
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Handles the event at once. Returns false if earlier events are still on their way, because events
 * must keep their order. */
static bool handle_here(harpe_stream_events *events, const harpe_stream_event *event,
                        size_t handled) {
    if (handled != events->sent) return false;
    events->handler(events->user, event);
    return true;
}

static bool send(harpe_stream_events *events) {
    if (events->reached) return write_last(events);
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
    if (!events->reached && !atomic_load_explicit(&events->has_called, memory_order_relaxed))
        try_cell(events);
    waiting_event *waiting = &events->ring[events->sent % RING_SIZE];
    waiting->event = *event;
    if (event->name) {
        size_t length = strnlen(event->name, sizeof waiting->name - 1);
        memcpy(waiting->name, event->name, length);
        waiting->name[length] = '\0';
        waiting->event.name = waiting->name;
    }
    /* The event is counted before the launch, because it may arrive at once. */
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
    bool is_needed = !events->reached && atomic_load(&events->handled) != events->sent;
    end_cell(events);
    if (is_needed) return; /* leaked, because a host function that has not run yet needs it */
    (void)pthread_mutex_destroy(&events->lock);
    (void)dlclose(events->library);
    free(events);
}
