/* SPDX-License-Identifier: Apache-2.0 */
/* Events through a CUDA stream: each waits in a ring until the driver calls back, in the stream's
 * order and on a thread of the driver's. The driver's library is used only where the process has
 * loaded it already. */
#include "client/marks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"

enum { RING_SIZE = 4096, DRAIN_TRIES = 200 };
static const struct timespec drain_pause = {.tv_nsec = 10000000}; /* 2 s together */

/* cuda.h: CUresult cuLaunchHostFunc(CUstream, CUhostFn, void *) */
typedef int launch_host_function(void *stream, void (*function)(void *user), void *user);
/* cuda.h: CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus *); 0: none */
typedef int query_capture(void *stream, int *capture_status);

typedef struct waiting_event {
    harpe_marked_event event;
    char name[HARPE_INSTRUCTION_SIZE];
} waiting_event;

struct harpe_marks {
    launch_host_function *launch;
    query_capture *query_capture; /* NULL: a driver without CUDA graphs */
    void *library;
    void *stream;
    pthread_mutex_t
        lock; /* the driver's thread and the one that frees; never the training thread */
    harpe_marked_handler *handler; /* NULL: closed */
    void *user;
    size_t sent; /* training thread */
    _Atomic size_t handled;
    waiting_event ring[RING_SIZE];
};

harpe_marks *harpe_marks_new(void *cuda_stream, harpe_marked_handler *handler, void *user) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return NULL;
    harpe_marks *marks = harpe_calloc(1, sizeof *marks);
    void *symbol = dlsym(library, "cuLaunchHostFunc");
    if (!marks || !symbol) {
        free(marks);
        (void)dlclose(library);
        return NULL;
    }
    *(void **)&marks->launch = symbol;
    *(void **)&marks->query_capture = dlsym(library, "cuStreamIsCapturing");
    marks->library = library;
    marks->stream = cuda_stream;
    marks->handler = handler;
    marks->user = user;
    (void)pthread_mutex_init(&marks->lock, NULL);
    return marks;
}

/* The stream is there: a stream runs one host function at a time, in order. */
static void arrive(void *user) {
    harpe_marks *marks = user;
    size_t turn = atomic_load_explicit(&marks->handled, memory_order_relaxed);
    const waiting_event *waiting = &marks->ring[turn % RING_SIZE];
    pthread_mutex_lock(&marks->lock);
    if (marks->handler) marks->handler(marks->user, &waiting->event);
    pthread_mutex_unlock(&marks->lock);
    atomic_store_explicit(&marks->handled, turn + 1, memory_order_release);
}

/* What is launched on a capturing stream does not run now but at every replay of the graph, also
 * after harpe_marks_free. An error says that another stream's capture stands in the way. */
static bool is_capturing(const harpe_marks *marks) {
    int capture_status = 0;
    return marks->query_capture &&
           (marks->query_capture(marks->stream, &capture_status) != 0 || capture_status != 0);
}

/* At once, unless earlier events are still on their way: order matters more. */
static bool handle_here(harpe_marks *marks, const harpe_marked_event *event, size_t handled) {
    if (handled != marks->sent) return false;
    marks->handler(marks->user, event);
    return true;
}

bool harpe_marks_send(harpe_marks *marks, const harpe_marked_event *event) {
    size_t handled = atomic_load_explicit(&marks->handled, memory_order_acquire);
    if (is_capturing(marks)) return handle_here(marks, event, handled);
    if (marks->sent - handled == RING_SIZE) return false;
    waiting_event *waiting = &marks->ring[marks->sent % RING_SIZE];
    waiting->event = *event;
    if (event->name) {
        size_t length = strnlen(event->name, sizeof waiting->name - 1);
        memcpy(waiting->name, event->name, length);
        waiting->name[length] = '\0';
        waiting->event.name = waiting->name;
    }
    /* Counted before it is launched: it may arrive at once. */
    marks->sent++;
    if (marks->launch(marks->stream, arrive, marks) == 0) return true;
    marks->sent--;
    return false;
}

void harpe_marks_free(harpe_marks *marks) {
    if (!marks) return;
    for (int i = 0; i < DRAIN_TRIES && atomic_load(&marks->handled) != marks->sent; i++) {
        (void)nanosleep(&drain_pause, NULL);
    }
    pthread_mutex_lock(&marks->lock);
    marks->handler = NULL;
    pthread_mutex_unlock(&marks->lock);
    /* A host function that is still to come must find its marks: better to lose them. */
    if (atomic_load(&marks->handled) != marks->sent) return;
    (void)pthread_mutex_destroy(&marks->lock);
    (void)dlclose(marks->library);
    free(marks);
}
