/* SPDX-License-Identifier: Apache-2.0 */
/* Reads records from SQLite: either one result, or all records, job by job. */
#include "server/store/sqlite_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/wait.h"

typedef struct record_reader {
    const harpe_sqlite *store;
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
    if (status == HARPE_OK && result != SQLITE_DONE)
        status = harpe_sqlite_fail(reader->store, error);
    (void)sqlite3_reset(statement);
    return status;
}

static harpe_status read_job(const record_reader *reader, int64_t number, const char *id,
                             harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < HARPE_SCHEMA_JOB_READ_COUNT && status == HARPE_OK; i++)
        status = read_records(reader, i, number, id, error);
    return status;
}

static harpe_status read_finished(const record_reader *reader, int64_t number, const char *id,
                                  harpe_error *error) {
    return read_records(reader, HARPE_SCHEMA_JOB_READ_COUNT, number, id, error);
}

static harpe_status read_deleted(const record_reader *reader, int64_t number, const char *id,
                                 harpe_error *error) {
    harpe_change change = {.kind = HARPE_CHANGE_DELETED, .job_id = id, .number = number};
    return reader->record(reader->user, &change, error);
}

static harpe_status read_uptime(const record_reader *reader, int64_t seconds, const char *id,
                                harpe_error *error) {
    harpe_change change = {.kind = HARPE_CHANGE_UPTIME, .job_id = id, .number = seconds};
    return reader->record(reader->user, &change, error);
}

/* Runs `sql`, whose rows have a number and an id. Calls `each` for every row. */
static harpe_status for_each_id(const record_reader *reader, const char *sql, const char *job_id,
                                harpe_status (*each)(const record_reader *reader, int64_t number,
                                                     const char *id, harpe_error *error),
                                harpe_error *error) {
    sqlite3_stmt *statement = NULL;
    harpe_status status = harpe_sqlite_prepare(reader->store, sql, &statement, error);
    if (status != HARPE_OK) return status;
    if (job_id) (void)sqlite3_bind_text(statement, 1, job_id, -1, SQLITE_STATIC);
    int result = sqlite3_step(statement);
    for (; result == SQLITE_ROW && status == HARPE_OK; result = sqlite3_step(statement)) {
        const char *id = (const char *)sqlite3_column_text(statement, 1);
        status = id ? each(reader, sqlite3_column_int64(statement, 0), id, error)
                    : harpe_fail_memory(error);
    }
    if (status == HARPE_OK && result != SQLITE_DONE)
        status = harpe_sqlite_fail(reader->store, error);
    sqlite3_finalize(statement);
    return status;
}

harpe_status harpe_sqlite_load(void *state, const char *job_id,
                               harpe_status (*record)(void *user, const harpe_change *change,
                                                      harpe_error *error),
                               void *user, harpe_error *error) {
    harpe_sqlite *store = state;
    record_reader reader = {store, record, user};
    harpe_lock(&store->lock);
    harpe_status status = HARPE_OK;
    if (!job_id) status = for_each_id(&reader, HARPE_SCHEMA_UPTIME, NULL, read_uptime, error);
    if (status == HARPE_OK) {
        status = for_each_id(&reader, job_id ? HARPE_SCHEMA_ONE_JOB : HARPE_SCHEMA_JOBS, job_id,
                             read_job, error);
    }
    if (status == HARPE_OK) {
        status = for_each_id(&reader, job_id ? HARPE_SCHEMA_ONE_DELETED : HARPE_SCHEMA_DELETED,
                             job_id, read_deleted, error);
    }
    if (status == HARPE_OK && !job_id)
        status = for_each_id(&reader, HARPE_SCHEMA_FINISHED, NULL, read_finished, error);
    harpe_unlock(&store->lock);
    return status;
}

harpe_status harpe_sqlite_load_notes(void *state,
                                     harpe_status (*record)(void *user, const harpe_change *change,
                                                            harpe_error *error),
                                     void *user, harpe_error *error) {
    harpe_sqlite *store = state;
    sqlite3_stmt *statement = NULL;
    harpe_lock(&store->lock);
    harpe_status status = harpe_sqlite_prepare(store, HARPE_SCHEMA_NOTES, &statement, error);
    int result = status == HARPE_OK ? sqlite3_step(statement) : SQLITE_DONE;
    for (; result == SQLITE_ROW && status == HARPE_OK; result = sqlite3_step(statement)) {
        const char *text = sqlite3_column_blob(statement, 1); /* NULL when empty */
        harpe_change change = {.kind = HARPE_CHANGE_NOTE,
                               .job_id = (const char *)sqlite3_column_text(statement, 0),
                               .text = text ? text : "",
                               .length = (size_t)sqlite3_column_bytes(statement, 1)};
        status = change.job_id ? record(user, &change, error) : harpe_fail_memory(error);
    }
    if (status == HARPE_OK && result != SQLITE_DONE) status = harpe_sqlite_fail(store, error);
    sqlite3_finalize(statement);
    harpe_unlock(&store->lock);
    return status;
}

/* Copies the blob in the first column and adds a NUL. */
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

static harpe_status find_result(const harpe_sqlite *store, const char *job_id, int64_t round,
                                int rank, char **text, size_t *length, harpe_error *error) {
    sqlite3_stmt *statement = NULL;
    harpe_status status = harpe_sqlite_prepare(store, HARPE_SCHEMA_RESULT, &statement, error);
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
        status = harpe_sqlite_fail(store, error);
    }
    sqlite3_finalize(statement);
    return status;
}

harpe_status harpe_sqlite_read_result(void *state, const char *job_id, int64_t round, int rank,
                                      char **text, size_t *length, harpe_error *error) {
    harpe_sqlite *store = state;
    harpe_lock(&store->lock);
    harpe_status status = find_result(store, job_id, round, rank, text, length, error);
    harpe_unlock(&store->lock);
    return status;
}
