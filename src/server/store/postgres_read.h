/* SPDX-License-Identifier: Apache-2.0 */
/* Reads records from PostgreSQL. */
#ifndef HARPE_SERVER_STORE_POSTGRES_READ_H
#define HARPE_SERVER_STORE_POSTGRES_READ_H

#include <stdint.h>

#include <libpq-fe.h>

#include "server/store/change.h"

/* These work like harpe_store_load, harpe_store_load_notes and harpe_store_read_result. If loading
 * failed, close the connection, because it may be in the middle of an answer. */
harpe_status harpe_pg_load(PGconn *connection, const char *job_id,
                           harpe_status (*record)(void *user, const harpe_change *change,
                                                  harpe_error *error),
                           void *user, harpe_error *error);
harpe_status harpe_pg_load_notes(PGconn *connection,
                                 harpe_status (*record)(void *user, const harpe_change *change,
                                                        harpe_error *error),
                                 void *user, harpe_error *error);
harpe_status harpe_pg_read_result(PGconn *connection, const char *job_id, int64_t round, int rank,
                                  char **text, size_t *length, harpe_error *error);

#endif
