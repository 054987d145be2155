/* SPDX-License-Identifier: Apache-2.0 */
/* A thread of the library runs inside the user's training process. If this thread received a
 * signal, the program's thread that waits for the signal would not be interrupted, or the signal
 * handler would run on the wrong thread. So signals are blocked before the thread starts. The
 * thread cannot block them itself, because a signal may arrive before its first line. */
#include "base/thread.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/platform.h"

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
