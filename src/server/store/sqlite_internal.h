/* SPDX-License-Identifier: Apache-2.0 */
/* Structures and functions that the files of the SQLite back-end share. Private to the back-end. */
#ifndef HARPE_SERVER_STORE_SQLITE_INTERNAL_H
#define HARPE_SERVER_STORE_SQLITE_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "server/store/backend.h"
#include "server/store/store_tools.h"

/* ---- Files ----------------------------------------------------------------------------------- */
/* The files of an SQLite store beside the database. SQLite reports no error if its write-ahead log
 * (FILE-wal) is missing, and ignores the part of the log after a damaged frame. Commits are lost in
 * both cases. To notice this, the server writes the number of the last commit into FILE.commits
 * after every commit, and compares it at the next start. */

/* Files that the system does not have. Paths are those of the store: "NAME" and "NAME" with a
 * suffix. Functions return 0 or an errno. */
typedef struct harpe_store_files {
    /* Returns the name of SQLite's VFS that has this path. NULL: the system has it. */
    const char *(*vfs)(const char *path);
    int (*look)(const char *path, struct stat *info); /* size, time and number of the file */
    int (*read)(const char *path, char *bytes, size_t room, size_t *length); /* at most `room` */
    /* Writes the beginning of a file, and makes the file if it is missing. If is_whole, the file is
     * replaced, and is on disk when this returns. */
    int (*write)(const char *path, const void *bytes, size_t length, bool is_whole);
    int (*remove)(const char *path);
    int (*open)(const char *path, int *descriptor); /* to read what is there now */
    int64_t (*free_bytes)(const char *path);
    /* Makes the address of a socket with this path. */
    int (*address)(const char *path, struct sockaddr_un *address);
} harpe_store_files;

/* A simulated world (world/disk.h) sets it. NULL: the system has all files. */
extern const harpe_store_files *harpe_store_files_elsewhere;
/* Returns harpe_store_files_elsewhere if it has this path, otherwise NULL. */
const harpe_store_files *harpe_store_files_of(const char *path);
/* Returns the name of the VFS for SQLite. NULL: its usual one. */
const char *harpe_store_vfs(const char *path);
/* Makes an empty file for this user only. Returns 0 or an errno, EEXIST if there is one. */
int harpe_store_create(const char *path);
void harpe_store_remove(const char *path);
/* Opens a file for reading. Returns a descriptor, or -1 with errno. */
int harpe_store_open_file(const char *path);
/* Returns the bytes that the file system of this file has free; -1: not known. */
int64_t harpe_store_free_bytes(const char *path);

/* Suffixes that are added to the name of the database. */
#define HARPE_STORE_LOG "-wal"
#define HARPE_STORE_MEMORY "-shm"
#define HARPE_STORE_JOURNAL "-journal" /* of a store that has no log */
#define HARPE_STORE_COMMITS ".commits"
#define HARPE_STORE_CONTROL ".control"   /* the server's socket for backups */
#define HARPE_STORE_SNAPSHOT ".snapshot" /* a backup that is being made */

enum { HARPE_STORE_ID_SIZE = 17 }; /* 16 hexadecimal digits */

/* The id of a store, and the number of its last commit. */
typedef struct harpe_commit_record {
    char id[HARPE_STORE_ID_SIZE];
    int64_t commits;
    int64_t base; /* number of the commits that are in the database even without its log */
} harpe_commit_record;

/* Returns the path with all symbolic links resolved. The file need not exist. */
harpe_store_name harpe_store_real_path(const char *path);
/* Returns `path` with `suffix` at its end. */
harpe_store_name harpe_store_beside(const char *path, const char *suffix);
/* Returns the size of the file `path` with this suffix, or 0 if there is no such file. */
off_t harpe_store_size_of(const char *path, const char *suffix);
/* Refuses a pipe, a directory or a device in the place of the database or of a file beside it. */
harpe_status harpe_store_check_kinds(const char *path, harpe_error *error);
/* Makes a new random id. */
void harpe_store_new_id(char id[HARPE_STORE_ID_SIZE]);
/* Reads the record beside the database `path`. HARPE_NOT_FOUND: there is none; HARPE_INVALID_INPUT:
 * it is unreadable. */
harpe_status harpe_commit_record_read(const char *path, harpe_commit_record *out,
                                      harpe_error *error);
/* Makes or replaces the record. When it returns, the record is on disk. */
harpe_status harpe_commit_record_make(const char *path, const harpe_commit_record *record,
                                      harpe_error *error);
/* Opens the file for harpe_commit_record_update. `*file` is -1 if the system does not have it. */
harpe_status harpe_commit_record_open(const char *path, int *file, harpe_error *error);
/* Overwrites the record. A failure is ignored, because an older record only has a smaller number of
 * commits than the store. */
void harpe_commit_record_update(const char *path, int file, const harpe_commit_record *record);

/* The state of a file that SQLite has open, at the time when this process last wrote to it. The
 * file is read through SQLite's own descriptor, because closing another descriptor would release
 * SQLite's locks. */
typedef struct harpe_file_state {
    const char *path; /* belongs to the caller; NULL: there is no file to check */
    sqlite3_file *file;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified;
    unsigned char header[100];
} harpe_file_state;

/* Notes the current state of the file. `path` and `file` must be set. */
void harpe_file_state_note(harpe_file_state *state);
/* Notes the current state after a write of this process. Fails if the name now leads to another
 * file. */
harpe_status harpe_file_state_renew(harpe_file_state *state, harpe_error *error);
/* Fails if the file is gone, was replaced by another file, or was changed by another program. */
harpe_status harpe_file_state_check(const harpe_file_state *state, harpe_error *error);

/* ---- The back-end ---------------------------------------------------------------------------- */

#define HARPE_SQLITE_PAGE_BYTES 8192 /* results are two pages or more */

typedef struct harpe_sqlite_backups harpe_sqlite_backups;

typedef struct harpe_sqlite_statement {
    sqlite3_stmt *prepared;
    int parameters[HARPE_SCHEMA_PARAMETER_COUNT]; /* 0: the statement does not have it */
} harpe_sqlite_statement;

typedef struct harpe_sqlite {
    sqlite3 *db;
    pthread_mutex_t lock; /* protects the connection: one transaction or read at a time */
    harpe_sqlite_statement writes[HARPE_SCHEMA_WRITE_COUNT], reads[HARPE_SCHEMA_READ_COUNT];
    sqlite3_stmt *count;       /* sets the number of the last commit */
    int64_t log_frames;        /* pages in the write-ahead log */
    bool has_unfinished_start; /* the file is not yet known to be a store of Harpe */

    char name[sizeof(harpe_store_name) + 8]; /* "sqlite:harpe.db" */

    /* The members below belong to a store in a file. */
    harpe_store_name path;     /* all symbolic links resolved; empty: in memory */
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
/* Runs `sql`, and reads the first `count` integers of its row. */
harpe_status harpe_sqlite_integers(const harpe_sqlite *store, const char *sql, int64_t *values,
                                   int count, harpe_error *error);
/* Fails if the file is not a store of Harpe with a known version. An empty file is also accepted,
 * and sets *is_new. */
harpe_status harpe_sqlite_identify(const harpe_sqlite *store, bool *is_new, harpe_error *error);

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
/* Reads the store's row as a record. */
harpe_status harpe_sqlite_read_record(const harpe_sqlite *store, harpe_commit_record *record,
                                      bool *in_use, harpe_error *error);
/* Starts the thread that answers `harpe store` on FILE.control. If the thread cannot be started,
 * logs a message, and the server works without it. */
void harpe_sqlite_backups_start(harpe_sqlite *store, harpe_log log);
/* accepts NULL */
void harpe_sqlite_backups_stop(harpe_sqlite_backups *backups);
/* Copies a database to the empty file `target`: one file without a log and without the mark that a
 * server has it open. It may not be on disk when this returns. If `goes_on` is given, copies in
 * small steps and calls it after each of them; if it returns false, ends with SQLITE_INTERRUPT.
 * Returns a code of SQLite. */
int harpe_sqlite_copy(sqlite3 *from, const char *target, bool (*goes_on)(void *user), void *user);

/* ---- The socket ------------------------------------------------------------------------------ */
/* The protocol between a server and `harpe store` on the Unix socket FILE.control. One byte asks
 * for a backup. The answer is one message: "ok" with a descriptor of the copy, or the reason why
 * there is no copy. */

/* Connects to a server without a request. Returns HARPE_NOT_FOUND if no server listens. Calls on
 * `*connection` wait for at most `wait_s`. The caller closes it. */
harpe_status harpe_store_control_connect(const char *path, int wait_s, int *connection,
                                         harpe_error *error);
/* Asks the server for a backup and waits for at most `wait_s`. Returns HARPE_NOT_FOUND if no server
 * listens. The caller closes `*file`. */
harpe_status harpe_store_control_ask(const char *path, int wait_s, int *file, harpe_error *error);

/* ---- Tools ----------------------------------------------------------------------------------- */

/* A store that is open for reading in a program that is not its server. */
typedef struct harpe_store_file {
    harpe_sqlite view; /* only db, name and path are set */
    bool is_in_use;    /* `view` is a copy that the server made */
    bool had_log;      /* there was a write-ahead log */
    int lock;          /* keeps servers from opening the store; -1: SQLite's own lock does */
    char *copy;        /* a temporary file, removed at the end; NULL: none */
} harpe_store_file;

#endif
