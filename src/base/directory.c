/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a directory as a whole. The directory is filled under a temporary name beside the final
 * name, and then gets the final name with one rename. This file does not interpret the files in the
 * directory. It replaces and removes a directory only if it contains nothing but plain files,
 * so a mistyped path cannot delete a tree. */
#include "base/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_internal.h"

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
