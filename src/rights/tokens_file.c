/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and replaces the file of tokens. A lock orders the programs that change it. Readers need no
 * lock, because the file is replaced as a whole. */
#include "rights/tokens_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/file_internal.h"

enum { LOCK_MS = 10000 };

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

static harpe_status read_text(const char *path, const char *flag, char **text, size_t *length,
                              harpe_error *error) {
    harpe_status status = check_mode(path, flag, error);
    return status != HARPE_OK
               ? status
               : harpe_file_read_promptly(path, FILE_LIMIT_BYTES, text, length, error);
}

static harpe_status parse(const char *path, const char *flag, const char *text, size_t length,
                          harpe_tokens *out, harpe_error *error) {
    char what[400];
    (void)snprintf(what, sizeof what, "%s %.300s", flag, path);
    return harpe_tokens_parse(text, length, what, out, error);
}

harpe_status harpe_tokens_file_read(const char *path, const char *flag, harpe_tokens *out,
                                    harpe_tokens_stamp *stamp, harpe_error *error) {
    char *text;
    size_t length;
    /* A change between these calls gives the file another stamp than this one. */
    harpe_tokens_stamp seen = harpe_tokens_file_look(path);
    harpe_status status = read_text(path, flag, &text, &length, error);
    if (status != HARPE_OK) return status;
    status = parse(path, flag, text, length, out, error);
    free(text);
    if (status == HARPE_OK && stamp) *stamp = seen;
    return status;
}

/* ---- Reading in a file process --------------------------------------------------------------- */

/* The parts of the work. The answer is empty, or the stamp and the text. */
enum { PATH, FLAG, STAMP, PART_COUNT };

harpe_status harpe_tokens_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                    harpe_error *error) {
    harpe_tokens_stamp known;
    if (count != PART_COUNT || parts[STAMP].iov_len != sizeof known)
        return harpe_fail(error, HARPE_INTERNAL, "a stamp of tokens has the wrong size");
    memcpy(&known, parts[STAMP].iov_base, sizeof known);
    char *text;
    size_t length;
    const char *path = parts[PATH].iov_base;
    harpe_tokens_stamp seen = harpe_tokens_file_look(path);
    if (harpe_tokens_stamp_equal(&seen, &known)) return HARPE_OK;
    harpe_status status = read_text(path, parts[FLAG].iov_base, &text, &length, error);
    if (status != HARPE_OK) return status;
    harpe_text_append(answer, (const char *)&seen, sizeof seen);
    harpe_text_append(answer, text, length);
    free(text);
    return HARPE_OK;
}

harpe_status harpe_tokens_file_read_changed(harpe_file_processes *files, const char *path,
                                            const char *flag, harpe_tokens *out,
                                            harpe_tokens_stamp *stamp, bool *is_changed,
                                            harpe_error *error) {
    const struct iovec parts[PART_COUNT] = {[PATH] = {(void *)path, strlen(path)},
                                            [FLAG] = {(void *)flag, strlen(flag)},
                                            [STAMP] = {stamp, sizeof *stamp}};
    harpe_text answer = {0};
    harpe_status status = harpe_file_processes_run(files, path, harpe_tokens_file_work, parts,
                                                   PART_COUNT, &answer, error);
    if (status == HARPE_OK && answer.failed) status = harpe_fail_memory(error);
    *is_changed = status != HARPE_OK || answer.length >= sizeof *stamp;
    if (status == HARPE_OK && *is_changed)
        status = parse(path, flag, answer.data + sizeof *stamp, answer.length - sizeof *stamp, out,
                       error);
    if (status == HARPE_OK && *is_changed) memcpy(stamp, answer.data, sizeof *stamp);
    harpe_text_free(&answer);
    return status;
}

/* ---- Changing -------------------------------------------------------------------------------- */

/* The lock of the programs that change the file: another file beside it, "<path>.lock". */
typedef struct change_lock {
    int directory, lock;
    char *name; /* in the directory */
} change_lock;

static void unlock(change_lock *lock) {
    if (lock->lock >= 0) harpe_file_unlock_at(lock->directory, lock->name, lock->lock);
    if (lock->directory >= 0) (void)close(lock->directory);
    free(lock->name);
}

static harpe_status lock_changes(const char *path, const char *flag, change_lock *out,
                                 harpe_error *error) {
    const char *slash = strrchr(path, '/');
    char *parent = harpe_path_parent(path);
    *out = (change_lock){-1, -1, harpe_path_join(slash ? slash + 1 : path, "", ".lock")};
    if (parent && out->name) {
        out->directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (out->directory >= 0) out->lock = harpe_file_lock_at(out->directory, out->name, LOCK_MS);
    }
    int failure = errno;
    free(parent);
    if (out->lock >= 0) return HARPE_OK;
    unlock(out);
    if (failure == EWOULDBLOCK)
        return harpe_fail(
            error, HARPE_UNAVAILABLE,
            "%s %.300s: another program has been changing the file for %d s (its lock "
            "is %.300s.lock); try again",
            flag, path, LOCK_MS / 1000, path);
    return harpe_fail_errno(error, failure, "%s %.300s: cannot lock %.300s.lock", flag, path, path);
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
    change_lock lock;
    harpe_status status = lock_changes(path, flag, &lock, error);
    if (status != HARPE_OK) return status;
    struct stat info;
    if (stat(path, &info) == 0 || errno != ENOENT)
        status = harpe_tokens_file_read(path, flag, &tokens, NULL, error);
    if (status == HARPE_OK) status = change(user, &tokens, error);
    if (status == HARPE_OK) status = write_tokens(path, &tokens, error);
    harpe_tokens_free(&tokens);
    unlock(&lock);
    return status;
}
