/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files as a whole with a limit, and writes files completely or not at all. */
#ifndef HARPE_BASE_FILE_H
#define HARPE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include <harpe/status.h>

/* Reads a regular file (or pipe) of at most `limit` bytes. A NUL follows the `*length` bytes of
 * `*text`. The caller frees `*text` with free(). */
harpe_status harpe_file_read(const char *path, size_t limit, char **text, size_t *length,
                             harpe_error *error);

/* Does the same for a file that a program reads when it starts. It does not wait for another
 * process to open a pipe. It waits at most 10 s for the bytes of an open pipe or of a device. An
 * empty pipe is an error. */
harpe_status harpe_file_read_promptly(const char *path, size_t limit, char **text, size_t *length,
                                      harpe_error *error);

/* Fails if `path` is neither a regular file nor a link to a regular file. Fails with
 * HARPE_NOT_FOUND if nothing has this name. */
harpe_status harpe_file_check_regular(const char *path, harpe_error *error);

/* Writes `length` bytes to a temporary file in the same directory, calls fsync, and renames the
 * file to `path`. A replaced file keeps its mode, and a symbolic link is kept. The function first
 * removes temporary files that killed processes left for this path. Pipes and devices (/dev/stdout)
 * are written directly. */
harpe_status harpe_file_write(const char *path, const void *data, size_t length,
                              harpe_error *error);

/* Writes `length` bytes to the file `name` in an open directory, completely or not at all. The file
 * gets mode 0600. Does not call fsync. The temporary name is "<name>.new", so two processes must
 * not write the same file at the same time. Returns 0 or an errno. */
int harpe_file_replace_at(int directory, const char *name, const void *data, size_t length);

/* Writes a file as harpe_file_write does, but does not look for temporary files of killed
 * processes. Use it in directories with many files. */
harpe_status harpe_file_write_one_of_many(const char *path, const void *data, size_t length,
                                          harpe_error *error);

/* Creates and locks the file `name`, with mode 0600, in an open directory. A lock that others must
 * not hold belongs on such a file: any user may lock a file or directory that he may read. Waits at
 * most `timeout_ms` for another process of this user. Returns a descriptor for
 * harpe_file_unlock_at, or -1 with errno (EWOULDBLOCK: another process has the lock). */
int harpe_file_lock_at(int directory, const char *name, int timeout_ms);
/* Removes the file, which ends the lock. */
void harpe_file_unlock_at(int directory, const char *name, int lock);

/* ---- Directories ----------------------------------------------------------------------------- */

/* Writes directories completely or not at all, and makes missing directories. */

/* Makes a directory and the missing directories above it, with the mode `mode`. Returns 0 or an
 * errno. Does not change directories that exist. */
int harpe_make_directories(const char *path, mode_t mode);

/* A directory under construction. All files go into a temporary directory beside the final one.
 * harpe_directory_commit renames it; until then nothing is visible at the final path.
 * harpe_directory_abort removes the temporary directory. harpe_directory_abort may also be called
 * right after a failed commit, or for a struct that was never opened. */
typedef struct harpe_directory {
    char *final_path;
    char *temporary_path; /* NULL if nothing is under construction */
    bool replace;
    size_t parents_made; /* number of parent directories that harpe_directory_abort removes */
    int lock;            /* 1 + the descriptor that locks the temporary directory; 0: none */
} harpe_directory;

/* Makes an empty directory under a temporary name. harpe_directory_commit later gives it the name
 * `path`. Also makes missing parent directories. If `path` exists and `replace` is false, fails
 * with HARPE_ALREADY_EXISTS. If `replace` is true, the commit replaces the directory at `path` and
 * removes the old one. It does not replace a directory that has subdirectories, because Harpe
 * writes none. */
harpe_status harpe_directory_open(harpe_directory *directory, const char *path, bool replace,
                                  harpe_error *error);
/* Writes one file in the directory; `name` has no '/'. Commit makes all files durable. */
harpe_status harpe_directory_write(harpe_directory *directory, const char *name, const void *data,
                                   size_t length, harpe_error *error);
/* Returns the path of a file in the directory, for libraries that need a file's name to write it.
 * The caller frees it with free(). */
char *harpe_directory_path(const harpe_directory *directory, const char *name);
/* Renames the directory to its final path. If this fails, call harpe_directory_abort. */
harpe_status harpe_directory_commit(harpe_directory *directory, harpe_error *error);
void harpe_directory_abort(harpe_directory *directory);

/* ---- Steps ----------------------------------------------------------------------------------- */

/* The steps of writing files and directories safely: temporary names beside the final name,
 * complete writes, and durable directory entries. */

/* Returns "<first><separator><second>", to be freed with free(), or NULL when out of memory. */
char *harpe_path_join(const char *first, const char *separator, const char *second);

/* Returns the directory that holds `path` ("." when there is no slash), to be freed with free(), or
 * NULL when out of memory. */
char *harpe_path_parent(const char *path);

/* Returns a hidden name beside `path` that no other process uses, ".<last part>.<16 hex
 * digits>.tmp", to be freed with free(), or NULL when out of memory. Creates nothing. */
char *harpe_path_temporary(const char *path);

/* Locks (flock) a temporary file or directory that this process has just created. If a temporary
 * file has no lock, other processes treat it as the remains of a killed process and remove it.
 * Returns false if another process removed the file before it was locked: the caller must create it
 * again. On a file system without locks, or while another user holds the lock, no file counts as
 * left over. */
bool harpe_temporary_lock(int descriptor);
/* Removes temporary files for `path` that killed processes left next to it. */
void harpe_temporary_sweep(const char *path);

/* Writes all bytes. Returns 0 or an errno. */
int harpe_write_all(int descriptor, const void *data, size_t length);

/* Makes the names inside a directory durable. Returns 0 or an errno. Also returns 0 if the file
 * system does not support this. */
int harpe_sync_directory(const char *path);

/* ---- Files that name code -------------------------------------------------------------------- */

/* Reads environment variables that name code to run (HARPE_PROGRAM, HARPE_NVML_LIBRARY). The
 * environment of a process with privileges may come from a user without them (sudo -E). SECURITY.md
 * has the rules. */

/* Returns the file that a variable names. Returns NULL in four cases: the variable is not set or
 * empty; the process runs with more rights than its caller (real and effective user or group
 * differ); everybody may write to the file; the owner of the file is neither root, nor the
 * effective user, nor the owner of the running program or library. A name without a slash is not
 * checked, because the loader searches for it. The name of a missing file is returned, because
 * opening the file reports the error. `*is_ignored` (may be NULL) becomes true if the variable is
 * set but NULL is returned. */
const char *harpe_trusted_file_variable(const char *name, bool *is_ignored);

/* Returns true if a file may choose code for this process: not everybody may write to the file, and
 * its owner is one of those above. Also returns true if the file is missing. */
bool harpe_file_is_trusted(const char *path);

#endif
