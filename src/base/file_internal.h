/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of writing files and directories safely: temporary names beside the final name,
 * complete writes, and durable directory entries. For sources that need more than file.h and
 * directory.h offer. */
#ifndef HARPE_BASE_FILE_INTERNAL_H
#define HARPE_BASE_FILE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

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
/* Removes temporary files for `path` that killed processes left next to it (directory.c). */
void harpe_temporary_sweep(const char *path);

/* Writes all bytes. Returns 0 or an errno. */
int harpe_write_all(int descriptor, const void *data, size_t length);

/* Makes the names inside a directory durable. Returns 0 or an errno. Also returns 0 if the file
 * system does not support this. */
int harpe_sync_directory(const char *path);

#endif
