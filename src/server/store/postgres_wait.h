/* SPDX-License-Identifier: Apache-2.0 */
/* Sends statements to PostgreSQL and waits for their answers. Private to the back-end. */
#ifndef HARPE_SERVER_STORE_POSTGRES_WAIT_H
#define HARPE_SERVER_STORE_POSTGRES_WAIT_H

#include <stdbool.h>

#include <harpe/status.h>
#include <libpq-fe.h>

/* The time for which a connection may be silent while an answer is missing. After that the
 * connection is not used any more: the call and every later call fail, and it is unknown whether
 * the last transaction is committed. PostgreSQL ends the statements that load jobs after 30 s, so
 * for these its own error comes first. */
enum { HARPE_PG_SILENCE_S = 40 };

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

#endif
