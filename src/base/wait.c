/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wait.h"

#include <errno.h>
#include <time.h>

static struct timespec time_of(int64_t ns) {
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

void harpe_sleep_ns(int64_t duration_ns) {
    struct timespec duration = time_of(duration_ns);
    (void)nanosleep(&duration, NULL);
}

void harpe_sleep_until(int64_t until_ns) {
    struct timespec until = time_of(until_ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

bool harpe_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns) {
    struct timespec until = time_of(until_ns);
    return pthread_cond_clockwait(condition, lock, CLOCK_MONOTONIC, &until) == 0;
}

int harpe_lock_until(pthread_mutex_t *lock, int64_t until_wall_ns) {
    struct timespec until = time_of(until_wall_ns);
    return pthread_mutex_timedlock(lock, &until);
}

int harpe_poll(struct pollfd *waited, nfds_t count, int64_t longest_ns) {
    struct timespec longest = time_of(longest_ns);
    return ppoll(waited, count, longest_ns < 0 ? NULL : &longest, NULL);
}

int harpe_events_now(int descriptor, int events) {
    struct pollfd one = {.fd = descriptor, .events = (short)events};
    return harpe_poll(&one, 1, 0) > 0 ? one.revents : 0;
}
