/* SPDX-License-Identifier: Apache-2.0 */
/* Reads single files as a whole, up to a limit, and writes them completely or not at all. The
 * bytes go to a temporary file in the same directory. The temporary file gets the final name when
 * all bytes are on disk. file.c does not interpret formats. */
#include "base/file.h"

#include <dirent.h>
#include <dlfcn.h>
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
#include "base/platform.h"
#include "base/process.h"
#include "base/text.h"
#include "base/wait.h"

enum {
    PROMPT_S = 10,           /* time limit of harpe_file_read_promptly */
    TEMPORARY_LOCK_MS = 500, /* how long another program may hold a new file's lock */
    LOCK_LOOK_MS = 10,
};

/* ---- Steps ----------------------------------------------------------------------------------- */

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

/* ---- Directories ----------------------------------------------------------------------------- */

/* Writes a directory as a whole. The directory is filled under a temporary name beside the final
 * name, and then gets the final name with one rename. Nothing here interprets the files in the
 * directory. It replaces and removes a directory only if it contains nothing but plain files,
 * so a mistyped path cannot delete a tree. */

/* ---- Entries of a directory ------------------------------------------------------------------ */

/* Calls `visit` for every entry except "." and ".." until a call returns an errno. Returns that
 * errno, the errno of a failure to read the directory, or 0. `last_name` (may be NULL) receives
 * the last entry visited, which the caller frees. */
static int for_each_entry(const char *path, int (*visit)(int directory, const char *name),
                          char **last_name) {
    DIR *stream = opendir(path);
    if (!stream) return errno;
    int failure = 0;
    struct dirent *entry;
    while (failure == 0 && (errno = 0, entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        failure = visit(dirfd(stream), entry->d_name);
        if (failure != 0 && last_name) *last_name = strdup(entry->d_name);
    }
    if (failure == 0) failure = errno;
    (void)closedir(stream);
    return failure;
}

static int check_plain_file(int directory, const char *name) {
    struct stat info;
    if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : errno; /* another process has just replaced it */
    return S_ISDIR(info.st_mode) ? EISDIR : 0;
}

/* Removes an entry. It is no error if the entry does not exist: another process may remove the
 * remains of the same killed process at the same time. */
static int unlink_entry(int directory, const char *name) {
    return unlinkat(directory, name, 0) == 0 || errno == ENOENT ? 0 : errno;
}

static int sync_entry(int directory, const char *name) {
    int descriptor = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0) return errno;
    int failure = fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
    (void)close(descriptor);
    return failure;
}

static int remove_flat_directory(const char *path) {
    int failure = for_each_entry(path, unlink_entry, NULL);
    if (failure == 0 && rmdir(path) != 0) failure = errno;
    return failure == ENOENT ? 0 : failure;
}

/* ---- Remains of killed processes ------------------------------------------------------------- */

/* Returns true if `name` is ".<beginning of last>.<16 hex digits>.tmp", the form that
 * harpe_path_temporary makes. */
static bool is_temporary_of(const char *name, const char *last) {
    size_t kept = strnlen(last, 200), length = strlen(name);
    if (length != 1 + kept + strlen(".0123456789abcdef.tmp") || name[0] != '.' ||
        memcmp(name + 1, last, kept) != 0 || name[1 + kept] != '.')
        return false;
    const char *tag = name + kept + 2;
    return strspn(tag, "0123456789abcdef") == 16 && strcmp(tag + 16, ".tmp") == 0;
}

/* Locks a temporary file or directory that a dead process left. Returns false if a process holds
 * the lock, because the process that made the entry then still runs. Also returns false if the
 * entry no longer has the name `name`: after it was opened, its maker may have given it its final
 * name, or another process may have removed it. */
static bool lock_left_over(int parent, const char *name, int entry, struct stat *info) {
    struct stat named;
    return flock(entry, LOCK_EX | LOCK_NB) == 0 && fstat(entry, info) == 0 &&
           fstatat(parent, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == info->st_dev && named.st_ino == info->st_ino;
}

/* Removes a temporary file or directory of a dead process. This process holds the lock during the
 * removal, so no other process uses or removes it. */
static void remove_left_over(int parent, const char *name) {
    struct stat info;
    int entry = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (entry < 0) return;
    if (lock_left_over(parent, name, entry, &info)) {
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", entry);
        if (S_ISREG(info.st_mode)) {
            (void)unlinkat(parent, name, 0);
        } else if (S_ISDIR(info.st_mode) && for_each_entry(path, check_plain_file, NULL) == 0) {
            (void)for_each_entry(path, unlink_entry, NULL);
            (void)unlinkat(parent, name, AT_REMOVEDIR);
        }
    }
    (void)close(entry);
}

void harpe_temporary_sweep(const char *path) {
    const char *slash = strrchr(path, '/');
    char *parent = harpe_path_parent(path);
    DIR *stream = parent ? opendir(parent) : NULL;
    free(parent);
    if (!stream) return;
    for (const struct dirent *entry; (entry = readdir(stream));)
        if (is_temporary_of(entry->d_name, slash ? slash + 1 : path))
            remove_left_over(dirfd(stream), entry->d_name);
    (void)closedir(stream);
}

/* Makes the temporary directory and locks it. The lock is held until commit or abort. */
static int make_temporary(harpe_directory *directory) {
    for (;;) {
        if (mkdir(directory->temporary_path, 0777) != 0) return errno;
        int descriptor = open(directory->temporary_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (descriptor >= 0 && harpe_temporary_lock(descriptor)) {
            directory->lock = descriptor + 1;
            return 0;
        }
        if (descriptor < 0 && errno != ENOENT) return errno;
        if (descriptor >= 0) (void)close(descriptor);
    }
}

static void unlock(harpe_directory *directory) {
    if (directory->lock > 0) (void)close(directory->lock - 1);
    directory->lock = 0;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Checks whether the object at the final path may be replaced. */
static harpe_status check_replaceable(const char *path, bool replace, harpe_error *error) {
    struct stat info;
    if (stat(path, &info) != 0 && errno != ENOENT)
        return harpe_fail_errno(error, errno, "%s", path);
    if (stat(path, &info) != 0) {
        if (lstat(path, &info) != 0) return HARPE_OK;
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "%s: exists and is a symbolic link to nothing", path);
    }
    if (!S_ISDIR(info.st_mode))
        return harpe_fail(error, HARPE_ALREADY_EXISTS, "%s: exists and is not a directory", path);
    if (!replace) return harpe_fail(error, HARPE_ALREADY_EXISTS, "%s: already exists", path);
    char *name = NULL;
    int failure = for_each_entry(path, check_plain_file, &name);
    harpe_status status = HARPE_OK;
    if (failure == EISDIR) {
        status = harpe_fail(error, HARPE_ALREADY_EXISTS,
                            "%s: not replaced, because it contains a directory, %s", path,
                            name ? name : "");
    } else if (failure != 0 && failure != ENOENT) { /* ENOENT: another process replaced it */
        status = harpe_fail_errno(error, failure, "%s", path);
    }
    free(name);
    return status;
}

/* Returns the path without slashes at its end. If the path exists, its symbolic links are resolved.
 * So the links stay, and the directory to which they point is replaced. */
static harpe_status resolve_final_path(const char *path, char **out, harpe_error *error) {
    char *resolved = realpath(path, NULL);
    if (!resolved && errno != ENOENT) return harpe_fail_errno(error, errno, "%s", path);
    if (!resolved) {
        size_t length = strlen(path);
        while (length > 1 && path[length - 1] == '/')
            length--;
        resolved = strndup(path, length);
    }
    if (!resolved) return harpe_fail_memory(error);
    const char *slash = strrchr(resolved, '/');
    const char *last = slash ? slash + 1 : resolved;
    if (*last == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        free(resolved);
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "'%s': name a directory that can be created", path);
    }
    *out = resolved;
    return HARPE_OK;
}

/* Makes a directory and its parents like mkdir -p. `*made` counts the directories that did not
 * exist before. */
static int make_directories(const char *path, mode_t mode, size_t *made) {
    if (mkdir(path, mode) == 0) {
        (*made)++;
        return 0;
    }
    if (errno == EEXIST) return 0; /* if it is not a directory, the next mkdir inside it fails */
    if (errno != ENOENT || *path == '\0') return errno;
    char *parent = harpe_path_parent(path);
    if (!parent) return ENOMEM;
    int failure = make_directories(parent, mode, made);
    free(parent);
    if (failure != 0) return failure;
    if (mkdir(path, mode) == 0) {
        (*made)++;
        return 0;
    }
    return errno == EEXIST ? 0 : errno;
}

int harpe_make_directories(const char *path, mode_t mode) {
    size_t made = 0;
    struct stat info;
    int failure = make_directories(path, mode, &made);
    if (failure == 0 && stat(path, &info) != 0) failure = errno;
    return failure == 0 && !S_ISDIR(info.st_mode) ? ENOTDIR : failure;
}

/* Removes the parents that make_directories made, innermost first. Stops at a directory that
 * another process has filled. */
static void remove_made_parents(const char *final_path, size_t made) {
    char *parent = harpe_path_parent(final_path);
    while (parent && made > 0 && rmdir(parent) == 0) {
        made--;
        char *next = harpe_path_parent(parent);
        free(parent);
        parent = next;
    }
    free(parent);
}

static void forget(harpe_directory *directory) {
    unlock(directory);
    free(directory->final_path);
    free(directory->temporary_path);
    *directory = (harpe_directory){0};
}

harpe_status harpe_directory_open(harpe_directory *directory, const char *path, bool replace,
                                  harpe_error *error) {
    harpe_directory opened = {.replace = replace};
    char *parent = NULL;
    int failure = 0;
    harpe_status status = resolve_final_path(path, &opened.final_path, error);
    if (status != HARPE_OK) return status;
    status = check_replaceable(opened.final_path, replace, error);
    if (status != HARPE_OK) goto done;
    parent = harpe_path_parent(opened.final_path);
    opened.temporary_path = harpe_path_temporary(opened.final_path);
    if (!parent || !opened.temporary_path) {
        status = harpe_fail_memory(error);
        goto done;
    }
    failure = make_directories(parent, 0777, &opened.parents_made);
    if (failure == 0) {
        harpe_temporary_sweep(opened.final_path);
        failure = make_temporary(&opened);
    }
    if (failure != 0) {
        status = harpe_fail_errno(error, failure, "cannot create %s", opened.final_path);
        remove_made_parents(opened.final_path, opened.parents_made);
    }
done:
    free(parent);
    if (status != HARPE_OK) {
        forget(&opened);
        return status;
    }
    *directory = opened;
    return HARPE_OK;
}

/* ---- Filling --------------------------------------------------------------------------------- */

char *harpe_directory_path(const harpe_directory *directory, const char *name) {
    return harpe_path_join(directory->temporary_path, "/", name);
}

static bool is_plain_name(const char *name) {
    return *name != '\0' && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

harpe_status harpe_directory_write(harpe_directory *directory, const char *name, const void *data,
                                   size_t length, harpe_error *error) {
    if (!is_plain_name(name))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "'%s' is not a file name", name);
    char *path = harpe_directory_path(directory, name);
    if (!path) return harpe_fail_memory(error);
    int failure = 0;
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        failure = errno;
    } else {
        failure = harpe_write_all(descriptor, data, length);
        if (close(descriptor) != 0 && failure == 0) failure = errno;
    }
    free(path);
    if (failure == 0) return HARPE_OK;
    return harpe_fail_errno(error, failure, "cannot write %s/%s", directory->final_path, name);
}

/* ---- Committing ------------------------------------------------------------------------------ */

static int rename_errno(const char *from, const char *to) {
    return rename(from, to) == 0 ? 0 : errno;
}

/* Moves the new directory to a final path that does not exist yet. */
static int rename_into_place(const harpe_directory *directory) {
    if (renameat2(AT_FDCWD, directory->temporary_path, AT_FDCWD, directory->final_path,
                  RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    /* This file system does not support RENAME_NOREPLACE. rename() replaces only an empty
     * directory. */
    return rename_errno(directory->temporary_path, directory->final_path);
}

/* Exchanges the new and the old directory. The temporary path then holds the old directory. If the
 * file system cannot exchange them, the old directory is renamed first. It gets its name back if
 * the second rename fails. */
static int exchange_with_old(const harpe_directory *directory) {
    if (renameat2(AT_FDCWD, directory->temporary_path, AT_FDCWD, directory->final_path,
                  RENAME_EXCHANGE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    /* This name does not have the form of a temporary directory's name, so no process removes the
     * directory. If this process is killed now, the directory is the only copy. */
    char *aside = harpe_path_join(directory->temporary_path, ".", "old");
    if (!aside) return ENOMEM;
    int failure = rename_errno(directory->final_path, aside);
    if (failure == 0) {
        failure = rename_errno(directory->temporary_path, directory->final_path);
        if (failure != 0)
            (void)rename(aside, directory->final_path);
        else
            failure = rename_errno(aside, directory->temporary_path);
    }
    free(aside);
    return failure;
}

/* Puts the new directory in place and removes the old one. */
static harpe_status take_place(harpe_directory *directory, harpe_error *error) {
    int failure = rename_into_place(directory);
    if (failure == 0) return HARPE_OK;
    if (failure != EEXIST && failure != ENOTEMPTY)
        return harpe_fail_errno(error, failure, "cannot create %s", directory->final_path);
    /* Checks again, because another process may have created something at the final path since
     * harpe_directory_open. */
    harpe_status status = check_replaceable(directory->final_path, directory->replace, error);
    if (status != HARPE_OK) return status;
    failure = exchange_with_old(directory);
    if (failure != 0)
        return harpe_fail_errno(error, failure, "cannot replace %s", directory->final_path);
    failure = remove_flat_directory(directory->temporary_path);
    if (failure == 0) return HARPE_OK;
    return harpe_fail_errno(error, failure,
                            "%s is written, but its old contents could not be removed from %s",
                            directory->final_path, directory->temporary_path);
}

harpe_status harpe_directory_commit(harpe_directory *directory, harpe_error *error) {
    if (!directory->temporary_path)
        return harpe_fail(error, HARPE_INTERNAL, "no directory is under construction");
    int failure = for_each_entry(directory->temporary_path, sync_entry, NULL);
    if (failure == 0) failure = harpe_sync_directory(directory->temporary_path);
    if (failure != 0)
        return harpe_fail_errno(error, failure, "cannot write %s", directory->final_path);
    harpe_status status = take_place(directory, error);
    if (status != HARPE_OK) return status;
    char *parent = harpe_path_parent(directory->final_path);
    failure = parent ? harpe_sync_directory(parent) : 0;
    free(parent);
    if (failure != 0) {
        status = harpe_fail_errno(error, failure, "%s is written, but perhaps not yet on disk",
                                  directory->final_path);
    }
    forget(directory);
    return status;
}

void harpe_directory_abort(harpe_directory *directory) {
    if (directory->temporary_path) {
        (void)remove_flat_directory(directory->temporary_path);
        remove_made_parents(directory->final_path, directory->parents_made);
    }
    forget(directory);
}

/* ---- Files that name code -------------------------------------------------------------------- */

/* Decides whether an environment variable may choose code for this process. It checks the owner
 * of the file, but not the directories above it. */

/* Returns true if `user` owns `path`. This process already runs the code in `path`. */
static bool is_owner_of(const char *path, uid_t user) {
    struct stat status;
    return path && stat(path, &status) == 0 && status.st_uid == user;
}

static bool is_trusted_owner(uid_t user) {
    static const char inside[] = "";
    if (user == 0 || user == geteuid()) return true;
    if (is_owner_of("/proc/self/exe", user)) return true;
    Dl_info info = {0};
    return dladdr(inside, &info) && is_owner_of(info.dli_fname, user);
}

bool harpe_file_is_trusted(const char *path) {
    struct stat status;
    if (!strchr(path, '/') || stat(path, &status) != 0) return true;
    return is_trusted_owner(status.st_uid) && !(status.st_mode & S_IWOTH);
}

const char *harpe_trusted_file_variable(const char *name, bool *is_ignored) {
    const char *value = getenv(name);
    if (is_ignored) *is_ignored = false;
    if (!value || !*value) return NULL;
    bool is_followed = secure_getenv(name) && getuid() == geteuid() && getgid() == getegid() &&
                       harpe_file_is_trusted(value);
    if (is_ignored) *is_ignored = !is_followed;
    return is_followed ? value : NULL;
}
