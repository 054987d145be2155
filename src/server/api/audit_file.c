/* SPDX-License-Identifier: Apache-2.0 */
/* Appends to the file of the audit log, and reads its newest records. The file is opened for each
 * write, so it may be renamed at any time. A file that is too long is renamed to PATH.old. A file
 * process makes all calls on the files. The parts of its work are the path, the old path, and what
 * to append or how many records to read. */
#include "server/api/audit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

enum {
    TAIL_BYTES = 8 << 20,  /* of the file, that a reader looks at */
    FILE_BYTES = 64 << 20, /* the longest file */
    APPENDS = -1,          /* in place of a limit of records to read */
};

enum { PATH, OLD_PATH, APPENDED, LIMIT, PART_COUNT };

/* ---- Appending ------------------------------------------------------------------------------- */

/* Appends the text. If the last write was cut off, begins a new line first. */
static int append_to(int file, const struct iovec *text) {
    struct stat info;
    char last = '\n';
    if (fstat(file, &info) != 0) return errno;
    if (info.st_size > 0 && pread(file, &last, 1, info.st_size - 1) != 1) return errno;
    int failure = last == '\n' ? 0 : harpe_write_all(file, "\n", 1);
    if (!failure) failure = harpe_write_all(file, text->iov_base, text->iov_len);
    if (!failure && fdatasync(file) != 0 && errno != EINVAL) failure = errno;
    return failure;
}

static int open_log(const char *path) {
    return open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
}

/* Opens the file for a text of this length. A long file is renamed first. If that is not possible,
 * it becomes longer, because the records are needed. */
static int open_with_room(const char *path, const char *old_path, size_t length) {
    struct stat info;
    int file = open_log(path);
    if (file < 0 || fstat(file, &info) != 0 || info.st_size == 0) return file;
    if (info.st_size + (off_t)length <= FILE_BYTES) return file;
    if (rename(path, old_path) != 0) return file;
    (void)close(file);
    return open_log(path);
}

static harpe_status append(const struct iovec *parts, harpe_error *error) {
    const char *path = parts[PATH].iov_base;
    int file = open_with_room(path, parts[OLD_PATH].iov_base, parts[APPENDED].iov_len);
    int failure = file < 0 ? errno : append_to(file, &parts[APPENDED]);
    if (file >= 0 && close(file) != 0 && !failure) failure = errno;
    return failure ? harpe_fail_errno(error, failure, "audit_log: cannot append to %.300s", path)
                   : HARPE_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Appends the last lines that are JSON objects, until the list has `limit` of them. */
static void take_lines(json_t *list, const char *text, size_t length, int limit) {
    while (length > 0 && json_array_size(list) < (size_t)limit) {
        size_t end = text[length - 1] == '\n' ? length - 1 : length;
        const char *before = memrchr(text, '\n', end);
        size_t begin = before ? (size_t)(before - text) + 1 : 0;
        json_t *record = json_loadb(text + begin, end - begin, 0, NULL);
        if (json_is_object(record))
            json_array_append_new(list, record);
        else
            json_decref(record);
        length = begin;
    }
}

/* Reads the end of a file that is open, and takes its lines. Returns 0 or an errno. */
static int take_tail(json_t *list, int file, off_t size, int limit) {
    size_t length = 0;
    char *tail = malloc(TAIL_BYTES);
    off_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    ssize_t got = tail ? 1 : -1;
    while (got > 0 && length < TAIL_BYTES) {
        got = pread(file, tail + length, TAIL_BYTES - length, from + (off_t)length);
        if (got > 0) length += (size_t)got;
    }
    int failure = got < 0 ? errno : 0;
    if (!failure) take_lines(list, tail, length, limit);
    free(tail);
    return failure;
}

/* Takes the newest lines of the file and then those of the file before it. */
static int take_newest(const char *path, const char *old_path, int limit, json_t *list) {
    const char *const paths[] = {path, old_path};
    struct stat info = {0};
    ino_t seen = 0;
    int failure = 0;
    for (int i = 0; i < 2 && !failure && json_array_size(list) < (size_t)limit; i++) {
        int file = open(paths[i], O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (file < 0 && errno == ENOENT) continue;
        if (file < 0 || fstat(file, &info) != 0)
            failure = errno;
        else if (info.st_ino != seen) /* otherwise it was renamed after it was read */
            failure = take_tail(list, file, info.st_size, limit);
        seen = info.st_ino;
        if (file >= 0) (void)close(file);
    }
    return failure;
}

static harpe_status read_newest(const struct iovec *parts, int limit, harpe_text *answer,
                                harpe_error *error) {
    const char *path = parts[PATH].iov_base;
    json_t *list = json_array();
    int failure = list ? take_newest(path, parts[OLD_PATH].iov_base, limit, list) : 0;
    char *json = list && !failure ? json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(list);
    if (failure) return harpe_fail_errno(error, failure, "audit_log: cannot read %.300s", path);
    if (!json) return harpe_fail_memory(error);
    harpe_text_append(answer, json, strlen(json));
    free(json);
    return HARPE_OK;
}

/* ---- The work -------------------------------------------------------------------------------- */

harpe_status harpe_audit_file_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                   harpe_error *error) {
    int limit;
    if (count != PART_COUNT || parts[LIMIT].iov_len != sizeof limit)
        return harpe_fail(error, HARPE_INTERNAL, "work on the audit log has the wrong size");
    memcpy(&limit, parts[LIMIT].iov_base, sizeof limit);
    return limit < 0 ? append(parts, error) : read_newest(parts, limit, answer, error);
}

static harpe_status run(harpe_file_processes *files, const char *path, const char *old_path,
                        struct iovec appended, int limit, harpe_text *answer, harpe_error *error) {
    const struct iovec parts[PART_COUNT] = {[PATH] = {(void *)path, strlen(path)},
                                            [OLD_PATH] = {(void *)old_path, strlen(old_path)},
                                            [APPENDED] = appended,
                                            [LIMIT] = {&limit, sizeof limit}};
    return harpe_file_processes_run(files, path, harpe_audit_file_work, parts, PART_COUNT, answer,
                                    error);
}

harpe_status harpe_audit_file_append(harpe_file_processes *files, const char *path,
                                     const char *old_path, const char *text, size_t length,
                                     harpe_error *error) {
    harpe_text answer = {0};
    harpe_status status =
        run(files, path, old_path, (struct iovec){(void *)text, length}, APPENDS, &answer, error);
    harpe_text_free(&answer);
    return status;
}

harpe_status harpe_audit_file_read(harpe_file_processes *files, const char *path,
                                   const char *old_path, int limit, harpe_text *json,
                                   harpe_error *error) {
    harpe_status status = run(files, path, old_path, (struct iovec){"", 0}, limit, json, error);
    if (status == HARPE_OK && (json->failed || !json->data)) status = harpe_fail_memory(error);
    if (status != HARPE_OK) harpe_text_free(json);
    return status;
}
