/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the SQLite back-end share. Private to it. */
#ifndef HARPE_SERVER_STORE_SQLITE_STORE_H
#define HARPE_SERVER_STORE_SQLITE_STORE_H

#include <pthread.h>

#include <sqlite3.h>

#include "server/store/backend.h"
#include "server/store/schema.h"

typedef struct harpe_sqlite {
    sqlite3 *db;
    char *name;           /* "sqlite:harpe.db" */
    pthread_mutex_t lock; /* the connection: one transaction or read at a time */
    sqlite3_stmt *writes[HARPE_SCHEMA_WRITE_COUNT];
    int parameters[HARPE_SCHEMA_WRITE_COUNT][HARPE_SCHEMA_PARAMETER_COUNT]; /* 0: not in it */
    sqlite3_stmt *reads[HARPE_SCHEMA_READ_COUNT];
} harpe_sqlite;

/* Writes the connection's last error. */
harpe_status harpe_sqlite_fail(const harpe_sqlite *store, harpe_error *error);
harpe_status harpe_sqlite_prepare(const harpe_sqlite *store, const char *sql, sqlite3_stmt **out,
                                  harpe_error *error);

/* The back-end's load and read_result (sqlite_read.c). */
harpe_status harpe_sqlite_load(void *state, const char *job_id,
                               harpe_status (*record)(void *user, const harpe_change *change,
                                                      harpe_error *error),
                               void *user, harpe_error *error);
harpe_status harpe_sqlite_read_result(void *state, const char *job_id, int64_t round, int rank,
                                      char **text, size_t *length, harpe_error *error);

#endif
