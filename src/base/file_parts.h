/* SPDX-License-Identifier: Apache-2.0 */
/* What whole files (file.c) and whole directories (directory.c) have in common: temporary names
 * beside the final one, complete writes, and durable directory entries. Private to those two. */
#ifndef HARPE_BASE_FILE_PARTS_H
#define HARPE_BASE_FILE_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/status.h>

/* "<first><separator><second>", to be freed with free(); NULL when out of memory. */
char *harpe_path_join(const char *first, const char *separator, const char *second);

/* The directory that holds `path` ("." when there is no slash), to be freed; NULL: out of memory.
 */
char *harpe_path_parent(const char *path);

/* A hidden name beside `path` that no other process uses: ".<last part>.<16 hex digits>.tmp", to be
 * freed; NULL: out of memory. Nothing is created. */
char *harpe_path_temporary(const char *path);

/* A process locks (flock) a temporary file or directory while it writes it. The lock distinguishes
 * it from one that a killed process left. `descriptor` is that of a file or directory that was just
 * made. False: another process took it for left over and removed it, and the caller must make it
 * again. On a file system without locks, nothing is taken for left over. */
bool harpe_temporary_lock(int descriptor);
/* Removes temporary files for `path` that killed processes left next to it (directory.c). */
void harpe_temporary_sweep(const char *path);

/* Writes everything or returns an errno. */
int harpe_write_all(int descriptor, const void *data, size_t length);

/* Makes the names inside a directory durable. Returns 0 or an errno; file systems that cannot do it
 * are no error. */
int harpe_sync_directory(const char *path);

#endif
