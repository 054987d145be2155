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

#endif
