/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, locks, descriptors and processes in virtual time. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/helper_process.h"
#include "base/process.h"
#include "base/wait.h"
#include "world/world.h"

enum { SECOND = 1000000000 };

static void run_world(uint64_t seed, bool shuffles, void (*first)(void *user), void *user) {
    harpe_world_options options = {.seed = seed,
                                   .shuffles = shuffles,
                                   .wall_ns = INT64_C(1700000000) * SECOND,
                                   .longest_ns = INT64_C(100000) * SECOND,
                                   .most_turns = 1000000};
    assert_works(harpe_world_run(&options, first, user, &failure));
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void sleep_an_hour(void *user) {
    (void)user;
    int64_t begin_ns = harpe_clock_ns(), wall_ns = harpe_clock_wall_ns();
    harpe_sleep_ns(INT64_C(3600) * SECOND);
    assert_int_equal(harpe_clock_ns() - begin_ns, INT64_C(3600) * SECOND);
    harpe_world_jump(-INT64_C(10) * SECOND);
    assert_int_equal(harpe_clock_wall_ns() - wall_ns, INT64_C(3590) * SECOND);
}

TEST(time_is_virtual) { run_world(1, false, sleep_an_hour, NULL); }

/* ---- Threads --------------------------------------------------------------------------------- */

typedef struct shop {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int stock, sold, holders;
    uint64_t order;
} shop;

typedef struct seller {
    shop *shop;
    int number;
} seller;

static void *sell(void *user) {
    seller *self = user;
    shop *own = self->shop;
    for (int i = 0; i < 10; i++) {
        harpe_lock(&own->lock);
        while (own->stock == 0)
            harpe_wait_for(&own->changed, &own->lock);
        assert_int_equal(own->holders++, 0);
        harpe_sleep_ns(1000); /* the others find the lock taken */
        own->holders--;
        own->stock--;
        own->sold++;
        own->order = own->order * 31 + (uint64_t)self->number;
        harpe_unlock(&own->lock);
    }
    return NULL;
}

static void keep_shop(void *user) {
    shop *own = user;
    pthread_t threads[5];
    seller sellers[5];
    for (int i = 0; i < 5; i++) {
        sellers[i] = (seller){own, i};
        assert_int_equal(harpe_thread_start(&threads[i], "seller", sell, &sellers[i]), 0);
    }
    for (int i = 0; i < 50; i++) {
        harpe_lock(&own->lock);
        own->stock++;
        harpe_signal(&own->changed);
        harpe_unlock(&own->lock);
        if (i % 7 == 0) harpe_sleep_ns(500);
    }
    for (int i = 0; i < 5; i++)
        harpe_thread_join(threads[i]);
}

static shop sold_with(uint64_t seed, bool shuffles) {
    shop own = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    run_world(seed, shuffles, keep_shop, &own);
    assert_int_equal(own.sold, 50);
    return own;
}

TEST(threads_share_locks) {
    uint64_t orders = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t order = sold_with(seed, true).order;
        assert_int_equal(sold_with(seed, true).order, order);
        orders += order != sold_with(1, true).order;
    }
    assert_true(orders > 25); /* seeds give different orders */
    assert_int_equal(sold_with(1, false).order, sold_with(2, false).order);
}

static void *never_end(void *user) {
    shop *own = user;
    harpe_lock(&own->lock);
    harpe_wait_for(&own->changed, &own->lock);
    return NULL;
}

static void join_for_ever(void *user) {
    pthread_t thread;
    assert_int_equal(harpe_thread_start(&thread, "forever", never_end, user), 0);
    harpe_thread_join(thread);
}

TEST(a_deadlock_is_told) {
    shop own = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    harpe_world_options options = {.seed = 1};
    assert_refuses(harpe_world_run(&options, join_for_ever, &own, &failure), HARPE_INTERNAL,
                   "wait for ever");
    assert_says(&failure, "/forever");
}

static void spin(void *user) {
    (void)user;
    for (;;)
        harpe_sleep_ns(0);
}

TEST(a_loop_without_time_is_told) {
    harpe_world_options options = {.seed = 1, .most_turns = 1000};
    assert_refuses(harpe_world_run(&options, spin, NULL, &failure), HARPE_INTERNAL,
                   "the time stands still");
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

static void *answer_later(void *user) {
    int *fd = user;
    char byte;
    struct pollfd wait = {.fd = *fd, .events = POLLIN};
    assert_int_equal(harpe_poll(&wait, 1, -1), 1);
    assert_int_equal(read(*fd, &byte, 1), 1);
    harpe_sleep_ns(SECOND);
    assert_int_equal(write(*fd, &byte, 1), 1);
    return NULL;
}

static void talk(void *user) {
    (void)user;
    int pair[2];
    pthread_t thread;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(harpe_thread_start(&thread, "answer", answer_later, &pair[1]), 0);
    int64_t begin_ns = harpe_clock_ns();
    struct pollfd wait = {.fd = pair[0], .events = POLLIN};
    assert_int_equal(harpe_poll(&wait, 1, SECOND / 2), 0);
    assert_int_equal(harpe_clock_ns() - begin_ns, SECOND / 2);
    assert_int_equal(write(pair[0], "x", 1), 1);
    assert_int_equal(harpe_poll(&wait, 1, 10 * (int64_t)SECOND), 1);
    assert_int_equal(harpe_clock_ns() - begin_ns, SECOND / 2 + SECOND);
    harpe_thread_join(thread);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

TEST(descriptors_are_waited_for) {
    run_world(1, false, talk, NULL);
    run_world(7, true, talk, NULL);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static _Atomic int64_t ticks;

static _Noreturn int count_ticks(void *user) {
    int *socket = user;
    (void)harpe_process_holds(*socket);
    for (;;) {
        harpe_sleep_ns(SECOND);
        atomic_fetch_add(&ticks, 1);
    }
}

static void kill_counter(void *user) {
    (void)user;
    int pair[2];
    char byte;
    atomic_store(&ticks, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t process = harpe_world_start("counter", count_ticks, &pair[1]);
    int pidfd = harpe_process_open(process);
    assert_true(pidfd >= 0 && harpe_process_started(process) > 0);
    assert_int_not_equal(harpe_process_self(), process);
    harpe_sleep_ns(10 * (int64_t)SECOND + 1);
    assert_int_equal(atomic_load(&ticks), 10);
    harpe_world_stall(process, harpe_clock_ns() + 5 * (int64_t)SECOND);
    harpe_sleep_ns(5 * (int64_t)SECOND - 10);
    assert_int_equal(atomic_load(&ticks), 10);
    assert_int_equal(harpe_events_now(pidfd, POLLIN), 0);
    assert_int_equal(harpe_process_signal(pidfd, SIGKILL), 0);
    assert_false(harpe_world_is_alive(process));
    assert_int_equal(harpe_events_now(pidfd, POLLIN), POLLIN);
    assert_int_equal(harpe_process_started(process), 0);
    assert_int_equal(harpe_process_open(process), -1);
    assert_int_equal(read(pair[0], &byte, 1), 0); /* its end is closed */
    harpe_sleep_ns(10 * (int64_t)SECOND);
    assert_true(atomic_load(&ticks) <= 11);
    assert_int_equal(harpe_world_exit_status(process), -1);
    (void)close(pidfd);
    (void)close(pair[0]);
}

TEST(killed_processes_stop) {
    run_world(1, false, kill_counter, NULL);
    run_world(3, true, kill_counter, NULL);
}

/* Looks each second, for at most 30 s. The seed 5100080 of `world --node` had an agent that stood
 * still for most of the time that its end may take, and left two GPUs changed. */
static _Noreturn int count_looks(void *user) {
    (void)user;
    harpe_patience patience = harpe_patience_for(30);
    while (!harpe_patience_is_over(&patience)) {
        atomic_fetch_add(&ticks, 1);
        harpe_sleep_ns(SECOND);
    }
    harpe_process_exit(0);
}

static void stop_looker(void *user) {
    (void)user;
    atomic_store(&ticks, 0);
    pid_t process = harpe_world_start("looker", count_looks, NULL);
    harpe_sleep_ns(10 * (int64_t)SECOND);
    harpe_world_stall(process, harpe_clock_ns() + 45 * (int64_t)SECOND);
    harpe_sleep_ns(100 * (int64_t)SECOND);
    assert_false(harpe_world_is_alive(process));
    assert_in_range(atomic_load(&ticks), 25, 31); /* the stop counts as 5 s */
}

TEST(stopped_processes_keep_their_tries) { run_world(1, false, stop_looker, NULL); }

static int32_t *shared_word;

static int help(int argc, char **argv) {
    assert_int_equal(argc, 2);
    assert_string_equal(argv[1], "--help-me");
    int32_t *memory = harpe_process_map(harpe_helper_memory(), sizeof *memory);
    shared_word = memory;
    *memory = 7;
    assert_true(harpe_helper_process_introduce());
    (void)harpe_helper_process_wait(-1);
    *memory = 8;
    harpe_process_unmap(memory, sizeof *memory);
    return 3;
}

static void use_helper(void *user) {
    (void)user;
    int socket = -1, pidfd = -1;
    int memory = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(memory, 4096), 0);
    harpe_helper_process process = {
        .name = "a helper", .arguments = {"--help-me"}, .memory = memory};
    assert_works(harpe_helper_process_start_known(&process, &socket, &pidfd, &failure));
    int32_t *own = harpe_process_map(memory, sizeof *own);
    assert_ptr_equal(own, shared_word);
    harpe_sleep_ns(SECOND);
    assert_int_equal(*own, 7);
    (void)close(socket);
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    assert_int_equal(harpe_poll(&end, 1, SECOND), 1);
    assert_int_equal(*own, 8);
    harpe_process_unmap(own, sizeof *own);
    (void)close(pidfd);
    (void)close(memory);
}

TEST(helper_processes_run) {
    static const harpe_world_program programs[] = {{"--help-me", help}, {0}};
    harpe_world_options options = {.seed = 1, .programs = programs};
    assert_works(harpe_world_run(&options, use_helper, NULL, &failure));
}
