/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an SQLite store for reading, in a program that is not its server. Private to the part of
 * the library that `harpe store` uses. */
#ifndef HARPE_SERVER_STORE_STORE_FILE_H
#define HARPE_SERVER_STORE_STORE_FILE_H

#include "server/store/sqlite_store.h"

typedef struct harpe_store_file {
    harpe_sqlite view; /* only db, name and path are set */
    bool is_in_use;    /* `view` is a copy that the server made */
    bool had_log;      /* there was a write-ahead log */
    int lock;          /* keeps servers from opening the store; -1: SQLite's own lock does */
    char *copy;        /* a temporary file, removed at the end; NULL: none */
} harpe_store_file;

/* Opens a store. If no server has it open, opens the file itself, and no server can open the store
 * until it is closed here. Otherwise asks the server for a copy, puts the copy into the directory
 * of `near`, and opens the copy. */
harpe_status harpe_store_file_open(const char *path, const char *near, harpe_store_file *out,
                                   harpe_error *error);
void harpe_store_file_close(harpe_store_file *file);

/* Locks the database as SQLite does. Fails if a server or another program has it open. `file` is an
 * open descriptor; the lock ends when it is closed. */
harpe_status harpe_store_lock(int file, const char *path, bool is_exclusive, harpe_error *error);

/* Copies the open store to `target`, a new file with mode 0600. When it returns, the copy is on
 * disk. */
harpe_status harpe_store_file_copy(const harpe_store_file *file, const char *target,
                                   harpe_error *error);

/* Copies the bytes of `from` to `target`, a new file with mode 0600. When it returns, the copy is
 * on disk. */
harpe_status harpe_store_copy_bytes(int from, const char *target, harpe_error *error);

#endif
