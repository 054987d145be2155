/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the files of the PostgreSQL back-end share: connections, errors in one line,
 * numbers in binary form, statements and pipelines. Private to the back-end. No function here shows
 * a connection string, because the string may contain a password. */
#ifndef HARPE_SERVER_STORE_POSTGRES_CONNECTION_H
#define HARPE_SERVER_STORE_POSTGRES_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "server/store/change.h"

/* The types of parameters. PostgreSQL's catalogue has these numbers in all versions. */
enum { HARPE_PG_BYTEA = 17, HARPE_PG_INT8 = 20, HARPE_PG_TEXT = 25 };

/* Harpe's advisory locks have two numbers. The first is this one ("harp" in ASCII). The second is 0
 * for the session that writes jobs. For the session through which a server exchanges messages with
 * other servers, it is the id of this server. */
#define HARPE_PG_LOCKS "1751216752"

/* Refuses a connection string that libpq would split at the wrong place. Messages about such a
 * string would show a part of the password as the host or port. */
harpe_status harpe_pg_check_address(const char *where, harpe_error *error);

/* Opens a connection that uses Harpe's schema and commits durably. Each side notices within half a
 * minute that the other side is gone. */
harpe_status harpe_pg_connect(const char *where, PGconn **out, harpe_error *error);
/* Checks that the tables are Harpe's and have a known version. If they are missing, creates them.
 * Several servers can do this at the same time. */
harpe_status harpe_pg_create_tables(PGconn *connection, harpe_error *error);
/* Returns a text such as "postgresql: database harpe on db.example". Free it with free(). NULL: out
 * of memory. */
char *harpe_pg_describe(const PGconn *connection);

/* Writes the connection's last error. */
harpe_status harpe_pg_fail(const PGconn *connection, harpe_error *error);
/* Returns HARPE_OK if `result` reports that a statement has succeeded. `result` is NULL if no
 * result came. */
harpe_status harpe_pg_check(const PGconn *connection, const PGresult *result, harpe_error *error);

/* ---- Waiting (postgres_wait.c) --------------------------------------------------------------- */

/* The time for which a connection may be silent while an answer is missing. After that the
 * connection is not used any more: the call and every later call fail, and it is unknown whether
 * the last transaction is committed. PostgreSQL ends the statements that load jobs after 30 s, so
 * for these its own error comes first. */
enum { HARPE_PG_SILENCE_S = 40, HARPE_PG_LONG_SILENCE_S = 600 };

/* Sets the limit of this connection to HARPE_PG_LONG_SILENCE_S. Returns false if there is no
 * memory. */
bool harpe_pg_extend_timeout(PGconn *connection);

/* Works like PQgetResult, but waits only as long as the limit allows. *result is NULL if there are
 * no more answers. */
harpe_status harpe_pg_next(PGconn *connection, PGresult **result, harpe_error *error);
/* Runs one or more statements without parameters whose rows are not needed. */
harpe_status harpe_pg_execute(PGconn *connection, const char *sql, harpe_error *error);

/* The arguments of PQexecParams. */
typedef struct harpe_pg_parameters {
    int count;
    const Oid *types;
    const char *const *values;
    const int *lengths, *formats;
} harpe_pg_parameters;

/* Runs one statement and returns its rows in binary form. `parameters` NULL: the statement has no
 * parameters. The caller must clear *rows in any case. */
harpe_status harpe_pg_query(PGconn *connection, const char *sql,
                            const harpe_pg_parameters *parameters, PGresult **rows,
                            harpe_error *error);
harpe_status harpe_pg_prepare(PGconn *connection, const char *name, const char *sql, int count,
                              const Oid *types, harpe_error *error);

/* Reads the remaining answers of a pipeline and leaves pipeline mode. Returns the first error. */
harpe_status harpe_pg_end_pipeline(PGconn *connection, harpe_error *error);

/* 64-bit integers in binary form. */
typedef struct harpe_pg_int8 {
    char bytes[8];
} harpe_pg_int8;
harpe_pg_int8 harpe_pg_from_int(int64_t value);
int64_t harpe_pg_to_int(const PGresult *result, int row, int column);
bool harpe_pg_to_bool(const PGresult *result, int row, int column);

/* ---- Reading (postgres_read.c) --------------------------------------------------------------- */

/* These work like harpe_store_load and harpe_store_read_result. If loading failed, close the
 * connection, because it may be in the middle of an answer. */
harpe_status harpe_pg_load(PGconn *connection, const char *job_id,
                           harpe_status (*record)(void *user, const harpe_change *change,
                                                  harpe_error *error),
                           void *user, harpe_error *error);
harpe_status harpe_pg_read_result(PGconn *connection, const char *job_id, int64_t round, int rank,
                                  char **text, size_t *length, harpe_error *error);

#endif
