/* SPDX-License-Identifier: Apache-2.0 */
/* Opens connections to PostgreSQL for the store. A connection uses Harpe's schema and commits
 * durably. Its errors are one line without passwords. This file neither writes nor reads
 * records. */
#include "server/store/postgres_connection.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/store/address.h"
#include "server/store/schema.h"

/* ---- Errors and numbers ---------------------------------------------------------------------- */

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

/* ---- Connecting ------------------------------------------------------------------------------ */

harpe_status harpe_pg_check_address(const char *where, harpe_error *error) {
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

harpe_status harpe_pg_connect(const char *where, PGconn **out, harpe_error *error) {
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
        status = harpe_pg_fail(connection, error);
    if (status == HARPE_OK) {
        /* These settings are the keepalives on the database's side of the connection. */
        status = harpe_pg_execute(connection,
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
        (void)harpe_pg_execute(connection,
                               "SELECT set_config(name, '10s', false) FROM pg_settings"
                               " WHERE name = 'client_connection_check_interval'",
                               NULL);
    if (status == HARPE_OK && PQstatus(connection) != CONNECTION_OK)
        status = harpe_pg_fail(connection, error);
    if (status != HARPE_OK) {
        PQfinish(connection);
        return status;
    }
    *out = connection;
    return HARPE_OK;
}

char *harpe_pg_describe(const PGconn *connection) {
    char *text = NULL;
    if (asprintf(&text, "postgresql: database %s on %s", PQdb(connection), PQhost(connection)) < 0)
        return NULL;
    return text;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Creates what is missing. Call it in the transaction that holds the lock. Results are not
 * compressed, because compressing takes longer than writing them. */
static harpe_status create_all(PGconn *connection, bool has_schema, harpe_error *error) {
    harpe_status status = HARPE_OK;
    if (!has_schema) status = harpe_pg_execute(connection, "CREATE SCHEMA harpe", error);
    if (status != HARPE_OK) return status;
    char sql[160];
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO harpe.format (version) SELECT %d WHERE NOT EXISTS"
                   " (SELECT FROM harpe.format)",
                   HARPE_SCHEMA_VERSION);
    status = harpe_pg_execute(
        connection,
        HARPE_SCHEMA_TABLES("BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
                            "BYTEA") "ALTER TABLE results ALTER COLUMN text SET STORAGE EXTERNAL;"
                                     "CREATE TABLE IF NOT EXISTS format (version BIGINT NOT "
                                     "NULL);" HARPE_SCHEMA_PEERS,
        error);
    if (status == HARPE_OK) status = harpe_pg_execute(connection, sql, error);
    return status;
}

static harpe_status check_version(PGconn *connection, harpe_error *error) {
    PGresult *rows;
    harpe_status status =
        harpe_pg_query(connection, "SELECT max(version) FROM harpe.format", NULL, &rows, error);
    int64_t version = status == HARPE_OK ? harpe_pg_to_int(rows, 0, 0) : 0;
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
    harpe_status status = harpe_pg_query(connection,
                                         "SELECT to_regnamespace('harpe') IS NOT NULL,"
                                         " to_regclass('harpe.format') IS NOT NULL,"
                                         " to_regclass('harpe.mail') IS NOT NULL"
                                         " AND to_regclass('harpe.ends') IS NOT NULL",
                                         NULL, &rows, error);
    bool has_schema = status == HARPE_OK && harpe_pg_to_bool(rows, 0, 0);
    bool has_format = status == HARPE_OK && harpe_pg_to_bool(rows, 0, 1);
    bool has_all = status == HARPE_OK && harpe_pg_to_bool(rows, 0, 2);
    PQclear(rows);
    if (status == HARPE_OK && has_format) status = check_version(connection, error);
    if (status != HARPE_OK || has_all) return status;
    return create_all(connection, has_schema, error);
}

harpe_status harpe_pg_create_tables(PGconn *connection, harpe_error *error) {
    /* The lock's number is "harpe" in ASCII. The lock ends with the transaction. */
    harpe_status status =
        harpe_pg_execute(connection, "BEGIN; SELECT pg_advisory_xact_lock(448311488613)", error);
    if (status == HARPE_OK) status = create_or_check(connection, error);
    if (status == HARPE_OK) return harpe_pg_execute(connection, "COMMIT", error);
    (void)harpe_pg_execute(connection, "ROLLBACK", NULL);
    return status;
}
