/* SPDX-License-Identifier: Apache-2.0 */
/* Files and directories that are written whole or not at all, and files read whole with a limit. */
#ifndef HARPE_BASE_FILE_H
#define HARPE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include <harpe/status.h>

/* Reads a regular file (or pipe) of at most `limit` bytes; `*text` is NUL-terminated beyond
 * `*length`, to be freed with free(). */
harpe_status harpe_file_read(const char *path, size_t limit, char **text, size_t *length,
                             harpe_error *error);

/* Writes `length` bytes to `path`: temporary name in the same directory, fsync, rename. A replaced
 * file keeps its mode and a symbolic link stays one. Temporary files that killed processes left for
 * this path are removed first. Pipes and devices (/dev/stdout) are written
 * directly. */
harpe_status harpe_file_write(const char *path, const void *data, size_t length,
                              harpe_error *error);

/* Makes a directory and the missing directories above it, with this mode. Returns 0 or an errno. A
 * directory that exists is not changed. */
int harpe_make_directories(const char *path, mode_t mode);

/* The same for a directory with many files: does not look for temporary files of killed processes.
 */
harpe_status harpe_file_write_one_of_many(const char *path, const void *data, size_t length,
                                          harpe_error *error);

/* A directory under construction: everything goes into a temporary directory beside the final
 * one, which appears by one rename in harpe_directory_commit. Until then nothing is visible;
 * harpe_directory_abort (also right after a failed commit, or for a struct that was never opened)
 * removes the temporary one. */
typedef struct harpe_directory {
    char *final_path;
    char *temporary_path; /* NULL when nothing is under construction */
    bool replace;
    size_t parents_made; /* parent directories that abort takes back */
    int lock;            /* 1 + a descriptor of the temporary directory, which is locked; 0: none */
} harpe_directory;

/* Refuses an existing final path with HARPE_ALREADY_EXISTS unless `replace`; then an existing
 * directory is swapped out at commit and removed after. Never replaces something that is not a
 * directory, nor a directory that contains directories (Harpe makes none: it is not our output).
 * Missing parent directories are created. */
harpe_status harpe_directory_open(harpe_directory *directory, const char *path, bool replace,
                                  harpe_error *error);
/* Writes one file inside (name without '/'). Commit puts it, as every file inside, on disk. */
harpe_status harpe_directory_write(harpe_directory *directory, const char *name, const void *data,
                                   size_t length, harpe_error *error);
/* Path of a file inside, for libraries that want to write by name; to be freed with free(). */
char *harpe_directory_path(const harpe_directory *directory, const char *name);
/* On failure the directory stays under construction: call harpe_directory_abort. */
harpe_status harpe_directory_commit(harpe_directory *directory, harpe_error *error);
void harpe_directory_abort(harpe_directory *directory);

#endif
