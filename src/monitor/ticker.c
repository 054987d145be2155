/* SPDX-License-Identifier: Apache-2.0 */
/* A background thread that calls a function regularly. It starts only if something must be read
 * between a window's beginning and end. It sleeps on a condition variable, so it stops at once. */
#include "monitor/monitor.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/wait.h"

struct harpe_ticker {
    int64_t (*tick)(void *user);
    void *user;
    pid_t owner;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stop_asked;
    bool stopping;
};

static void *run(void *user) {
    harpe_ticker *ticker = user;
    harpe_lock(&ticker->lock);
    while (!ticker->stopping) {
        harpe_unlock(&ticker->lock);
        int64_t delay_ns = ticker->tick(ticker->user);
        int64_t wake_ns = harpe_clock_ns() + delay_ns;
        harpe_lock(&ticker->lock);
        while (!ticker->stopping && harpe_wait_until(&ticker->stop_asked, &ticker->lock, wake_ns))
            continue;
    }
    harpe_unlock(&ticker->lock);
    return NULL;
}

harpe_status harpe_ticker_start(int64_t (*tick)(void *user), void *user, harpe_ticker **out,
                                harpe_error *error) {
    harpe_ticker *ticker = calloc(1, sizeof *ticker);
    if (!ticker) return harpe_fail_memory(error);
    ticker->tick = tick;
    ticker->user = user;
    ticker->owner = harpe_process_self();
    pthread_mutex_init(&ticker->lock, NULL);
    pthread_cond_init(&ticker->stop_asked, NULL);
    int result = harpe_thread_start(&ticker->thread, "harpe-monitor", run, ticker);
    if (result != 0) {
        pthread_cond_destroy(&ticker->stop_asked);
        pthread_mutex_destroy(&ticker->lock);
        free(ticker);
        return harpe_fail_errno(error, result, "starting the monitor's background thread");
    }
    *out = ticker;
    return HARPE_OK;
}

bool harpe_ticker_is_ours(const harpe_ticker *ticker) {
    return ticker->owner == harpe_process_self();
}

void harpe_ticker_stop(harpe_ticker *ticker) {
    if (!ticker) return;
    if (harpe_ticker_is_ours(ticker)) {
        harpe_lock(&ticker->lock);
        ticker->stopping = true;
        harpe_signal(&ticker->stop_asked);
        harpe_unlock(&ticker->lock);
        harpe_thread_join(ticker->thread);
        pthread_cond_destroy(&ticker->stop_asked);
        pthread_mutex_destroy(&ticker->lock);
    }
    free(ticker);
}
