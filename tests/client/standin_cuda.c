/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcuda.so.1 with one stream. Its host functions and its writes to memory run on a
 * thread of its own, in order. For tests it can pause its stream, refuse more work, have no writes,
 * and report that it captures a graph. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CAPACITY = 16384,
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
};

typedef struct stream_work {
    void (*function)(void *user); /* NULL: a write */
    void *user;
    _Atomic uint32_t *written;
    uint32_t value;
} stream_work;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static stream_work queue[CAPACITY];
static size_t enqueued, begun, captured, writes;
static bool is_running, is_held, is_refusing, is_capturing, has_no_writes, has_no_context;
static void *registered;

int cuLaunchHostFunc(void *stream, void (*function)(void *user), void *user);
int cuStreamIsCapturing(void *stream, int *capture_status);
int cuMemHostRegister_v2(void *memory, size_t size, unsigned flags);
int cuMemHostGetDevicePointer_v2(uint64_t *pointer, void *memory, unsigned flags);
int cuMemHostUnregister(void *memory);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuStreamWriteValue32_v2(void *stream, uint64_t pointer, uint32_t value, unsigned flags);
void standin_cuda_have_no_writes(bool no_writes);
void standin_cuda_have_no_context(bool no_context);
void *standin_cuda_registered(void);
void standin_cuda_run(void);
void standin_cuda_hold(bool hold);
void standin_cuda_refuse(bool refuse);
void standin_cuda_capture(bool capture);
size_t standin_cuda_captured(void);
size_t standin_cuda_writes(void);
size_t standin_cuda_functions(void);

static void run_next(void) {
    stream_work next = queue[begun++ % CAPACITY];
    pthread_mutex_unlock(&lock);
    if (next.function)
        next.function(next.user);
    else
        atomic_store(next.written, next.value);
    pthread_mutex_lock(&lock);
}

static void *run(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (is_held || begun == enqueued)
            pthread_cond_wait(&changed, &lock);
        run_next();
    }
    return NULL;
}

/* Runs what the stream has to do now. After the first call, the stand-in has no thread. */
void standin_cuda_run(void) {
    pthread_mutex_lock(&lock);
    is_running = true;
    while (!is_held && begun != enqueued)
        run_next();
    pthread_mutex_unlock(&lock);
}

static int enqueue(stream_work work) {
    pthread_mutex_lock(&lock);
    int code = is_refusing || enqueued - begun == CAPACITY ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                           : CUDA_SUCCESS;
    if (code == CUDA_SUCCESS && !is_running) {
        pthread_t thread;
        is_running = pthread_create(&thread, NULL, run, NULL) == 0 && pthread_detach(thread) == 0;
    }
    if (code == CUDA_SUCCESS) queue[enqueued++ % CAPACITY] = work;
    if (code == CUDA_SUCCESS && !work.function) writes++;
    if (is_capturing) captured++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return code;
}

int cuLaunchHostFunc(void *stream, void (*function)(void *user), void *user) {
    (void)stream;
    return enqueue((stream_work){.function = function, .user = user});
}

int cuStreamWriteValue32_v2(void *stream, uint64_t pointer, uint32_t value, unsigned flags) {
    (void)stream;
    (void)flags;
    pthread_mutex_lock(&lock);
    bool is_missing = has_no_writes;
    pthread_mutex_unlock(&lock);
    if (is_missing) return CUDA_ERROR_NOT_SUPPORTED;
    return enqueue(
        (stream_work){.written = (_Atomic uint32_t *)(uintptr_t)pointer, .value = value});
}

/* 0: CU_STREAM_CAPTURE_MODE_GLOBAL; 2: relaxed, in which memory may be registered while any stream
 * captures. */
static _Thread_local int capture_mode;

int cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* Memory of the host and of the device have the same addresses. */
static int change_registration(void) {
    return capture_mode == 2 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

int cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
    (void)size;
    (void)flags;
    registered = memory;
    return change_registration();
}

int cuMemHostGetDevicePointer_v2(uint64_t *pointer, void *memory, unsigned flags) {
    (void)flags;
    *pointer = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

int cuMemHostUnregister(void *memory) {
    (void)memory;
    return has_no_context ? CUDA_ERROR_INVALID_CONTEXT : change_registration();
}

int cuStreamIsCapturing(void *stream, int *capture_status) {
    (void)stream;
    pthread_mutex_lock(&lock);
    *capture_status = is_capturing; /* 1: CU_STREAM_CAPTURE_STATUS_ACTIVE */
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void standin_cuda_hold(bool hold) {
    pthread_mutex_lock(&lock);
    is_held = hold;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void standin_cuda_refuse(bool refuse) {
    pthread_mutex_lock(&lock);
    is_refusing = refuse;
    pthread_mutex_unlock(&lock);
}

void standin_cuda_have_no_writes(bool no_writes) {
    pthread_mutex_lock(&lock);
    has_no_writes = no_writes;
    pthread_mutex_unlock(&lock);
}

void standin_cuda_capture(bool capture) {
    pthread_mutex_lock(&lock);
    is_capturing = capture;
    pthread_mutex_unlock(&lock);
}

/* Returns the number of works that were enqueued while the stream captured a graph. */
size_t standin_cuda_captured(void) {
    pthread_mutex_lock(&lock);
    size_t count = captured;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Return the number of writes, and of host functions, that were enqueued. */
size_t standin_cuda_writes(void) {
    pthread_mutex_lock(&lock);
    size_t count = writes;
    pthread_mutex_unlock(&lock);
    return count;
}

size_t standin_cuda_functions(void) {
    pthread_mutex_lock(&lock);
    size_t count = enqueued - writes;
    pthread_mutex_unlock(&lock);
    return count;
}

/* The context of the calling thread has ended. */
void standin_cuda_have_no_context(bool no_context) { has_no_context = no_context; }

/* Returns the memory that was registered last. */
void *standin_cuda_registered(void) { return registered; }
