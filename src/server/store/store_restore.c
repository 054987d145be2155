/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces a store by a backup, and lets a server continue with a store whose newest commits are
 * lost. The record of commits is replaced last. A server that starts meanwhile finds either the old
 * store or the new store, or refuses to start. */
#include "server/store/store_restore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "server/store/store_control.h"
#include "server/store/store_file.h"
#include "server/store/store_tool.h"

/* ---- Names for what is kept ------------------------------------------------------------------ */

enum { NAMES_AT_MOST = 100000 }; /* number of names with the same second */

/* Returns true if a file has this name, or if this cannot be found out. */
static bool is_taken(const char *name) {
    static const char *const suffixes[] = {"", HARPE_STORE_COMMITS, HARPE_STORE_LOG,
                                           HARPE_STORE_JOURNAL};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        struct stat info;
        char *one = harpe_store_beside(name, suffixes[i]);
        bool is_free = one && lstat(one, &info) != 0;
        free(one);
        if (!is_free) return true;
    }
    return false;
}

/* Returns a name that no file of a store has, such as PATH.WORD-20261122-140500. If the name is
 * taken, adds .2, .3 and so on. Returns NULL if memory runs out. */
static char *name_for(const char *path, const char *word) {
    char when[32];
    struct tm local;
    time_t now = harpe_clock_wall_whole_s();
    if (!localtime_r(&now, &local) || strftime(when, sizeof when, "%Y%m%d-%H%M%S", &local) == 0)
        (void)snprintf(when, sizeof when, "%lld", (long long)now);
    for (int i = 1; i < NAMES_AT_MOST; i++) {
        char *name;
        int length = i == 1 ? asprintf(&name, "%s.%s-%s", path, word, when)
                            : asprintf(&name, "%s.%s-%s.%d", path, word, when, i);
        if (length < 0) return NULL;
        if (!is_taken(name)) return name;
        free(name);
    }
    return NULL;
}

/* If `moves` is true, renames PATH+suffix to KEPT+suffix. Otherwise gives the file this second
 * name. A missing file is not an error. */
static harpe_status keep(const char *path, const char *kept, const char *suffix, bool moves,
                         harpe_error *error) {
    char *from = harpe_store_beside(path, suffix);
    char *to = harpe_store_beside(kept, suffix);
    harpe_status status = from && to ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK && (moves ? rename(from, to) : link(from, to)) != 0 && errno != ENOENT)
        status = harpe_fail_errno(error, errno, "cannot keep %s as %s", from, to);
    free(from);
    free(to);
    return status;
}

/* ---- Restoring ------------------------------------------------------------------------------- */

/* If this process runs as root, makes the owner of the old store, or of its directory, the owner of
 * the new store. */
static harpe_status give_to_owner(const char *path, int file, harpe_error *error) {
    struct stat info;
    char *parent = harpe_path_parent(path);
    if (!parent) return harpe_fail_memory(error);
    bool is_known = stat(path, &info) == 0 || stat(parent, &info) == 0;
    free(parent);
    if (geteuid() != 0 || !is_known || fchown(file, info.st_uid, info.st_gid) == 0) return HARPE_OK;
    return harpe_fail_errno(error, errno, "cannot give the new %s to the owner of the old one",
                            path);
}

static harpe_status refuse_if_served(const char *path, harpe_error *error) {
    char *socket = harpe_store_beside(path, HARPE_STORE_CONTROL);
    int connection = -1;
    if (!socket) return harpe_fail_memory(error);
    harpe_status status = harpe_store_control_connect(socket, 1, &connection, NULL);
    free(socket);
    if (connection >= 0) (void)close(connection);
    if (status != HARPE_OK) return HARPE_OK; /* the lock reports the reason */
    return harpe_fail(error, HARPE_ALREADY_EXISTS, "%.600s: a server has it open; stop it first",
                      path);
}

/* Gives the old store's files other names. The database also keeps its own name until it is
 * replaced. */
static harpe_status set_aside(const char *path, const char *kept, harpe_error *error) {
    harpe_status status = keep(path, kept, "", false, error);
    if (status == HARPE_OK) status = keep(path, kept, HARPE_STORE_COMMITS, false, error);
    if (status == HARPE_OK) status = keep(path, kept, HARPE_STORE_LOG, true, error);
    if (status == HARPE_OK) status = keep(path, kept, HARPE_STORE_JOURNAL, true, error);
    return status;
}

/* Moves the new database to the name of the store. `file` is the new database. It is locked, so no
 * server can open it before its record is written. */
static harpe_status exchange(const char *path, const char *temporary, int file, const char *kept,
                             const harpe_commit_record *record, harpe_error *error) {
    harpe_status status = harpe_store_lock(file, temporary, true, error);
    if (status == HARPE_OK) status = give_to_owner(path, file, error);
    if (status == HARPE_OK) status = set_aside(path, kept, error);
    if (status == HARPE_OK && rename(temporary, path) != 0)
        status = harpe_fail_errno(error, errno, "cannot put %s in place", path);
    if (status == HARPE_OK) status = harpe_commit_record_make(path, record, error);
    char *parent = harpe_path_parent(path);
    if (parent) (void)harpe_sync_directory(parent);
    free(parent);
    return status;
}

static harpe_status give_record_to_owner(const char *path, harpe_error *error) {
    char *name = harpe_store_beside(path, HARPE_STORE_COMMITS);
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    harpe_status status = file >= 0 ? give_to_owner(path, file, error) : HARPE_OK;
    if (file >= 0) (void)close(file);
    free(name);
    return status;
}

/* Locks the old store, so that no server opens it. `*lock` is -1 if there is none. */
static harpe_status lock_old(const char *path, int *lock, harpe_error *error) {
    struct stat info;
    *lock = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*lock < 0) return errno == ENOENT ? HARPE_OK : harpe_fail_errno(error, errno, "%s", path);
    if (fstat(*lock, &info) != 0 || !S_ISREG(info.st_mode))
        return harpe_fail(error, HARPE_INVALID_INPUT, "%.600s: is not a file", path);
    return harpe_store_lock(*lock, path, true, error);
}

/* Makes a copy of the backup beside the store, checks it, and reads its record. */
static harpe_status prepare(const char *backup, const char *temporary, harpe_store_report *report,
                            harpe_commit_record *record, harpe_error *error) {
    harpe_store_file copy;
    bool in_use;
    harpe_status status = harpe_store_backup(backup, temporary, false, report, error);
    if (status != HARPE_OK) return status;
    status = harpe_store_file_open(temporary, temporary, &copy, error);
    if (status != HARPE_OK) return status;
    status = harpe_sqlite_read_record(&copy.view, record, &in_use, error);
    if (status == HARPE_NOT_FOUND) {
        *record = (harpe_commit_record){.id = "0"}; /* an earlier Harpe made the backup */
        status = HARPE_OK;
    }
    harpe_store_file_close(&copy);
    return status;
}

static harpe_status replace(const char *path, const char *temporary, char *kept,
                            const harpe_commit_record *record, harpe_error *error) {
    int lock = -1;
    harpe_status status = refuse_if_served(path, error);
    if (status == HARPE_OK) status = lock_old(path, &lock, error);
    int file = status != HARPE_OK ? -1 : open(temporary, O_RDWR | O_CLOEXEC);
    if (status == HARPE_OK && file < 0) status = harpe_fail_errno(error, errno, "%s", temporary);
    if (status == HARPE_OK) status = exchange(path, temporary, file, kept, record, error);
    if (status == HARPE_OK) status = give_record_to_owner(path, error);
    if (file >= 0) (void)close(file);
    if (lock >= 0) (void)close(lock);
    return status;
}

harpe_status harpe_store_restore(const char *path, const char *backup, char **replaced,
                                 harpe_store_report *report, harpe_error *error) {
    harpe_commit_record record = {0};
    char *real = harpe_store_real_path(path);
    char *temporary = real ? harpe_path_temporary(real) : NULL;
    char *kept = real ? name_for(real, "replaced") : NULL;
    harpe_status status = real && temporary && kept ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK) status = refuse_if_served(real, error);
    if (status == HARPE_OK) status = harpe_store_check_kinds(real, error);
    if (status == HARPE_OK) {
        harpe_temporary_sweep(real);
        bool was_there = access(real, F_OK) == 0;
        status = prepare(backup, temporary, report, &record, error);
        if (status == HARPE_OK) status = replace(real, temporary, kept, &record, error);
        (void)unlink(temporary);
        *replaced = status || !was_there ? NULL : kept;
    }
    if (status != HARPE_OK || *replaced != kept) free(kept);
    free(temporary);
    free(real);
    return status;
}

/* ---- Going on without what was lost ---------------------------------------------------------- */

/* Renames the remaining files of a store whose database is gone. */
static harpe_status accept_nothing(const char *path, const char *kept, int64_t *missing,
                                   harpe_error *error) {
    harpe_commit_record beside;
    *missing = harpe_commit_record_read(path, &beside, NULL) == HARPE_OK ? beside.commits : -1;
    if (harpe_store_size_of(path, HARPE_STORE_LOG) == 0 &&
        harpe_store_size_of(path, HARPE_STORE_COMMITS) == 0)
        return harpe_fail(error, HARPE_NOT_FOUND,
                          "%.600s: there is no store, and nothing is left of one", path);
    harpe_status status = keep(path, kept, HARPE_STORE_LOG, true, error);
    if (status == HARPE_OK) status = keep(path, kept, HARPE_STORE_COMMITS, true, error);
    return status;
}

/* Copies the log, because the server will overwrite the part of the log after its last intact
 * commit. */
static harpe_status copy_log(const char *path, const char *kept, harpe_error *error) {
    char *from = harpe_store_beside(path, HARPE_STORE_LOG);
    char *to = harpe_store_beside(kept, HARPE_STORE_LOG);
    int log = from ? open(from, O_RDONLY | O_CLOEXEC) : -1;
    harpe_status status = from && to ? HARPE_OK : harpe_fail_memory(error);
    if (status == HARPE_OK && log >= 0) status = harpe_store_copy_bytes(log, to, error);
    if (log >= 0) (void)close(log);
    free(from);
    free(to);
    return status;
}

/* Finds the state with which the next server starts. A log that does not belong to the file is not
 * used. */
static harpe_status find_rest(const char *path, harpe_commit_record *here, bool *uses_log,
                              int64_t *missing, harpe_error *error) {
    harpe_store_file file;
    harpe_commit_record beside;
    bool in_use;
    harpe_status status = harpe_store_file_open(path, path, &file, error);
    if (status != HARPE_OK) return status;
    if (file.is_in_use)
        status = harpe_fail(error, HARPE_ALREADY_EXISTS, "%.600s: a server has it open", path);
    if (status == HARPE_OK) status = harpe_sqlite_read_record(&file.view, here, &in_use, error);
    if (status == HARPE_NOT_FOUND) status = HARPE_OK;
    *missing = -1;
    *uses_log = true;
    if (harpe_commit_record_read(path, &beside, NULL) == HARPE_OK) {
        *uses_log = !harpe_sqlite_is_older_than_log(&file.view, &beside);
        if (!*uses_log) *here = file.view.alone;
        if (strcmp(here->id, beside.id) == 0)
            *missing = beside.commits > here->commits ? beside.commits - here->commits : 0;
    }
    harpe_store_file_close(&file);
    return status;
}

static harpe_status accept_rest(const char *path, const char *kept, int64_t *commits,
                                int64_t *missing, harpe_error *error) {
    harpe_commit_record here = {.id = "0"};
    bool uses_log;
    harpe_status status = find_rest(path, &here, &uses_log, missing, error);
    if (status != HARPE_OK) return status;
    *commits = here.commits;
    if (*missing == 0 && uses_log) return HARPE_OK;
    status =
        uses_log ? copy_log(path, kept, error) : keep(path, kept, HARPE_STORE_LOG, true, error);
    if (status == HARPE_OK) status = keep(path, kept, HARPE_STORE_COMMITS, false, error);
    here.base = 0;
    if (status == HARPE_OK) status = harpe_commit_record_make(path, &here, error);
    return status != HARPE_OK ? status : give_record_to_owner(path, error);
}

harpe_status harpe_store_accept(const char *path, char **kept, int64_t *commits, int64_t *missing,
                                harpe_error *error) {
    char *real = harpe_store_real_path(path);
    char *name = real ? name_for(real, "before-accept") : NULL;
    harpe_status status = name ? refuse_if_served(real, error) : harpe_fail_memory(error);
    if (status == HARPE_OK) status = harpe_store_check_kinds(real, error);
    *commits = 0;
    if (status == HARPE_OK)
        status = harpe_store_size_of(real, "") > 0
                     ? accept_rest(real, name, commits, missing, error)
                     : accept_nothing(real, name, missing, error);
    *kept = NULL;
    if (status == HARPE_OK && *missing != 0)
        *kept = name;
    else
        free(name);
    free(real);
    return status;
}
