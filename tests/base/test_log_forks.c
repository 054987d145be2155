/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines and forks wait for each other, and no process waits for itself. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <harpe/callback.h>

enum { MANY = 300 };

static atomic_int in_line, lines;
static atomic_bool is_over, may_end;

static void pause_us(unsigned us) { (void)usleep(us); }

static void count_line(void *user, harpe_log_level level, const char *line) {
    (void)user, (void)level, (void)line;
    atomic_fetch_add(&in_line, 1);
    pause_us(100);
    atomic_fetch_add(&lines, 1);
    atomic_fetch_sub(&in_line, 1);
}

static const harpe_log behind = {count_line, NULL};

static void write_line(const harpe_log *log) {
    harpe_log_write_outside_forks((void *)log, HARPE_LOG_INFO, "line");
}

static void *write_lines(void *user) {
    while (!atomic_load(&is_over))
        write_line(user);
    return NULL;
}

static int end_of(pid_t child) {
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* The child also writes a line and forks. At its start, no line is half written and no fork is
 * under way in it. */
static void run_child(void) {
    (void)alarm(100);
    bool is_quiet = atomic_load(&in_line) == 0;
    write_line(&behind);
    harpe_log_before_fork();
    harpe_log_after_fork();
    write_line(&behind);
    _exit(is_quiet ? 0 : 1);
}

TEST(no_line_is_under_way_at_a_fork) {
    pthread_t threads[2];
    atomic_store(&is_over, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, (void *)&behind), 0);
    for (int i = 0; i < MANY; i++) {
        int before = atomic_load(&lines);
        harpe_log_before_fork();
        assert_int_equal(atomic_load(&in_line), 0);
        pid_t child = fork();
        if (child == 0) run_child();
        assert_int_equal(atomic_load(&in_line), 0);
        harpe_log_after_fork();
        assert_int_equal(end_of(child), 0);
        while (atomic_load(&lines) == before) /* lines continue */
            pause_us(10);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* A fork by C code of a program, without the calls: the child can still log and fork. */
TEST(a_child_of_a_plain_fork_is_free) {
    pthread_t thread;
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&thread, NULL, write_lines, (void *)&behind), 0);
    for (int i = 0; i < MANY; i++) {
        pid_t child = fork();
        if (child == 0) {
            atomic_store(&in_line, 0);
            run_child();
        }
        assert_int_equal(end_of(child), 0);
    }
    atomic_store(&is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void fork_in_line(void *user, harpe_log_level level, const char *line) {
    (void)level, (void)line;
    harpe_log_before_fork();
    write_line(&behind); /* functions that run at a fork may log */
    pid_t child = fork();
    if (child == 0) run_child();
    harpe_log_after_fork();
    *(int *)user = end_of(child);
}

TEST(a_line_may_fork_and_a_fork_may_log) {
    int end = -1;
    harpe_log forking = {fork_in_line, &end};
    write_line(&forking);
    assert_int_equal(end, 0);
    harpe_log_after_fork(); /* an extra call does nothing */
    write_line(&forking);
    assert_int_equal(end, 0);
}

static void wait_in_line(void *user, harpe_log_level level, const char *line) {
    (void)user, (void)level, (void)line;
    atomic_store(&in_line, 1);
    while (!atomic_load(&may_end))
        pause_us(100);
}

static void *write_waiting_line(void *user) {
    write_line(user);
    return NULL;
}

/* A line that needs a lock of the forking thread does not stop training. */
TEST(a_line_that_does_not_end_is_waited_for_once) {
    harpe_log stuck = {wait_in_line, NULL};
    pthread_t thread;
    atomic_store(&in_line, 0);
    assert_int_equal(pthread_create(&thread, NULL, write_waiting_line, &stuck), 0);
    while (atomic_load(&in_line) == 0)
        pause_us(100);
    (void)alarm(300); /* 1000 forks that wait would take hours */
    for (int i = 0; i < 1000; i++) {
        harpe_log_before_fork();
        harpe_log_after_fork();
    }
    (void)alarm(0);
    atomic_store(&may_end, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    harpe_log_before_fork();
    harpe_log_after_fork();
}

/* ---- A process that is stopped --------------------------------------------------------------- */

/* Shared with the child. */
static struct { atomic_bool is_forking, may_end; } * shared;

static void end_late(void *user, harpe_log_level level, const char *line) {
    (void)user, (void)level, (void)line;
    atomic_store(&in_line, 1);
    while (!atomic_load(&shared->may_end))
        pause_us(100);
    pause_us(50000); /* more than the other thread needs to go on */
    atomic_store(&in_line, 0);
}

static void run_stopped_child(void) {
    harpe_log late = {end_late, NULL};
    pthread_t thread;
    (void)alarm(300);
    atomic_store(&in_line, 0);
    if (pthread_create(&thread, NULL, write_waiting_line, &late) != 0) _exit(2);
    while (atomic_load(&in_line) == 0)
        pause_us(100);
    atomic_store(&shared->is_forking, true);
    harpe_log_before_fork();
    int lines_under_way = atomic_load(&in_line);
    (void)pthread_join(thread, NULL);
    _exit(lines_under_way);
}

/* Returns the state of a process's first thread: R, S (sleeps), T (is stopped), Z (has ended) or
 * another letter. */
static char state_of(pid_t process) {
    char path[64];
    char state = '?';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
    (void)fclose(file);
    return state;
}

/* Waits until `*flag` is true and the process is in a state after that. The process must not end
 * before; its alarm ends it if it hangs. */
static void wait_for_state(pid_t process, char wanted, const atomic_bool *flag) {
    for (;;) {
        bool is_set = atomic_load(flag); /* before the state, which may be older otherwise */
        char state = state_of(process);
        assert_true(state != 'Z');
        if (is_set && state == wanted) return;
        pause_us(1000);
    }
}

/* The time in which a process is stopped does not count: its lines could not end. */
TEST(a_stopped_process_waits_on_for_its_lines) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    pid_t child = fork();
    if (child == 0) run_stopped_child();
    wait_for_state(child, 'S', &shared->is_forking);
    assert_int_equal(kill(child, SIGSTOP), 0);
    wait_for_state(child, 'T', &shared->is_forking);
    (void)sleep(6); /* longer than a fork waits */
    atomic_store(&shared->may_end, true);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(end_of(child), 0);
    (void)munmap(shared, sizeof *shared);
}

TEST(a_log_without_a_function_is_silent) {
    harpe_log none = {NULL, NULL};
    write_line(&none);
    write_line(NULL);
}
