/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps, and waits for conditions and locks until a time of base/clock.h. */
#ifndef HARPE_BASE_WAIT_H
#define HARPE_BASE_WAIT_H

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

#endif
