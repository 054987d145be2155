/* SPDX-License-Identifier: Apache-2.0 */
/* An SQLite store opened by a program that is not its server, for reading. Private to the part of
 * the library that harpe store uses. */
#ifndef HARPE_SERVER_STORE_STORE_FILE_H
#define HARPE_SERVER_STORE_STORE_FILE_H

#include "server/store/sqlite_store.h"
#include "server/store/store_tool.h"

typedef struct harpe_store_file {
    harpe_sqlite view; /* only db, name and path are set */
    bool is_in_use;    /* `view` is a copy that the server made */
    bool had_log;      /* there was a write-ahead log */
    int lock;          /* keeps servers from opening it; -1: SQLite's own lock does */
    char *copy;        /* a temporary file, removed at the end; NULL: none */
} harpe_store_file;

/* A file that nobody else writes to is opened where it is; otherwise the server is asked for a
 * copy, which is made in the directory of `near`. No server can open it until it is closed. */
harpe_status harpe_store_file_open(const char *path, const char *near, harpe_store_file *out,
                                   harpe_error *error);
void harpe_store_file_close(harpe_store_file *file);

/* Locks the database as SQLite does. Fails if a server or another program has it open. `file` is an
 * open descriptor; the lock ends when it is closed. */
harpe_status harpe_store_lock(int file, const char *path, bool is_exclusive, harpe_error *error);

/* Copies the open store to `target`, a new file of mode 0600, which is on disk on return. */
harpe_status harpe_store_file_copy(const harpe_store_file *file, const char *target,
                                   harpe_error *error);

/* Copies the bytes of `from` to `target`, a new file of mode 0600, which is on disk on return. */
harpe_status harpe_store_copy_bytes(int from, const char *target, harpe_error *error);

/* Counts the records, and looks for problems. */
harpe_status harpe_store_file_check(const harpe_store_file *file, harpe_store_report *report,
                                    harpe_error *error);

#endif
