/* SPDX-License-Identifier: Apache-2.0 */
/* The store: the same tests on every back-end, then tests for single back-ends. */
#include "test.h"

#include <pthread.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include "store_fixture.h"

static bool survives(const fixture *f) { return strcmp(f->backend, "memory") != 0; }

/* ---- On every back-end ----------------------------------------------------------------------- */

static fixture everywhere;

/* The set-up function of a test says where it runs: in every store or in one, and whether it takes
 * long. */
static int begin_memory(void **state) { return begin_test(state); }
static int begin_long_memory(void **state) { return begin_test(state); }
static int begin_sqlite(void **state) { return begin_test(state); }
static int begin_long_sqlite(void **state) { return begin_test(state); }
static int begin_postgres(void **state) { return begin_test(state); }

#define STORE_TEST_OF(name, begin) \
    static void name##_on(fixture *f); \
    LISTED_TEST(name, name, begin, end_test, &everywhere) { name##_on(*state); } \
    static void name##_on(fixture *f __attribute__((unused)))
#define STORE_TEST(name) STORE_TEST_OF(name, begin_test)
#define MEMORY_TEST(name) STORE_TEST_OF(name, begin_memory)
#define LONG_MEMORY_TEST(name) STORE_TEST_OF(name, begin_long_memory)
#define SQLITE_TEST(name) STORE_TEST_OF(name, begin_sqlite)
#define LONG_SQLITE_TEST(name) STORE_TEST_OF(name, begin_long_sqlite)
#define POSTGRES_TEST(name) STORE_TEST_OF(name, begin_postgres)

STORE_TEST(what_was_stored_reads_back_in_order) {
    harpe_change changes[] = {
        change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1700000000, "{\"pp_degree\": 2}"),
        change_of(HARPE_CHANGE_RANK, JOB, 0, 1, 0, "rank one"),
        change_of(HARPE_CHANGE_JOB, OTHER_JOB, 0, 0, 1700000001, "{}"),
        change_of(HARPE_CHANGE_RANK, OTHER_JOB, 0, 0, 0, "other zero"),
        change_of(HARPE_CHANGE_RANK, JOB, 0, 0, 0, "rank zero"),
        change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 1700000100, NULL),
        change_of(HARPE_CHANGE_JOB_REQUEST, JOB, 1, 0, 2, "2000"),
        change_of(HARPE_CHANGE_ROUND, JOB, 1, 0, 0, "schedules 1"),
        change_of(HARPE_CHANGE_ROUND, JOB, 0, 0, 0, "schedules 0"),
        change_of(HARPE_CHANGE_RESULT, JOB, 1, 1, 0, "result 1 1"),
        change_of(HARPE_CHANGE_RESULT, JOB, 1, 0, 0, "result 1 0"),
        change_of(HARPE_CHANGE_RESULT, JOB, 0, 1, 0, "result 0 1"),
        change_of(HARPE_CHANGE_JOB_REQUEST, JOB, 2, 0, 0, "1.2"),
        change_of(HARPE_CHANGE_STATE, JOB, 1, 0, 0, "old state"),
        change_of(HARPE_CHANGE_STATE, JOB, 2, 0, 0, "new state"),
        change_of(HARPE_CHANGE_SUMS, JOB, 0, 0, 0, "old sums"),
        change_of(HARPE_CHANGE_SUMS, JOB, 1, 0, 0, "new sums"),
        change_of(HARPE_CHANGE_FAILED, OTHER_JOB, 0, 0, 0, "no plan fits"),
        change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 1700000200, NULL),
    };
    const char *expected = "JOB a 0 0 1700000000 {\"pp_degree\": 2}\n"
                           "RANK a 0 0 0 rank zero\n"
                           "RANK a 0 1 0 rank one\n"
                           "ROUND a 0 0 0 schedules 0\n"
                           "ROUND a 1 0 0 schedules 1\n"
                           "RESULT a 1 0 0 \n"
                           "RESULT a 1 1 0 \n"
                           "STATE a 2 0 0 new state\n"
                           "SUMS a 1 0 0 new sums\n"
                           "JOB_REQUEST a 1 0 2 2000\n"
                           "JOB_REQUEST a 2 0 0 1.2\n"
                           "SEEN a 0 0 1700000200 \n"
                           "JOB b 0 0 1700000001 {}\n"
                           "RANK b 0 0 0 other zero\n"
                           "FAILED b 0 0 0 no plan fits\n";
    assert_loads(f, NULL, "");
    store_changes(f, changes, sizeof changes / sizeof changes[0]);
    assert_loads(f, NULL, expected);
    if (survives(f)) reopen_store(f);
    if (survives(f)) assert_loads(f, NULL, expected);
    assert_reads_result(f, JOB, 1, 0, "result 1 0");
    assert_reads_result(f, JOB, 1, 1, "result 1 1");
}

STORE_TEST(one_job_is_loaded_alone) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    store_one(f, change_of(HARPE_CHANGE_JOB, OTHER_JOB, 0, 0, 2, "b"));
    store_one(f, change_of(HARPE_CHANGE_DELETED, "gone", 0, 0, 3, NULL));
    assert_loads(f, OTHER_JOB, "JOB b 0 0 2 b\n");
    assert_loads(f, "gone", "DELETED gone 0 0 3 \n");
    assert_loads(f, "never heard of", "");
}

STORE_TEST(same_record_again_replaces) {
    for (int i = 0; i < 2; i++) {
        const char *text = i == 0 ? "first" : "second";
        store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, text));
        store_one(f, change_of(HARPE_CHANGE_RANK, JOB, 0, 0, 0, text));
        store_one(f, change_of(HARPE_CHANGE_ROUND, JOB, 0, 0, 0, text));
        store_one(f, change_of(HARPE_CHANGE_RESULT, JOB, 0, 0, 0, text));
    }
    assert_loads(f, NULL,
                 "JOB a 0 0 1 second\nRANK a 0 0 0 second\n"
                 "ROUND a 0 0 0 second\nRESULT a 0 0 0 \n");
    assert_reads_result(f, JOB, 0, 0, "second");
}

STORE_TEST(latest_job_request_of_a_kind_counts_and_comes_last) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    store_one(f, change_of(HARPE_CHANGE_JOB_REQUEST, JOB, 0, 0, 0, "1.1"));
    store_one(f, change_of(HARPE_CHANGE_JOB_REQUEST, JOB, 1, 0, 3, "50"));
    store_one(f, change_of(HARPE_CHANGE_JOB_REQUEST, JOB, 2, 0, 0, "1.3"));
    assert_loads(f, NULL, "JOB a 0 0 1 a\nJOB_REQUEST a 1 0 3 50\nJOB_REQUEST a 2 0 0 1.3\n");
}

STORE_TEST(ends_of_ranks_come_and_go) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    store_one(f, change_of(HARPE_CHANGE_END, JOB, 0, 1, 70, NULL));
    store_one(f, change_of(HARPE_CHANGE_END, JOB, 0, 0, 71, NULL));
    store_one(f, change_of(HARPE_CHANGE_END, JOB, 0, 0, 72, NULL));
    store_one(f, change_of(HARPE_CHANGE_FAILED, JOB, 0, 0, 0, "f"));
    assert_loads(f, NULL, "JOB a 0 0 1 a\nEND a 0 0 72 \nEND a 0 1 70 \nFAILED a 0 0 0 f\n");
    store_one(f, change_of(HARPE_CHANGE_BACK, JOB, 0, 0, 0, NULL));
    assert_loads(f, NULL, "JOB a 0 0 1 a\nEND a 0 1 70 \nFAILED a 0 0 0 f\n");
    store_one(f, change_of(HARPE_CHANGE_DELETED, JOB, 0, 0, 77, NULL));
    store_one(f, change_of(HARPE_CHANGE_JOB, OTHER_JOB, 0, 0, 1, "b"));
    assert_loads(f, NULL, "JOB b 0 0 1 b\nDELETED a 0 0 77 \n");
}

/* The round of the deletion is the uptime, and its rank the number of reports that are kept. */
STORE_TEST(final_reports_stay_in_a_bounded_number) {
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        store_one(f, change_of(HARPE_CHANGE_JOB, names[i], 0, 0, 1, "{}"));
        store_one(f, change_of(HARPE_CHANGE_DELETED, names[i], 100 * i, 2, 10 + i,
                               i == 2 ? NULL : "report"));
    }
    store_one(f, change_of(HARPE_CHANGE_DELETED, "d", 900, 2, 99, "again"));
    static const char deleted[] = "DELETED a 0 0 10 \nDELETED b 0 0 11 \nDELETED c 0 0 12 \n"
                                  "DELETED d 0 0 13 \n";
    char expected[400];
    (void)snprintf(expected, sizeof expected, "%s%s", deleted,
                   "FINISHED b 100 0 11 report\nFINISHED d 300 0 13 report\n");
    assert_loads(f, NULL, expected);
    assert_loads(f, "b", "DELETED b 0 0 11 \n");
    store_one(f, change_of(HARPE_CHANGE_UPTIME, "", 101, 0, 400, NULL));
    (void)snprintf(expected, sizeof expected, "UPTIME  0 0 400 \n%s%s", deleted,
                   "FINISHED d 300 0 13 report\n");
    assert_loads(f, NULL, expected);
    if (survives(f)) reopen_store(f);
    if (survives(f)) assert_loads(f, NULL, expected);
}

/* The round of a JOB record contains the time of the last request. */
STORE_TEST(running_time_of_servers_and_jobs_comes_back) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 7, 0, 1, "a"));
    store_one(f, change_of(HARPE_CHANGE_JOB, OTHER_JOB, 8, 0, 2, "b"));
    assert_loads(f, NULL, "JOB a 7 0 1 a\nJOB b 8 0 2 b\n");
    store_one(f, change_of(HARPE_CHANGE_UPTIME, "", 0, 0, 60, NULL));
    store_one(f, change_of(HARPE_CHANGE_UPTIME, "", 0, 0, INT64_C(1) << 40, NULL));
    store_one(f, change_of(HARPE_CHANGE_SEEN, JOB, INT64_C(1) << 39, 0, 3, NULL));
    assert_loads(f, NULL,
                 "UPTIME  0 0 1099511627776 \nJOB a 549755813888 0 1 a\nSEEN a 0 0 3 \n"
                 "JOB b 8 0 2 b\n");
    assert_loads(f, OTHER_JOB, "JOB b 8 0 2 b\n");
    store_one(f, change_of(HARPE_CHANGE_DELETED, JOB, 0, 0, 4, NULL));
    store_one(f, change_of(HARPE_CHANGE_SEEN, JOB, 90, 0, 5, NULL));
    assert_loads(f, NULL, "UPTIME  0 0 1099511627776 \nJOB b 8 0 2 b\nDELETED a 0 0 4 \n");
}

STORE_TEST(state_takes_older_results_away) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    store_one(f, change_of(HARPE_CHANGE_JOB, OTHER_JOB, 0, 0, 1, "b"));
    store_one(f, change_of(HARPE_CHANGE_RESULT, OTHER_JOB, 0, 0, 0, "kept"));
    for (int round = 0; round < 5; round++)
        store_one(f, change_of(HARPE_CHANGE_RESULT, JOB, round, 0, 0, "r"));
    store_one(f, change_of(HARPE_CHANGE_STATE, JOB, 4, 0, 0, ""));
    assert_loads(f, NULL,
                 "JOB a 0 0 1 a\nRESULT a 3 0 0 \nRESULT a 4 0 0 \nSTATE a 4 0 0 \n"
                 "JOB b 0 0 1 b\nRESULT b 0 0 0 \n");
}

STORE_TEST(deleted_job_leaves_a_marker_only) {
    for (int i = 0; i < 2; i++) {
        const char *job = i == 0 ? JOB : OTHER_JOB;
        store_one(f, change_of(HARPE_CHANGE_JOB, job, 0, 0, 1, "j"));
        store_one(f, change_of(HARPE_CHANGE_RANK, job, 0, 0, 0, "r"));
        store_one(f, change_of(HARPE_CHANGE_ROUND, job, 0, 0, 0, "s"));
        store_one(f, change_of(HARPE_CHANGE_RESULT, job, 0, 0, 0, "p"));
        store_one(f, change_of(HARPE_CHANGE_STATE, job, 0, 0, 0, "x"));
        store_one(f, change_of(HARPE_CHANGE_SUMS, job, 0, 0, 0, "u"));
        store_one(f, change_of(HARPE_CHANGE_JOB_REQUEST, job, 0, 0, 0, "w"));
    }
    const char *expected =
        "JOB b 0 0 1 j\nRANK b 0 0 0 r\nROUND b 0 0 0 s\nRESULT b 0 0 0 \n"
        "STATE b 0 0 0 x\nSUMS b 0 0 0 u\nJOB_REQUEST b 0 0 0 w\nDELETED a 0 0 77 \n";
    store_one(f, change_of(HARPE_CHANGE_DELETED, JOB, 0, 0, 77, NULL));
    assert_loads(f, NULL, expected);
    /* Its outstanding changes are dropped. */
    store_one(f, change_of(HARPE_CHANGE_SUMS, JOB, 1, 0, 0, "late"));
    store_one(f, change_of(HARPE_CHANGE_RESULT, JOB, 0, 1, 0, "late"));
    store_one(f, change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 78, NULL));
    store_one(f, change_of(HARPE_CHANGE_DELETED, JOB, 0, 0, 79, NULL));
    assert_loads(f, NULL, expected);
}

STORE_TEST(any_bytes_come_back_as_they_were) {
    enum { SIZE = 3000000 };
    char *bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    harpe_change change = change_of(HARPE_CHANGE_RESULT, JOB, INT64_C(1) << 40, 65535, 0, NULL);
    change.text = bytes;
    change.length = SIZE;
    store_one(f, change);
    char *text = NULL;
    size_t length = 0;
    assert_int_equal(
        harpe_store_read_result(f->store, JOB, INT64_C(1) << 40, 65535, &text, &length, NULL),
        HARPE_OK);
    assert_int_equal(length, SIZE);
    assert_memory_equal(text, bytes, SIZE);
    assert_int_equal(text[length], 0);
    free(text);
    free(bytes);
}

STORE_TEST(missing_result_is_not_found) {
    char *text = NULL;
    size_t length = 5;
    harpe_error error = {0};
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    store_one(f, change_of(HARPE_CHANGE_RESULT, JOB, 1, 1, 1, "r"));
    assert_int_equal(harpe_store_read_result(f->store, JOB, 1, 0, &text, &length, &error),
                     HARPE_NOT_FOUND);
    assert_int_equal(harpe_store_read_result(f->store, OTHER_JOB, 1, 1, &text, &length, &error),
                     HARPE_NOT_FOUND);
    assert_null(text);
    assert_int_equal(length, 5);
    assert_non_null(strstr(error.message, "rank 1"));
}

STORE_TEST(thousands_of_changes_are_few_commits) {
    enum { COUNT = 8192 };
    harpe_change *changes = calloc(COUNT, sizeof *changes);
    assert_non_null(changes);
    changes[0] = change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a");
    for (int i = 1; i < COUNT; i++)
        changes[i] = change_of(HARPE_CHANGE_RANK, JOB, 0, i, 0, "{\"rank\": 1}");
    store_changes(f, changes, COUNT);
    harpe_store_counts counts = harpe_store_count(f->store);
    assert_int_equal(counts.changes, COUNT);
    assert_int_equal(counts.queued, 0);
    assert_int_equal(counts.failures, 0);
    assert_in_range(counts.batches, 2, 40);
    free(changes);
}

typedef struct ordered {
    int *next;
    int place;
    harpe_loop *loop;
} ordered;

static void check_order(void *user, harpe_status status, const harpe_error *error) {
    (void)error;
    ordered *o = user;
    assert_int_equal(status, HARPE_OK);
    assert_int_equal(o->place, *o->next);
    if (++*o->next == 500) harpe_loop_stop(o->loop);
}

STORE_TEST(acknowledgements_come_in_order) {
    static harpe_change changes[500];
    static ordered orders[500];
    int next = 0;
    for (int i = 0; i < 500; i++) {
        orders[i] = (ordered){&next, i, f->loop};
        changes[i] = change_of(HARPE_CHANGE_JOB, i % 2 ? JOB : OTHER_JOB, 0, 0, i, "x");
        changes[i].done = check_order;
        changes[i].user = &orders[i];
        harpe_store_submit(f->store, &changes[i]);
    }
    assert_int_equal(harpe_loop_run(f->loop, NULL), HARPE_OK);
    assert_int_equal(next, 500);
    assert_loads(f, NULL, "JOB b 0 0 498 x\nJOB a 0 0 499 x\n");
}

/* Submits the next one from within `done`. */
typedef struct chain {
    fixture *fixture;
    harpe_change change;
    int done;
} chain;

static void submit_next(void *user, harpe_status status, const harpe_error *error) {
    (void)error;
    chain *c = user;
    assert_int_equal(status, HARPE_OK);
    if (++c->done == 10) return;
    c->change = change_of(HARPE_CHANGE_ROUND, JOB, c->done, 0, 0, "s");
    c->change.done = submit_next;
    c->change.user = c;
    harpe_store_submit(c->fixture->store, &c->change);
}

STORE_TEST(closing_writes_what_is_queued) {
    chain c = {.fixture = f, .change = change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a")};
    c.change.done = submit_next;
    c.change.user = &c;
    harpe_store_submit(f->store, &c.change);
    reopen_store(f); /* the loop does not run */
    assert_int_equal(c.done, 10);
    if (survives(f)) {
        assert_loads(f, NULL,
                     "JOB a 0 0 1 a\nROUND a 1 0 0 s\nROUND a 2 0 0 s\nROUND a 3 0 0 s\n"
                     "ROUND a 4 0 0 s\nROUND a 5 0 0 s\nROUND a 6 0 0 s\nROUND a 7 0 0 s\n"
                     "ROUND a 8 0 0 s\nROUND a 9 0 0 s\n");
    }
}

static harpe_status refuse_record(void *user, const harpe_change *change, harpe_error *error) {
    int *left = user;
    if ((*left)-- > 0) return HARPE_OK;
    if (error) *error = (harpe_error){.status = HARPE_INVALID_INPUT, .message = "not this one"};
    return change->kind == HARPE_CHANGE_RANK ? HARPE_INVALID_INPUT : HARPE_INTERNAL;
}

STORE_TEST(reader_that_refuses_ends_the_load) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    for (int i = 0; i < 3; i++)
        store_one(f, change_of(HARPE_CHANGE_RANK, JOB, 0, i, 0, "r"));
    int left = 2;
    harpe_error error = {0};
    assert_int_equal(harpe_store_load(f->store, NULL, refuse_record, &left, &error),
                     HARPE_INVALID_INPUT);
    assert_string_equal(error.message, "not this one");
    assert_loads(f, NULL, "JOB a 0 0 1 a\nRANK a 0 0 0 r\nRANK a 0 1 0 r\nRANK a 0 2 0 r\n");
    store_one(f, change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 9, NULL));
}

static void *read_again_and_again(void *user) {
    fixture *f = user;
    size_t right = 0;
    for (int i = 0; i < 100; i++) {
        char *text = NULL;
        size_t length = 0;
        harpe_status status = harpe_store_read_result(f->store, JOB, 7, 3, &text, &length, NULL);
        right += status == HARPE_OK && length == 4 && memcmp(text, "text", 4) == 0;
        free(text);
    }
    return right == 100 ? f : NULL;
}

STORE_TEST(results_are_read_while_others_are_written) {
    static harpe_change changes[2000];
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    store_one(f, change_of(HARPE_CHANGE_RESULT, JOB, 7, 3, 0, "text"));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_again_and_again, f), 0);
    for (int i = 0; i < 2000; i++)
        changes[i] = change_of(HARPE_CHANGE_RESULT, JOB, 8, i, 0, "other");
    store_changes(f, changes, 2000);
    void *is_right = NULL;
    assert_int_equal(pthread_join(thread, &is_right), 0);
    assert_non_null(is_right);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static harpe_status count_record(void *user, const harpe_change *change, harpe_error *error) {
    (void)error;
    int *counts = user;
    counts[0]++;
    counts[1] += strcmp(change->job_id, "job 0") == 0;
    return HARPE_OK;
}

LONG_MEMORY_TEST(only_the_newest_markers_stay) {
    enum { COUNT = 100010 };
    harpe_change *changes = calloc(COUNT, sizeof *changes);
    char(*names)[16] = calloc(COUNT, sizeof *names);
    assert_true(changes && names);
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof names[i], "job %d", i);
        changes[i] = change_of(HARPE_CHANGE_DELETED, names[i], 0, 0, i, NULL);
    }
    store_changes(f, changes, COUNT);
    int counts[2] = {0};
    assert_int_equal(harpe_store_load(f->store, NULL, count_record, counts, NULL), HARPE_OK);
    assert_int_equal(counts[0], 100000);
    assert_int_equal(counts[1], 0);
    free(names);
    free(changes);
}

MEMORY_TEST(unknown_kind_of_store_is_refused_without_its_password) {
    harpe_store *store = NULL;
    harpe_error error = {0};
    assert_int_equal(try_open(f, "mysql://me:secret@host/db", &store, &error),
                     HARPE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "mysql://"));
    assert_null(strstr(error.message, "secret"));
    assert_int_equal(try_open(f, "sqlite:", &store, &error), HARPE_INVALID_ARGUMENT);
    assert_null(store);
}

/* ---- SQLite ---------------------------------------------------------------------------------- */

/* Returns the message of an open that must fail. */
static const char *refusal(fixture *f, const char *where) {
    static harpe_error error;
    harpe_store *store = NULL;
    assert_int_not_equal(try_open(f, where, &store, &error), HARPE_OK);
    assert_null(store);
    assert_null(strchr(error.message, '\n'));
    return error.message;
}

SQLITE_TEST(second_server_on_a_file_is_refused) {
    assert_non_null(strstr(refusal(f, f->where), "another server"));
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    assert_non_null(strstr(refusal(f, f->where + strlen("sqlite:")), "another server"));
    store_one(f, change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 2, NULL));
    reopen_store(f);
    assert_loads(f, NULL, "JOB a 0 0 1 a\nSEEN a 0 0 2 \n");
}

static void run_in_sqlite(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void put_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

SQLITE_TEST(foreign_files_are_refused_and_left_alone) {
    char path[PATH_MAX / 2];
    (void)snprintf(path, sizeof path, "%s/foreign", f->directory);
    put_text(path, "This is a letter and no database; it is longer than a header of SQLite, which "
                   "has 100 bytes, so that it is read as one.");
    assert_non_null(strstr(refusal(f, path), "is not a database of Harpe"));
    assert_int_equal(unlink(path), 0);

    run_in_sqlite(path, "CREATE TABLE jobs (id)");
    assert_non_null(strstr(refusal(f, path), "another program"));
    run_in_sqlite(path, "DROP TABLE jobs"); /* the file is as it was */
}

SQLITE_TEST(newer_file_is_refused_naming_both) {
    harpe_store_close(f->store);
    run_in_sqlite(f->where + strlen("sqlite:"), "PRAGMA user_version = 99");
    const char *message = refusal(f, f->where);
    assert_non_null(strstr(message, "format 99"));
    assert_non_null(strstr(message, "knows 1"));
    f->store = NULL;
}

SQLITE_TEST(unwritable_places_are_one_clear_line) {
    assert_non_null(strstr(refusal(f, "/nowhere/at/all/harpe.db"), "directory must exist"));
    assert_non_null(strstr(refusal(f, "/proc/harpe.db"), "directory must exist"));
    assert_non_null(strstr(refusal(f, f->directory), "cannot be opened"));
}

static off_t size_of(const fixture *f, const char *suffix) {
    char path[PATH_MAX];
    struct stat status = {0};
    (void)snprintf(path, sizeof path, "%s%s", f->where + strlen("sqlite:"), suffix);
    return stat(path, &status) == 0 ? status.st_size : 0;
}

/* 200 results of 20 KB. */
static acknowledgements store_round(fixture *f, int64_t round) {
    static char text[20000];
    static harpe_change changes[200];
    memset(text, 'x', sizeof text);
    for (int i = 0; i < 200; i++) {
        changes[i] = change_of(HARPE_CHANGE_RESULT, JOB, round, i, 0, NULL);
        changes[i].text = text;
        changes[i].length = sizeof text;
    }
    return try_changes(f, changes, 200);
}

SQLITE_TEST(files_do_not_grow_with_rounds) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    for (int round = 0; round < 20; round++) {
        assert_int_equal(store_round(f, round).failed, 0);
        store_one(f, change_of(HARPE_CHANGE_STATE, JOB, round + 1, 0, 0, "s"));
        assert_true(size_of(f, "-wal") < 80 << 20);
    }
    /* Three rounds of 4 MB, not twenty. */
    assert_true(size_of(f, "") < 24 << 20);
}

SQLITE_TEST(full_disk_fails_the_batch_and_may_end) {
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    (void)signal(SIGXFSZ, SIG_IGN);
    /* The log is already longer: nothing can be appended. */
    struct rlimit full = {.rlim_cur = 8192, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    acknowledgements first = store_round(f, 0);
    acknowledgements second = store_round(f, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(first.failed, 200);
    assert_int_equal(second.failed, 200);
    assert_int_equal(second.status, HARPE_IO_ERROR);
    assert_int_equal(f->errors_logged, 1); /* not one for each batch */
    assert_non_null(strstr(f->last_line, f->where));
    assert_loads(f, NULL, "JOB a 0 0 1 a\n");
    assert_int_equal(store_round(f, 1).failed, 0);
    assert_int_equal(f->warnings_logged, 1);
    store_one(f, change_of(HARPE_CHANGE_STATE, JOB, 3, 0, 0, ""));
    reopen_store(f);
    assert_loads(f, NULL, "JOB a 0 0 1 a\nSTATE a 3 0 0 \n");
}

/* ---- A log that cannot be copied into the file ----------------------------------------------- */

static const char *broken_file; /* a path on which every write fails */

static ssize_t write_unless_broken(int file, const void *bytes, size_t length, off_t place) {
    char link[64], name[PATH_MAX];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t got = readlink(link, name, sizeof name - 1);
    name[got < 0 ? 0 : got] = '\0';
    if (strcmp(name, broken_file) == 0) {
        errno = EIO;
        return -1;
    }
    return pwrite(file, bytes, length, place);
}

static void set_write(sqlite3_syscall_ptr call) {
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    (void)vfs->xSetSystemCall(vfs, "pwrite", call);
    (void)vfs->xSetSystemCall(vfs, "pwrite64", call);
}

LONG_SQLITE_TEST(log_stays_bounded_even_if_it_cannot_be_copied) {
    char *file = realpath(f->where + strlen("sqlite:"), NULL);
    assert_non_null(file);
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    broken_file = file;
    set_write((sqlite3_syscall_ptr)write_unless_broken);
    acknowledgements got = {0};
    int round = 0;
    off_t longest = 0;
    for (; round < 200 && got.failed == 0; round++) {
        got = store_round(f, round);
        longest = size_of(f, "-wal") > longest ? size_of(f, "-wal") : longest;
    }
    acknowledgements again = store_round(f, 500);
    set_write(NULL);
    assert_in_range(longest, 200 << 20, 300 << 20);
    /* Transactions of this round that came before the limit was reached may have been stored. */
    assert_in_range(got.failed, 1, 200);
    assert_int_equal(again.failed, 200);
    assert_non_null(strstr(got.message, "cannot be copied"));
    store_one(f, change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 5, NULL));
    assert_true(size_of(f, "-wal") <= 64 << 20);
    for (int i = 0; i < round - 1; i++) {
        char *text = NULL;
        size_t length = 0;
        assert_int_equal(harpe_store_read_result(f->store, JOB, i, 7, &text, &length, NULL), 0);
        free(text);
    }
    free(file);
}

/* ---- PostgreSQL ------------------------------------------------------------------------------ */

POSTGRES_TEST(password_is_never_shown) {
    const char *malformed[] = {
        "postgresql://harpe:secret/word@localhost/db",
        "postgresql://harpe:word@secret@localhost/db",
        "postgresql://harpe:secret@localhost:port/db",
        "postgresql://harpe:secret%zz@localhost/db",
        "postgresql://harpe@localhost/db?secret=1",
    };
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        const char *message = refusal(f, malformed[i]);
        assert_non_null(strstr(message, "connection string"));
        assert_null(strstr(message, "secret"));
    }
    assert_null(strstr(refusal(f, "postgresql://harpe:secret@/none?host=/nowhere"), "secret"));
}

POSTGRES_TEST(newer_database_is_refused_naming_both) {
    run_sql(f, "UPDATE harpe.format SET version = 99");
    const char *message = refusal(f, f->where);
    assert_non_null(strstr(message, "format 99"));
    assert_non_null(strstr(message, "knows 1"));
}

static void *open_and_close(void *user) {
    fixture *f = user;
    harpe_loop *loop = NULL;
    harpe_store *store = NULL;
    if (harpe_loop_new(&loop, NULL) != HARPE_OK) return NULL;
    harpe_status status = harpe_store_open(f->where, loop, (harpe_log){0}, &store, NULL);
    harpe_store_close(store);
    harpe_loop_free(loop);
    return status == HARPE_OK ? f : NULL;
}

POSTGRES_TEST(servers_that_start_at_once_make_one_schema) {
    pthread_t threads[4];
    run_sql(f, "SET client_min_messages = warning; DROP SCHEMA harpe CASCADE");
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, f), 0);
    for (int i = 0; i < 4; i++) {
        void *has_worked = NULL;
        assert_int_equal(pthread_join(threads[i], &has_worked), 0);
        assert_non_null(has_worked);
    }
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    assert_loads(f, NULL, "JOB a 0 0 1 a\n");
}

/* Tries until it succeeds; 200 s at most. */
static bool stores_again(fixture *f, harpe_change change) {
    for (int i = 0; i < 2000; i++) {
        if (try_changes(f, &change, 1).failed == 0) return true;
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return false;
}

POSTGRES_TEST(lost_connection_fails_batches_until_it_is_back) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    assert_loads(f, NULL, "JOB a 0 0 1 a\n"); /* the reader is connected too */
    stop_postgres(&f->postgres, SIGQUIT);
    for (int i = 0; i < 3; i++) {
        harpe_change change = change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 2, NULL);
        acknowledgements got = try_changes(f, &change, 1);
        assert_int_equal(got.failed, 1);
        assert_int_equal(got.status, HARPE_IO_ERROR);
        assert_null(strstr(got.message, "secret"));
    }
    assert_int_equal(f->errors_logged, 1);
    char *text = NULL;
    size_t length = 0;
    assert_int_equal(harpe_store_read_result(f->store, JOB, 0, 0, &text, &length, NULL),
                     HARPE_IO_ERROR);
    assert_true(start_postgres(&f->postgres));
    assert_true(stores_again(f, change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 3, NULL)));
    assert_int_equal(f->warnings_logged, 1);
    assert_loads(f, NULL, "JOB a 0 0 1 a\nSEEN a 0 0 3 \n");
}

POSTGRES_TEST(connections_that_were_cut_are_made_again) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    store_one(f, change_of(HARPE_CHANGE_RESULT, JOB, 0, 0, 0, "r"));
    for (int i = 0; i < 2; i++) {
        assert_reads_result(f, JOB, 0, 0, "r");
        run_sql(f, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                   " WHERE pid <> pg_backend_pid() AND application_name = 'harpe'");
    }
    assert_true(stores_again(f, change_of(HARPE_CHANGE_SEEN, JOB, 0, 0, 3, NULL)));
    assert_loads(f, NULL, "JOB a 0 0 1 a\nRESULT a 0 0 0 \nSEEN a 0 0 3 \n");
}

POSTGRES_TEST(batch_that_fails_leaves_nothing_of_itself) {
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    run_sql(f, "ALTER TABLE harpe.ranks ADD CHECK (rank < 5)");
    uint64_t written = 1;
    for (int rank = 3; rank < 7; rank++) {
        harpe_change changes[] = {
            change_of(HARPE_CHANGE_RESULT, JOB, 0, rank, 0, "r"),
            change_of(HARPE_CHANGE_RANK, JOB, 0, rank, 0, "r"),
        };
        acknowledgements got = try_changes(f, changes, 2);
        assert_true(got.failed == 0 ? rank < 5 : rank >= 5);
        written += 2 - got.failed;
    }
    harpe_store_counts counts = harpe_store_count(f->store);
    assert_int_equal(counts.changes, written);
    assert_int_equal(counts.failures, 2);
    assert_in_range(counts.batches, 3, written);
    /* The result of rank 5 or 6 may have been in a separate batch, before its rank. */
    store_one(f, change_of(HARPE_CHANGE_STATE, JOB, 2, 0, 0, "s"));
    assert_loads(f, NULL, "JOB a 0 0 1 a\nRANK a 0 3 0 r\nRANK a 0 4 0 r\nSTATE a 2 0 0 s\n");
}

/* ---- PostgreSQL, several servers ------------------------------------------------------------- */

static harpe_ownership own_as(harpe_store *store, int64_t server) {
    harpe_ownership got = {0};
    const harpe_store_server me = {server, "there:7787"};
    (void)harpe_store_own(store, &me, &got, NULL); /* fails while its connection is lost */
    return got;
}

/* Tries until the session that owned the store has ended; 200 s at most. */
static harpe_ownership own_in_the_end(harpe_store *store, int64_t server) {
    harpe_ownership got = {0};
    for (int i = 0; i < 2000 && !got.is_ours; i++) {
        got = own_as(store, server);
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return got;
}

POSTGRES_TEST(owner_that_was_replaced_cannot_write) {
    harpe_store *other = NULL;
    assert_int_equal(try_open(f, f->where, &other, NULL), HARPE_OK);
    assert_true(harpe_store_is_shared(f->store));
    harpe_ownership got = own_as(f->store, 1);
    assert_true(got.is_ours && !got.may_have_rival);
    assert_false(own_as(other, 2).is_ours);
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "first"));

    run_sql(f, "SELECT pg_terminate_backend(pid) FROM pg_locks"
               " WHERE locktype = 'advisory' AND classid = 1751216752 AND objid = 0");
    got = own_in_the_end(other, 2);
    assert_true(got.is_ours && got.may_have_rival);
    for (int i = 0; i < 2; i++) {
        harpe_change change = change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "late");
        assert_int_equal(try_changes(f, &change, 1).failed, 1);
    }
    assert_false(harpe_store_is_owned(f->store));
    assert_false(own_as(f->store, 3).is_ours);
    assert_loads(f, NULL, "JOB a 0 0 1 first\n");

    harpe_store_close(other); /* resigns */
    got = own_in_the_end(f->store, 3);
    assert_true(got.is_ours && !got.may_have_rival);
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "again"));
    assert_loads(f, NULL, "JOB a 0 0 1 again\n");
}

POSTGRES_TEST(store_that_nobody_owns_is_not_written_by_a_candidate) {
    harpe_store *other = NULL;
    assert_int_equal(try_open(f, f->where, &other, NULL), HARPE_OK);
    assert_true(own_as(other, 2).is_ours);
    assert_false(own_as(f->store, 1).is_ours);
    harpe_store_disown(other);
    harpe_change change = change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a");
    acknowledgements got = try_changes(f, &change, 1);
    assert_int_equal(got.failed, 1);
    assert_loads(f, NULL, "");
    harpe_store_close(other);
}

static harpe_store_leader watch(harpe_store *store, int64_t owner, int64_t dead_beat) {
    harpe_store_leader seen;
    assert_int_equal(harpe_store_watch(store, owner, dead_beat, &seen, NULL), HARPE_OK);
    return seen;
}

POSTGRES_TEST(an_owner_without_its_session_does_not_lead) {
    assert_true(own_as(f->store, 1).is_ours);
    assert_int_equal(watch(f->store, 1, -1).id, 1);
    run_sql(f, "SELECT pg_terminate_backend(pid) FROM pg_locks"
               " WHERE locktype = 'advisory' AND classid = 1751216752 AND objid = 0");
    harpe_store_leader seen = {.id = 1};
    for (int i = 0; i < 2000 && seen.id != 0; i++) {
        seen = watch(f->store, 1, -1);
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    assert_int_equal(seen.id, 0);
}

POSTGRES_TEST(heartbeats_are_counted_and_a_dead_owner_loses_its_session) {
    harpe_store *other = NULL;
    assert_int_equal(try_open(f, f->where, &other, NULL), HARPE_OK);
    assert_int_equal(watch(other, 0, -1).id, 0);
    assert_true(own_as(f->store, 1).is_ours);
    harpe_store_leader first = watch(other, 0, -1);
    assert_int_equal(first.id, 1);
    assert_string_equal(first.address, "there:7787");
    assert_int_equal(watch(other, 2, -1).beat, first.beat); /* it does not own the store */
    assert_int_equal(watch(f->store, 1, -1).beat, first.beat + 1);

    /* A heartbeat has come in between, so the owner is not dead. */
    (void)watch(other, 0, first.beat);
    assert_false(own_as(other, 2).is_ours);
    store_one(f, change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "a"));
    (void)watch(other, 0, first.beat + 1);
    harpe_ownership got = own_in_the_end(other, 2);
    assert_true(got.is_ours && got.may_have_rival);
    assert_int_equal(watch(f->store, 1, -1).id, 2);
    harpe_change change = change_of(HARPE_CHANGE_JOB, JOB, 0, 0, 1, "late");
    assert_int_equal(try_changes(f, &change, 1).failed, 1);
    harpe_store_close(other);
    assert_int_equal(watch(f->store, 1, -1).id, 0);
}

/* ---- All of them ----------------------------------------------------------------------------- */

static int run_on(const char *backend, const struct CMUnitTest *tests, size_t count) {
    int made = make_fixture(&everywhere, backend);
    int failed = made < 0 ? 1 : 0;
    if (made == 1)
        print_message("skipped: missing: a PostgreSQL server (initdb, postgres)\n");
    else if (made < 0)
        print_error("%s: its fixture could not be set up\n", backend);
    else
        failed = _cmocka_run_group_tests(backend, tests, count, NULL, NULL);
    destroy_fixture(&everywhere);
    return failed;
}

int main(void) {
    static const struct {
        const char *backend;
        CMFixtureFunction begin, begin_long;
    } backends[] = {{"memory", begin_memory, begin_long_memory},
                    {"sqlite", begin_sqlite, begin_long_sqlite},
                    {"postgresql", begin_postgres, NULL}};
    int failed = 0;
    /* PostgreSQL takes long. */
    for (size_t i = 0; i < sizeof backends / sizeof backends[0] - !all_trials(); i++) {
        struct CMUnitTest chosen[64];
        size_t count = 0;
        for (size_t k = 0; k < listed_count; k++) {
            CMFixtureFunction begin = listed_tests[k].setup_func;
            if (begin == begin_test || begin == backends[i].begin ||
                (all_trials() && begin == backends[i].begin_long))
                chosen[count++] = listed_tests[k];
        }
        failed += run_on(backends[i].backend, chosen, count);
    }
    return failed;
}
