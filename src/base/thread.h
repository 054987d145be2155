/* SPDX-License-Identifier: Apache-2.0 */
/* Starts threads inside the program that uses the library. */
#ifndef HARPE_BASE_THREAD_H
#define HARPE_BASE_THREAD_H

#include <pthread.h>

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
