/* SPDX-License-Identifier: Apache-2.0 */
/* Reads single files as a whole, up to a limit, and writes them completely or not at all. The bytes
 * go to a temporary file in the same directory. The temporary file gets the final name when all
 * bytes are on disk. file.c does not interpret formats. directory.c writes directories. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file_internal.h"
#include "base/process.h"
#include "base/random.h"
#include "base/text.h"
#include "base/wait.h"

enum {
    PROMPT_S = 10,           /* time limit of harpe_file_read_promptly */
    TEMPORARY_LOCK_MS = 500, /* how long another program may hold a new file's lock */
    LOCK_LOOK_MS = 10,
};

/* ---- Parts that directory.c also uses -------------------------------------------------------- */

char *harpe_path_join(const char *first, const char *separator, const char *second) {
    char *path;
    return asprintf(&path, "%s%s%s", first, separator, second) < 0 ? NULL : path;
}

char *harpe_path_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

char *harpe_path_temporary(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    uint64_t tag;
    if (!harpe_random_now(&tag, sizeof tag)) {
        /* Early after boot the kernel may have no random numbers. This value rarely repeats, and
         * creating the file fails if the name exists. */
        tag = (uint64_t)harpe_clock_ns() ^ ((uint64_t)harpe_process_self() << 40);
    }
    char *temporary;
    /* The last part is cut to keep the name within the 255 bytes of a file name. */
    int length = asprintf(&temporary, "%.*s.%.200s.%016llx.tmp", (int)(last - path), path, last,
                          (unsigned long long)tag);
    return length < 0 ? NULL : temporary;
}

int harpe_write_all(int descriptor, const void *data, size_t length) {
    const char *bytes = data;
    while (length > 0) {
        ssize_t written = write(descriptor, bytes, length);
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        bytes += written;
        length -= (size_t)written;
    }
    return 0;
}

int harpe_file_replace_at(int directory, const char *name, const void *data, size_t length) {
    char temporary[NAME_MAX + 1];
    int size = snprintf(temporary, sizeof temporary, "%s.new", name);
    if (size < 0 || (size_t)size >= sizeof temporary) return ENAMETOOLONG;
    int file =
        openat(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return errno;
    int failure = harpe_write_all(file, data, length);
    if (close(file) != 0 && !failure) failure = errno;
    if (!failure && renameat(directory, temporary, directory, name) != 0) failure = errno;
    if (failure) (void)unlinkat(directory, temporary, 0);
    return failure;
}

int harpe_sync_directory(const char *path) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        /* A directory that is writable but not readable cannot be opened for fsync. */
        return errno == EACCES ? 0 : errno;
    }
    int result = fsync(descriptor) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
    (void)close(descriptor);
    return result;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Refuses a directory, and a regular file that is larger than the limit. `*size` receives the size
 * of a regular file, or 0 if the size is not known. */
static harpe_status check_readable(int descriptor, const char *path, size_t limit, size_t *size,
                                   harpe_error *error) {
    struct stat info;
    if (fstat(descriptor, &info) != 0) return harpe_fail_errno(error, errno, "%s", path);
    if (S_ISDIR(info.st_mode)) return harpe_fail_errno(error, EISDIR, "%s", path);
    *size = S_ISREG(info.st_mode) && info.st_size > 0 ? (size_t)info.st_size : 0;
    if (*size > limit) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: %zu bytes, more than the limit of %zu",
                          path, *size, limit);
    }
    return HARPE_OK;
}

/* Waits until a non-blocking descriptor has something to read. */
static harpe_status wait_for_input(int descriptor, const char *path, int64_t end_ns,
                                   harpe_error *error) {
    struct pollfd input = {.fd = descriptor, .events = POLLIN};
    int64_t left_ns = end_ns - harpe_clock_ns();
    if (left_ns > 0 && (harpe_poll(&input, 1, left_ns) >= 0 || errno == EINTR)) return HARPE_OK;
    return harpe_fail(error, HARPE_IO_ERROR, "%s: could not be read to its end within %d s", path,
                      PROMPT_S);
}

/* Reads to the end. If the file grows meanwhile, the new bytes are read too, within the limit. */
static harpe_status read_to_end(int descriptor, const char *path, size_t limit, harpe_text *text,
                                harpe_error *error) {
    int64_t end_ns = harpe_clock_ns() + PROMPT_S * INT64_C(1000000000);
    for (;;) {
        /* Room for two more bytes: one to notice the end of the file or too much data, and one for
         * the NUL. */
        if (text->capacity - text->length < 2 &&
            !HARPE_ARRAY_RESERVE(text->data, text->capacity, text->length + 4096))
            return harpe_fail_memory(error);
        ssize_t got =
            read(descriptor, text->data + text->length, text->capacity - text->length - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) {
            harpe_status status = wait_for_input(descriptor, path, end_ns, error);
            if (status != HARPE_OK) return status;
            continue;
        }
        if (got < 0) return harpe_fail_errno(error, errno, "%s", path);
        text->length += (size_t)got;
        text->data[text->length] = '\0';
        if (text->length > limit) {
            return harpe_fail(error, HARPE_LIMIT_EXCEEDED, "%s: more than the limit of %zu bytes",
                              path, limit);
        }
        if (got == 0) return HARPE_OK;
    }
}

static harpe_status read_whole(const char *path, int flags, size_t limit, harpe_text *content,
                               harpe_error *error) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | flags);
    if (descriptor < 0) return harpe_fail_errno(error, errno, "%s", path);
    size_t size = 0;
    harpe_status status = check_readable(descriptor, path, limit, &size, error);
    if (status == HARPE_OK && !HARPE_ARRAY_RESERVE(content->data, content->capacity, size + 2))
        status = harpe_fail_memory(error);
    if (status == HARPE_OK) status = read_to_end(descriptor, path, limit, content, error);
    struct stat info;
    if (status == HARPE_OK && flags != 0 && content->length == 0 && fstat(descriptor, &info) == 0 &&
        S_ISFIFO(info.st_mode)) {
        status =
            harpe_fail(error, HARPE_INVALID_INPUT, "%s: is a pipe that nobody writes to", path);
    }
    (void)close(descriptor);
    return status;
}

static harpe_status read_with(const char *path, int flags, size_t limit, char **text,
                              size_t *length, harpe_error *error) {
    harpe_text content = {0};
    harpe_status status = read_whole(path, flags, limit, &content, error);
    if (status != HARPE_OK) {
        harpe_text_free(&content);
        return status;
    }
    *text = content.data;
    *length = content.length;
    return HARPE_OK;
}

harpe_status harpe_file_read(const char *path, size_t limit, char **text, size_t *length,
                             harpe_error *error) {
    return read_with(path, 0, limit, text, length, error);
}

harpe_status harpe_file_read_promptly(const char *path, size_t limit, char **text, size_t *length,
                                      harpe_error *error) {
    return read_with(path, O_NONBLOCK, limit, text, length, error);
}

harpe_status harpe_file_check_regular(const char *path, harpe_error *error) {
    struct stat info;
    if (stat(path, &info) != 0) return harpe_fail_errno(error, errno, "%s", path);
    if (S_ISREG(info.st_mode)) return HARPE_OK;
    const char *kind = S_ISDIR(info.st_mode)    ? "a directory"
                       : S_ISFIFO(info.st_mode) ? "a pipe"
                       : S_ISSOCK(info.st_mode) ? "a socket"
                                                : "a device";
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: is not a file but %s, so it cannot be opened", path, kind);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Writes directly to a pipe, terminal or device, because a rename cannot replace it. */
static harpe_status write_to_stream(const char *path, const void *data, size_t length,
                                    harpe_error *error) {
    int descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) return harpe_fail_errno(error, errno, "%s", path);
    int failure = harpe_write_all(descriptor, data, length);
    if (close(descriptor) != 0 && failure == 0) failure = errno;
    return failure == 0 ? HARPE_OK : harpe_fail_errno(error, failure, "%s", path);
}

/* Creates `temporary` and puts all data on disk. Removes the file after a failure. `*lock` receives
 * another descriptor of the file, which keeps the file locked. */
static int write_temporary(const char *temporary, mode_t mode, bool force_mode, const void *data,
                           size_t length, int *lock) {
    int descriptor = -1;
    do {
        if (descriptor >= 0) (void)close(descriptor);
        descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (descriptor < 0) return errno;
    } while (!harpe_temporary_lock(descriptor));
    *lock = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    int failure = *lock < 0 ? errno : harpe_write_all(descriptor, data, length);
    if (failure == 0 && force_mode && fchmod(descriptor, mode) != 0) failure = errno;
    if (failure == 0 && fsync(descriptor) != 0 && errno != EINVAL) failure = errno;
    if (close(descriptor) != 0 && failure == 0) failure = errno;
    if (failure != 0) (void)unlink(temporary);
    return failure;
}

/* Locks an open file or directory. Gives up after `timeout_ms`, because any user who may read a
 * file may hold its lock. Returns 0 or an errno. */
static int lock_within(int descriptor, int timeout_ms) {
    for (int waited_ms = 0;; waited_ms += LOCK_LOOK_MS) {
        if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return 0;
        if (errno != EWOULDBLOCK && errno != EINTR) return errno;
        if (waited_ms >= timeout_ms) return EWOULDBLOCK;
        harpe_sleep_ns(LOCK_LOOK_MS * INT64_C(1000000));
    }
}

bool harpe_temporary_lock(int descriptor) {
    struct stat info;
    if (lock_within(descriptor, TEMPORARY_LOCK_MS) != 0) return true;
    return fstat(descriptor, &info) != 0 || info.st_nlink > 0;
}

/* The holder of a lock may remove the lock's file, so another file may have the same name after
 * this function has opened the first. */
int harpe_file_lock_at(int directory, const char *name, int timeout_ms) {
    for (;;) {
        struct stat opened, named;
        int lock =
            openat(directory, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (lock < 0) return -1;
        int failure = lock_within(lock, timeout_ms);
        if (failure != 0) {
            close(lock);
            errno = failure;
            return -1;
        }
        if (fstat(lock, &opened) == 0 &&
            fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            opened.st_ino == named.st_ino)
            return harpe_process_holds(lock);
        close(lock);
    }
}

void harpe_file_unlock_at(int directory, const char *name, int lock) {
    (void)unlinkat(directory, name, 0);
    harpe_process_close(lock);
}

/* Writes a file by way of a temporary file. The last part of `path` must not be a symbolic link. A
 * replaced file keeps its mode. */
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
    if (failure == 0) failure = harpe_sync_directory(parent);
    if (failure != 0) status = harpe_fail_errno(error, failure, "cannot write %s", path);
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
        if (errno != ENOENT) return harpe_fail_errno(error, errno, "cannot write %s", path);
        if (sweeps) harpe_temporary_sweep(path);
        return write_whole(path, NULL, data, length, error);
    }
    if (S_ISDIR(info.st_mode)) return harpe_fail_errno(error, EISDIR, "cannot write %s", path);
    if (!S_ISREG(info.st_mode)) return write_to_stream(path, data, length, error);
    /* A symbolic link is kept, and the file to which it points is replaced. */
    char *target = realpath(path, NULL);
    if (!target) return harpe_fail_errno(error, errno, "cannot write %s", path);
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
