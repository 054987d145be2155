/* SPDX-License-Identifier: Apache-2.0 */
/* A thread of the library leaves the process's signals to the other threads. */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/wait.h"

enum { SIGNALS = 200 };

static volatile sig_atomic_t taken, taken_elsewhere;
static pid_t first_thread;

/* The linker makes the library call this function instead of pthread_create. */
static int create_result;
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user) {
    if (create_result) return create_result;
    return __real_pthread_create(thread, attributes, run, user);
}

static void take(int number) {
    (void)number;
    taken = taken + 1;
    if (gettid() != first_thread) taken_elsewhere = taken_elsewhere + 1;
}

static void *wait_for_the_end(void *user) {
    char byte;
    while (read(*(int *)user, &byte, 1) < 0)
        continue;
    return user;
}

static void *look_at_mask(void *user) {
    (void)pthread_sigmask(SIG_BLOCK, NULL, user);
    return NULL;
}

TEST(signals_reach_other_threads_only) {
    int ends[2];
    pthread_t thread;
    struct sigaction action = {.sa_handler = take};
    first_thread = gettid();
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(harpe_thread_start(&thread, "harpe-test", wait_for_the_end, &ends[0]), 0);

    /* As the signal is blocked here, the kernel looks for another thread that accepts it. */
    sigset_t user_signal, before;
    (void)sigemptyset(&user_signal);
    (void)sigaddset(&user_signal, SIGUSR1);
    for (int i = 0; i < SIGNALS; i++) {
        (void)pthread_sigmask(SIG_BLOCK, &user_signal, &before);
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        (void)usleep(100);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    assert_int_equal(write(ends[1], "x", 1), 1);
    void *result = NULL;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &ends[0]);
    assert_int_equal(taken, SIGNALS);
    assert_int_equal(taken_elsewhere, 0);
    close(ends[0]);
    close(ends[1]);
}

TEST(faults_are_not_blocked) {
    sigset_t mask;
    pthread_t thread;
    assert_int_equal(harpe_thread_start(&thread, "harpe-test", look_at_mask, &mask), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGALRM, SIGUSR1, SIGUSR2, SIGPIPE};
    const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof blocked / sizeof *blocked; i++)
        assert_int_equal(sigismember(&mask, blocked[i]), 1);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        assert_int_equal(sigismember(&mask, open[i]), 0);
}

static void assert_mask_stays(int expected) {
    sigset_t odd, mask, after;
    pthread_t thread;
    (void)sigemptyset(&odd);
    (void)sigaddset(&odd, SIGUSR2);
    (void)pthread_sigmask(SIG_SETMASK, &odd, NULL);
    create_result = expected;
    int result = harpe_thread_start(&thread, "harpe-test", look_at_mask, &mask);
    create_result = 0;
    if (!result) (void)pthread_join(thread, NULL);
    (void)sigemptyset(&mask);
    (void)pthread_sigmask(SIG_SETMASK, &mask, &after);
    assert_int_equal(result, expected);
    for (int number = 1; number < SIGRTMIN; number++)
        assert_int_equal(sigismember(&after, number), number == SIGUSR2);
}

TEST(mask_of_the_starter_stays) {
    assert_mask_stays(0);
    assert_mask_stays(EAGAIN);
}

TEST(thread_has_its_name) {
    int ends[2];
    char name[16];
    pthread_t thread;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(harpe_thread_start(&thread, "harpe-fifteen-c", wait_for_the_end, &ends[0]), 0);
    assert_int_equal(pthread_getname_np(thread, name, sizeof name), 0);
    assert_string_equal(name, "harpe-fifteen-c");
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(ends[0]);
    close(ends[1]);
}
