/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and replaces the file of tokens. A lock on its directory orders the programs that change
 * it. Readers need no lock, because the file is replaced as a whole. */
#include "rights/tokens_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/file_internal.h"

#define FILE_LIMIT_BYTES ((size_t)64 << 20)

/* ---- Stamps ---------------------------------------------------------------------------------- */

harpe_tokens_stamp harpe_tokens_file_look(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return (harpe_tokens_stamp){0};
    return (harpe_tokens_stamp){info.st_dev, info.st_ino, info.st_size, info.st_ctim};
}

bool harpe_tokens_stamp_equal(const harpe_tokens_stamp *a, const harpe_tokens_stamp *b) {
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static harpe_status check_mode(const char *path, const char *flag, harpe_error *error) {
    struct stat info;
    if (stat(path, &info) != 0) return harpe_fail_errno(error, errno, "%s %.300s", flag, path);
    if (!S_ISREG(info.st_mode))
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s %.300s: is not a file", flag, path);
    if (info.st_mode & 0077)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "%s %.300s: other users may use the file (mode %04o): chmod 600 it", flag,
                          path, (unsigned)(info.st_mode & 07777));
    return HARPE_OK;
}

harpe_status harpe_tokens_file_read(const char *path, const char *flag, harpe_tokens *out,
                                    harpe_tokens_stamp *stamp, harpe_error *error) {
    char *text, what[400];
    size_t length;
    /* A change between these calls gives the file another stamp than this one. */
    harpe_tokens_stamp seen = harpe_tokens_file_look(path);
    harpe_status status = check_mode(path, flag, error);
    if (status == HARPE_OK)
        status = harpe_file_read_promptly(path, FILE_LIMIT_BYTES, &text, &length, error);
    if (status != HARPE_OK) return status;
    (void)snprintf(what, sizeof what, "%s %.300s", flag, path);
    status = harpe_tokens_parse(text, length, what, out, error);
    free(text);
    if (status == HARPE_OK && stamp) *stamp = seen;
    return status;
}

/* ---- Changing -------------------------------------------------------------------------------- */

/* Locks the directory of the file. Returns a descriptor to close, or -1 with errno. */
static int lock_directory(const char *path) {
    char *parent = harpe_path_parent(path);
    if (!parent) return -1;
    int directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(parent);
    if (directory < 0) return -1;
    while (flock(directory, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        (void)close(directory);
        return -1;
    }
    return directory;
}

static harpe_status write_tokens(const char *path, const harpe_tokens *tokens, harpe_error *error) {
    char *text = harpe_tokens_format(tokens);
    if (!text) return harpe_fail_memory(error);
    mode_t mask = umask(0077); /* a new file has the mode 0600 from its beginning */
    harpe_status status = harpe_file_write(path, text, strlen(text), error);
    (void)umask(mask);
    free(text);
    return status;
}

harpe_status harpe_tokens_file_change(const char *path, const char *flag,
                                      harpe_status (*change)(void *user, harpe_tokens *tokens,
                                                             harpe_error *error),
                                      void *user, harpe_error *error) {
    harpe_tokens tokens = {0};
    int lock = lock_directory(path);
    if (lock < 0)
        return harpe_fail_errno(error, errno, "%s %.300s: cannot lock its directory", flag, path);
    harpe_status status = HARPE_OK;
    struct stat info;
    if (stat(path, &info) == 0 || errno != ENOENT)
        status = harpe_tokens_file_read(path, flag, &tokens, NULL, error);
    if (status == HARPE_OK) status = change(user, &tokens, error);
    if (status == HARPE_OK) status = write_tokens(path, &tokens, error);
    harpe_tokens_free(&tokens);
    (void)close(lock);
    return status;
}
