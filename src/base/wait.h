/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps, and waits for conditions, locks and descriptors. */
#ifndef HARPE_BASE_WAIT_H
#define HARPE_BASE_WAIT_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Sleeps for a time. A signal handler ends the sleep early. */
void harpe_sleep_ns(int64_t duration_ns);

/* Sleeps until harpe_clock_ns() has reached a time. Continues after a signal handler. */
void harpe_sleep_until(int64_t until_ns);

/* Waits for a condition, as pthread_cond_wait does. Returns false if harpe_clock_ns() has reached
 * `until_ns`. */
bool harpe_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns);

/* Locks a mutex. Gives up when harpe_clock_wall_ns() has reached `until_wall_ns`. Returns 0 or an
 * errno. Uses the wall clock, because ThreadSanitizer does not support pthread_mutex_clocklock: if
 * somebody sets the clock, the threads that wait at this moment give up too early or too late. */
int harpe_lock_until(pthread_mutex_t *lock, int64_t until_wall_ns);

/* Waits for descriptors as poll() does, for at most `longest_ns`; below 0: without limit. */
int harpe_poll(struct pollfd *waited, nfds_t count, int64_t longest_ns);

/* Returns those events of poll() that a descriptor has now. 0: none. */
int harpe_events_now(int descriptor, int events);

#endif
