/* SPDX-License-Identifier: Apache-2.0 */
/* Reads records back from PostgreSQL. A job's statements are sent as one pipeline. Each row is
 * passed on when it arrives, so that the memory does not grow with the size of the store. */
#include "server/store/postgres_read.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/store/postgres_connection.h"
#include "server/store/postgres_result.h"
#include "server/store/postgres_wait.h"
#include "server/store/schema.h"

typedef struct record_reader {
    PGconn *connection;
    harpe_status (*record)(void *user, const harpe_change *change, harpe_error *error);
    void *user;
} record_reader;

/* Calls `record` for every row of one statement when the row arrives. If `record` fails, still
 * reads the remaining rows. */
static harpe_status read_records(const record_reader *reader, harpe_change_kind kind,
                                 const char *job_id, harpe_error *error) {
    harpe_status status = HARPE_OK;
    (void)PQsetSingleRowMode(reader->connection);
    for (;;) {
        PGresult *result;
        harpe_status silence = harpe_pg_next(reader->connection, &result, error);
        if (silence) return silence;
        if (!result) return status;
        if (status == HARPE_OK) status = harpe_pg_check(reader->connection, result, error);
        for (int i = 0; i < PQntuples(result) && status == HARPE_OK; i++) {
            harpe_change change = {
                .kind = kind,
                .job_id = job_id,
                .round = harpe_pg_to_int(result, i, 0),
                .rank = (int)harpe_pg_to_int(result, i, 1),
                .number = harpe_pg_to_int(result, i, 2),
                .text = PQgetvalue(result, i, 3),
                .length = (size_t)PQgetlength(result, i, 3),
            };
            status = reader->record(reader->user, &change, error);
        }
        PQclear(result);
    }
}

/* Runs the statements `first` up to `end` (not included) in one round trip. */
static harpe_status read_range(const record_reader *reader, size_t first, size_t end,
                               int64_t number, const char *id, harpe_error *error) {
    static const Oid types[] = {HARPE_PG_INT8};
    static const int lengths[] = {8};
    static const int formats[] = {1};
    harpe_pg_int8 key = harpe_pg_from_int(number);
    const char *values[] = {key.bytes};
    PGconn *connection = reader->connection;
    bool is_sent = PQenterPipelineMode(connection) == 1;
    for (size_t i = first; i < end && is_sent; i++) {
        is_sent = PQsendQueryParams(connection, harpe_schema_reads[i].sql, 1, types, values,
                                    lengths, formats, 1) == 1;
    }
    if (!is_sent || PQpipelineSync(connection) != 1) return harpe_pg_fail(connection, error);
    harpe_status status = HARPE_OK;
    for (size_t i = first; i < end && status == HARPE_OK; i++)
        status = read_records(reader, harpe_schema_reads[i].kind, id, error);
    if (status != HARPE_OK) return status;
    return harpe_pg_end_pipeline(connection, error);
}

static harpe_status read_job(const record_reader *reader, int64_t number, const char *id,
                             harpe_error *error) {
    return read_range(reader, 0, HARPE_SCHEMA_JOB_READ_COUNT, number, id, error);
}

static harpe_status read_finished(const record_reader *reader, int64_t number, const char *id,
                                  harpe_error *error) {
    return read_range(reader, HARPE_SCHEMA_JOB_READ_COUNT, HARPE_SCHEMA_READ_COUNT, number, id,
                      error);
}

static harpe_status read_deleted(const record_reader *reader, int64_t number, const char *id,
                                 harpe_error *error) {
    harpe_change change = {
        .kind = HARPE_CHANGE_DELETED, .job_id = id, .number = number, .text = ""};
    return reader->record(reader->user, &change, error);
}

static harpe_status read_uptime(const record_reader *reader, int64_t seconds, const char *id,
                                harpe_error *error) {
    harpe_change change = {
        .kind = HARPE_CHANGE_UPTIME, .job_id = id, .number = seconds, .text = ""};
    return reader->record(reader->user, &change, error);
}

/* Runs `sql`, whose rows have a number and an id. Calls `each` for every row. */
static harpe_status for_each_id(const record_reader *reader, const char *sql, const char *job_id,
                                harpe_status (*each)(const record_reader *reader, int64_t number,
                                                     const char *id, harpe_error *error),
                                harpe_error *error) {
    const char *values[] = {job_id};
    const harpe_pg_parameters parameters = {.count = job_id ? 1 : 0, .values = values};
    PGresult *rows;
    harpe_status status = harpe_pg_query(reader->connection, sql, &parameters, &rows, error);
    int count = PQntuples(rows);
    for (int i = 0; i < count && status == HARPE_OK; i++)
        status = each(reader, harpe_pg_to_int(rows, i, 0), PQgetvalue(rows, i, 1), error);
    PQclear(rows);
    return status;
}

/* Loads all records from one snapshot, so changes that other servers make meanwhile are not
 * visible. The server and its clients wait for this function, so the time of each statement is
 * limited. */
harpe_status harpe_pg_load(PGconn *connection, const char *job_id,
                           harpe_status (*record)(void *user, const harpe_change *change,
                                                  harpe_error *error),
                           void *user, harpe_error *error) {
    record_reader reader = {connection, record, user};
    harpe_status status = harpe_pg_execute(connection,
                                           "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
                                           "SET LOCAL statement_timeout = '30s'",
                                           error);
    if (status == HARPE_OK && !job_id)
        status = for_each_id(&reader, HARPE_SCHEMA_UPTIME, NULL, read_uptime, error);
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
    if (status != HARPE_OK) return status;
    return harpe_pg_execute(connection, "COMMIT", error);
}

harpe_status harpe_pg_load_notes(PGconn *connection,
                                 harpe_status (*record)(void *user, const harpe_change *change,
                                                        harpe_error *error),
                                 void *user, harpe_error *error) {
    static const harpe_pg_parameters none = {.count = 0};
    PGresult *rows;
    harpe_status status = harpe_pg_query(connection, HARPE_SCHEMA_NOTES, &none, &rows, error);
    int count = PQntuples(rows);
    for (int i = 0; i < count && status == HARPE_OK; i++) {
        harpe_change change = {.kind = HARPE_CHANGE_NOTE,
                               .job_id = PQgetvalue(rows, i, 0),
                               .text = PQgetvalue(rows, i, 1),
                               .length = (size_t)PQgetlength(rows, i, 1)};
        status = record(user, &change, error);
    }
    PQclear(rows);
    return status;
}

harpe_status harpe_pg_read_result(PGconn *connection, const char *job_id, int64_t round, int rank,
                                  char **text, size_t *length, harpe_error *error) {
    static const Oid types[] = {HARPE_PG_TEXT, HARPE_PG_INT8, HARPE_PG_INT8};
    static const int lengths[] = {0, 8, 8};
    static const int formats[] = {0, 1, 1};
    harpe_pg_int8 round_value = harpe_pg_from_int(round);
    harpe_pg_int8 rank_value = harpe_pg_from_int(rank);
    const char *values[] = {job_id, round_value.bytes, rank_value.bytes};
    const harpe_pg_parameters parameters = {3, types, values, lengths, formats};
    PGresult *rows;
    harpe_status status =
        harpe_pg_query(connection, HARPE_SCHEMA_RESULT, &parameters, &rows, error);
    if (status == HARPE_OK && PQntuples(rows) == 0) {
        status =
            harpe_fail(error, HARPE_NOT_FOUND, "job %s has no result of rank %d for round %lld",
                       job_id, rank, (long long)round);
    }
    if (status == HARPE_OK) {
        size_t size = (size_t)PQgetlength(rows, 0, 0);
        char *copy = malloc(size + 1);
        if (copy) {
            memcpy(copy, PQgetvalue(rows, 0, 0), size);
            copy[size] = '\0';
            *text = copy;
            *length = size;
        } else {
            status = harpe_fail_memory(error);
        }
    }
    PQclear(rows);
    return status;
}
