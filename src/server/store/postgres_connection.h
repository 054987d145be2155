/* SPDX-License-Identifier: Apache-2.0 */
/* Opens connections of the PostgreSQL back-end. Private to the back-end. No function here shows a
 * connection string, because the string may contain a password. */
#ifndef HARPE_SERVER_STORE_POSTGRES_CONNECTION_H
#define HARPE_SERVER_STORE_POSTGRES_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "server/store/change.h"

/* The types of parameters. PostgreSQL's catalogue has these numbers in all versions. */
enum { HARPE_PG_BYTEA = 17, HARPE_PG_INT8 = 20, HARPE_PG_TEXT = 25 };

/* Harpe's advisory lock has two numbers: this one ("harp" in ASCII), and 0. The session that writes
 * jobs holds it. */
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

#endif
