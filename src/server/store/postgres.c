/* SPDX-License-Identifier: Apache-2.0 */
/* The state in PostgreSQL, in the schema "harpe". One connection writes. It sends a batch as a
 * pipeline of prepared statements, which takes one round trip for any number of changes. Another
 * connection reads, and a third one counts and reads heartbeats.
 *
 * If several servers share the store, the owner is the server whose writing connection holds an
 * advisory lock. Only the end of the connection's session releases the lock. A session that can
 * write is therefore the session of the owner, and batches need no check. A lost connection is
 * opened again after a pause. The ownership does not come back with it: that needs another call of
 * harpe_store_own.
 *
 * An error is one line. No function here shows a connection string, because it may contain a
 * password. */
#include "server/store/backend.h"

#include <endian.h>
#include <errno.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "server/store/store_tools.h"

/* ---- Results --------------------------------------------------------------------------------- */

/* 64-bit integers in binary form. */
typedef struct pg_int8 {
    char bytes[8];
} pg_int8;

/* Writes the connection's last error. */
static harpe_status pg_fail(const PGconn *connection, harpe_error *error) {
    const char *message = PQerrorMessage(connection);
    const char *database = PQdb(connection);
    return harpe_fail(error, HARPE_IO_ERROR, "PostgreSQL database %s: %.*s",
                      database ? database : "?", (int)strcspn(message, "\n"),
                      *message != '\0' ? message : "the connection was lost");
}

/* Returns HARPE_OK if `result` reports that a statement has succeeded. `result` is NULL if no
 * result came. */
static harpe_status pg_check(const PGconn *connection, const PGresult *result, harpe_error *error) {
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE: return HARPE_OK;
    default: return pg_fail(connection, error);
    }
}

static pg_int8 pg_from_int(int64_t value) {
    uint64_t wire = htobe64((uint64_t)value);
    pg_int8 number;
    memcpy(number.bytes, &wire, sizeof wire);
    return number;
}

static int64_t pg_to_int(const PGresult *result, int row, int column) {
    uint64_t wire = 0;
    if (PQgetlength(result, row, column) == sizeof wire)
        memcpy(&wire, PQgetvalue(result, row, column), sizeof wire);
    return (int64_t)be64toh(wire);
}

static bool pg_to_bool(const PGresult *result, int row, int column) {
    return PQgetlength(result, row, column) == 1 && *PQgetvalue(result, row, column) == 1;
}

/* ---- Waiting for answers --------------------------------------------------------------------- */

/* Sends statements and waits for their answers. A connected database may never answer: its
 * processes may be stopped, or a proxy may keep the connection open after the database has ended.
 * Therefore every wait has a limit. The limit is for the time in which no byte is sent or received,
 * so a large answer can take longer in total. */

/* The time for which a connection may be silent while an answer is missing. After that the
 * connection is not used any more: the call and every later call fail, and it is unknown whether
 * the last transaction is committed. PostgreSQL ends the statements that load jobs after 30 s, so
 * for these its own error comes first. */
enum { PG_SILENCE_S = 40 };

/* Waits for the socket. Returns the events that occurred, or 0 if none occurred within the
 * limit. */
static int wait_for_bytes(const PGconn *connection, bool has_unsent) {
    if (PQsocket(connection) < 0) return POLLERR; /* poll ignores a negative descriptor */
    int64_t end_ns = harpe_clock_ns() + PG_SILENCE_S * INT64_C(1000000000);
    struct pollfd waited = {.fd = PQsocket(connection),
                            .events = (short)(has_unsent ? POLLIN | POLLOUT : POLLIN)};
    for (;;) {
        int64_t left_ns = end_ns - harpe_clock_ns();
        int count = harpe_poll(&waited, 1, left_ns > 0 ? left_ns : 0);
        if (count > 0) return waited.revents;
        if (count < 0 && errno != EINTR) return POLLERR;
        if (left_ns <= 0) return 0;
    }
}

/* Shuts the socket down, so that every later use of the connection fails at once. */
static harpe_status give_up(PGconn *connection, harpe_error *error) {
    const char *database = PQdb(connection);
    (void)shutdown(PQsocket(connection), SHUT_RDWR);
    return harpe_fail(error, HARPE_IO_ERROR,
                      "PostgreSQL database %s: no answer for %d s; the connection is closed",
                      database ? database : "?", PG_SILENCE_S);
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Works like PQgetResult, but waits only as long as the limit allows. *result is NULL if there are
 * no more answers. */
static harpe_status pg_next(PGconn *connection, PGresult **result, harpe_error *error) {
    *result = NULL;
    for (;;) {
        int unsent = PQflush(connection);
        if (unsent < 0 || PQisBusy(connection) == 0) break;
        int events = wait_for_bytes(connection, unsent > 0);
        if (events == 0) return give_up(connection, error);
        if ((events & ~POLLOUT) != 0 && PQconsumeInput(connection) != 1) break;
    }
    *result = PQgetResult(connection); /* returns an answer, or the connection's error */
    return HARPE_OK;
}

/* Reads all answers to the statements and returns the last answer. After an error there are no more
 * answers. */
static harpe_status take_last(PGconn *connection, PGresult **last, harpe_error *error) {
    PGresult *next = NULL;
    *last = NULL;
    for (;;) {
        harpe_status status = pg_next(connection, &next, error);
        if (status != HARPE_OK) {
            PQclear(*last);
            *last = NULL;
            return status;
        }
        if (!next) return pg_check(connection, *last, error);
        PQclear(*last);
        *last = next;
    }
}

/* ---- Statements ------------------------------------------------------------------------------ */

/* The types of parameters. PostgreSQL's catalogue has these numbers in all versions. */
enum { PG_BYTEA = 17, PG_INT8 = 20, PG_TEXT = 25 };

/* The parameters of all statements that read and write: the members of a change. */
typedef struct pg_values {
    pg_int8 round, rank, number;
    const char *values[HARPE_SCHEMA_PARAMETER_COUNT];
    int lengths[HARPE_SCHEMA_PARAMETER_COUNT];
} pg_values;

static const Oid PARAMETER_TYPES[HARPE_SCHEMA_PARAMETER_COUNT] = {PG_TEXT, PG_INT8, PG_INT8,
                                                                  PG_INT8, PG_BYTEA};
static const int PARAMETER_FORMATS[HARPE_SCHEMA_PARAMETER_COUNT] = {0, 1, 1, 1, 1};

/* The values point into `out` and to memory of the change. */
static void set_values(pg_values *out, const harpe_change *change) {
    *out = (pg_values){.round = pg_from_int(change->round),
                       .rank = pg_from_int(change->rank),
                       .number = pg_from_int(change->number),
                       .values = {change->job_id, out->round.bytes, out->rank.bytes,
                                  out->number.bytes, change->text ? change->text : ""},
                       .lengths = {0, 8, 8, 8, (int)change->length}};
}

static bool send_query(PGconn *connection, const char *sql, const pg_values *given) {
    return PQsendQueryParams(connection, sql, HARPE_SCHEMA_PARAMETER_COUNT, PARAMETER_TYPES,
                             given->values, given->lengths, PARAMETER_FORMATS, 1) == 1;
}

/* Waits for the answers to what was sent. Their rows are not needed. */
static harpe_status finish(PGconn *connection, bool is_sent, harpe_error *error) {
    PGresult *result = NULL;
    if (!is_sent) return pg_fail(connection, error);
    harpe_status status = take_last(connection, &result, error);
    PQclear(result);
    return status;
}

/* Runs one or more statements without parameters whose rows are not needed. */
static harpe_status pg_execute(PGconn *connection, const char *sql, harpe_error *error) {
    return finish(connection, PQsendQuery(connection, sql) == 1, error);
}

/* Runs one statement and returns its rows in binary form. Its parameters are the members of
 * `change`; NULL: it has none. The caller must clear *rows in any case. */
static harpe_status pg_query(PGconn *connection, const char *sql, const harpe_change *change,
                             PGresult **rows, harpe_error *error) {
    pg_values given;
    set_values(&given, change ? change : &(harpe_change){0});
    *rows = NULL;
    if (!send_query(connection, sql, &given)) return pg_fail(connection, error);
    return take_last(connection, rows, error);
}

static harpe_status pg_prepare(PGconn *connection, const char *name, const char *sql, int count,
                               const Oid *types, harpe_error *error) {
    return finish(connection, PQsendPrepare(connection, name, sql, count, types) == 1, error);
}

/* Reads the remaining answers of a pipeline and leaves pipeline mode. Returns the first error. */
static harpe_status pg_end_pipeline(PGconn *connection, harpe_error *error) {
    harpe_status status = HARPE_OK;
    bool is_at_end = false;
    /* A NULL ends the answers to one statement. Two NULLs in a row mean that no answer follows. */
    for (int ends = 0; ends < 2 && !is_at_end;) {
        PGresult *result = NULL;
        harpe_status silence = pg_next(connection, &result, error);
        if (silence) return silence;
        is_at_end = PQresultStatus(result) == PGRES_PIPELINE_SYNC;
        ends = result ? 0 : ends + 1;
        if (result && !is_at_end && status == HARPE_OK)
            status = pg_check(connection, result, error);
        PQclear(result);
    }
    bool has_left = PQexitPipelineMode(connection) == 1;
    if (status == HARPE_OK && (!is_at_end || !has_left)) return pg_fail(connection, error);
    return status;
}

/* ---- Connections ----------------------------------------------------------------------------- */

/* Harpe's advisory lock has two numbers: this one ("harp" in ASCII), and 0. The session that writes
 * jobs holds it. */
#define PG_LOCKS "1751216752"

/* Refuses a connection string that libpq would split at the wrong place. Messages about such a
 * string would show a part of the password as the host or port. */
static harpe_status pg_check_address(const char *where, harpe_error *error) {
    if (harpe_store_address_is_sound(where)) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "store postgresql://...: is not a valid connection string; use "
                      "postgresql://USER:PASSWORD@HOST:PORT/DATABASE and write characters such as "
                      "@ / : ? in a password as %%40 %%2F %%3A %%3F");
}

/* Ignores notices of the database, because the library prints nothing. */
static void ignore_notice(void *user, const char *message) {
    (void)user;
    (void)message;
}

/* Opens a connection that uses Harpe's schema and commits durably. Each side notices within half a
 * minute that the other side is gone. */
static harpe_status pg_connect(const char *where, PGconn **out, harpe_error *error) {
    /* The connection string is the value of dbname. libpq expands the string there, so the values
     * in the string override the values before dbname. */
    static const char *const keywords[] = {
        "connect_timeout",  "tcp_user_timeout",          "keepalives_idle", "keepalives_interval",
        "keepalives_count", "fallback_application_name", "dbname",          NULL};
    const char *const values[] = {"10", "30000", "10", "5", "3", "harpe", where, NULL};
    PGconn *connection = PQconnectdbParams(keywords, values, 1);
    if (!connection) return harpe_fail_memory(error);
    PQsetNoticeProcessor(connection, ignore_notice, NULL);
    harpe_status status = HARPE_OK;
    if (PQstatus(connection) != CONNECTION_OK || PQsetnonblocking(connection, 1) != 0)
        status = pg_fail(connection, error);
    if (status == HARPE_OK) {
        /* These settings are the keepalives on the database's side of the connection. */
        status = pg_execute(connection,
                            "SET search_path = harpe;"
                            "SET tcp_keepalives_idle = 10;"
                            "SET tcp_keepalives_interval = 5;"
                            "SET tcp_keepalives_count = 3;"
                            "SELECT set_config('synchronous_commit', 'on', false)"
                            " WHERE current_setting('synchronous_commit') = 'off'",
                            error);
    }
    /* The database then notices soon that the client is gone, and ends the session and its locks.
     * PostgreSQL 14 and later have this setting, but not on every system. */
    if (status == HARPE_OK)
        (void)pg_execute(connection,
                         "SELECT set_config(name, '10s', false) FROM pg_settings"
                         " WHERE name = 'client_connection_check_interval'",
                         NULL);
    if (status == HARPE_OK && PQstatus(connection) != CONNECTION_OK)
        status = pg_fail(connection, error);
    if (status != HARPE_OK) {
        PQfinish(connection);
        return status;
    }
    *out = connection;
    return HARPE_OK;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Creates what is missing. Call it in the transaction that holds the lock. Results are not
 * compressed, because compressing takes longer than writing them. */
static harpe_status create_all(PGconn *connection, bool has_schema, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (!has_schema) status = pg_execute(connection, "CREATE SCHEMA harpe", error);
    if (status != HARPE_OK) return status;
    char sql[160];
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO harpe.format (version) SELECT %d WHERE NOT EXISTS"
                   " (SELECT FROM harpe.format)",
                   HARPE_SCHEMA_VERSION);
    status = pg_execute(
        connection,
        HARPE_SCHEMA_TABLES("BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
                            "BYTEA") "ALTER TABLE results ALTER COLUMN text SET STORAGE EXTERNAL;"
                                     "CREATE TABLE IF NOT EXISTS format (version BIGINT NOT "
                                     "NULL);" HARPE_SCHEMA_LEAD,
        error);
    if (status == HARPE_OK) status = pg_execute(connection, sql, error);
    return status;
}

static harpe_status check_version(PGconn *connection, harpe_error *error) {
    PGresult *rows;
    harpe_status status =
        pg_query(connection, "SELECT max(version) FROM harpe.format", NULL, &rows, error);
    int64_t version = status == HARPE_OK ? pg_to_int(rows, 0, 0) : 0;
    PQclear(rows);
    if (status != HARPE_OK || version <= HARPE_SCHEMA_VERSION) return status;
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "PostgreSQL database %s: was written by a newer Harpe (format %lld; this one "
                      "knows %d); use the newer Harpe, or another database",
                      PQdb(connection), (long long)version, HARPE_SCHEMA_VERSION);
}

/* Creates the tables, or checks those that exist. If an administrator has created the schema, Harpe
 * needs no right to create schemas. */
static harpe_status create_or_check(PGconn *connection, harpe_error *error) {
    PGresult *rows;
    harpe_status status = pg_query(connection,
                                   "SELECT to_regnamespace('harpe') IS NOT NULL,"
                                   " to_regclass('harpe.format') IS NOT NULL,"
                                   " to_regclass('harpe.job_requests') IS NOT NULL",
                                   NULL, &rows, error);
    bool has_schema = status == HARPE_OK && pg_to_bool(rows, 0, 0);
    bool has_format = status == HARPE_OK && pg_to_bool(rows, 0, 1);
    bool has_requests = status == HARPE_OK && pg_to_bool(rows, 0, 2);
    PQclear(rows);
    if (status == HARPE_OK && !has_format) return create_all(connection, has_schema, error);
    if (status == HARPE_OK) status = check_version(connection, error);
    if (status != HARPE_OK || has_requests) return status;
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "PostgreSQL database %s: was written by a Harpe that was not released, and "
                      "cannot be read; use another database, or DROP SCHEMA harpe CASCADE",
                      PQdb(connection));
}

/* Checks that the tables are Harpe's and have a known version. If they are missing, creates them.
 * Several servers can do this at the same time. */
static harpe_status pg_create_tables(PGconn *connection, harpe_error *error) {
    /* The lock's number is "harpe" in ASCII. The lock ends with the transaction. */
    harpe_status status =
        pg_execute(connection, "BEGIN; SELECT pg_advisory_xact_lock(448311488613)", error);
    if (status == HARPE_OK) status = create_or_check(connection, error);
    if (status == HARPE_OK) return pg_execute(connection, "COMMIT", error);
    (void)pg_execute(connection, "ROLLBACK", NULL);
    return status;
}

/* ---- Reading records ------------------------------------------------------------------------- */

/* Reads records back from PostgreSQL. The statements of a call are sent as one pipeline. Each row
 * is passed on when it arrives, so that the memory does not grow with the size of the store. */

/* Calls `record` for every row of one statement when the row arrives. If `record` fails, still
 * reads the remaining rows. */
static harpe_status read_rows(PGconn *connection, size_t which, const harpe_change *key,
                              harpe_record_reader *record, void *user, harpe_error *error) {
    harpe_status status = HARPE_OK;
    (void)PQsetSingleRowMode(connection);
    for (;;) {
        PGresult *result;
        harpe_status silence = pg_next(connection, &result, error);
        if (silence) return silence;
        if (!result) return status;
        if (status == HARPE_OK) status = pg_check(connection, result, error);
        for (int i = 0; i < PQntuples(result) && status == HARPE_OK; i++) {
            harpe_change change = {
                .kind = harpe_schema_reads[which].kind,
                .job_id = PQgetisnull(result, i, 4) ? key->job_id : PQgetvalue(result, i, 4),
                .round = pg_to_int(result, i, 0),
                .rank = (int)pg_to_int(result, i, 1),
                .number = pg_to_int(result, i, 2),
                .text = PQgetvalue(result, i, 3),
                .length = (size_t)PQgetlength(result, i, 3),
            };
            status = record(user, &change, error);
        }
        PQclear(result);
    }
}

enum { LONGEST_TEXT = 1000000000 }; /* a bytea, with its header, is below 1 GiB */

/* Pauses between attempts to connect again. */
static const int64_t first_pause_ns = 100000000;
static const int64_t longest_pause_ns = 5000000000;

typedef struct postgres_store {
    char *where;
    PGconn *writer;    /* used by the store's thread; NULL: lost */
    bool is_exclusive; /* writes only while it owns the store */
    atomic_bool is_owned;
    int64_t pause_ns, not_before_ns;
    harpe_error lost;     /* the reason why the connection was lost; used until not_before_ns */
    PGconn *reader;       /* NULL: not needed yet, or lost */
    bool has_snapshot;    /* the reader is in a transaction */
    pthread_mutex_t lock; /* protects the reader */
    PGconn *watcher;      /* of harpe_store_watch; NULL: not needed yet, or lost */
} postgres_store;

/* ---- Writing --------------------------------------------------------------------------------- */

/* The name of a prepared statement in the database: "w0", "w1" ... */
typedef struct statement_name {
    char text[8];
} statement_name;

static statement_name name_of(size_t index) {
    statement_name name;
    (void)snprintf(name.text, sizeof name.text, "w%u", (unsigned)(index % 1000));
    return name;
}

static harpe_status prepare_writes(PGconn *connection, harpe_error *error) {
    for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT; i++) {
        harpe_status status = pg_prepare(connection, name_of(i).text, harpe_schema_writes[i].sql,
                                         HARPE_SCHEMA_PARAMETER_COUNT, PARAMETER_TYPES, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

/* Puts the statements of one change into the pipeline. */
static bool send_change(PGconn *connection, const harpe_change *change) {
    pg_values given;
    set_values(&given, change);
    for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT; i++) {
        if (harpe_schema_writes[i].kind != change->kind) continue;
        if (!PQsendQueryPrepared(connection, name_of(i).text, HARPE_SCHEMA_PARAMETER_COUNT,
                                 given.values, given.lengths, PARAMETER_FORMATS, 0))
            return false;
    }
    return true;
}

static bool send_plain(PGconn *connection, const char *sql) {
    return PQsendQueryParams(connection, sql, 0, NULL, NULL, NULL, NULL, 0) == 1;
}

static harpe_status write_pipeline(PGconn *connection, const harpe_change *changes,
                                   harpe_error *error) {
    bool is_sent = PQenterPipelineMode(connection) == 1 && send_plain(connection, "BEGIN");
    for (const harpe_change *change = changes; change && is_sent; change = change->next)
        is_sent = send_change(connection, change);
    if (is_sent) is_sent = send_plain(connection, "COMMIT") && PQpipelineSync(connection) == 1;
    if (!is_sent) return pg_fail(connection, error);
    return pg_end_pipeline(connection, error);
}

/* Fails if a record is too large, before anything is sent. */
static harpe_status check_sizes(const harpe_change *changes, harpe_error *error) {
    for (const harpe_change *change = changes; change; change = change->next) {
        if (change->length <= LONGEST_TEXT) continue;
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "job %s: a record of %zu bytes; PostgreSQL takes at most %d",
                          change->job_id, change->length, LONGEST_TEXT);
    }
    return HARPE_OK;
}

/* ---- The connection that writes -------------------------------------------------------------- */

static void drop_writer(postgres_store *store, const harpe_error *why) {
    store->is_owned = false;
    PQfinish(store->writer);
    store->writer = NULL;
    store->lost = *why;
    store->pause_ns = store->pause_ns == 0 ? first_pause_ns : 2 * store->pause_ns;
    if (store->pause_ns > longest_pause_ns) store->pause_ns = longest_pause_ns;
    store->not_before_ns = harpe_clock_ns() + store->pause_ns;
}

/* Opens the writing connection if it is lost. During the pause between two attempts, batches fail
 * at once with the reason of the last failure. So no client waits for a database that does not
 * run. */
static harpe_status need_writer(postgres_store *store, harpe_error *error) {
    if (store->writer) return HARPE_OK;
    if (harpe_clock_ns() < store->not_before_ns)
        return harpe_fail(error, store->lost.status, "%s", store->lost.message);
    harpe_error why = {0};
    harpe_status status = pg_connect(store->where, &store->writer, &why);
    if (status == HARPE_OK) status = prepare_writes(store->writer, &why);
    if (status == HARPE_OK) return HARPE_OK;
    drop_writer(store, &why);
    return harpe_fail(error, status, "%s", why.message);
}

static harpe_status write_batch(void *state, const harpe_change *changes, harpe_error *error) {
    postgres_store *store = state;
    harpe_status status = check_sizes(changes, error);
    if (status == HARPE_OK && store->is_exclusive && !store->is_owned) {
        return harpe_fail(error, HARPE_IO_ERROR,
                          "the connection to PostgreSQL was lost, and the jobs with it: they are "
                          "loaded again by the first server that connects");
    }
    if (status == HARPE_OK) status = need_writer(store, error);
    if (status != HARPE_OK) return status;
    harpe_error why = {0};
    status = write_pipeline(store->writer, changes, &why);
    if (status == HARPE_OK) {
        store->pause_ns = 0;
        return HARPE_OK;
    }
    /* If the connection works, the rollback undoes the failed transaction. Otherwise it is not
     * known whether the transaction was committed, and the connection is closed. */
    bool is_undone = pg_execute(store->writer, "ROLLBACK", NULL) == HARPE_OK;
    if (!is_undone) drop_writer(store, &why);
    return harpe_fail(error, status, "%s", why.message);
}

/* ---- Owning ---------------------------------------------------------------------------------- */

static harpe_status try_lock(PGconn *connection, bool *is_held, harpe_error *error) {
    PGresult *rows;
    harpe_status status =
        pg_query(connection, "SELECT pg_try_advisory_lock(" PG_LOCKS ", 0)", NULL, &rows, error);
    if (status == HARPE_OK) *is_held = pg_to_bool(rows, 0, 0);
    PQclear(rows);
    return status;
}

/* The session that owns the store. */
#define OWNER_LOCK \
    " FROM pg_locks WHERE locktype = 'advisory' AND granted AND database =" \
    " (SELECT oid FROM pg_database WHERE datname = current_database())" \
    " AND classid = " PG_LOCKS " AND objid = 0 AND objsubid = 2"
#define LAST_OWNER "SELECT server, beat, address FROM lead"

/* Reads the server that a statement finds, if it finds one. */
static harpe_status read_leader(PGconn *connection, const char *sql, harpe_store_leader *out,
                                harpe_error *error) {
    PGresult *rows;
    *out = (harpe_store_leader){0};
    harpe_status status = pg_query(connection, sql, NULL, &rows, error);
    if (status == HARPE_OK && PQntuples(rows) == 1) {
        out->id = pg_to_int(rows, 0, 0);
        out->beat = pg_to_int(rows, 0, 1);
        (void)snprintf(out->address, sizeof out->address, "%s", PQgetvalue(rows, 0, 2));
    }
    PQclear(rows);
    return status;
}

/* Writes the new owner into the table `lead`. From then on, the last owner finds there that it does
 * not lead any more. */
static harpe_status proclaim(PGconn *connection, const harpe_store_server *server,
                             harpe_error *error) {
    const harpe_change change = {.job_id = server->address, .number = server->id};
    PGresult *rows;
    harpe_status status = pg_query(
        connection,
        "INSERT INTO lead (is_one, server, beat, address) VALUES (true, $4, 0, $1)"
        " ON CONFLICT (is_one) DO UPDATE SET server = excluded.server, beat = lead.beat + 1,"
        " address = excluded.address, since = now()",
        &change, &rows, error);
    PQclear(rows);
    return status;
}

static harpe_status own(void *state, const harpe_store_server *server, harpe_ownership *out,
                        harpe_error *error) {
    postgres_store *store = state;
    bool is_held = store->is_owned;
    harpe_store_leader former = {0};
    store->is_exclusive = true;
    harpe_error why = {0};
    harpe_status status = need_writer(store, error);
    if (status != HARPE_OK) return status;
    if (!is_held) status = try_lock(store->writer, &is_held, &why);
    if (status == HARPE_OK && is_held) {
        status = read_leader(store->writer, LAST_OWNER, &former, &why);
        if (status == HARPE_OK) status = proclaim(store->writer, server, &why);
    }
    if (status != HARPE_OK) {
        drop_writer(store, &why);
        return harpe_fail(error, status, "%s", why.message);
    }
    store->pause_ns = 0;
    store->is_owned = is_held;
    *out = (harpe_ownership){
        .is_ours = is_held, .may_have_rival = is_held && former.id != 0 && former.id != server->id};
    return HARPE_OK;
}

/* Opens the connection of harpe_store_watch if it is lost. Its heartbeats need not be durable. */
static harpe_status need_watcher(postgres_store *store, harpe_error *error) {
    if (store->watcher) return HARPE_OK;
    harpe_status status = pg_connect(store->where, &store->watcher, error);
    if (status == HARPE_OK)
        status = pg_execute(store->watcher, "SET synchronous_commit = off", error);
    return status;
}

/* Ends the session that owns the store, if the last heartbeat is `dead_beat`. */
static harpe_status end_owner(PGconn *connection, int64_t dead_beat, harpe_error *error) {
    char sql[512];
    (void)snprintf(sql, sizeof sql,
                   "SELECT pg_terminate_backend(pid)" OWNER_LOCK
                   " AND EXISTS (SELECT FROM lead WHERE beat = %lld)",
                   (long long)dead_beat);
    return pg_execute(connection, sql, error);
}

static harpe_status watch(void *state, int64_t owner, int64_t dead_beat, harpe_store_leader *out,
                          harpe_error *error) {
    postgres_store *store = state;
    char sql[100];
    (void)snprintf(sql, sizeof sql, "UPDATE lead SET beat = beat + 1 WHERE server = %lld",
                   (long long)owner);
    harpe_status status = need_watcher(store, error);
    if (status == HARPE_OK && owner != 0) status = pg_execute(store->watcher, sql, error);
    if (status == HARPE_OK && dead_beat >= 0) status = end_owner(store->watcher, dead_beat, error);
    if (status == HARPE_OK)
        status = read_leader(store->watcher, LAST_OWNER " WHERE EXISTS (SELECT" OWNER_LOCK ")", out,
                             error);
    if (status == HARPE_OK) return HARPE_OK;
    PQfinish(store->watcher);
    store->watcher = NULL;
    return status;
}

static void disown(void *state) {
    postgres_store *store = state;
    if (!store->is_owned) return;
    (void)pg_execute(store->writer, "UPDATE lead SET server = 0", NULL);
    store->is_owned = false;
    PQfinish(store->writer);
    store->writer = NULL;
}

static bool is_owned(const void *state) {
    const postgres_store *store = state;
    return store->is_owned;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void close_postgres(void *state) {
    postgres_store *store = state;
    disown(store);
    PQfinish(store->writer);
    PQfinish(store->reader);
    PQfinish(store->watcher);
    pthread_mutex_destroy(&store->lock);
    free(store->where);
    free(store);
}

static harpe_status open_postgres(const char *where, harpe_log log, void **state,
                                  harpe_error *error) {
    (void)log;
    postgres_store *store = calloc(1, sizeof *store);
    if (!store) return harpe_fail_memory(error);
    pthread_mutex_init(&store->lock, NULL);
    store->where = strdup(where);
    harpe_status status = store->where ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = pg_check_address(where, error);
    if (status == HARPE_OK) status = pg_connect(where, &store->writer, error);
    if (status == HARPE_OK) status = pg_create_tables(store->writer, error);
    if (status == HARPE_OK) status = prepare_writes(store->writer, error);
    if (status != HARPE_OK) {
        close_postgres(store);
        return status;
    }
    *state = store;
    return HARPE_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void drop_reader(postgres_store *store) {
    PQfinish(store->reader);
    store->reader = NULL;
}

/* Opens the reading connection when it is first needed. Call it with the lock held. A connection
 * that was idle for long may have been lost without notice. The server and its clients wait while a
 * snapshot is read, so the time of each of its statements is limited. */
static harpe_status need_reader(postgres_store *store, bool takes_snapshot, harpe_error *error) {
    const char *begin = takes_snapshot ? "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
                                         "SET LOCAL statement_timeout = '30s'"
                                       : "SELECT 1";
    store->has_snapshot = takes_snapshot;
    if (store->reader && pg_execute(store->reader, begin, NULL) == HARPE_OK) return HARPE_OK;
    drop_reader(store);
    harpe_status status = pg_connect(store->where, &store->reader, error);
    if (status == HARPE_OK && takes_snapshot) status = pg_execute(store->reader, begin, error);
    return status;
}

static harpe_status begin_read(void *state, bool takes_snapshot, harpe_error *error) {
    postgres_store *store = state;
    harpe_lock(&store->lock);
    harpe_status status = need_reader(store, takes_snapshot, error);
    if (status != HARPE_OK) harpe_unlock(&store->lock);
    return status;
}

/* Runs the statements in one round trip. */
static harpe_status read_range(void *state, size_t first, size_t end, const harpe_change *key,
                               harpe_record_reader *record, void *user, harpe_error *error) {
    PGconn *connection = ((postgres_store *)state)->reader;
    pg_values given;
    set_values(&given, key);
    bool is_sent = PQenterPipelineMode(connection) == 1;
    for (size_t i = first; i < end && is_sent; i++)
        is_sent = send_query(connection, harpe_schema_reads[i].sql, &given);
    if (!is_sent || PQpipelineSync(connection) != 1) return pg_fail(connection, error);
    harpe_status status = HARPE_OK;
    for (size_t i = first; i < end && status == HARPE_OK; i++)
        status = read_rows(connection, i, key, record, user, error);
    if (status != HARPE_OK) return status;
    return pg_end_pipeline(connection, error);
}

/* After a failure the connection may be in the middle of an answer. */
static harpe_status end_read(void *state, harpe_status status, harpe_error *error) {
    postgres_store *store = state;
    if (status == HARPE_OK && store->has_snapshot)
        status = pg_execute(store->reader, "COMMIT", error);
    if (status != HARPE_OK) drop_reader(store);
    harpe_unlock(&store->lock);
    return status;
}

const harpe_store_backend harpe_store_postgres = {
    .name = "postgresql",
    .accepts = harpe_store_is_postgres,
    .open = open_postgres,
    .close = close_postgres,
    .write = write_batch,
    .begin_read = begin_read,
    .read = read_range,
    .end_read = end_read,
    .own = own,
    .watch = watch,
    .disown = disown,
    .is_owned = is_owned,
};
