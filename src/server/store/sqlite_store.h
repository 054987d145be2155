/* SPDX-License-Identifier: Apache-2.0 */
/* Structures and functions that the files of the SQLite back-end share. Private to the back-end. */
#ifndef HARPE_SERVER_STORE_SQLITE_STORE_H
#define HARPE_SERVER_STORE_SQLITE_STORE_H

#include <pthread.h>

#include <sqlite3.h>

#include "server/store/backend.h"
#include "server/store/schema.h"
#include "server/store/sqlite_files.h"

/* This number in SQLite's header marks a file as Harpe's. PRAGMAs read and write it as text. */
#define HARPE_SQLITE_APPLICATION_ID 1214345840 /* "Harp" */
#define HARPE_SQLITE_AS_TEXT_(value) #value
#define HARPE_SQLITE_AS_TEXT(value) HARPE_SQLITE_AS_TEXT_(value)

#define HARPE_SQLITE_PAGE_BYTES 8192 /* results are two pages or more */

/* The table `store` has one row: the store's id, the number of its last commit, and whether a
 * server has the store open. */
#define HARPE_SQLITE_STORE_TABLE \
    "CREATE TABLE IF NOT EXISTS store (id TEXT NOT NULL, commits INTEGER NOT NULL," \
    " in_use INTEGER NOT NULL);"

typedef struct harpe_sqlite_backups harpe_sqlite_backups;

typedef struct harpe_sqlite {
    sqlite3 *db;
    char *name;           /* "sqlite:harpe.db" */
    pthread_mutex_t lock; /* protects the connection: one transaction or read at a time */
    sqlite3_stmt *writes[HARPE_SCHEMA_WRITE_COUNT];
    int parameters[HARPE_SCHEMA_WRITE_COUNT]
                  [HARPE_SCHEMA_PARAMETER_COUNT]; /* 0: the statement does not have it */
    sqlite3_stmt *reads[HARPE_SCHEMA_READ_COUNT];
    sqlite3_stmt *count;       /* sets the number of the last commit */
    int64_t log_frames;        /* pages in the write-ahead log */
    bool has_unfinished_start; /* the file is not yet known to be a store of Harpe */

    /* The members below belong to a store in a file. */
    char *path;                /* all symbolic links resolved; NULL: in memory */
    harpe_commit_record alone; /* the record in the file without its log, before it was opened */
    bool has_alone;
    harpe_commit_record record; /* of the last commit */
    int record_file;            /* -1: none */
    harpe_file_state database, log;
    harpe_sqlite_backups *backups; /* NULL: the server makes no backups */
} harpe_sqlite;

/* Writes the connection's last error. */
harpe_status harpe_sqlite_fail(const harpe_sqlite *store, harpe_error *error);
harpe_status harpe_sqlite_prepare(const harpe_sqlite *store, const char *sql, sqlite3_stmt **out,
                                  harpe_error *error);
harpe_status harpe_sqlite_execute(const harpe_sqlite *store, const char *sql, harpe_error *error);
/* Runs `sql`, and reads the integer that it returns. */
harpe_status harpe_sqlite_integer(const harpe_sqlite *store, const char *sql, int64_t *value,
                                  harpe_error *error);
/* Fails if the file is not a store of Harpe with a known version. An empty file is also accepted,
 * and sets *is_new. */
harpe_status harpe_sqlite_identify(const harpe_sqlite *store, bool *is_new, harpe_error *error);

/* ---- Is the store complete? (sqlite_admit.c) ------------------------------------------------- */

/* Call it before the file is opened. Fails if the file is missing but existed earlier. */
harpe_status harpe_sqlite_admit_files(const char *path, harpe_error *error);
/* Compares the store with the record of its commits, and fills in `record`. Fails if the newest
 * commits are missing. `had_log`: there was a write-ahead log before the file was opened. */
harpe_status harpe_sqlite_admit(harpe_sqlite *store, bool had_log, harpe_error *error);
/* Opens a file to which no program writes. Does not lock the file, and neither reads nor makes a
 * log. When the database is closed, this process loses its locks on the file. */
int harpe_sqlite_open_unchanging(const char *path, sqlite3 **db);
/* Call it before the file is opened. Fills in `alone` if there is a log. */
void harpe_sqlite_read_alone(harpe_sqlite *store);
/* Returns true if the log belongs to a newer or another database. SQLite would then overwrite pages
 * of this database with pages of the log. `beside`: the record of commits. */
bool harpe_sqlite_is_older_than_log(const harpe_sqlite *store, const harpe_commit_record *beside);
/* Reads the store's row as a record. HARPE_NOT_FOUND: an earlier Harpe wrote the file, and it has
 * no such row. */
harpe_status harpe_sqlite_read_record(const harpe_sqlite *store, harpe_commit_record *record,
                                      bool *in_use, harpe_error *error);

/* ---- Backups (sqlite_backup.c) --------------------------------------------------------------- */

/* Starts the thread that answers `harpe store` on FILE.control. If the thread cannot be started,
 * logs a message, and the server works without it. */
void harpe_sqlite_backups_start(harpe_sqlite *store, harpe_log log);
/* accepts NULL */
void harpe_sqlite_backups_stop(harpe_sqlite_backups *backups);

/* The back-end's load, load_notes and read_result (sqlite_read.c). */
harpe_status harpe_sqlite_load(void *state, const char *job_id,
                               harpe_status (*record)(void *user, const harpe_change *change,
                                                      harpe_error *error),
                               void *user, harpe_error *error);
harpe_status harpe_sqlite_load_notes(void *state,
                                     harpe_status (*record)(void *user, const harpe_change *change,
                                                            harpe_error *error),
                                     void *user, harpe_error *error);
harpe_status harpe_sqlite_read_result(void *state, const char *job_id, int64_t round, int rank,
                                      char **text, size_t *length, harpe_error *error);

#endif
