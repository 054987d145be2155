/* SPDX-License-Identifier: Apache-2.0 */
/* Servers and letters as rows. A server holds an advisory lock on its id for as long as its session
 * lives, so that a killed one is found at the next beat; one that hangs, or whose network broke, is
 * found by its beat that stands still, and its sessions are ended by PostgreSQL: with them goes all
 * that it could still write. */
#include "server/store/mail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"

/* A letter in the table mail. */
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
    AGE_NS = COLUMN_COUNT /* computed when it is taken, by the database's clock */
};

void harpe_letter_free(harpe_letter *letter) {
    if (!letter) return;
    free(letter->job_id);
    free(letter->body);
    free(letter);
}

/* A statement with 64-bit parameters; the caller clears what it gives. */
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
    *rows = PQexecParams(connection, sql, count, types, values, lengths, formats, 1);
    return harpe_pg_check(connection, *rows, error);
}

/* ---- Life and death ------------------------------------------------------------------------- */

static harpe_status insert_server(PGconn *connection, int64_t *me, harpe_error *error) {
    char host[256] = "?";
    char name[300];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(name, sizeof name, "%s:%ld", host, (long)getpid());
    const char *values[] = {name};
    PGresult *rows =
        PQexecParams(connection,
                     "INSERT INTO servers (name, beat) VALUES ($1, 0)"
                     " RETURNING id, pg_try_advisory_lock(" HARPE_PG_LOCKS ", CAST(id AS INT))",
                     1, NULL, values, NULL, NULL, 1);
    harpe_status status = harpe_pg_check(connection, rows, error);
    if (status == HARPE_OK) *me = harpe_pg_to_int(rows, 0, 0);
    PQclear(rows);
    return status;
}

harpe_status harpe_mail_register(PGconn *connection, int64_t *me, harpe_error *error) {
    int64_t id = 0;
    char sql[192];
    harpe_status status = insert_server(connection, &id, error);
    if (status != HARPE_OK) return status;
    /* Ids are durable, lest one is given twice; beats and letters need not be. The table of letters
     * is nearly empty but may be long, whatever the planner thinks; and nothing here is worth
     * compiling. */
    (void)snprintf(sql, sizeof sql,
                   "LISTEN harpe_%lld; LISTEN harpe_leader; SET synchronous_commit = off;"
                   "SET enable_seqscan = off; SET jit = off",
                   (long long)id);
    status = harpe_pg_execute(connection, sql, error);
    if (status == HARPE_OK) {
        PGresult *made = PQprepare(connection, "send",
                                   "INSERT INTO mail (recipient, sender, kind, call, value, rank,"
                                   " round, job_id, body)"
                                   " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                                   0, NULL);
        status = harpe_pg_check(connection, made, error);
        PQclear(made);
    }
    if (status == HARPE_OK) *me = id;
    return status;
}

harpe_status harpe_mail_deregister(PGconn *connection, int64_t me, harpe_error *error) {
    PGresult *rows = NULL;
    harpe_status status =
        query(connection, "DELETE FROM servers WHERE id = $1", &me, 1, &rows, error);
    PQclear(rows);
    return status;
}

harpe_status harpe_mail_beat(PGconn *connection, int64_t me, harpe_beat *out, harpe_error *error) {
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
    harpe_beat beat = {.rows = harpe_calloc((size_t)count, sizeof *beat.rows),
                       .count = (size_t)count};
    if (status == HARPE_OK && !beat.rows) status = harpe_fail_memory(error);
    for (int i = 0; i < count && status == HARPE_OK; i++) {
        beat.is_alive = harpe_pg_to_int(rows, i, 0) == 1;
        beat.leader = harpe_pg_to_int(rows, i, 1);
        beat.rows[i] = (harpe_beat_row){harpe_pg_to_int(rows, i, 2), harpe_pg_to_int(rows, i, 3),
                                        harpe_pg_to_int(rows, i, 4) == 1};
    }
    PQclear(rows);
    if (status == HARPE_OK)
        *out = beat;
    else
        free(beat.rows);
    return status;
}

void harpe_beat_free(harpe_beat *beat) {
    free(beat->rows);
    *beat = (harpe_beat){0};
}

harpe_status harpe_mail_bury(PGconn *connection, const harpe_beat_row *row, bool *is_buried,
                             harpe_error *error) {
    const int64_t numbers[] = {row->id, row->beat};
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
    *is_buried = status == HARPE_OK && harpe_pg_to_int(rows, 0, 0) == 1;
    PQclear(rows);
    return status;
}

harpe_status harpe_mail_clean(PGconn *connection, harpe_error *error) {
    return harpe_pg_execute(
        connection, "DELETE FROM mail WHERE recipient NOT IN (SELECT id FROM servers)", error);
}

/* ---- Letters -------------------------------------------------------------------------------- */

static bool send_letter(PGconn *connection, const harpe_letter *letter) {
    static const int formats[COLUMN_COUNT] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t numbers[INT_COUNT] = {
        [TO] = letter->peer,     [FROM] = letter->from,   [KIND] = letter->kind,
        [CALL] = letter->call,   [VALUE] = letter->value, [RANK] = letter->rank,
        [ROUND] = letter->round,
    };
    harpe_pg_int8 wire[INT_COUNT];
    const char *values[COLUMN_COUNT];
    int lengths[COLUMN_COUNT];
    for (int i = 0; i < INT_COUNT; i++) {
        wire[i] = harpe_pg_from_int(numbers[i]);
        values[i] = wire[i].bytes;
        lengths[i] = 8;
    }
    values[JOB_ID] = letter->job_id;
    lengths[JOB_ID] = letter->job_id ? (int)strlen(letter->job_id) : 0;
    values[BODY] = letter->body;
    lengths[BODY] = (int)letter->length;
    return PQsendQueryPrepared(connection, "send", COLUMN_COUNT, values, lengths, formats, 1) == 1;
}

/* Who hears of it hears of all letters: once for each is enough where they follow one another, and
 * PostgreSQL sorts out the rest. */
static bool send_notice(PGconn *connection, int64_t recipient) {
    char sql[48];
    (void)snprintf(sql, sizeof sql, "NOTIFY harpe_%lld", (long long)recipient);
    return PQsendQueryParams(connection, sql, 0, NULL, NULL, NULL, NULL, 0) == 1;
}

harpe_status harpe_mail_send(PGconn *connection, const harpe_letter *letters, harpe_error *error) {
    bool is_sent = PQenterPipelineMode(connection) == 1 &&
                   PQsendQueryParams(connection, "BEGIN", 0, NULL, NULL, NULL, NULL, 0) == 1;
    for (const harpe_letter *letter = letters; letter && is_sent; letter = letter->next) {
        is_sent = send_letter(connection, letter);
        bool is_last = !letter->next || letter->next->peer != letter->peer;
        if (is_sent && is_last) is_sent = send_notice(connection, letter->peer);
    }
    if (is_sent) {
        is_sent = PQsendQueryParams(connection, "COMMIT", 0, NULL, NULL, NULL, NULL, 0) == 1 &&
                  PQpipelineSync(connection) == 1;
    }
    if (!is_sent) return harpe_pg_fail(connection, error);
    return harpe_pg_end_pipeline(connection, error);
}

/* NULL for NULL; `has_failed` when out of memory. */
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

static harpe_letter *read_letter(const PGresult *rows, int row, int64_t now_ns) {
    harpe_letter *letter = harpe_calloc(1, sizeof *letter);
    if (!letter) return NULL;
    size_t id_length = 0;
    bool has_failed = false;
    letter->peer = harpe_pg_to_int(rows, row, FROM);
    letter->kind = (harpe_letter_kind)harpe_pg_to_int(rows, row, KIND);
    letter->call = harpe_pg_to_int(rows, row, CALL);
    letter->value = harpe_pg_to_int(rows, row, VALUE);
    letter->rank = harpe_pg_to_int(rows, row, RANK);
    letter->round = harpe_pg_to_int(rows, row, ROUND);
    letter->sent_ns = now_ns - harpe_pg_to_int(rows, row, AGE_NS);
    letter->job_id = copy_bytes(rows, row, JOB_ID, &id_length, &has_failed);
    letter->body = copy_bytes(rows, row, BODY, &letter->length, &has_failed);
    if (!has_failed) return letter;
    harpe_letter_free(letter);
    return NULL;
}

harpe_status harpe_mail_take(PGconn *connection, int64_t me, harpe_letter ***end,
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
        harpe_letter *letter = read_letter(rows, i, now_ns);
        if (!letter) {
            status = harpe_fail_memory(error);
            break;
        }
        **end = letter;
        *end = &letter->next;
    }
    PQclear(rows);
    return status;
}
