/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps, locks, threads, and waits for conditions, memory and descriptors. No other file waits. */
#ifndef HARPE_BASE_WAIT_H
#define HARPE_BASE_WAIT_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

/* Sleeps for a time. A signal handler ends the sleep early. */
void harpe_sleep_ns(int64_t duration_ns);

/* Sleeps until harpe_clock_ns() has reached a time. Continues after a signal handler. */
void harpe_sleep_until(int64_t until_ns);

/* Locks and unlocks a mutex. */
void harpe_lock(pthread_mutex_t *lock);
void harpe_unlock(pthread_mutex_t *lock);

/* Locks a mutex. Gives up when harpe_clock_wall_ns() has reached `until_wall_ns`. Returns 0 or an
 * errno. Uses the wall clock, because ThreadSanitizer does not support pthread_mutex_clocklock: if
 * somebody sets the clock, the threads that wait at this moment give up too early or too late. */
int harpe_lock_until(pthread_mutex_t *lock, int64_t until_wall_ns);

/* Waits for a condition, as pthread_cond_wait does. harpe_wait_until returns false if
 * harpe_clock_ns() has reached `until_ns`. */
void harpe_wait_for(pthread_cond_t *condition, pthread_mutex_t *lock);
bool harpe_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns);

/* Wake one or all of the threads that wait for a condition. */
void harpe_signal(pthread_cond_t *condition);
void harpe_broadcast(pthread_cond_t *condition);

/* Waits while a word of memory has this value, for at most `longest_ns`; below 0: without limit.
 * The memory may be shared by processes. May return early. Returns 0 or an errno. */
int harpe_wait_while(const _Atomic uint32_t *word, uint32_t value, int64_t longest_ns);
/* Wakes all threads that wait for a change of this word. Keeps errno. */
void harpe_wake(const _Atomic uint32_t *word);

/* Waits for descriptors as poll() does, for at most `longest_ns`; below 0: without limit. */
int harpe_poll(struct pollfd *waited, nfds_t count, int64_t longest_ns);

/* Waits as epoll_wait() does. Kernels before 5.11 wait for whole milliseconds, rounded up. */
int harpe_epoll(int descriptor, struct epoll_event *events, int room, int64_t longest_ns);

/* Returns those events of poll() that a descriptor has now. 0: none. */
int harpe_events_now(int descriptor, int events);

/* A limit of time for something that is tried again and again. It counts only the time in which the
 * process runs: at most HARPE_LOOK_NS from one look to the next. A process that was stopped, or
 * whose machine stood still, so still has its tries. One thread uses it. */
#define HARPE_LOOK_NS INT64_C(5000000000)
typedef struct harpe_patience {
    int64_t left_ns, looked_ns;
} harpe_patience;

harpe_patience harpe_patience_for(double limit_s);

/* Looks at the clock. Returns true if the time is over. */
bool harpe_patience_is_over(harpe_patience *patience);

/* ---- Threads --------------------------------------------------------------------------------- */

/* The library's threads, which run inside the program that uses the library. */

/* Starts a thread that runs `run(user)`. The thread blocks all signals except its own faults, such
 * as SIGSEGV, because signals are for the program's own threads. top(1) and debuggers show `name`,
 * which has at most 15 bytes. Returns 0, or an errno if no thread was started. The caller joins the
 * thread. */
int harpe_thread_start(pthread_t *thread, const char *name, void *(*run)(void *user), void *user);

/* Waits for the end of a thread that harpe_thread_start has started. */
void harpe_thread_join(pthread_t thread);

/* Sets the niceness of the calling thread. */
void harpe_thread_nice(int niceness);

#endif
