/* SPDX-License-Identifier: Apache-2.0 */
/* The files of an SQLite store beside the database. These functions make their names, keep a record
 * of the number of commits, and check that the files are still those that the server opened. They
 * do not use SQL.
 *
 * SQLite reports no error if its write-ahead log (FILE-wal) is missing, and ignores the part of the
 * log after a damaged frame. Commits are lost in both cases. To notice this, the server writes the
 * number of the last commit into FILE.commits after every commit, and compares it at the next
 * start. */
#ifndef HARPE_SERVER_STORE_SQLITE_FILES_H
#define HARPE_SERVER_STORE_SQLITE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>

#include <sqlite3.h>

#include <harpe/status.h>

/* ---- The file system ------------------------------------------------------------------------- */

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

/* ---- Names ----------------------------------------------------------------------------------- */

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

/* Returns the path with all symbolic links resolved. The file need not exist. Free the path with
 * free(). Returns NULL if memory runs out. */
char *harpe_store_real_path(const char *path);
/* Returns `path` with `suffix` at its end. NULL: out of memory. */
char *harpe_store_beside(const char *path, const char *suffix);
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

#endif
