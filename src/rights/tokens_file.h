/* SPDX-License-Identifier: Apache-2.0 */
/* The file of tokens on disk. Only its owner may read and write it (mode 0600). */
#ifndef HARPE_RIGHTS_TOKENS_FILE_H
#define HARPE_RIGHTS_TOKENS_FILE_H

#include <sys/stat.h>

#include "base/file_processes.h"
#include "rights/tokens.h"

/* Which file a path named at some time, and when it last changed. */
typedef struct harpe_tokens_stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
} harpe_tokens_stamp;

#define HARPE_TOKENS_NO_STAMP ((harpe_tokens_stamp){.size = -1}) /* of no file */

/* Reads the tokens. Fails if the file is not a regular file, if other users may use it, or if a
 * line is not valid. An error begins with `flag` ("--tokens") and the path. Fills in `*stamp`,
 * which may be NULL. Nothing waits longer than 10 s. */
harpe_status harpe_tokens_file_read(const char *path, const char *flag, harpe_tokens *out,
                                    harpe_tokens_stamp *stamp, harpe_error *error);
/* Does the same if the file has another stamp than `*stamp`; `*is_changed` says whether it has.
 * File processes use the file, because it may be on a file server that does not answer. Waits for
 * them without a limit. To read the file in any case, begin with HARPE_TOKENS_NO_STAMP. */
harpe_status harpe_tokens_file_read_changed(harpe_file_processes *files, const char *path,
                                            const char *flag, harpe_tokens *out,
                                            harpe_tokens_stamp *stamp, bool *is_changed,
                                            harpe_error *error);
/* What a file process does. */
harpe_status harpe_tokens_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                    harpe_error *error);
/* Returns the stamp of the file now, with zeros if there is no file. */
harpe_tokens_stamp harpe_tokens_file_look(const char *path);
bool harpe_tokens_stamp_equal(const harpe_tokens_stamp *a, const harpe_tokens_stamp *b);

/* Reads the file, lets `change` change the tokens, and replaces the file atomically. A missing file
 * counts as empty. If `change` fails, writes nothing. While it runs, other callers for files in the
 * same directory wait, so that no change is lost. */
harpe_status harpe_tokens_file_change(const char *path, const char *flag,
                                      harpe_status (*change)(void *user, harpe_tokens *tokens,
                                                             harpe_error *error),
                                      void *user, harpe_error *error);

#endif
