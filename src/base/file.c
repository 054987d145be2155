/* SPDX-License-Identifier: Apache-2.0 */
/* Single files, read whole with a limit and written whole or not at all: the bytes go to a
 * temporary name in the same directory, which takes the final name only when all of them are on
 * disk. Formats are not its concern; directories made in one piece are directory.c. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file_parts.h"
#include "base/text.h"

/* ---- Parts shared with directory.c -------------------------------------------------------- */

char *harpe_path_join(const char *first, const char *separator, const char *second) {
    char *path;
    return asprintf(&path, "%s%s%s", first, separator, second) < 0 ? NULL : path;
}

char *harpe_path_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) {
        return strdup(".");
    }
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

char *harpe_path_temporary(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    uint64_t tag;
    if (getrandom(&tag, sizeof tag, GRND_NONBLOCK) != (ssize_t)sizeof tag) {
        /* Early after boot: unique enough, and the name is created exclusively anyway. */
        tag = (uint64_t)harpe_clock_ns() ^ ((uint64_t)getpid() << 40);
    }
    char *temporary;
    /* The last part is cut so that the name stays within the 255 bytes of a file name. */
    int length = asprintf(&temporary, "%.*s.%.200s.%016llx.tmp", (int)(last - path), path, last,
                          (unsigned long long)tag);
    return length < 0 ? NULL : temporary;
}

int harpe_write_all(int descriptor, const void *data, size_t length) {
    const char *bytes = data;
    while (length > 0) {
        ssize_t written = write(descriptor, bytes, length);
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno;
        }
        bytes += written;
        length -= (size_t)written;
    }
    return 0;
}

int harpe_sync_directory(const char *path) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        /* A directory that may be written but not listed cannot be opened for this. */
        return errno == EACCES ? 0 : errno;
    }
    int result = fsync(descriptor) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
    (void)close(descriptor);
    return result;
}

/* ---- Reading ------------------------------------------------------------------------------ */

/* Refuses what has no end or no bytes, and what is known to be too large before reading it. */
static harpe_status check_readable(int descriptor, const char *path, size_t limit, size_t *size,
                                   harpe_error *error) {
    struct stat info;
    if (fstat(descriptor, &info) != 0) {
        return harpe_fail_errno(error, errno, "%s", path);
    }
    if (S_ISDIR(info.st_mode)) {
        return harpe_fail_errno(error, EISDIR, "%s", path);
    }
    *size = S_ISREG(info.st_mode) && info.st_size > 0 ? (size_t)info.st_size : 0;
    if (*size > limit) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: %zu bytes, more than the limit of %zu",
                          path, *size, limit);
    }
    return HARPE_OK;
}

/* Reads to the end; a file that grows meanwhile is read as far as it goes, within the limit. */
static harpe_status read_to_end(int descriptor, const char *path, size_t limit, harpe_text *text,
                                harpe_error *error) {
    for (;;) {
        /* Two bytes more: one to notice the end or an excess, one for the NUL. */
        if (text->capacity - text->length < 2 &&
            !HARPE_ARRAY_RESERVE(text->data, text->capacity, text->length + 4096)) {
            return harpe_fail_memory(error);
        }
        ssize_t got =
            read(descriptor, text->data + text->length, text->capacity - text->length - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return harpe_fail_errno(error, errno, "%s", path);
        }
        text->length += (size_t)got;
        text->data[text->length] = '\0';
        if (text->length > limit) {
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: more than the limit of %zu bytes",
                              path, limit);
        }
        if (got == 0) {
            return HARPE_OK;
        }
    }
}

harpe_status harpe_file_read(const char *path, size_t limit, char **text, size_t *length,
                             harpe_error *error) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) {
        return harpe_fail_errno(error, errno, "%s", path);
    }
    harpe_text content = {0};
    size_t size = 0;
    harpe_status status = check_readable(descriptor, path, limit, &size, error);
    if (status == HARPE_OK && !HARPE_ARRAY_RESERVE(content.data, content.capacity, size + 2)) {
        status = harpe_fail_memory(error);
    }
    if (status == HARPE_OK) {
        status = read_to_end(descriptor, path, limit, &content, error);
    }
    (void)close(descriptor);
    if (status != HARPE_OK) {
        harpe_text_free(&content);
        return status;
    }
    *text = content.data;
    *length = content.length;
    return HARPE_OK;
}

/* ---- Writing ------------------------------------------------------------------------------ */

/* A pipe, terminal or device has no name to swap: the bytes go straight into it. */
static harpe_status write_to_stream(const char *path, const void *data, size_t length,
                                    harpe_error *error) {
    int descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) {
        return harpe_fail_errno(error, errno, "%s", path);
    }
    int failure = harpe_write_all(descriptor, data, length);
    if (close(descriptor) != 0 && failure == 0) {
        failure = errno;
    }
    return failure == 0 ? HARPE_OK : harpe_fail_errno(error, failure, "%s", path);
}

/* Creates `temporary` with all of the data on disk; removes it again when that fails. `*lock` is
 * another descriptor of it, which keeps it locked. */
static int write_temporary(const char *temporary, mode_t mode, bool force_mode, const void *data,
                           size_t length, int *lock) {
    int descriptor = -1;
    do {
        if (descriptor >= 0) (void)close(descriptor);
        descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (descriptor < 0) {
            return errno;
        }
    } while (!harpe_temporary_lock(descriptor));
    *lock = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    int failure = *lock < 0 ? errno : harpe_write_all(descriptor, data, length);
    if (failure == 0 && force_mode && fchmod(descriptor, mode) != 0) {
        failure = errno;
    }
    if (failure == 0 && fsync(descriptor) != 0 && errno != EINVAL) {
        failure = errno;
    }
    if (close(descriptor) != 0 && failure == 0) {
        failure = errno;
    }
    if (failure != 0) {
        (void)unlink(temporary);
    }
    return failure;
}

bool harpe_temporary_lock(int descriptor) {
    struct stat info;
    while (flock(descriptor, LOCK_EX) != 0) {
        if (errno != EINTR) return true;
    }
    return fstat(descriptor, &info) != 0 || info.st_nlink > 0;
}

/* `path` is free of symbolic links in its last part. A file that is replaced keeps its mode. */
static harpe_status write_whole(const char *path, const struct stat *old, const void *data,
                                size_t length, harpe_error *error) {
    harpe_status status = HARPE_OK;
    int failure = 0;
    int lock = -1;
    char *temporary = harpe_path_temporary(path);
    char *parent = harpe_path_parent(path);
    if (!temporary || !parent) {
        status = harpe_fail_memory(error);
        goto done;
    }
    mode_t mode = old ? old->st_mode & 07777 : 0666;
    failure = write_temporary(temporary, mode, old != NULL, data, length, &lock);
    if (failure == 0 && rename(temporary, path) != 0) {
        failure = errno;
        (void)unlink(temporary);
    }
    if (failure == 0) {
        failure = harpe_sync_directory(parent);
    }
    if (failure != 0) {
        status = harpe_fail_errno(error, failure, "cannot write %s", path);
    }
done:
    if (lock >= 0) (void)close(lock);
    free(parent);
    free(temporary);
    return status;
}

static harpe_status write_file(const char *path, bool sweeps, const void *data, size_t length,
                               harpe_error *error) {
    struct stat info;
    if (stat(path, &info) != 0) {
        if (errno != ENOENT) {
            return harpe_fail_errno(error, errno, "cannot write %s", path);
        }
        if (sweeps) harpe_temporary_sweep(path);
        return write_whole(path, NULL, data, length, error);
    }
    if (S_ISDIR(info.st_mode)) {
        return harpe_fail_errno(error, EISDIR, "cannot write %s", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return write_to_stream(path, data, length, error);
    }
    /* A symbolic link stays one: what it points to is replaced. */
    char *target = realpath(path, NULL);
    if (!target) {
        return harpe_fail_errno(error, errno, "cannot write %s", path);
    }
    if (sweeps) harpe_temporary_sweep(target);
    harpe_status status = write_whole(target, &info, data, length, error);
    free(target);
    return status;
}

harpe_status harpe_file_write(const char *path, const void *data, size_t length,
                              harpe_error *error) {
    return write_file(path, true, data, length, error);
}

harpe_status harpe_file_write_one_of_many(const char *path, const void *data, size_t length,
                                          harpe_error *error) {
    return write_file(path, false, data, length, error);
}
