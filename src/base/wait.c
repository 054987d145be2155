/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/platform.h"

static struct timespec time_of(int64_t ns) {
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* ---- Sleeps ---------------------------------------------------------------------------------- */

void harpe_sleep_ns(int64_t duration_ns) {
    struct timespec duration = time_of(duration_ns);
    if (harpe_platform_in_use)
        harpe_sleep_until(harpe_clock_ns() + duration_ns);
    else
        (void)nanosleep(&duration, NULL);
}

void harpe_sleep_until(int64_t until_ns) {
    struct timespec until = time_of(until_ns);
    if (harpe_platform_in_use)
        while (harpe_platform_in_use->park(&until, until_ns)) {
        }
    else
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
        }
}

/* ---- Locks and conditions -------------------------------------------------------------------- */

void harpe_lock(pthread_mutex_t *lock) {
    if (!harpe_platform_in_use) {
        (void)pthread_mutex_lock(lock);
        return;
    }
    harpe_platform_in_use->step();
    while (pthread_mutex_trylock(lock) != 0)
        (void)harpe_platform_in_use->park(lock, INT64_MAX);
}

void harpe_unlock(pthread_mutex_t *lock) {
    (void)pthread_mutex_unlock(lock);
    if (harpe_platform_in_use) harpe_platform_in_use->unpark(lock, false);
}

int harpe_lock_until(pthread_mutex_t *lock, int64_t until_wall_ns) {
    struct timespec until = time_of(until_wall_ns);
    if (!harpe_platform_in_use) return pthread_mutex_timedlock(lock, &until);
    int64_t until_ns = until_wall_ns - harpe_clock_wall_ns() + harpe_clock_ns();
    for (;;) {
        int failure = pthread_mutex_trylock(lock);
        if (failure != EBUSY) return failure;
        if (!harpe_platform_in_use->park(lock, until_ns)) return ETIMEDOUT;
    }
}

void harpe_wait_for(pthread_cond_t *condition, pthread_mutex_t *lock) {
    if (harpe_platform_in_use)
        (void)harpe_wait_until(condition, lock, INT64_MAX);
    else
        (void)pthread_cond_wait(condition, lock);
}

bool harpe_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns) {
    struct timespec until = time_of(until_ns);
    if (!harpe_platform_in_use)
        return pthread_cond_clockwait(condition, lock, CLOCK_MONOTONIC, &until) == 0;
    harpe_unlock(lock);
    bool is_woken = harpe_platform_in_use->park(condition, until_ns);
    harpe_lock(lock);
    return is_woken;
}

void harpe_signal(pthread_cond_t *condition) {
    if (harpe_platform_in_use)
        harpe_platform_in_use->unpark(condition, false);
    else
        (void)pthread_cond_signal(condition);
}

void harpe_broadcast(pthread_cond_t *condition) {
    if (harpe_platform_in_use)
        harpe_platform_in_use->unpark(condition, true);
    else
        (void)pthread_cond_broadcast(condition);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

int harpe_wait_while(const _Atomic uint32_t *word, uint32_t value, int64_t longest_ns) {
    struct timespec longest = time_of(longest_ns);
    if (!harpe_platform_in_use)
        return syscall(SYS_futex, word, FUTEX_WAIT, value, longest_ns < 0 ? NULL : &longest, NULL,
                       0) == 0
                   ? 0
                   : errno;
    if (atomic_load(word) != value) return EAGAIN;
    int64_t until_ns = longest_ns < 0 ? INT64_MAX : harpe_clock_ns() + longest_ns;
    return harpe_platform_in_use->park(word, until_ns) ? 0 : ETIMEDOUT;
}

void harpe_wake(const _Atomic uint32_t *word) {
    int before = errno;
    if (harpe_platform_in_use)
        harpe_platform_in_use->unpark(word, true);
    else
        (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = before;
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

int harpe_poll(struct pollfd *waited, nfds_t count, int64_t longest_ns) {
    struct timespec longest = time_of(longest_ns);
    if (harpe_platform_in_use && longest_ns != 0)
        return harpe_platform_in_use->poll(waited, count, longest_ns);
    return ppoll(waited, count, longest_ns < 0 ? NULL : &longest, NULL);
}

static int wait_in_ms(int descriptor, struct epoll_event *events, int room, int64_t longest_ns) {
    int64_t longest_ms = longest_ns < 0 ? -1 : (longest_ns + 999999) / 1000000;
    return epoll_wait(descriptor, events, room, longest_ms > INT_MAX ? INT_MAX : (int)longest_ms);
}

int harpe_epoll(int descriptor, struct epoll_event *events, int room, int64_t longest_ns) {
    static _Atomic bool has_only_ms;
    if (harpe_platform_in_use) {
        struct pollfd any = {.fd = descriptor, .events = POLLIN};
        (void)harpe_poll(&any, 1, longest_ns);
        return epoll_wait(descriptor, events, room, 0);
    }
    if (!has_only_ms) {
        struct timespec longest = time_of(longest_ns);
        long count = syscall(SYS_epoll_pwait2, descriptor, events, room,
                             longest_ns < 0 ? NULL : &longest, NULL, (size_t)0);
        if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return (int)count;
        has_only_ms = true;
    }
    return wait_in_ms(descriptor, events, room, longest_ns);
}

int harpe_events_now(int descriptor, int events) {
    struct pollfd one = {.fd = descriptor, .events = (short)events};
    return harpe_poll(&one, 1, 0) > 0 ? one.revents : 0;
}

harpe_patience harpe_patience_for(double limit_s) {
    return (harpe_patience){.left_ns = (int64_t)(limit_s * 1e9), .looked_ns = harpe_clock_ns()};
}

bool harpe_patience_is_over(harpe_patience *patience) {
    int64_t now_ns = harpe_clock_ns(), passed_ns = now_ns - patience->looked_ns;
    patience->left_ns -= passed_ns < HARPE_LOOK_NS ? passed_ns : HARPE_LOOK_NS;
    patience->looked_ns = now_ns;
    return patience->left_ns < 0;
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* A thread of the library runs inside the user's training process. If this thread received a
 * signal, the program's thread that waits for the signal would not be interrupted, or the signal
 * handler would run on the wrong thread. So signals are blocked before the thread starts. The
 * thread cannot block them itself, because a signal may arrive before its first line. */

/* Blocks all signals except faults. POSIX does not define the effect of a blocked fault. Linux
 * kills the process without calling the handler that would report the place. */
static void block_all_but_faults(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t set;
    (void)sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        (void)sigdelset(&set, faults[i]);
    (void)pthread_sigmask(SIG_SETMASK, &set, before);
}

int harpe_thread_start(pthread_t *thread, const char *name, void *(*run)(void *user), void *user) {
    sigset_t before;
    if (harpe_platform_in_use) return harpe_platform_in_use->start_thread(thread, name, run, user);
    block_all_but_faults(&before);
    int failure = pthread_create(thread, NULL, run, user);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failure) (void)pthread_setname_np(*thread, name);
    return failure;
}

void harpe_thread_join(pthread_t thread) {
    if (harpe_platform_in_use)
        harpe_platform_in_use->join_thread(thread);
    else
        (void)pthread_join(thread, NULL);
}

void harpe_thread_nice(int niceness) {
    if (!harpe_platform_in_use) (void)setpriority(PRIO_PROCESS, (id_t)gettid(), niceness);
}
