/* SPDX-License-Identifier: Apache-2.0 */
/* Writes directories completely or not at all, and makes missing directories. */
#ifndef HARPE_BASE_DIRECTORY_H
#define HARPE_BASE_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <harpe/status.h>

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

#endif
