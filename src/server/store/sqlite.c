/* SPDX-License-Identifier: Apache-2.0 */
/* The state in one SQLite file, or in memory for a server that need not survive. One connection
 * does all, under a lock: the file is open exclusively, so that a second server is refused (and
 * kill -9 gives the file free). Knows nothing of threads' work or of acknowledgements.
 *
 * Durable means: a write-ahead log whose end is synced at every commit (synchronous=FULL; NORMAL
 * would sync only at checkpoints and lose what was acknowledged when the machine goes down). */
#include <sqlite3.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/store/backend.h"
#include "server/store/schema.h"

/* Read and written as text by PRAGMAs. */
#define APPLICATION_ID 1214345840 /* "Harp" */
#define AS_TEXT_(value) #value
#define AS_TEXT(value) AS_TEXT_(value)

/* How long to wait at start for somebody who is just reading or closing the file. */
enum { BUSY_TIMEOUT_MS = 1000 };

typedef struct sqlite_store {
    sqlite3 *db;
    char *name;           /* "sqlite:harpe.db" */
    pthread_mutex_t lock; /* the connection: one transaction or read at a time */
    sqlite3_stmt *writes[HARPE_SCHEMA_WRITE_COUNT];
    int parameters[HARPE_SCHEMA_WRITE_COUNT][HARPE_SCHEMA_PARAMETER_COUNT]; /* 0: not in it */
    sqlite3_stmt *reads[HARPE_SCHEMA_READ_COUNT];
} sqlite_store;

/* ---- Errors and small steps ----------------------------------------------------------------- */

static harpe_status fail(const sqlite_store *store, harpe_error *error) {
    const char *name = store->name;
    switch (sqlite3_errcode(store->db)) {
    case SQLITE_NOMEM: return harpe_fail_memory(error);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "%s: another server or program has it open; stop that one, or use "
                          "another file",
                          name);
    case SQLITE_NOTADB:
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: is no database of Harpe; use another file", name);
    case SQLITE_CORRUPT:
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: the database is damaged; put a backup in its place", name);
    case SQLITE_FULL:
        return harpe_fail(error, HARPE_IO_ERROR, "%s: the disk is full; make room", name);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "%s: cannot be opened for writing (%s); the file and its directory must "
                          "exist and be writable",
                          name, sqlite3_errmsg(store->db));
    default:
        return harpe_fail(error, HARPE_IO_ERROR, "%s: %s (SQLite error %d)", name,
                          sqlite3_errmsg(store->db), sqlite3_extended_errcode(store->db));
    }
}

static harpe_status execute(const sqlite_store *store, const char *sql, harpe_error *error) {
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK) return HARPE_OK;
    return fail(store, error);
}

static void roll_back(const sqlite_store *store) {
    if (sqlite3_get_autocommit(store->db)) return; /* SQLite has done it */
    (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
}

static harpe_status prepare(const sqlite_store *store, const char *sql, sqlite3_stmt **out,
                            harpe_error *error) {
    if (sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) == SQLITE_OK) {
        return HARPE_OK;
    }
    return fail(store, error);
}

/* The one integer that `sql` gives. */
static harpe_status read_integer(const sqlite_store *store, const char *sql, int64_t *value,
                                 harpe_error *error) {
    sqlite3_stmt *statement = NULL;
    harpe_status status = prepare(store, sql, &statement, error);
    if (status != HARPE_OK) return status;
    if (sqlite3_step(statement) == SQLITE_ROW) {
        *value = sqlite3_column_int64(statement, 0);
    } else {
        status = fail(store, error);
    }
    sqlite3_finalize(statement);
    return status;
}

/* ---- Opening -------------------------------------------------------------------------------- */

/* Ours, of a version that we know, or empty. */
static harpe_status check_identity(const sqlite_store *store, bool *is_new, harpe_error *error) {
    int64_t application_id = 0;
    int64_t version = 0;
    int64_t table_count = 0;
    harpe_status status = read_integer(store, "PRAGMA application_id", &application_id, error);
    if (status == HARPE_OK) status = read_integer(store, "PRAGMA user_version", &version, error);
    if (status == HARPE_OK) {
        status = read_integer(store, "SELECT count(*) FROM sqlite_master", &table_count, error);
    }
    if (status != HARPE_OK) return status;
    *is_new = application_id == 0 && version == 0 && table_count == 0;
    if (*is_new) return HARPE_OK;
    if (application_id != APPLICATION_ID) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: is a database of another program; use another file", store->name);
    }
    if (version > HARPE_SCHEMA_VERSION) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "%s: was written by a newer Harpe (format %lld, this one knows %d); "
                          "use that one, or another file",
                          store->name, (long long)version, HARPE_SCHEMA_VERSION);
    }
    return HARPE_OK;
}

static harpe_status create_tables(const sqlite_store *store, harpe_error *error) {
    char sql[64];
    (void)snprintf(sql, sizeof sql, "PRAGMA user_version = %d", HARPE_SCHEMA_VERSION);
    harpe_status status = execute(store, HARPE_SCHEMA_TABLES("INTEGER PRIMARY KEY", "BLOB"), error);
    if (status == HARPE_OK) status = execute(store, sql, error);
    if (status != HARPE_OK) return status;
    return execute(store, "PRAGMA application_id = " AS_TEXT(APPLICATION_ID), error);
}

/* Nothing is written to a file before it is known to be ours or empty. */
static harpe_status set_up(const sqlite_store *store, harpe_error *error) {
    bool is_new = false;
    harpe_status status = execute(store,
                                  "PRAGMA locking_mode = EXCLUSIVE;"
                                  "PRAGMA page_size = 16384;" /* a result fits into a page or few */
                                  "PRAGMA secure_delete = OFF;"
                                  "BEGIN EXCLUSIVE",
                                  error);
    if (status == HARPE_OK) status = check_identity(store, &is_new, error);
    if (status == HARPE_OK && is_new) status = create_tables(store, error);
    if (status == HARPE_OK) status = execute(store, "COMMIT", error);
    if (status != HARPE_OK) {
        roll_back(store);
        return status;
    }
    /* The log is copied into the file whenever it has reached 1024 pages (16 MiB); it is as long
     * as that and one batch at most. */
    return execute(store,
                   "PRAGMA journal_mode = WAL;"
                   "PRAGMA synchronous = FULL;"
                   "PRAGMA wal_autocheckpoint = 1024;"
                   "PRAGMA journal_size_limit = 67108864;"
                   "PRAGMA cache_size = -49152", /* KiB: a batch, so that it is written once */
                   error);
}

static harpe_status prepare_statements(sqlite_store *store, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT && status == HARPE_OK; i++) {
        status = prepare(store, harpe_schema_writes[i].sql, &store->writes[i], error);
        for (int p = 0; p < HARPE_SCHEMA_PARAMETER_COUNT && status == HARPE_OK; p++) {
            char name[] = {'$', (char)('1' + p), '\0'};
            store->parameters[i][p] = sqlite3_bind_parameter_index(store->writes[i], name);
        }
    }
    for (size_t i = 0; i < HARPE_SCHEMA_READ_COUNT && status == HARPE_OK; i++) {
        status = prepare(store, harpe_schema_reads[i].sql, &store->reads[i], error);
    }
    return status;
}

static void close_sqlite(void *state) {
    sqlite_store *store = state;
    for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT; i++) {
        sqlite3_finalize(store->writes[i]);
    }
    for (size_t i = 0; i < HARPE_SCHEMA_READ_COUNT; i++) {
        sqlite3_finalize(store->reads[i]);
    }
    sqlite3_close(store->db);
    pthread_mutex_destroy(&store->lock);
    free(store->name);
    free(store);
}

static harpe_status open_database(const char *path, char *name, void **state, harpe_error *error) {
    sqlite_store *store = calloc(1, sizeof *store);
    if (!store || !path || !name) {
        free(store);
        free(name);
        return harpe_fail_memory(error);
    }
    store->name = name;
    pthread_mutex_init(&store->lock, NULL);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    harpe_status status = HARPE_OK;
    if (sqlite3_open_v2(path, &store->db, flags, NULL) != SQLITE_OK) status = fail(store, error);
    if (status == HARPE_OK) {
        sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
        status = set_up(store, error);
    }
    if (status == HARPE_OK) status = prepare_statements(store, error);
    if (status != HARPE_OK) {
        close_sqlite(store);
        return status;
    }
    *state = store;
    return HARPE_OK;
}

static const char *path_of(const char *where) {
    return strncmp(where, "sqlite:", 7) == 0 ? where + 7 : where;
}

static bool accepts_sqlite(const char *where) {
    return strncmp(where, "sqlite:", 7) == 0 || !strstr(where, "://");
}

static harpe_status open_sqlite(const char *where, harpe_log log, void **state,
                                harpe_error *error) {
    (void)log;
    const char *path = path_of(where);
    if (*path == '\0') {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "store '%s' names no file; use sqlite:FILE", where);
    }
    /* With a slash in it SQLite takes no name for something special (":memory:", "file:..."). */
    char *plain_path = NULL;
    char *name = NULL;
    if (asprintf(&plain_path, "%s%s", *path == '/' ? "" : "./", path) < 0) plain_path = NULL;
    if (asprintf(&name, "sqlite:%s", path) < 0) name = NULL;
    harpe_status status = open_database(plain_path, name, state, error);
    free(plain_path);
    return status;
}

static bool accepts_memory(const char *where) { return strcmp(where, "memory") == 0; }

static harpe_status open_memory(const char *where, harpe_log log, void **state,
                                harpe_error *error) {
    (void)log;
    return open_database(":memory:", strdup(where), state, error);
}

static const char *description(const void *state) {
    const sqlite_store *store = state;
    return store->name;
}

/* ---- Writing -------------------------------------------------------------------------------- */

/* Values are bound where the statement has the parameter; a parameter index of 0 is refused by
 * SQLite without harm. */
static harpe_status write_one(const sqlite_store *store, size_t index, const harpe_change *change,
                              harpe_error *error) {
    sqlite3_stmt *statement = store->writes[index];
    const int *parameters = store->parameters[index];
    const char *text = change->text ? change->text : "";
    (void)sqlite3_bind_text(statement, parameters[HARPE_SCHEMA_JOB_ID], change->job_id, -1,
                            SQLITE_STATIC);
    (void)sqlite3_bind_int64(statement, parameters[HARPE_SCHEMA_ROUND], change->round);
    (void)sqlite3_bind_int64(statement, parameters[HARPE_SCHEMA_RANK], change->rank);
    (void)sqlite3_bind_int64(statement, parameters[HARPE_SCHEMA_NUMBER], change->number);
    int result = SQLITE_OK;
    if (parameters[HARPE_SCHEMA_TEXT] != 0) {
        result = sqlite3_bind_blob64(statement, parameters[HARPE_SCHEMA_TEXT], text, change->length,
                                     SQLITE_STATIC);
    }
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    harpe_status status = result == SQLITE_DONE ? HARPE_OK : fail(store, error);
    (void)sqlite3_reset(statement);
    return status;
}

static harpe_status write_changes(const sqlite_store *store, const harpe_change *changes,
                                  harpe_error *error) {
    for (const harpe_change *change = changes; change; change = change->next) {
        for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT; i++) {
            if (harpe_schema_writes[i].kind != change->kind) continue;
            harpe_status status = write_one(store, i, change, error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

static harpe_status write_batch(void *state, const harpe_change *changes, harpe_error *error) {
    sqlite_store *store = state;
    pthread_mutex_lock(&store->lock);
    harpe_status status = execute(store, "BEGIN IMMEDIATE", error);
    if (status == HARPE_OK) status = write_changes(store, changes, error);
    if (status == HARPE_OK) status = execute(store, "COMMIT", error);
    if (status != HARPE_OK) roll_back(store);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---- Reading -------------------------------------------------------------------------------- */

typedef struct record_reader {
    const sqlite_store *store;
    harpe_status (*record)(void *user, const harpe_change *change, harpe_error *error);
    void *user;
} record_reader;

static harpe_status read_records(const record_reader *reader, size_t index, int64_t job,
                                 const char *job_id, harpe_error *error) {
    sqlite3_stmt *statement = reader->store->reads[index];
    harpe_status status = HARPE_OK;
    int result = sqlite3_bind_int64(statement, 1, job);
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    for (; result == SQLITE_ROW && status == HARPE_OK; result = sqlite3_step(statement)) {
        const char *text = sqlite3_column_blob(statement, 3); /* NULL when empty */
        harpe_change change = {
            .kind = harpe_schema_reads[index].kind,
            .job_id = job_id,
            .round = sqlite3_column_int64(statement, 0),
            .rank = sqlite3_column_int(statement, 1),
            .number = sqlite3_column_int64(statement, 2),
            .text = text ? text : "",
            .length = (size_t)sqlite3_column_bytes(statement, 3),
        };
        status = reader->record(reader->user, &change, error);
    }
    if (status == HARPE_OK && result != SQLITE_DONE) status = fail(reader->store, error);
    (void)sqlite3_reset(statement);
    return status;
}

static harpe_status read_job(const record_reader *reader, int64_t number, const char *id,
                             harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < HARPE_SCHEMA_READ_COUNT && status == HARPE_OK; i++) {
        status = read_records(reader, i, number, id, error);
    }
    return status;
}

static harpe_status read_deleted(const record_reader *reader, int64_t number, const char *id,
                                 harpe_error *error) {
    harpe_change change = {.kind = HARPE_CHANGE_DELETED, .job_id = id, .number = number};
    return reader->record(reader->user, &change, error);
}

/* `each` for every row of number and id. */
static harpe_status for_each_id(const record_reader *reader, const char *sql, const char *job_id,
                                harpe_status (*each)(const record_reader *reader, int64_t number,
                                                     const char *id, harpe_error *error),
                                harpe_error *error) {
    sqlite3_stmt *statement = NULL;
    harpe_status status = prepare(reader->store, sql, &statement, error);
    if (status != HARPE_OK) return status;
    if (job_id) (void)sqlite3_bind_text(statement, 1, job_id, -1, SQLITE_STATIC);
    int result = sqlite3_step(statement);
    for (; result == SQLITE_ROW && status == HARPE_OK; result = sqlite3_step(statement)) {
        const char *id = (const char *)sqlite3_column_text(statement, 1);
        status = id ? each(reader, sqlite3_column_int64(statement, 0), id, error)
                    : harpe_fail_memory(error);
    }
    if (status == HARPE_OK && result != SQLITE_DONE) status = fail(reader->store, error);
    sqlite3_finalize(statement);
    return status;
}

static harpe_status load(void *state, const char *job_id,
                         harpe_status (*record)(void *user, const harpe_change *change,
                                                harpe_error *error),
                         void *user, harpe_error *error) {
    sqlite_store *store = state;
    record_reader reader = {store, record, user};
    pthread_mutex_lock(&store->lock);
    harpe_status status = for_each_id(&reader, job_id ? HARPE_SCHEMA_ONE_JOB : HARPE_SCHEMA_JOBS,
                                      job_id, read_job, error);
    if (status == HARPE_OK) {
        status = for_each_id(&reader, job_id ? HARPE_SCHEMA_ONE_DELETED : HARPE_SCHEMA_DELETED,
                             job_id, read_deleted, error);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* A copy of the blob in the first column, with a NUL behind it. */
static harpe_status copy_blob(sqlite3_stmt *statement, char **text, size_t *length,
                              harpe_error *error) {
    const void *blob = sqlite3_column_blob(statement, 0);
    size_t size = (size_t)sqlite3_column_bytes(statement, 0);
    char *copy = malloc(size + 1);
    if (!copy) return harpe_fail_memory(error);
    if (size > 0) memcpy(copy, blob, size);
    copy[size] = '\0';
    *text = copy;
    *length = size;
    return HARPE_OK;
}

static harpe_status find_result(const sqlite_store *store, const char *job_id, int64_t round,
                                int rank, char **text, size_t *length, harpe_error *error) {
    sqlite3_stmt *statement = NULL;
    harpe_status status = prepare(store, HARPE_SCHEMA_RESULT, &statement, error);
    if (status != HARPE_OK) return status;
    (void)sqlite3_bind_text(statement, 1, job_id, -1, SQLITE_STATIC);
    (void)sqlite3_bind_int64(statement, 2, round);
    (void)sqlite3_bind_int64(statement, 3, rank);
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
        status = copy_blob(statement, text, length, error);
    } else if (result == SQLITE_DONE) {
        status =
            harpe_fail(error, HARPE_NOT_FOUND, "job %s has no result of rank %d for round %lld",
                       job_id, rank, (long long)round);
    } else {
        status = fail(store, error);
    }
    sqlite3_finalize(statement);
    return status;
}

static harpe_status read_result(void *state, const char *job_id, int64_t round, int rank,
                                char **text, size_t *length, harpe_error *error) {
    sqlite_store *store = state;
    pthread_mutex_lock(&store->lock);
    harpe_status status = find_result(store, job_id, round, rank, text, length, error);
    pthread_mutex_unlock(&store->lock);
    return status;
}

const harpe_store_backend harpe_store_sqlite = {
    .name = "sqlite",
    .accepts = accepts_sqlite,
    .open = open_sqlite,
    .close = close_sqlite,
    .description = description,
    .write = write_batch,
    .load = load,
    .read_result = read_result,
};

const harpe_store_backend harpe_store_memory = {
    .name = "memory",
    .accepts = accepts_memory,
    .open = open_memory,
    .close = close_sqlite,
    .description = description,
    .write = write_batch,
    .load = load,
    .read_result = read_result,
};
