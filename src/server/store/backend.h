/* SPDX-License-Identifier: Apache-2.0 */
/* What a store's back-end provides: one const table of functions, in one file, and a row in
 * harpe_store_backends (store.c). Batching, threads and acknowledgements are not its business. */
#ifndef HARPE_SERVER_STORE_BACKEND_H
#define HARPE_SERVER_STORE_BACKEND_H

#include "server/store.h"

typedef struct harpe_store_backend {
    const char *name;
    /* Does `where` name this back-end? */
    bool (*accepts)(const char *where);
    harpe_status (*open)(const char *where, harpe_log log, void **state, harpe_error *error);
    void (*close)(void *state);
    /* For people: where the state is; no password in it. Valid until close. */
    const char *(*description)(const void *state);
    /* The store's thread only: all `changes` (a list) in one transaction, durable on return, or
     * none. */
    harpe_status (*write)(void *state, const harpe_change *changes, harpe_error *error);
    /* Any thread, also beside write. */
    harpe_status (*load)(void *state, const char *job_id,
                         harpe_status (*record)(void *user, const harpe_change *change,
                                                harpe_error *error),
                         void *user, harpe_error *error);
    harpe_status (*read_result)(void *state, const char *job_id, int64_t round, int rank,
                                char **text, size_t *length, harpe_error *error);
    /* Is the store still where it was opened? Called on the store's thread, between writes. NULL
     * if nobody else can take the store away. */
    harpe_status (*check)(void *state, harpe_error *error);
    /* As in store.h; NULL where a store never has several servers. */
    harpe_status (*own)(void *state, int64_t server, harpe_ownership *out, harpe_error *error);
    void (*disown)(void *state);
    bool (*is_owned)(const void *state);
} harpe_store_backend;

extern const harpe_store_backend harpe_store_sqlite;
extern const harpe_store_backend harpe_store_postgres;
extern const harpe_store_backend harpe_store_memory;

#endif
