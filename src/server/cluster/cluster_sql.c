/* SPDX-License-Identifier: Apache-2.0 */
/* Stores servers and messages as rows of tables. A server's session holds an advisory lock on the
 * server's id. When the server is killed, the lock becomes free, and the other servers notice this
 * at their next heartbeat. When the server hangs or loses its network, the other servers notice
 * that its heartbeat has stopped. They remove it and make PostgreSQL end its sessions, so it cannot
 * write any more. */
#include "server/cluster/cluster_sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "server/store/postgres_result.h"
#include "server/store/postgres_wait.h"

/* The columns of a message in the table mail. */
enum {
    TO,
    FROM,
    KIND,
    CALL,
    VALUE,
    RANK,
    ROUND,
    INT_COUNT,
    JOB_ID = INT_COUNT,
    BODY,
    COLUMN_COUNT,
    AGE_NS = COLUMN_COUNT /* computed by the database's clock when the message is taken */
};

/* Runs a statement with 64-bit parameters. The caller clears the result. */
static harpe_status query(PGconn *connection, const char *sql, const int64_t *numbers, int count,
                          PGresult **rows, harpe_error *error) {
    static const Oid types[] = {HARPE_PG_INT8, HARPE_PG_INT8};
    static const int lengths[] = {8, 8};
    static const int formats[] = {1, 1};
    harpe_pg_int8 wire[2];
    const char *values[2];
    for (int i = 0; i < count; i++) {
        wire[i] = harpe_pg_from_int(numbers[i]);
        values[i] = wire[i].bytes;
    }
    const harpe_pg_parameters parameters = {count, types, values, lengths, formats};
    return harpe_pg_query(connection, sql, &parameters, rows, error);
}

/* ---- Sessions and heartbeats ----------------------------------------------------------------- */

static harpe_status insert_server(PGconn *connection, int64_t *me, harpe_error *error) {
    char host[256] = "?";
    char name[300];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(name, sizeof name, "%s:%ld", host, (long)harpe_process_self());
    const char *values[] = {name};
    const harpe_pg_parameters parameters = {.count = 1, .values = values};
    PGresult *rows;
    harpe_status status =
        harpe_pg_query(connection,
                       "INSERT INTO servers (name, beat) VALUES ($1, 0)"
                       " RETURNING id, pg_try_advisory_lock(" HARPE_PG_LOCKS ", CAST(id AS INT))",
                       &parameters, &rows, error);
    if (status == HARPE_OK) *me = harpe_pg_to_int(rows, 0, 0);
    PQclear(rows);
    return status;
}

harpe_status harpe_cluster_sql_register(PGconn *connection, int64_t *me, harpe_error *error) {
    int64_t id = 0;
    char sql[192];
    harpe_status status = insert_server(connection, &id, error);
    if (status != HARPE_OK) return status;
    /* Ids are stored durably, so that no id is given twice. Heartbeats and messages need not be
     * durable. The table of messages is nearly empty, but its file may be long, so sequential scans
     * are off. jit is off because compiling these statements takes longer than it saves. */
    (void)snprintf(sql, sizeof sql,
                   "LISTEN harpe_%lld; LISTEN harpe_leader; SET synchronous_commit = off;"
                   "SET enable_seqscan = off; SET jit = off",
                   (long long)id);
    status = harpe_pg_execute(connection, sql, error);
    if (status == HARPE_OK) {
        status = harpe_pg_prepare(connection, "send",
                                  "INSERT INTO mail (recipient, sender, kind, call, value, rank,"
                                  " round, job_id, body)"
                                  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                                  0, NULL, error);
    }
    if (status == HARPE_OK) *me = id;
    return status;
}

harpe_status harpe_cluster_sql_deregister(PGconn *connection, int64_t me, harpe_error *error) {
    PGresult *rows = NULL;
    harpe_status status =
        query(connection, "DELETE FROM servers WHERE id = $1", &me, 1, &rows, error);
    PQclear(rows);
    return status;
}

harpe_status harpe_cluster_sql_heartbeat(PGconn *connection, int64_t me, harpe_heartbeat *out,
                                         harpe_error *error) {
    PGresult *rows = NULL;
    harpe_status status =
        query(connection,
              "WITH beaten AS (UPDATE servers SET beat = beat + 1 WHERE id = $1 RETURNING id)"
              " SELECT (SELECT count(*) FROM beaten),"
              " coalesce((SELECT server FROM leader WHERE server IN (SELECT id FROM servers)), 0),"
              " id, beat, CASE WHEN id <> $1 AND"
              " pg_try_advisory_xact_lock(" HARPE_PG_LOCKS ", CAST(id AS INT))"
              " THEN CAST(1 AS BIGINT) ELSE 0 END FROM servers",
              &me, 1, &rows, error);
    int count = status == HARPE_OK ? PQntuples(rows) : 0;
    harpe_heartbeat heartbeat = {.rows = harpe_calloc((size_t)count, sizeof *heartbeat.rows),
                                 .count = (size_t)count};
    if (status == HARPE_OK && !heartbeat.rows) status = harpe_fail_memory(error);
    for (int i = 0; i < count && status == HARPE_OK; i++) {
        heartbeat.is_alive = harpe_pg_to_int(rows, i, 0) == 1;
        heartbeat.leader = harpe_pg_to_int(rows, i, 1);
        heartbeat.rows[i] =
            (harpe_heartbeat_row){harpe_pg_to_int(rows, i, 2), harpe_pg_to_int(rows, i, 3),
                                  harpe_pg_to_int(rows, i, 4) == 1};
    }
    PQclear(rows);
    if (status == HARPE_OK)
        *out = heartbeat;
    else
        free(heartbeat.rows);
    return status;
}

void harpe_heartbeat_free(harpe_heartbeat *heartbeat) {
    free(heartbeat->rows);
    *heartbeat = (harpe_heartbeat){0};
}

harpe_status harpe_cluster_sql_remove_dead(PGconn *connection, const harpe_heartbeat_row *row,
                                           bool *is_removed, harpe_error *error) {
    const int64_t numbers[] = {row->id, row->heartbeat};
    PGresult *rows = NULL;
    harpe_status status =
        query(connection,
              "WITH gone AS (DELETE FROM servers WHERE id = $1 AND beat = $2 RETURNING id)"
              " SELECT (SELECT count(*) FROM gone), (SELECT count(pg_terminate_backend(pid))"
              " FROM pg_locks WHERE EXISTS (SELECT FROM gone) AND locktype = 'advisory'"
              " AND granted AND pid <> pg_backend_pid() AND database ="
              " (SELECT oid FROM pg_database WHERE datname = current_database())"
              " AND classid = " HARPE_PG_LOCKS " AND objsubid = 2"
              " AND (objid = $1 OR (objid = 0 AND $1 = (SELECT server FROM leader))))",
              numbers, 2, &rows, error);
    *is_removed = status == HARPE_OK && harpe_pg_to_int(rows, 0, 0) == 1;
    PQclear(rows);
    return status;
}

harpe_status harpe_cluster_sql_clean(PGconn *connection, harpe_error *error) {
    return harpe_pg_execute(
        connection, "DELETE FROM mail WHERE recipient NOT IN (SELECT id FROM servers)", error);
}

/* ---- Messages -------------------------------------------------------------------------------- */

static bool send_message(PGconn *connection, const harpe_message *message) {
    static const int formats[COLUMN_COUNT] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t numbers[INT_COUNT] = {
        [TO] = message->peer,     [FROM] = message->from,   [KIND] = message->kind,
        [CALL] = message->call,   [VALUE] = message->value, [RANK] = message->rank,
        [ROUND] = message->round,
    };
    harpe_pg_int8 wire[INT_COUNT];
    const char *values[COLUMN_COUNT];
    int lengths[COLUMN_COUNT];
    for (int i = 0; i < INT_COUNT; i++) {
        wire[i] = harpe_pg_from_int(numbers[i]);
        values[i] = wire[i].bytes;
        lengths[i] = 8;
    }
    values[JOB_ID] = message->job_id;
    lengths[JOB_ID] = message->job_id ? (int)strlen(message->job_id) : 0;
    values[BODY] = message->body;
    lengths[BODY] = (int)message->length;
    return PQsendQueryPrepared(connection, "send", COLUMN_COUNT, values, lengths, formats, 1) == 1;
}

/* One notice announces all messages of a recipient. Messages to the same recipient usually follow
 * one another, and PostgreSQL drops repeated notices of a transaction. */
static bool send_notice(PGconn *connection, int64_t recipient) {
    char sql[48];
    (void)snprintf(sql, sizeof sql, "NOTIFY harpe_%lld", (long long)recipient);
    return PQsendQueryParams(connection, sql, 0, NULL, NULL, NULL, NULL, 0) == 1;
}

harpe_status harpe_cluster_sql_send(PGconn *connection, const harpe_message *messages,
                                    harpe_error *error) {
    bool is_sent = PQenterPipelineMode(connection) == 1 &&
                   PQsendQueryParams(connection, "BEGIN", 0, NULL, NULL, NULL, NULL, 0) == 1;
    for (const harpe_message *message = messages; message && is_sent; message = message->next) {
        is_sent = send_message(connection, message);
        bool is_last = !message->next || message->next->peer != message->peer;
        if (is_sent && is_last) is_sent = send_notice(connection, message->peer);
    }
    if (is_sent) {
        is_sent = PQsendQueryParams(connection, "COMMIT", 0, NULL, NULL, NULL, NULL, 0) == 1 &&
                  PQpipelineSync(connection) == 1;
    }
    if (!is_sent) return harpe_pg_fail(connection, error);
    return harpe_pg_end_pipeline(connection, error);
}

/* Copies a value. Returns NULL for an SQL NULL. Sets `has_failed` if memory runs out. */
static char *copy_bytes(const PGresult *rows, int row, int column, size_t *length,
                        bool *has_failed) {
    if (PQgetisnull(rows, row, column)) return NULL;
    size_t size = (size_t)PQgetlength(rows, row, column);
    char *copy = malloc(size + 1);
    if (!copy) {
        *has_failed = true;
        return NULL;
    }
    memcpy(copy, PQgetvalue(rows, row, column), size);
    copy[size] = '\0';
    *length = size;
    return copy;
}

static harpe_message *read_message(const PGresult *rows, int row, int64_t now_ns) {
    harpe_message *message = harpe_calloc(1, sizeof *message);
    if (!message) return NULL;
    size_t id_length = 0;
    bool has_failed = false;
    message->peer = harpe_pg_to_int(rows, row, FROM);
    message->kind = (harpe_message_kind)harpe_pg_to_int(rows, row, KIND);
    message->call = harpe_pg_to_int(rows, row, CALL);
    message->value = harpe_pg_to_int(rows, row, VALUE);
    message->rank = harpe_pg_to_int(rows, row, RANK);
    message->round = harpe_pg_to_int(rows, row, ROUND);
    message->sent_ns = now_ns - harpe_pg_to_int(rows, row, AGE_NS);
    message->job_id = copy_bytes(rows, row, JOB_ID, &id_length, &has_failed);
    message->body = copy_bytes(rows, row, BODY, &message->length, &has_failed);
    if (!has_failed) return message;
    harpe_message_free(message);
    return NULL;
}

harpe_status harpe_cluster_sql_take(PGconn *connection, int64_t me, harpe_message ***end,
                                    harpe_error *error) {
    PGresult *rows = NULL;
    harpe_status status =
        query(connection,
              "WITH taken AS (DELETE FROM mail WHERE recipient = $1 RETURNING *)"
              " SELECT recipient, sender, kind, call, value, rank, round, job_id, body,"
              " CAST(1e9 * greatest(0, extract(epoch FROM clock_timestamp() - sent_at)) AS BIGINT)"
              " FROM taken ORDER BY number",
              &me, 1, &rows, error);
    int count = status == HARPE_OK ? PQntuples(rows) : 0;
    int64_t now_ns = harpe_clock_boot_ns();
    for (int i = 0; i < count && status == HARPE_OK; i++) {
        harpe_message *message = read_message(rows, i, now_ns);
        if (!message) {
            status = harpe_fail_memory(error);
            break;
        }
        **end = message;
        *end = &message->next;
    }
    PQclear(rows);
    return status;
}
