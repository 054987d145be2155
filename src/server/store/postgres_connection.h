/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the PostgreSQL back-end share: connecting, errors in one line, numbers on
 * the wire, pipelines. Private to it. No function here shows a connection string: it may hold a
 * password. */
#ifndef HARPE_SERVER_STORE_POSTGRES_CONNECTION_H
#define HARPE_SERVER_STORE_POSTGRES_CONNECTION_H

#include <stdint.h>

#include <libpq-fe.h>

#include "server/store.h"

/* Types of parameters, as PostgreSQL's catalogue numbers them (fixed for ever). */
enum { HARPE_PG_BYTEA = 17, HARPE_PG_INT8 = 20, HARPE_PG_TEXT = 25 };

/* Advisory locks of ours are pairs of this number ("harp" in ASCII) and a server's id, held by the
 * session that a server talks to others through, or 0, held by the session that writes jobs. */
#define HARPE_PG_LOCKS "1751216752"

/* Refuses a connection string that libpq would take apart at the wrong place, so that a part of
 * the password would show up in messages as host or port. */
harpe_status harpe_pg_check_address(const char *where, harpe_error *error);

/* A connection whose names are those of our schema and whose commits are durable. Either end
 * notices within half a minute that the other died. */
harpe_status harpe_pg_connect(const char *where, PGconn **out, harpe_error *error);
/* Ours, of a version that we know; made when missing, by one of several servers that start at
 * once. */
harpe_status harpe_pg_create_tables(PGconn *connection, harpe_error *error);
/* "postgresql: database harpe on db.example", to be freed with free(); NULL: out of memory. */
char *harpe_pg_describe(const PGconn *connection);

/* Writes the connection's last error. */
harpe_status harpe_pg_fail(const PGconn *connection, harpe_error *error);
/* Does `result` (NULL: none came) say that a statement has succeeded? */
harpe_status harpe_pg_check(const PGconn *connection, const PGresult *result, harpe_error *error);
/* One or more statements without parameters whose rows nobody needs. */
harpe_status harpe_pg_execute(PGconn *connection, const char *sql, harpe_error *error);

/* Takes what is left of the answers in a pipeline, to its end, and leaves the pipeline. The first
 * error counts. */
harpe_status harpe_pg_end_pipeline(PGconn *connection, harpe_error *error);

/* 64-bit integers in binary form. */
typedef struct harpe_pg_int8 {
    char bytes[8];
} harpe_pg_int8;
harpe_pg_int8 harpe_pg_from_int(int64_t value);
int64_t harpe_pg_to_int(const PGresult *result, int row, int column);

/* ---- Reading (postgres_read.c) -------------------------------------------------------------- */

/* As harpe_store_load and harpe_store_read_result. After a load that failed the connection may be
 * anywhere in its protocol: finish it. */
harpe_status harpe_pg_load(PGconn *connection, const char *job_id,
                           harpe_status (*record)(void *user, const harpe_change *change,
                                                  harpe_error *error),
                           void *user, harpe_error *error);
harpe_status harpe_pg_read_result(PGconn *connection, const char *job_id, int64_t round, int rank,
                                  char **text, size_t *length, harpe_error *error);

#endif
