/* SPDX-License-Identifier: Apache-2.0 */
/* The store under kill -9. A child process stores numbered changes and reports their
 * acknowledgements until it is killed at a random moment. Acknowledged changes must be stored, in
 * order, and no change may be stored in part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>

#include "store_fixture.h"
#include "trials.h"

/* Change n is the result of rank n % RANKS in round n / RANKS. The first change of a round follows
 * the state, which removes the results of the round before the last. */
enum { RANKS = 40, IN_FLIGHT = 64, LONGEST = 24000 };

static size_t length_of(int64_t number) { return (size_t)(number * 7919 % LONGEST) + 1; }
static char byte_of(int64_t number) { return (char)('a' + number % 26); }

/* ---- The child ------------------------------------------------------------------------------- */

typedef struct submitter submitter;

typedef struct slot {
    submitter *owner;
    int64_t number;
    harpe_change state, result;
    char text[LONGEST + 1];
} slot;

struct submitter {
    harpe_loop *loop;
    harpe_store *store;
    int64_t next;
    slot slots[IN_FLIGHT];
};

static void submit_next(slot *s);

static void say_acknowledged(void *user, harpe_status status, const harpe_error *error) {
    (void)error;
    slot *s = user;
    if (status != HARPE_OK) _exit(3);
    if (write(STDOUT_FILENO, &s->number, sizeof s->number) != sizeof s->number) _exit(4);
    submit_next(s);
}

static void submit_next(slot *s) {
    submitter *owner = s->owner;
    s->number = owner->next++;
    int64_t round = s->number / RANKS;
    if (s->number % RANKS == 0) {
        s->state = change_of(HARPE_CHANGE_STATE, JOB, round, 0, 0, "state");
        harpe_store_submit(owner->store, &s->state);
    }
    memset(s->text, byte_of(s->number), LONGEST);
    s->result = change_of(HARPE_CHANGE_RESULT, JOB, round, (int)(s->number % RANKS), 0, NULL);
    s->result.text = s->text;
    s->result.length = length_of(s->number);
    s->result.done = say_acknowledged;
    s->result.user = s;
    harpe_store_submit(owner->store, &s->result);
}

static int run_child(const char *where, int64_t first) {
    static submitter self;
    harpe_error error = {0};
    if (harpe_loop_new(&self.loop, &error) != HARPE_OK) return 2;
    if (harpe_store_open(where, self.loop, (harpe_log){0}, &self.store, &error) != HARPE_OK) {
        (void)fprintf(stderr, "child: %s\n", error.message);
        return 2;
    }
    harpe_change job = change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "job");
    harpe_store_submit(self.store, &job);
    self.next = first;
    for (int i = 0; i < IN_FLIGHT; i++) {
        self.slots[i].owner = &self;
        submit_next(&self.slots[i]);
    }
    return harpe_loop_run(self.loop, &error) == HARPE_OK ? 0 : 2;
}

/* ---- The parent ------------------------------------------------------------------------------ */

static pid_t start_child(const char *where, int64_t first, int *output) {
    int ends[2];
    char number[24];
    (void)snprintf(number, sizeof number, "%lld", (long long)first);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)execl("/proc/self/exe", "store-child", "child", where, number, NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    *output = ends[0];
    return pid;
}

/* Returns the highest number such that it and all lower numbers are acknowledged, or -1. The
 * numbers must be in order. */
static int64_t read_acknowledged(int output, int64_t first) {
    int64_t number = 0;
    int64_t next = first;
    while (read(output, &number, sizeof number) == sizeof number) {
        assert_int_equal(number, next);
        next++;
    }
    (void)close(output);
    return next - 1;
}

typedef struct stored {
    int64_t first, next; /* results [first, next) without a gap */
    int64_t state_round;
} stored;

static harpe_status check_record(void *user, const harpe_change *change, harpe_error *error) {
    (void)error;
    stored *found = user;
    if (change->kind == HARPE_CHANGE_STATE) found->state_round = change->round;
    if (change->kind != HARPE_CHANGE_RESULT) return HARPE_OK;
    int64_t number = change->round * RANKS + change->rank;
    if (found->next < 0) found->first = found->next = number;
    assert_int_equal(number, found->next);
    found->next++;
    return HARPE_OK;
}

/* Returns false if it does not exist (any more). */
static bool check_result(fixture *f, int64_t number) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_store_read_result(f->store, JOB, number / RANKS,
                                                  (int)(number % RANKS), &text, &length, NULL);
    if (status == HARPE_NOT_FOUND) return false;
    assert_int_equal(status, HARPE_OK);
    assert_int_equal(length, length_of(number));
    for (size_t i = 0; i < length; i++)
        if (text[i] != byte_of(number)) fail_msg("result %d is damaged", (int)number);
    free(text);
    return true;
}

static void sleep_ms(int ms) {
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * INT64_C(1000000)}, NULL);
}

static stored load_records(fixture *f) {
    stored found = {.first = -1, .next = -1, .state_round = -1};
    harpe_error error = {0};
    if (harpe_store_load(f->store, JOB, check_record, &found, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    return found;
}

/* A process of the database may still be executing the killed server's last batch, which removes
 * older results between the load and their reading. A server waits for its end, because it must own
 * the store. */
static stored look_at_store(fixture *f) {
    open_store(f);
    stored found = load_records(f);
    int64_t number = found.first;
    for (int looks = 1; number < found.next; number++) {
        if (check_result(f, number)) continue;
        assert_true(looks++ < 2000);
        sleep_ms(100);
        found = load_records(f);
        assert_true(found.first > number);
        number = found.first - 1;
    }
    harpe_store_close(f->store);
    f->store = NULL;
    return found;
}

static void kill_at_random_moments(fixture *f, int times) {
    int64_t next = 0;
    int64_t total = 0;
    harpe_store_close(f->store);
    f->store = NULL;
    srand(4); /* the moments differ anyway */
    for (int i = 0; i < times; i++) {
        int output = -1;
        pid_t pid = start_child(f->where, next, &output);
        /* Usually after the first acknowledgement, sometimes during the opening. */
        struct pollfd ready = {.fd = output, .events = POLLIN};
        if (i % 5 != 4) assert_int_equal(poll(&ready, 1, 300000), 1);
        sleep_ms(rand() % 60); /* NOLINT(cert-msc30-c,cert-msc50-cpp) */
        assert_int_equal(kill(pid, SIGKILL), 0);
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        int64_t last = read_acknowledged(output, next);
        stored found = look_at_store(f);
        int64_t there = found.next < 0 ? 0 : found.next;
        if (there <= last) fail_msg("%d was acknowledged, %d is not there", (int)last, (int)there);
        assert_true(there >= next);
        /* A state and the removals that belong to it are one transaction. */
        if (found.state_round >= 2) assert_int_equal(found.first, (found.state_round - 1) * RANKS);
        total += last + 1 - next;
        next = there;
    }
    assert_true(total > 0);
    print_message("%lld changes were acknowledged before %d kills\n", (long long)total, times);
    open_store(f);
}

static void nothing_acknowledged_is_lost(void **state) {
    fixture *f = *state;
    kill_at_random_moments(f, strcmp(f->backend, "sqlite") == 0 ? few_trials(20) : 5);
}

static void killed_server_gives_its_file_free(void **state) {
    fixture *f = *state;
    int output = -1;
    int64_t number = 0;
    harpe_store_close(f->store);
    f->store = NULL;
    pid_t pid = start_child(f->where, 0, &output);
    assert_int_equal(read(output, &number, sizeof number), sizeof number);
    harpe_store *store = NULL;
    harpe_error error = {0};
    assert_int_equal(try_open(f, f->where, &store, &error), HARPE_ALREADY_EXISTS);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(output);
    open_store(f);
}

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], "child") == 0)
        return run_child(arguments[2], strtoll(arguments[3], NULL, 10));
    static fixture everywhere;
    const struct CMUnitTest sqlite[] = {
        cmocka_unit_test_prestate_setup_teardown(nothing_acknowledged_is_lost, begin_test, end_test,
                                                 &everywhere),
        cmocka_unit_test_prestate_setup_teardown(killed_server_gives_its_file_free, begin_test,
                                                 end_test, &everywhere),
    };
    const struct CMUnitTest postgres[] = {
        cmocka_unit_test_prestate_setup_teardown(nothing_acknowledged_is_lost, begin_test, end_test,
                                                 &everywhere),
    };
    int failed = 1;
    if (make_fixture(&everywhere, "sqlite") == 0)
        failed = cmocka_run_group_tests_name("sqlite", sqlite, NULL, NULL);
    destroy_fixture(&everywhere);
    if (!all_trials()) return failed;
    int made = make_fixture(&everywhere, "postgresql");
    if (made == 0) failed += cmocka_run_group_tests_name("postgresql", postgres, NULL, NULL);
    if (made == 1) print_message("skipped: missing: a PostgreSQL server (initdb, postgres)\n");
    destroy_fixture(&everywhere);
    return failed + (made < 0);
}
