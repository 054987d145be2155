/* SPDX-License-Identifier: Apache-2.0 */
/* Sends statements and waits for their answers. A connected database may never answer: its
 * processes may be stopped, or a proxy may keep the connection open after the database has ended.
 * Therefore every wait has a limit. The limit is for the time in which no byte is sent or received,
 * so a large answer can take longer in total. */
#include "server/store/postgres_wait.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "server/store/postgres_result.h"

/* ---- The limit ------------------------------------------------------------------------------- */

/* Waits for the socket. Returns the events that occurred, or 0 if none occurred within the
 * limit. */
static int wait_for_bytes(const PGconn *connection, bool has_unsent) {
    if (PQsocket(connection) < 0) return POLLERR; /* poll ignores a negative descriptor */
    int64_t end_ns = harpe_clock_ns() + HARPE_PG_SILENCE_S * INT64_C(1000000000);
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
                      database ? database : "?", HARPE_PG_SILENCE_S);
}

/* ---- Answers --------------------------------------------------------------------------------- */

harpe_status harpe_pg_next(PGconn *connection, PGresult **result, harpe_error *error) {
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
        harpe_status status = harpe_pg_next(connection, &next, error);
        if (status != HARPE_OK) {
            PQclear(*last);
            *last = NULL;
            return status;
        }
        if (!next) return harpe_pg_check(connection, *last, error);
        PQclear(*last);
        *last = next;
    }
}

/* ---- Statements ------------------------------------------------------------------------------ */

harpe_status harpe_pg_execute(PGconn *connection, const char *sql, harpe_error *error) {
    PGresult *result = NULL;
    if (PQsendQuery(connection, sql) != 1) return harpe_pg_fail(connection, error);
    harpe_status status = take_last(connection, &result, error);
    PQclear(result);
    return status;
}

harpe_status harpe_pg_query(PGconn *connection, const char *sql,
                            const harpe_pg_parameters *parameters, PGresult **rows,
                            harpe_error *error) {
    static const harpe_pg_parameters none;
    const harpe_pg_parameters *given = parameters ? parameters : &none;
    *rows = NULL;
    if (PQsendQueryParams(connection, sql, given->count, given->types, given->values,
                          given->lengths, given->formats, 1) != 1)
        return harpe_pg_fail(connection, error);
    return take_last(connection, rows, error);
}

harpe_status harpe_pg_prepare(PGconn *connection, const char *name, const char *sql, int count,
                              const Oid *types, harpe_error *error) {
    PGresult *result = NULL;
    if (PQsendPrepare(connection, name, sql, count, types) != 1)
        return harpe_pg_fail(connection, error);
    harpe_status status = take_last(connection, &result, error);
    PQclear(result);
    return status;
}

harpe_status harpe_pg_end_pipeline(PGconn *connection, harpe_error *error) {
    harpe_status status = HARPE_OK;
    bool is_at_end = false;
    /* A NULL ends the answers to one statement. Two NULLs in a row mean that no answer follows. */
    for (int ends = 0; ends < 2 && !is_at_end;) {
        PGresult *result = NULL;
        harpe_status silence = harpe_pg_next(connection, &result, error);
        if (silence) return silence;
        is_at_end = PQresultStatus(result) == PGRES_PIPELINE_SYNC;
        ends = result ? 0 : ends + 1;
        if (result && !is_at_end && status == HARPE_OK)
            status = harpe_pg_check(connection, result, error);
        PQclear(result);
    }
    bool has_left = PQexitPipelineMode(connection) == 1;
    if (status == HARPE_OK && (!is_at_end || !has_left)) return harpe_pg_fail(connection, error);
    return status;
}
