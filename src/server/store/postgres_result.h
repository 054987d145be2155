/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of PostgreSQL in one line, and numbers in binary form. Private to the back-end. */
#ifndef HARPE_SERVER_STORE_POSTGRES_RESULT_H
#define HARPE_SERVER_STORE_POSTGRES_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>
#include <libpq-fe.h>

/* Writes the connection's last error. */
harpe_status harpe_pg_fail(const PGconn *connection, harpe_error *error);
/* Returns HARPE_OK if `result` reports that a statement has succeeded. `result` is NULL if no
 * result came. */
harpe_status harpe_pg_check(const PGconn *connection, const PGresult *result, harpe_error *error);

/* 64-bit integers in binary form. */
typedef struct harpe_pg_int8 {
    char bytes[8];
} harpe_pg_int8;
harpe_pg_int8 harpe_pg_from_int(int64_t value);
int64_t harpe_pg_to_int(const PGresult *result, int row, int column);
bool harpe_pg_to_bool(const PGresult *result, int row, int column);

#endif
