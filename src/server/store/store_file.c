/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and copies a store in a program that is not its server. These functions do not change the
 * store: they prevent SQLite from copying the log into the file, and from removing the log. */
#include "server/store/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "server/store/store_control.h"

enum {
    ANSWER_S = 600, /* time in which a server must make its copy */
    /* The bytes of a database that SQLite locks: pending, reserved and shared. */
    LOCK_START = 0x40000000,
    LOCK_LENGTH = 512,
};

/* ---- Opening --------------------------------------------------------------------------------- */

harpe_status harpe_store_lock(int file, const char *path, bool is_exclusive, harpe_error *error) {
    struct flock lock = {.l_type = is_exclusive ? F_WRLCK : F_RDLCK,
                         .l_whence = SEEK_SET,
                         .l_start = LOCK_START,
                         .l_len = LOCK_LENGTH};
    if (fcntl(file, F_OFD_SETLK, &lock) == 0) return HARPE_OK;
    if (errno == EAGAIN || errno == EACCES)
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "%.600s: a server or another program has it open; stop it first", path);
    return harpe_fail_errno(error, errno, "cannot lock %s", path);
}

static harpe_status open_unchanging(harpe_store_file *self, const char *path, harpe_error *error) {
    if (harpe_sqlite_open_unchanging(path, &self->view.db) == SQLITE_OK) return HARPE_OK;
    return harpe_sqlite_fail(&self->view, error);
}

/* Opens the store with its log. SQLite holds the lock. */
static harpe_status open_with_log(harpe_store_file *self, const char *path, harpe_error *error) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    harpe_sqlite_read_alone(&self->view);
    if (sqlite3_open_v2(path, &self->view.db, flags, NULL) != SQLITE_OK)
        return harpe_sqlite_fail(&self->view, error);
    (void)sqlite3_db_config(self->view.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return harpe_sqlite_execute(&self->view,
                                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA wal_autocheckpoint = 0;"
                                "BEGIN EXCLUSIVE; COMMIT",
                                error);
}

harpe_status harpe_store_copy_bytes(int from, const char *target, harpe_error *error) {
    char block[1 << 16];
    int to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int failure = to < 0 ? errno : 0;
    off_t place = 0;
    ssize_t got = 1;
    while (!failure && got > 0) {
        got = pread(from, block, sizeof block, place);
        if (got < 0)
            failure = errno;
        else
            failure = harpe_write_all(to, block, (size_t)got);
        place += got > 0 ? got : 0;
    }
    if (!failure && fsync(to) != 0) failure = errno;
    if (to >= 0) (void)close(to);
    if (!failure) return HARPE_OK;
    if (to >= 0) (void)unlink(target);
    return harpe_fail_errno(error, failure, "cannot write %s", target);
}

static harpe_status open_copy(harpe_store_file *self, int given, const char *near,
                              harpe_error *error) {
    self->is_in_use = true;
    self->copy = harpe_path_temporary(near);
    harpe_status status =
        self->copy ? harpe_store_copy_bytes(given, self->copy, error) : harpe_fail_memory(error);
    if (status != HARPE_OK) {
        free(self->copy);
        self->copy = NULL;
        return status;
    }
    self->lock = open(self->copy, O_RDONLY | O_CLOEXEC);
    if (self->lock >= 0)
        (void)harpe_temporary_lock(self->lock); /* no program removes the copy now */
    return open_unchanging(self, self->copy, error);
}

static harpe_status open_alone(harpe_store_file *self, const char *path, harpe_error *error) {
    self->had_log = harpe_store_size_of(path, HARPE_STORE_LOG) > 0;
    if (self->had_log || harpe_store_size_of(path, HARPE_STORE_JOURNAL) > 0)
        return open_with_log(self, path, error);
    self->lock = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (self->lock < 0) return harpe_fail_errno(error, errno, "%s", path);
    harpe_status status = harpe_store_lock(self->lock, path, false, error);
    return status != HARPE_OK ? status : open_unchanging(self, path, error);
}

harpe_status harpe_store_file_open(const char *path, const char *near, harpe_store_file *out,
                                   harpe_error *error) {
    harpe_store_file self = {.lock = -1, .view.record_file = -1};
    int given = -1;
    self.view.path = harpe_store_real_path(path);
    self.view.name = strdup(path);
    char *socket = self.view.path ? harpe_store_beside(self.view.path, HARPE_STORE_CONTROL) : NULL;
    harpe_status status = HARPE_OK;
    if (!socket || !self.view.name) status = harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_store_control_ask(socket, ANSWER_S, &given, error);
    if (status == HARPE_OK) {
        status = open_copy(&self, given, near, error);
    } else if (status == HARPE_NOT_FOUND) {
        status = harpe_file_check_regular(self.view.path, error);
        if (status == HARPE_OK) status = harpe_store_check_kinds(self.view.path, error);
        if (status == HARPE_OK) status = open_alone(&self, self.view.path, error);
    }
    if (given >= 0) (void)close(given);
    free(socket);
    bool is_empty = false;
    if (status == HARPE_OK) status = harpe_sqlite_identify(&self.view, &is_empty, error);
    if (status == HARPE_OK && is_empty)
        status = harpe_fail(error, HARPE_INVALID_INPUT, "%.600s: is empty, not a store", path);
    if (status != HARPE_OK)
        harpe_store_file_close(&self);
    else
        *out = self;
    return status;
}

void harpe_store_file_close(harpe_store_file *file) {
    (void)sqlite3_close(file->view.db);
    if (file->lock >= 0) (void)close(file->lock);
    if (file->copy) (void)unlink(file->copy);
    free(file->copy);
    free(file->view.path);
    free(file->view.name);
    *file = (harpe_store_file){.lock = -1};
}

/* ---- Copying --------------------------------------------------------------------------------- */

static int fill(sqlite3 *from, sqlite3 *copy) {
    int result = sqlite3_exec(copy, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
    sqlite3_backup *backup =
        result == SQLITE_OK ? sqlite3_backup_init(copy, "main", from, "main") : NULL;
    if (!backup) return sqlite3_errcode(copy);
    result = sqlite3_backup_step(backup, -1);
    (void)sqlite3_backup_finish(backup);
    if (result != SQLITE_DONE) return result;
    /* A file of an earlier Harpe has no table `store`. */
    result = sqlite3_exec(copy, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL);
    if (result != SQLITE_OK) return result;
    (void)sqlite3_exec(copy, "UPDATE store SET in_use = 0 WHERE in_use <> 0", NULL, NULL, NULL);
    return SQLITE_OK;
}

harpe_status harpe_store_file_copy(const harpe_store_file *file, const char *target,
                                   harpe_error *error) {
    int made = open(target, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made < 0) return harpe_fail_errno(error, errno, "cannot write %s", target);
    sqlite3 *copy = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    int result = sqlite3_open_v2(target, &copy, flags, NULL);
    if (result == SQLITE_OK) result = fill(file->view.db, copy);
    (void)sqlite3_close(copy);
    harpe_status status = HARPE_OK;
    if (result != SQLITE_OK)
        status = harpe_fail(error, HARPE_IO_ERROR, "%.400s: copying to %.400s failed: %s",
                            file->view.name, target, sqlite3_errstr(result));
    else if (fsync(made) != 0)
        status = harpe_fail_errno(error, errno, "cannot write %s", target);
    (void)close(made);
    if (status != HARPE_OK) (void)unlink(target);
    return status;
}
