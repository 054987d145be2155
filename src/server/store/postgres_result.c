/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the results of statements, and converts numbers in binary form. An error is one line
 * without passwords. */
#include "server/store/postgres_result.h"

#include <endian.h>
#include <string.h>

#include "base/error.h"

harpe_status harpe_pg_fail(const PGconn *connection, harpe_error *error) {
    const char *message = PQerrorMessage(connection);
    const char *database = PQdb(connection);
    return harpe_fail(error, HARPE_IO_ERROR, "PostgreSQL database %s: %.*s",
                      database ? database : "?", (int)strcspn(message, "\n"),
                      *message != '\0' ? message : "the connection was lost");
}

harpe_status harpe_pg_check(const PGconn *connection, const PGresult *result, harpe_error *error) {
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE: return HARPE_OK;
    default: return harpe_pg_fail(connection, error);
    }
}

harpe_pg_int8 harpe_pg_from_int(int64_t value) {
    uint64_t wire = htobe64((uint64_t)value);
    harpe_pg_int8 number;
    memcpy(number.bytes, &wire, sizeof wire);
    return number;
}

int64_t harpe_pg_to_int(const PGresult *result, int row, int column) {
    uint64_t wire = 0;
    if (PQgetlength(result, row, column) == sizeof wire)
        memcpy(&wire, PQgetvalue(result, row, column), sizeof wire);
    return (int64_t)be64toh(wire);
}

bool harpe_pg_to_bool(const PGresult *result, int row, int column) {
    return PQgetlength(result, row, column) == 1 && *PQgetvalue(result, row, column) == 1;
}
