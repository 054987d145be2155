/* SPDX-License-Identifier: Apache-2.0 */
/* Makes backups of SQLite stores and checks them, while a server runs or without a server. */
#include "server/store/store_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "server/store/store_file.h"

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Returns a file name for the temporary copy of a store that a server has open. */
static char *scratch_place(void) {
    const char *directory = getenv("TMPDIR");
    return harpe_path_join(directory && *directory ? directory : "/tmp", "/", "harpe-store-check");
}

harpe_status harpe_store_examine(const char *path, harpe_store_report *report, harpe_error *error) {
    harpe_store_file file;
    char *near = scratch_place();
    if (!near) return harpe_fail_memory(error);
    harpe_temporary_sweep(near);
    harpe_status status = harpe_store_file_open(path, near, &file, error);
    free(near);
    if (status != HARPE_OK) return status;
    status = harpe_store_file_check(&file, report, error);
    harpe_store_file_close(&file);
    return status;
}

/* ---- Backups --------------------------------------------------------------------------------- */

static harpe_status check_target(const char *target, bool replaces, harpe_error *error) {
    struct stat info;
    if (lstat(target, &info) != 0)
        return errno == ENOENT ? HARPE_OK : harpe_fail_errno(error, errno, "%s", target);
    if (!S_ISREG(info.st_mode))
        return harpe_fail(error, HARPE_ALREADY_EXISTS, "%.600s: is not a regular file", target);
    if (replaces) return HARPE_OK;
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "%.600s: the file exists already; use another name, or --force", target);
}

/* Returns true if `target` is the store itself, or a file that belongs to the store. */
static bool is_of_store(const char *target, const char *path) {
    static const char *const suffixes[] = {"",
                                           HARPE_STORE_LOG,
                                           HARPE_STORE_COMMITS,
                                           HARPE_STORE_MEMORY,
                                           HARPE_STORE_CONTROL,
                                           HARPE_STORE_SNAPSHOT,
                                           HARPE_STORE_JOURNAL};
    bool is_one = false;
    size_t length = strlen(path);
    if (strncmp(target, path, length) != 0) return false;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        is_one = is_one || strcmp(target + length, suffixes[i]) == 0;
    return is_one;
}

/* Refuses a target that is the store, because the backup would replace the file that the server has
 * open. */
static harpe_status refuse_store_as_target(const char *path, const char *target,
                                           harpe_error *error) {
    char *store = harpe_store_real_path(path);
    char *there = harpe_store_real_path(target);
    harpe_status status = store && there ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK && is_of_store(there, store))
        status = harpe_fail(error, HARPE_ALREADY_EXISTS,
                            "%.600s: is a file of the store itself; use another name", target);
    free(store);
    free(there);
    return status;
}

/* Renames the copy to `target`. Call it when the whole copy is on disk. */
static harpe_status put_in_place(const char *temporary, const char *target, bool replaces,
                                 harpe_error *error) {
    unsigned flags = replaces ? 0 : RENAME_NOREPLACE;
    int failure = renameat2(AT_FDCWD, temporary, AT_FDCWD, target, flags) == 0 ? 0 : errno;
    if (failure == EINVAL && !replaces) { /* the file system does not support this call */
        failure = link(temporary, target) == 0 ? 0 : errno;
        if (!failure) (void)unlink(temporary);
    }
    if (failure == EEXIST) return check_target(target, false, error);
    char *parent = harpe_path_parent(target);
    if (!failure && parent) failure = harpe_sync_directory(parent);
    free(parent);
    return failure ? harpe_fail_errno(error, failure, "cannot write %s", target) : HARPE_OK;
}

static harpe_status refuse_problems(const char *path, const harpe_store_report *report,
                                    harpe_error *error) {
    if (report->problems == 0) return HARPE_OK;
    const char *first = report->details.data ? report->details.data : "";
    return harpe_fail(error, HARPE_INVALID_INPUT, "%.300s: %.*s", path, (int)strcspn(first, "\n"),
                      first);
}

/* Copies the store and checks the copy. */
static harpe_status copy_and_check(const harpe_store_file *file, const char *temporary,
                                   harpe_store_report *report, harpe_error *error) {
    harpe_store_file copy;
    harpe_status status = harpe_store_file_copy(file, temporary, error);
    if (status != HARPE_OK) return status;
    status = harpe_store_file_open(temporary, temporary, &copy, error);
    if (status == HARPE_OK) {
        status = harpe_store_file_check(&copy, report, error);
        harpe_store_file_close(&copy);
    }
    if (status == HARPE_OK) status = refuse_problems(file->view.name, report, error);
    report->is_in_use = file->is_in_use;
    return status;
}

static harpe_status check_missing(const harpe_store_file *file, harpe_error *error) {
    if (file->is_in_use) return HARPE_OK;
    harpe_sqlite view = file->view;
    return harpe_sqlite_admit(&view, file->had_log, error);
}

harpe_status harpe_store_backup(const char *path, const char *target, bool replaces,
                                harpe_store_report *report, harpe_error *error) {
    harpe_store_file file;
    harpe_status status = refuse_store_as_target(path, target, error);
    if (status == HARPE_OK) status = check_target(target, replaces, error);
    if (status != HARPE_OK) return status;
    char *temporary = harpe_path_temporary(target);
    if (!temporary) return harpe_fail_memory(error);
    harpe_temporary_sweep(target);
    status = harpe_store_file_open(path, target, &file, error);
    if (status == HARPE_OK) {
        status = check_missing(&file, error);
        if (status == HARPE_OK) status = copy_and_check(&file, temporary, report, error);
        harpe_store_file_close(&file);
    }
    if (status == HARPE_OK) status = put_in_place(temporary, target, replaces, error);
    if (status != HARPE_OK) (void)unlink(temporary);
    free(temporary);
    return status;
}
