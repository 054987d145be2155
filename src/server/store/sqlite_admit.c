/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses to start a server with a store whose newest commits are missing. The server has
 * acknowledged these commits to its clients, so a server must not continue without them. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "server/store/sqlite_store.h"

#define REMEDY \
    "put a backup in its place with harpe store restore, or continue with the rest with harpe " \
    "store accept"

harpe_status harpe_sqlite_admit_files(const char *path, harpe_error *error) {
    harpe_commit_record record;
    if (harpe_store_size_of(path, "") > 0) return HARPE_OK;
    if (harpe_commit_record_read(path, &record, NULL) == HARPE_OK && record.commits > 0)
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "%.400s: the database is gone: %.400s%s says that it had %lld commits; " REMEDY, path,
            path, HARPE_STORE_COMMITS, (long long)record.commits);
    if (harpe_store_size_of(path, HARPE_STORE_LOG) > 0)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.400s: the database is gone, but its log %.400s%s is there; " REMEDY,
                          path, path, HARPE_STORE_LOG);
    return HARPE_OK;
}

harpe_status harpe_sqlite_read_record(const harpe_sqlite *store, harpe_commit_record *record,
                                      bool *in_use, harpe_error *error) {
    int64_t tables = 0;
    sqlite3_stmt *statement = NULL;
    harpe_status status = harpe_sqlite_integer(
        store, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'store'",
        &tables, error);
    if (status != HARPE_OK) return status;
    if (tables == 0) return harpe_fail(error, HARPE_NOT_FOUND, "%s: has no record", store->name);
    status =
        harpe_sqlite_prepare(store, "SELECT id, commits, in_use FROM store", &statement, error);
    if (status != HARPE_OK) return status;
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
        const unsigned char *id = sqlite3_column_text(statement, 0);
        (void)snprintf(record->id, sizeof record->id, "%s", id ? (const char *)id : "");
        record->commits = sqlite3_column_int64(statement, 1);
        *in_use = sqlite3_column_int(statement, 2) != 0;
    } else {
        status = result == SQLITE_DONE
                     ? harpe_fail(error, HARPE_NOT_FOUND, "%s: has no record", store->name)
                     : harpe_sqlite_fail(store, error);
    }
    sqlite3_finalize(statement);
    return status;
}

/* ---- Without the log ------------------------------------------------------------------------- */

int harpe_sqlite_open_unchanging(const char *path, sqlite3 **db) {
    harpe_text name = {0};
    harpe_text_printf(&name, "file:");
    for (const char *c = path; *c; c++)
        if (isalnum((unsigned char)*c) || strchr("/._-", *c))
            harpe_text_append(&name, c, 1);
        else
            harpe_text_printf(&name, "%%%02X", (unsigned)(unsigned char)*c);
    harpe_text_printf(&name, "?immutable=1");
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    int result =
        name.failed ? SQLITE_NOMEM : sqlite3_open_v2(name.data, db, flags, harpe_store_vfs(path));
    harpe_text_free(&name);
    return result;
}

void harpe_sqlite_read_alone(harpe_sqlite *store) {
    harpe_sqlite view = {.name = store->name};
    bool in_use;
    if (!store->path || harpe_store_size_of(store->path, "") == 0 ||
        harpe_store_size_of(store->path, HARPE_STORE_LOG) == 0)
        return;
    store->has_alone = harpe_sqlite_open_unchanging(store->path, &view.db) == SQLITE_OK &&
                       harpe_sqlite_read_record(&view, &store->alone, &in_use, NULL) == HARPE_OK;
    (void)sqlite3_close(view.db);
}

bool harpe_sqlite_is_older_than_log(const harpe_sqlite *store, const harpe_commit_record *beside) {
    if (!store->has_alone || beside->base == 0) return false;
    return strcmp(store->alone.id, beside->id) != 0 || store->alone.commits < beside->base;
}

/* ---- With it --------------------------------------------------------------------------------- */

static harpe_status compare(const harpe_sqlite *store, const harpe_commit_record *here,
                            const harpe_commit_record *beside, harpe_error *error) {
    const char *path = store->path;
    if (beside->commits == 0) return HARPE_OK; /* such a record is not used */
    if (harpe_sqlite_is_older_than_log(store, beside))
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.400s: an older copy or another database was put in the place of the "
                          "one that the log %.400s%s belongs to; " REMEDY,
                          path, path, HARPE_STORE_LOG);
    if (strcmp(here->id, beside->id) != 0)
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "%.400s: another database was put in the place of the one that %.400s%s is "
            "about; " REMEDY,
            path, path, HARPE_STORE_COMMITS);
    if (here->commits < beside->commits)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.400s: the last %lld of %lld commits are missing: its log %.400s%s was "
                          "removed or damaged, or the file is an older copy; " REMEDY,
                          path, (long long)(beside->commits - here->commits),
                          (long long)beside->commits, path, HARPE_STORE_LOG);
    return HARPE_OK;
}

harpe_status harpe_sqlite_admit(harpe_sqlite *store, bool had_log, harpe_error *error) {
    harpe_commit_record here = {0}, beside;
    bool in_use = false;
    harpe_status status = harpe_sqlite_read_record(store, &here, &in_use, error);
    if (status != HARPE_OK && status != HARPE_NOT_FOUND) return status;
    if (status == HARPE_OK) store->record = here; /* NOT_FOUND: an earlier Harpe wrote the file */
    status = harpe_commit_record_read(store->path, &beside, error);
    if (status == HARPE_OK) return compare(store, &here, &beside, error);
    if (status != HARPE_NOT_FOUND && status != HARPE_INVALID_INPUT) return status;
    if (in_use && !had_log)
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%.400s: is a copy of a store that a server had open, without its log "
                          "%.400s%s, so the newest commits are missing; " REMEDY,
                          store->path, store->path, HARPE_STORE_LOG);
    return HARPE_OK;
}
