/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libcuda.so.1 with one stream. Host functions run on a thread of its own, in order.
 * For tests it can pause its stream, refuse more functions, and report that it captures a graph. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { CAPACITY = 16384, CUDA_SUCCESS = 0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900 };

typedef struct host_function {
    void (*function)(void *user);
    void *user;
} host_function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static host_function queue[CAPACITY];
static size_t enqueued, begun;
static bool is_running, is_held, is_refusing, is_capturing;

int cuLaunchHostFunc(void *stream, void (*function)(void *user), void *user);
int cuStreamIsCapturing(void *stream, int *capture_status);
void standin_cuda_hold(bool hold);
void standin_cuda_refuse(bool refuse);
void standin_cuda_capture(bool capture);

static void *run(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (is_held || begun == enqueued)
            pthread_cond_wait(&changed, &lock);
        host_function next = queue[begun++ % CAPACITY];
        pthread_mutex_unlock(&lock);
        next.function(next.user);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

int cuLaunchHostFunc(void *stream, void (*function)(void *user), void *user) {
    (void)stream;
    pthread_mutex_lock(&lock);
    int code = is_refusing || enqueued - begun == CAPACITY ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                           : CUDA_SUCCESS;
    if (code == CUDA_SUCCESS && !is_running) {
        pthread_t thread;
        is_running = pthread_create(&thread, NULL, run, NULL) == 0 && pthread_detach(thread) == 0;
    }
    if (code == CUDA_SUCCESS) queue[enqueued++ % CAPACITY] = (host_function){function, user};
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return code;
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

void standin_cuda_capture(bool capture) {
    pthread_mutex_lock(&lock);
    is_capturing = capture;
    pthread_mutex_unlock(&lock);
}
