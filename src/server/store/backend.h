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
    /* Can be called on any thread, also during a write. */
    harpe_status (*load)(void *state, const char *job_id, harpe_record_reader *record, void *user,
                         harpe_error *error);
    harpe_status (*load_notes)(void *state, harpe_record_reader *record, void *user,
                               harpe_error *error);
    harpe_status (*read_result)(void *state, const char *job_id, int64_t round, int rank,
                                char **text, size_t *length, harpe_error *error);
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

/* ---- Reading (store_read.c) ------------------------------------------------------------------ */

typedef harpe_status harpe_id_reader(void *user, int64_t number, const char *id,
                                     harpe_error *error);

/* How a back-end runs the statements that read. */
typedef struct harpe_store_rows {
    void *state;
    /* Runs `sql`, whose rows have a number and an id, with $1 = job_id (NULL: it has no $1). Calls
     * `each` for every row until it fails. */
    harpe_status (*ids)(void *state, const char *sql, const char *job_id, harpe_id_reader *each,
                        void *user, harpe_error *error);
    /* Runs the statements harpe_schema_reads[first] up to `end` (not included) with $1 = number.
     * Calls `record` for every row until it fails. The records are of the job `id`. */
    harpe_status (*records)(void *state, size_t first, size_t end, int64_t number, const char *id,
                            harpe_record_reader *record, void *user, harpe_error *error);
} harpe_store_rows;

/* Does the work of harpe_store_load. */
harpe_status harpe_store_load_rows(const harpe_store_rows *rows, const char *job_id,
                                   harpe_record_reader *record, void *user, harpe_error *error);
/* Copies the text of a result, and adds a NUL. */
harpe_status harpe_store_copy_result(const void *bytes, size_t size, char **text, size_t *length,
                                     harpe_error *error);
/* Fails with HARPE_NOT_FOUND. */
harpe_status harpe_store_no_result(const char *job_id, int64_t round, int rank, harpe_error *error);

extern const harpe_store_backend harpe_store_sqlite;
extern const harpe_store_backend harpe_store_postgres;
extern const harpe_store_backend harpe_store_memory;

#endif
