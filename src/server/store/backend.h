/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a store's back-end. Each back-end has one constant table of functions in one
 * file, and one row in harpe_store_backends (store.c). store.c makes the batches and acknowledges
 * changes on the right threads, so a back-end does not. */
#ifndef HARPE_SERVER_STORE_BACKEND_H
#define HARPE_SERVER_STORE_BACKEND_H

#include <harpe/callback.h>

#include "server/store/change.h"

typedef struct harpe_store_backend {
    const char *name;
    /* Returns true if `where` names this back-end. */
    bool (*accepts)(const char *where);
    harpe_status (*open)(const char *where, harpe_log log, void **state, harpe_error *error);
    void (*close)(void *state);
    /* Writes the list `changes` in one transaction. When it returns, either all changes are
     * durable, or none is stored. Called only on the store's thread. */
    harpe_status (*write)(void *state, const harpe_change *changes, harpe_error *error);
    /* The next three can be called on any thread, also during a write. If begin_read succeeds, only
     * its thread reads until it calls end_read, with the status of what it has read. In a snapshot,
     * changes that other servers make meanwhile are not visible. */
    harpe_status (*begin_read)(void *state, bool takes_snapshot, harpe_error *error);
    /* Runs the statements harpe_schema_reads[first] up to `end` (not included) with the values of
     * `key` as parameters. Calls `record` for every row until it fails. */
    harpe_status (*read)(void *state, size_t first, size_t end, const harpe_change *key,
                         harpe_record_reader *record, void *user, harpe_error *error);
    harpe_status (*end_read)(void *state, harpe_status status, harpe_error *error);
    /* Checks that the store is still in the place where it was opened. Called on the store's
     * thread, between writes. NULL if no other program can move or remove the store. */
    harpe_status (*check)(void *state, harpe_error *error);
    /* Returns the bytes that its file system has free; -1: not known. Called on the store's thread,
     * between writes. NULL if the store has no file. */
    int64_t (*free_bytes)(void *state);
    /* The next four do the work of harpe_store_own, harpe_store_watch, harpe_store_disown and
     * harpe_store_is_owned. NULL if several servers cannot share the store. */
    harpe_status (*own)(void *state, const harpe_store_server *server, harpe_ownership *out,
                        harpe_error *error);
    harpe_status (*watch)(void *state, int64_t owner, int64_t dead_beat, harpe_store_leader *out,
                          harpe_error *error);
    void (*disown)(void *state);
    bool (*is_owned)(const void *state);
} harpe_store_backend;

extern const harpe_store_backend harpe_store_sqlite;
extern const harpe_store_backend harpe_store_postgres;
extern const harpe_store_backend harpe_store_memory;

#endif
