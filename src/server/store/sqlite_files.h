/* SPDX-License-Identifier: Apache-2.0 */
/* The files of an SQLite store beside the database: their names, a record of how many commits the
 * store has, and the question whether they are still the files that the server opened. Knows no
 * SQL.
 *
 * SQLite ignores the rest of its write-ahead log (FILE-wal) after a damaged frame, and all of it if
 * the file is gone. So the number of the last commit is also in FILE.commits, which is written
 * after every commit, and is compared at the next start. */
#ifndef HARPE_SERVER_STORE_SQLITE_FILES_H
#define HARPE_SERVER_STORE_SQLITE_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include <sqlite3.h>

#include <harpe/status.h>

/* Suffixes to the name of the database. */
#define HARPE_STORE_LOG "-wal"
#define HARPE_STORE_COMMITS ".commits"
#define HARPE_STORE_CONTROL ".control"   /* the server's socket for backups */
#define HARPE_STORE_SNAPSHOT ".snapshot" /* a backup that is being made */

enum { HARPE_STORE_ID_SIZE = 17 }; /* 16 hexadecimal digits */

/* Which store, and its last commit. */
typedef struct harpe_commit_record {
    char id[HARPE_STORE_ID_SIZE];
    int64_t commits;
    int64_t base; /* commits that the database has also without its log */
} harpe_commit_record;

/* The file with all symbolic links resolved; it need not exist. NULL: out of memory. To be freed
 * with free(). */
char *harpe_store_real_path(const char *path);
/* `path` with `suffix` behind it. NULL: out of memory. */
char *harpe_store_beside(const char *path, const char *suffix);
/* 0: there is no such file. */
off_t harpe_store_size_of(const char *path, const char *suffix);

/* A new random id. */
void harpe_store_new_id(char id[HARPE_STORE_ID_SIZE]);

/* The record beside the database `path`. HARPE_NOT_FOUND: there is none; HARPE_INVALID_INPUT: it is
 * unreadable. */
harpe_status harpe_commit_record_read(const char *path, harpe_commit_record *out,
                                      harpe_error *error);
/* Makes or replaces the file. It is on disk on return. */
harpe_status harpe_commit_record_make(const char *path, const harpe_commit_record *record,
                                      harpe_error *error);
/* Opens the file for harpe_commit_record_update. */
harpe_status harpe_commit_record_open(const char *path, int *file, harpe_error *error);
/* Writes over it. A failure is ignored: an older record claims less than is there. */
void harpe_commit_record_update(int file, const harpe_commit_record *record);

/* A file that SQLite has open, as it was when this process wrote to it last. It is read through
 * SQLite's own descriptor, because closing another one would give up SQLite's locks. */
typedef struct harpe_file_state {
    const char *path; /* the caller's; NULL: there is no file to look at */
    sqlite3_file *file;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified;
    unsigned char header[100];
} harpe_file_state;

/* Notes how the file is now. `path` and `file` are set. */
void harpe_file_state_note(harpe_file_state *state);
/* Call it after a write of this process. Notes the same, and fails if the name leads to another
 * file by now. */
harpe_status harpe_file_state_renew(harpe_file_state *state, harpe_error *error);
/* Fails if the file is gone, is another one, or was written by somebody else. */
harpe_status harpe_file_state_check(const harpe_file_state *state, harpe_error *error);

#endif
