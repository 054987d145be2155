/* SPDX-License-Identifier: Apache-2.0 */
/* The thread looks at the cell at fixed intervals while marks are on their way. The interval is
 * constant, so the delay of a mark does not depend on the time since the mark before it, and
 * durations are correct on average. While no mark is on its way, the thread sleeps. */
#include "client/stream_cell.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/array.h"
#include "base/wait.h"

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

struct harpe_stream_cell {
    register_host *register_memory;
    find_device_pointer *find_pointer;
    unregister_host *unregister;
    write_value *write;
    exchange_capture_mode *exchange_mode; /* NULL: a driver without CUDA graphs */
    void *stream;
    _Atomic uint32_t *reached; /* a page of this process that is registered with CUDA; written by
                                * the stream. It stays readable if the CUDA context ends */
    uint64_t device_pointer;   /* of `reached` */
    harpe_stream_cell_handler *handler;
    void *user;
    _Atomic size_t sent; /* number of writes, with the trial; written by the training thread */
    size_t handled;      /* writes that the cell's thread has seen */
    _Atomic uint32_t is_asleep; /* 0 or 1 */
    _Atomic bool is_closing;
    pthread_t thread;
};

/* ---- The thread ------------------------------------------------------------------------------ */

/* Returns true if a mark was reached since the last look. */
static bool look(harpe_stream_cell *cell) {
    uint32_t reached = atomic_load_explicit(cell->reached, memory_order_acquire);
    uint32_t news = reached - (uint32_t)cell->handled;
    if (news == 0) return false;
    cell->handled += news;
    cell->handler(cell->user, cell->handled - 1);
    return true;
}

/* Sleeps until a mark is sent. This thread sets the flag before it compares the counts. The
 * training thread counts its mark before it reads the flag. So at least one of them sees what the
 * other has done. */
static void sleep_until_sent(harpe_stream_cell *cell) {
    atomic_store(&cell->is_asleep, 1);
    while (atomic_load(&cell->is_asleep) && atomic_load(&cell->sent) == cell->handled &&
           !atomic_load(&cell->is_closing))
        (void)harpe_wait_while(&cell->is_asleep, 1, -1);
    atomic_store(&cell->is_asleep, 0);
}

static void *run(void *user) {
    harpe_stream_cell *cell = user;
    (void)prctl(PR_SET_TIMERSLACK, timer_slack_ns, 0UL, 0UL, 0UL);
    int idle_looks = 0;
    while (!atomic_load(&cell->is_closing)) {
        bool is_idle = !look(cell) && atomic_load(&cell->sent) == cell->handled;
        idle_looks = is_idle ? idle_looks + 1 : 0;
        if (idle_looks >= IDLE_LOOKS) {
            sleep_until_sent(cell);
            idle_looks = 0;
        } else {
            harpe_sleep_ns(look_pause_ns);
        }
    }
    return NULL;
}

static void wake(harpe_stream_cell *cell) {
    if (atomic_exchange(&cell->is_asleep, 0)) harpe_wake(&cell->is_asleep);
}

bool harpe_stream_cell_send(harpe_stream_cell *cell, size_t number) {
    size_t writes = number + 1; /* with the trial */
    atomic_store(&cell->sent, writes);
    if (cell->write(cell->stream, cell->device_pointer, (uint32_t)writes, 0) != 0) {
        atomic_store(&cell->sent, writes - 1);
        return false;
    }
    if (atomic_load(&cell->is_asleep)) wake(cell);
    return true;
}

/* ---- Making and freeing ---------------------------------------------------------------------- */

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Another stream of this process may capture a graph. In the default mode of a capture, registering
 * memory would fail and spoil the capture. Exchanges the mode of this thread. */
static void exchange_mode(const harpe_stream_cell *cell, int *mode) {
    if (cell->exchange_mode) (void)cell->exchange_mode(mode);
}

/* Gives a registered page back. Leaks it if CUDA does not let go of it, because CUDA would take
 * other memory at the same address for it. */
static void give_back(const harpe_stream_cell *cell, void *page) {
    int mode = CAPTURE_MODE_RELAXED;
    exchange_mode(cell, &mode);
    if (cell->unregister(page) == 0) (void)munmap(page, page_size());
    exchange_mode(cell, &mode);
}

static bool find_functions(harpe_stream_cell *cell, void *library) {
    *(void **)&cell->register_memory = dlsym(library, "cuMemHostRegister_v2");
    *(void **)&cell->find_pointer = dlsym(library, "cuMemHostGetDevicePointer_v2");
    *(void **)&cell->unregister = dlsym(library, "cuMemHostUnregister");
    *(void **)&cell->write = dlsym(library, "cuStreamWriteValue32_v2");
    *(void **)&cell->exchange_mode = dlsym(library, "cuThreadExchangeStreamCaptureMode");
    return cell->register_memory && cell->find_pointer && cell->unregister && cell->write;
}

static bool register_page(const harpe_stream_cell *cell, void *page) {
    int mode = CAPTURE_MODE_RELAXED;
    exchange_mode(cell, &mode);
    bool is_registered =
        cell->register_memory(page, page_size(), HOST_MEMORY_PORTABLE | HOST_MEMORY_MAPPED) == 0;
    exchange_mode(cell, &mode);
    return is_registered;
}

/* Makes the page and tries a write, which is the first of all. The page is shared with forked
 * children, because a private one would be copied, and the stream would write to the other copy. */
static bool make_page(harpe_stream_cell *cell) {
    void *page = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    cell->reached = page;
    atomic_init(cell->reached, 0);
    atomic_init(&cell->sent, 1);
    if (!register_page(cell, page)) {
        (void)munmap(page, page_size());
        return false;
    }
    if (cell->find_pointer(&cell->device_pointer, page, 0) == 0 &&
        cell->write(cell->stream, cell->device_pointer, 1, 0) == 0)
        return true;
    give_back(cell, page);
    return false;
}

harpe_stream_cell *harpe_stream_cell_new(void *library, void *stream,
                                         harpe_stream_cell_handler *handler, void *user) {
    harpe_stream_cell *cell = harpe_calloc(1, sizeof *cell);
    if (!cell) return NULL;
    cell->stream = stream;
    cell->handler = handler;
    cell->user = user;
    if (!find_functions(cell, library) || !make_page(cell)) {
        free(cell);
        return NULL;
    }
    if (harpe_thread_start(&cell->thread, "harpe-marks", run, cell) == 0) return cell;
    /* The page is leaked, because the stream may not have done the trial yet. */
    free(cell);
    return NULL;
}

void harpe_stream_cell_free(harpe_stream_cell *cell) {
    if (!cell) return;
    atomic_store(&cell->is_closing, true);
    wake(cell);
    harpe_thread_join(cell->thread);
    if (atomic_load(cell->reached) == (uint32_t)atomic_load(&cell->sent))
        give_back(cell, (void *)cell->reached);
    free(cell);
}
