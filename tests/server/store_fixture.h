/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of the store's tests: back-ends, a loop, and changes that record their
 * acknowledgement. */
#ifndef HARPE_TESTS_SERVER_STORE_FIXTURE_H
#define HARPE_TESTS_SERVER_STORE_FIXTURE_H

#include "base/text.h"
#include "http/loop.h"
#include "postgres_server.h"
#include "server/store/store.h"

#define JOB "2026-11-21-12-00-00+dp1+pp2+tp1+PointSolution"
#define OTHER_JOB "2026-11-21-12-00-00.2+dp1+pp2+tp1+PointSolution+x"

typedef struct fixture {
    const char *backend; /* "memory", "sqlite", "postgresql" */
    char directory[PATH_MAX / 4];
    char where[PATH_MAX / 2];
    postgres_server postgres;
    harpe_loop *loop;
    harpe_store *store;
    int errors_logged, warnings_logged;
    char last_line[2048];
} fixture;

static inline void count_line(void *user, harpe_log_level level, const char *line) {
    fixture *f = user;
    if (level == HARPE_LOG_ERROR) f->errors_logged++;
    if (level == HARPE_LOG_WARNING) f->warnings_logged++;
    (void)snprintf(f->last_line, sizeof f->last_line, "%s", line);
}

static inline harpe_status try_open(fixture *f, const char *where, harpe_store **store,
                                    harpe_error *error) {
    harpe_log log = {count_line, f};
    return harpe_store_open(where, f->loop, log, store, error);
}

static inline void open_store(fixture *f) {
    harpe_error error = {0};
    if (try_open(f, f->where, &f->store, &error) != HARPE_OK) fail_msg("%s", error.message);
}

static inline void reopen_store(fixture *f) {
    harpe_store_close(f->store);
    open_store(f);
}

static inline void run_sql(const fixture *f, const char *sql) {
    PGconn *connection = PQconnectdb(f->where);
    PGresult *result = PQexec(connection, sql);
    bool has_worked =
        PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
    PQclear(result);
    PQfinish(connection);
    assert_true(has_worked);
}

/* ---- Set-up ---------------------------------------------------------------------------------- */

/* Creates a directory, and a PostgreSQL server if PostgreSQL is installed. */
static inline int make_fixture(fixture *f, const char *backend) {
    *f = (fixture){.backend = backend};
    (void)snprintf(f->directory, sizeof f->directory, "%s/harpe-store-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(f->directory)) return -1;
    if (strcmp(backend, "postgresql") != 0) return 0;
    if (make_postgres(&f->postgres)) return 0;
    if (f->postgres.directory[0] == '\0') return 1; /* not installed */
    return -1;
}

static inline void destroy_fixture(fixture *f) {
    destroy_postgres(&f->postgres);
    remove_tree(f->directory);
}

/* Creates an empty store for one test. */
static inline int begin_test(void **state) {
    fixture *f = *state;
    static int number = 0;
    (void)snprintf(f->where, sizeof f->where, "memory");
    if (strcmp(f->backend, "sqlite") == 0) {
        (void)snprintf(f->where, sizeof f->where, "sqlite:%s/%d.db", f->directory, number++);
    } else if (strcmp(f->backend, "postgresql") == 0) {
        (void)snprintf(f->where, sizeof f->where, "%s", f->postgres.where);
        run_sql(f, "SET client_min_messages = warning; DROP SCHEMA IF EXISTS harpe CASCADE");
    }
    f->errors_logged = 0;
    f->warnings_logged = 0;
    if (harpe_loop_new(&f->loop, NULL) != HARPE_OK) return -1;
    open_store(f);
    return 0;
}

static inline int end_test(void **state) {
    fixture *f = *state;
    harpe_store_close(f->store);
    f->store = NULL;
    harpe_loop_free(f->loop);
    f->loop = NULL;
    return 0;
}

/* ---- Changes --------------------------------------------------------------------------------- */

/* Stops the loop after `left` changes were acknowledged. */
typedef struct acknowledgements {
    harpe_loop *loop;
    size_t left, failed;
    harpe_status status;
    char message[HARPE_ERROR_MESSAGE_SIZE];
} acknowledgements;

static inline void acknowledged(void *user, harpe_status status, const harpe_error *error) {
    acknowledgements *got = user;
    if (status != HARPE_OK) {
        got->failed++;
        got->status = status;
        (void)snprintf(got->message, sizeof got->message, "%s", error->message);
    }
    if (--got->left == 0) harpe_loop_stop(got->loop);
}

/* Submits `count` changes at once and waits for all of them. */
static inline acknowledgements try_changes(fixture *f, harpe_change *changes, size_t count) {
    acknowledgements got = {.loop = f->loop, .left = count};
    for (size_t i = 0; i < count; i++) {
        changes[i].done = acknowledged;
        changes[i].user = &got;
        harpe_store_submit(f->store, &changes[i]);
    }
    assert_int_equal(harpe_loop_run(f->loop, NULL), HARPE_OK);
    assert_int_equal(got.left, 0);
    return got;
}

static inline void store_changes(fixture *f, harpe_change *changes, size_t count) {
    acknowledgements got = try_changes(f, changes, count);
    if (got.failed > 0) fail_msg("%s", got.message);
}

static inline harpe_change change_of(harpe_change_kind kind, const char *job_id, int64_t round,
                                     int rank, int64_t number, const char *text) {
    return (harpe_change){.kind = kind,
                          .job_id = job_id,
                          .round = round,
                          .rank = rank,
                          .number = number,
                          .text = text,
                          .length = text ? strlen(text) : 0};
}

static inline void store_one(fixture *f, harpe_change change) { store_changes(f, &change, 1); }

/* ---- Reading back ---------------------------------------------------------------------------- */

static const char *const kind_names[] = {
    "JOB",         "RANK", "ROUND", "RESULT",  "STATE", "SUMS",   "FAILED",   "SEEN",
    "JOB_REQUEST", "END",  "BACK",  "DELETED", "PROBE", "UPTIME", "FINISHED", "NOTE"};

static inline harpe_status append_record(void *user, const harpe_change *change,
                                         harpe_error *error) {
    (void)error;
    harpe_text *text = user;
    harpe_text_printf(text, "%s %s %lld %d %lld ", kind_names[change->kind],
                      strcmp(change->job_id, JOB) == 0         ? "a"
                      : strcmp(change->job_id, OTHER_JOB) == 0 ? "b"
                                                               : change->job_id,
                      (long long)change->round, change->rank, (long long)change->number);
    harpe_text_append(text, change->text, change->length);
    harpe_text_append(text, "\n", 1);
    return HARPE_OK;
}

/* Checks that the whole store reads as `expected`: lines of kind, job (a, b), round, rank, number,
 * text. Lines of results have no text. */
static inline void assert_loads(fixture *f, const char *job_id, const char *expected) {
    harpe_text text = {0};
    harpe_error error = {0};
    harpe_text_append(&text, "", 0);
    if (harpe_store_load(f->store, job_id, append_record, &text, &error) != HARPE_OK)
        fail_msg("%s", error.message);
    assert_string_equal(text.data ? text.data : "", expected);
    harpe_text_free(&text);
}

static inline void assert_reads_result(fixture *f, const char *job_id, int64_t round, int rank,
                                       const char *expected) {
    char *text = NULL;
    size_t length = 0;
    assert_int_equal(harpe_store_read_result(f->store, job_id, round, rank, &text, &length, NULL),
                     HARPE_OK);
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    free(text);
}

#endif
