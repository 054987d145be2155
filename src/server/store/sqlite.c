/* SPDX-License-Identifier: Apache-2.0 */
/* The state in one SQLite file, or in memory for a server whose state need not survive. One
 * connection does all work, under a lock. The file is opened exclusively, so that a second server
 * cannot open it. When the process ends, also by kill -9, the file is released. This code does not
 * deal with threads and acknowledgements.
 *
 * A commit is durable because the write-ahead log is synced to disk at every commit
 * (synchronous=FULL). NORMAL would sync only at checkpoints, and acknowledged changes could be lost
 * if the machine fails. */
#include "server/store/sqlite_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "server/store/store_tools.h"

/* This number in SQLite's header marks a file as Harpe's. PRAGMAs read and write it as text. */
#define APPLICATION_ID 1214345840 /* "Harp" */

#define AS_TEXT_(value) #value
#define AS_TEXT(value) AS_TEXT_(value)

/* The table `store` has one row: the store's id, the number of its last commit, and whether a
 * server has the store open. */
#define STORE_TABLE \
    "CREATE TABLE IF NOT EXISTS store (id TEXT NOT NULL, commits INTEGER NOT NULL," \
    " in_use INTEGER NOT NULL);"

enum {
    /* At the start, the time to wait for another program that is reading or closing the file. */
    BUSY_TIMEOUT_MS = 1000,
    /* The log is copied into the file when it has this many pages (64 MiB). Results are kept for
     * only two rounds, so most pages in the log have been replaced by later ones at that time.
     * Measured: 8 % more results a second than with 8 MiB. */
    LOG_PAGES = 8192,
    /* If the log cannot be copied, writing stops when it has this many pages. */
    LOG_PAGES_AT_MOST = 4 * LOG_PAGES,
};

#define SET_PAGE_BYTES "PRAGMA page_size = " AS_TEXT(HARPE_SQLITE_PAGE_BYTES) ";"

/* ---- Errors and small steps ------------------------------------------------------------------ */

harpe_status harpe_sqlite_fail(const harpe_sqlite *store, harpe_error *error) {
    const char *name = store->name;
    switch (sqlite3_errcode(store->db)) {
    case SQLITE_NOMEM: return harpe_fail_memory(error);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return harpe_fail(error, HARPE_ALREADY_EXISTS,
                          "%s: another server or program has it open; stop that program, or use "
                          "another file",
                          name);
    case SQLITE_NOTADB:
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "%s: is not a database of Harpe; use another file, or put a backup in its "
            "place with harpe store restore",
            name);
    case SQLITE_CORRUPT:
        return harpe_fail(
            error, HARPE_INVALID_INPUT,
            "%s: the database is damaged; harpe store check says more, and harpe store "
            "restore puts a backup in its place",
            name);
    case SQLITE_FULL:
        return harpe_fail(error, HARPE_IO_ERROR, "%s: the disk is full; make room", name);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "%s: cannot be opened for writing (%s); the file and its directory must "
                          "exist and be writable",
                          name, sqlite3_errmsg(store->db));
    default:
        return harpe_fail(error, HARPE_IO_ERROR, "%s: %s (SQLite error %d)", name,
                          sqlite3_errmsg(store->db), sqlite3_extended_errcode(store->db));
    }
}

harpe_status harpe_sqlite_execute(const harpe_sqlite *store, const char *sql, harpe_error *error) {
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK) return HARPE_OK;
    return harpe_sqlite_fail(store, error);
}

static void roll_back(const harpe_sqlite *store) {
    if (sqlite3_get_autocommit(store->db)) return; /* SQLite has already ended the transaction */
    (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
}

harpe_status harpe_sqlite_prepare(const harpe_sqlite *store, const char *sql, sqlite3_stmt **out,
                                  harpe_error *error) {
    if (sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) == SQLITE_OK)
        return HARPE_OK;
    return harpe_sqlite_fail(store, error);
}

harpe_status harpe_sqlite_integers(const harpe_sqlite *store, const char *sql, int64_t *values,
                                   int count, harpe_error *error) {
    sqlite3_stmt *statement = NULL;
    harpe_status status = harpe_sqlite_prepare(store, sql, &statement, error);
    if (status != HARPE_OK) return status;
    if (sqlite3_step(statement) != SQLITE_ROW) status = harpe_sqlite_fail(store, error);
    for (int i = 0; i < count && status == HARPE_OK; i++)
        values[i] = sqlite3_column_int64(statement, i);
    sqlite3_finalize(statement);
    return status;
}

/* ---- Opening --------------------------------------------------------------------------------- */

harpe_status harpe_sqlite_identify(const harpe_sqlite *store, bool *is_new, harpe_error *error) {
    int64_t found[4] = {0};
    harpe_status status = harpe_sqlite_integers(
        store,
        "SELECT (SELECT application_id FROM pragma_application_id),"
        " (SELECT user_version FROM pragma_user_version), count(*),"
        " coalesce(sum(name IN ('store', 'job_requests')), 0) FROM sqlite_master",
        found, 4, error);
    if (status != HARPE_OK) return status;
    int64_t application_id = found[0], version = found[1], table_count = found[2];
    *is_new = application_id == 0 && version == 0 && table_count == 0;
    if (*is_new) return HARPE_OK;
    if (application_id != APPLICATION_ID) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: is a database of another program; use another file", store->name);
    }
    if (version > HARPE_SCHEMA_VERSION) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "%s: was written by a newer Harpe (format %lld; this one knows %d); "
                          "use the newer Harpe, or another file",
                          store->name, (long long)version, HARPE_SCHEMA_VERSION);
    }
    if (found[3] < 2) {
        return harpe_fail(error, HARPE_NOT_SUPPORTED,
                          "%s: was written by a Harpe that was not released, and cannot be read; "
                          "use another file",
                          store->name);
    }
    return HARPE_OK;
}

/* Creates the tables that are missing. A new store also gets its row, with a new id. */
static harpe_status create_tables(harpe_sqlite *store, bool is_new, harpe_error *error) {
    char sql[160];
    harpe_status status = harpe_sqlite_execute(
        store, HARPE_SCHEMA_TABLES("INTEGER PRIMARY KEY", "BLOB") STORE_TABLE, error);
    if (status != HARPE_OK || !is_new) return status;
    harpe_store_new_id(store->record.id);
    (void)snprintf(
        sql, sizeof sql,
        "PRAGMA user_version = %d; PRAGMA application_id = " AS_TEXT(
            APPLICATION_ID) "; INSERT INTO store (id, commits, in_use) VALUES ('%s', 0, 0)",
        HARPE_SCHEMA_VERSION, store->record.id);
    return harpe_sqlite_execute(store, sql, error);
}

/* Prepares the file for use. Writes to it only after these checks: the file is not damaged, and is
 * empty or a store of Harpe. */
static harpe_status set_up(harpe_sqlite *store, bool had_log, harpe_error *error) {
    bool is_new = false;
    harpe_status status = harpe_sqlite_execute(store,
                                               "PRAGMA locking_mode = EXCLUSIVE;" SET_PAGE_BYTES
                                               "PRAGMA secure_delete = OFF;"
                                               "BEGIN EXCLUSIVE",
                                               error);
    if (status == HARPE_OK) status = harpe_sqlite_identify(store, &is_new, error);
    if (status == HARPE_OK && !is_new) status = harpe_sqlite_admit(store, had_log, error);
    if (status == HARPE_OK) status = create_tables(store, is_new, error);
    if (status == HARPE_OK) status = harpe_sqlite_execute(store, "COMMIT", error);
    if (status != HARPE_OK) {
        roll_back(store);
        return status;
    }
    return harpe_sqlite_execute(store,
                                "PRAGMA journal_mode = WAL;"
                                "PRAGMA synchronous = FULL;"
                                "PRAGMA wal_autocheckpoint = 0;" /* see note_log */
                                "PRAGMA journal_size_limit = 67108864;"
                                "PRAGMA cache_size = -16384", /* KiB */
                                error);
}

/* ---- The files ------------------------------------------------------------------------------- */

/* Notes the number of pages in the log. SQLite calls this after every commit. If the pages cannot
 * be copied, this is noticed before the next write. */
static int note_log(void *user, sqlite3 *db, const char *name, int pages) {
    harpe_sqlite *store = user;
    int copied = -1;
    store->log_frames = pages;
    if (pages >= LOG_PAGES &&
        sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, &copied) ==
            SQLITE_OK &&
        copied == pages)
        store->record.base = store->record.commits;
    return SQLITE_OK;
}

/* Fails if the log is too long. The log must not grow without limit when it cannot be copied into
 * the file. */
static harpe_status bound_log(harpe_sqlite *store, harpe_error *error) {
    if (store->log_frames < LOG_PAGES_AT_MOST) return HARPE_OK;
    if (sqlite3_wal_checkpoint_v2(store->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) !=
        SQLITE_OK) {
        return harpe_fail(error, HARPE_IO_ERROR,
                          "%s: the write-ahead log has %lld MiB and cannot be copied into the file "
                          "(%s); make room, or repair the disk",
                          store->name,
                          (long long)(store->log_frames * HARPE_SQLITE_PAGE_BYTES >> 20),
                          sqlite3_errmsg(store->db));
    }
    store->log_frames = 0;
    store->record.base = store->record.commits;
    return HARPE_OK;
}

static void note_files(harpe_sqlite *store) {
    harpe_file_state_note(&store->database);
    harpe_file_state_note(&store->log);
}

static harpe_status check_files(const harpe_sqlite *store, harpe_error *error) {
    harpe_status status = harpe_file_state_check(&store->database, error);
    return status != HARPE_OK ? status : harpe_file_state_check(&store->log, error);
}

static harpe_status renew_files(harpe_sqlite *store, harpe_error *error) {
    harpe_status status = harpe_file_state_renew(&store->database, error);
    return status != HARPE_OK ? status : harpe_file_state_renew(&store->log, error);
}

static harpe_status set_in_use(harpe_sqlite *store, bool in_use, harpe_error *error) {
    char sql[100];
    (void)snprintf(sql, sizeof sql, "UPDATE store SET in_use = %d, commits = %lld", in_use,
                   (long long)store->record.commits + 1);
    harpe_status status = harpe_sqlite_execute(store, sql, error);
    if (status != HARPE_OK) return status;
    store->record.commits++;
    if (*store->path.text)
        harpe_commit_record_update(store->path.text, store->record_file, &store->record);
    return HARPE_OK;
}

/* Copies the log into the database and empties it. */
static harpe_status empty_log(harpe_sqlite *store, harpe_error *error) {
    int code = sqlite3_wal_checkpoint_v2(store->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return code == SQLITE_OK ? HARPE_OK : harpe_sqlite_fail(store, error);
}

/* Writes the log again, byte by byte, and syncs it. A sync that failed leaves pages that only seem
 * to be on the disk, and no later sync writes them, unless they are written again. If the database
 * was then changed from such a log, a loss of power would damage it. */
static harpe_status write_log_again(harpe_sqlite *store, harpe_error *error) {
    char bytes[16384];
    sqlite3_file *log = NULL;
    sqlite3_int64 size = 0;
    (void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (!log || !log->pMethods) return HARPE_OK;
    int code = log->pMethods->xFileSize(log, &size);
    for (sqlite3_int64 at = 0; at < size && code == SQLITE_OK; at += (int)sizeof bytes) {
        int count = size - at < (int)sizeof bytes ? (int)(size - at) : (int)sizeof bytes;
        code = log->pMethods->xRead(log, bytes, count, at);
        if (code == SQLITE_OK) code = log->pMethods->xWrite(log, bytes, count, at);
    }
    if (code == SQLITE_OK && size > 0) code = log->pMethods->xSync(log, SQLITE_SYNC_FULL);
    if (code == SQLITE_OK) return HARPE_OK;
    return harpe_fail(error, HARPE_IO_ERROR, "%s: the write-ahead log cannot be written (%s)",
                      store->name, sqlite3_errstr(code));
}

/* Marks the file as open by a server. The mark is in the file itself, so it is visible without the
 * log. The record beside the file has the number of its commits. The log is emptied first, because
 * the record must not count a commit that the next loss of power undoes. */
static harpe_status begin_use(harpe_sqlite *store, harpe_error *error) {
    harpe_status status = write_log_again(store, error);
    if (status == HARPE_OK) status = empty_log(store, error);
    if (status == HARPE_OK)
        status = harpe_commit_record_make(store->path.text, &store->record, error);
    if (status == HARPE_OK)
        status = harpe_commit_record_open(store->path.text, &store->record_file, error);
    if (status == HARPE_OK) status = set_in_use(store, true, error);
    if (status == HARPE_OK) status = empty_log(store, error);
    if (status != HARPE_OK) return status;
    store->log_frames = 0;
    store->record.base = store->record.commits;
    harpe_commit_record_update(store->path.text, store->record_file, &store->record);
    store->database.path = sqlite3_db_filename(store->db, "main");
    store->log.path = sqlite3_filename_wal(store->database.path);
    (void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_FILE_POINTER, &store->database.file);
    (void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &store->log.file);
    note_files(store);
    return HARPE_OK;
}

/* Removes the mark of begin_use. If the file is not a store of Harpe, or its name now leads to
 * another file, changes nothing and keeps SQLite from copying the log when it closes. Without this,
 * SQLite would remove the file that now has the log's name. */
static void end_use(harpe_sqlite *store) {
    bool is_ours = !store->has_unfinished_start && check_files(store, NULL) == HARPE_OK;
    if (is_ours) (void)set_in_use(store, false, NULL);
    if (!is_ours) (void)sqlite3_db_config(store->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static harpe_status prepare_all(const harpe_sqlite *store, const harpe_schema_statement *from,
                                size_t count, harpe_sqlite_statement *to, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        status = harpe_sqlite_prepare(store, from[i].sql, &to[i].prepared, error);
        for (int p = 0; p < HARPE_SCHEMA_PARAMETER_COUNT && status == HARPE_OK; p++) {
            char name[] = {'$', (char)('1' + p), '\0'};
            to[i].parameters[p] = sqlite3_bind_parameter_index(to[i].prepared, name);
        }
    }
    return status;
}

static harpe_status prepare_statements(harpe_sqlite *store, harpe_error *error) {
    harpe_status status =
        prepare_all(store, harpe_schema_writes, HARPE_SCHEMA_WRITE_COUNT, store->writes, error);
    if (status == HARPE_OK)
        status =
            prepare_all(store, harpe_schema_reads, HARPE_SCHEMA_READ_COUNT, store->reads, error);
    if (status == HARPE_OK)
        status = harpe_sqlite_prepare(store, "UPDATE store SET commits = ?1", &store->count, error);
    return status;
}

static void close_sqlite(void *state) {
    harpe_sqlite *store = state;
    harpe_sqlite_backups_stop(store->backups);
    for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT; i++)
        sqlite3_finalize(store->writes[i].prepared);
    for (size_t i = 0; i < HARPE_SCHEMA_READ_COUNT; i++)
        sqlite3_finalize(store->reads[i].prepared);
    sqlite3_finalize(store->count);
    if (*store->path.text) end_use(store);
    sqlite3_close(store->db);
    if (store->record_file >= 0) (void)close(store->record_file);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

static harpe_status start(harpe_sqlite *store, const char *path, harpe_error *error) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    bool is_file = *store->path.text != '\0';
    bool had_log = is_file && harpe_store_size_of(store->path.text, HARPE_STORE_LOG) > 0;
    if (is_file) harpe_sqlite_read_alone(store);
    if (sqlite3_open_v2(path, &store->db, flags, harpe_store_vfs(path)) != SQLITE_OK)
        return harpe_sqlite_fail(store, error);
    sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
    harpe_status status = set_up(store, had_log, error);
    (void)sqlite3_wal_hook(store->db, note_log, store);
    if (status == HARPE_OK && is_file) status = begin_use(store, error);
    if (status == HARPE_OK) status = prepare_statements(store, error);
    return status;
}

/* Opens the database `path`. `where` names it in messages. `file` is its real path, or empty. */
static harpe_status open_database(const char *path, const char *where, const char *file,
                                  void **state, harpe_error *error) {
    harpe_sqlite *store = harpe_calloc(1, sizeof *store);
    if (!store) return harpe_fail_memory(error);
    (void)snprintf(store->name, sizeof store->name, "%s", where);
    store->path = harpe_store_beside(file, "");
    store->record_file = -1;
    store->has_unfinished_start = true;
    pthread_mutex_init(&store->lock, NULL);
    harpe_status status = start(store, path, error);
    if (status != HARPE_OK) {
        close_sqlite(store);
        return status;
    }
    store->has_unfinished_start = false;
    *state = store;
    return HARPE_OK;
}

static const char *path_of(const char *where) {
    return strncmp(where, "sqlite:", 7) == 0 ? where + 7 : where;
}

static bool accepts_sqlite(const char *where) {
    if (strncmp(where, "sqlite:", 7) == 0) return true;
    return !strstr(where, "://") && !harpe_store_is_postgres(where);
}

/* Removes the rights of other users from the file if this user owns it. Does nothing if the file
 * does not exist or belongs to another user. */
static void tighten(const char *path, const char *suffix, harpe_log log) {
    struct stat info;
    harpe_store_name name = harpe_store_beside(path, suffix);
    const char *file = name.text;
    bool is_open = stat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                   (info.st_mode & 0077) != 0;
    if (is_open && chmod(file, info.st_mode & 0700) == 0) {
        harpe_log_line(&log, HARPE_LOG_WARNING, "%.300s: had mode %04o, now %04o", file,
                       (unsigned)info.st_mode & 07777U, (unsigned)info.st_mode & 0700U);
    }
}

/* Makes the file of the database if it is missing, because SQLite would make it readable for other
 * users. SQLite gives its log the mode of the database. */
static void protect(const char *path, harpe_log log) {
    (void)harpe_store_create(path);
    if (harpe_store_files_of(path)) return;
    tighten(path, "", log);
    tighten(path, HARPE_STORE_LOG, log);
    tighten(path, HARPE_STORE_MEMORY, log);
    tighten(path, HARPE_STORE_JOURNAL, log);
}

static harpe_status open_sqlite(const char *where, harpe_log log, void **state,
                                harpe_error *error) {
    const char *path = path_of(where);
    if (*path == '\0') {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "store '%s' names no file; use sqlite:FILE", where);
    }
    /* A name with a slash has no special meaning for SQLite, unlike ":memory:" or "file:...". */
    bool is_plain = *path == '/' || harpe_store_files_of(path);
    harpe_store_name plain = harpe_store_beside(is_plain ? "" : "./", path);
    harpe_store_name file = harpe_store_real_path(plain.text);
    char name[sizeof file + 8];
    (void)snprintf(name, sizeof name, "sqlite:%s", path);
    harpe_status status = harpe_store_check_kinds(file.text, error);
    if (status == HARPE_OK) status = harpe_sqlite_admit_files(file.text, error);
    if (status != HARPE_OK) return status;
    protect(file.text, log);
    status = open_database(file.text, name, file.text, state, error);
    if (status == HARPE_OK) harpe_sqlite_backups_start(*state, log);
    return status;
}

static bool accepts_memory(const char *where) { return strcmp(where, "memory") == 0; }

static harpe_status open_memory(const char *where, harpe_log log, void **state,
                                harpe_error *error) {
    (void)log;
    return open_database(":memory:", where, "", state, error);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Binds the members of a change. A parameter that the statement does not have has the index 0.
 * SQLite refuses to bind it, and this error is ignored. */
static int bind(const harpe_sqlite_statement *statement, const harpe_change *change) {
    sqlite3_stmt *prepared = statement->prepared;
    const int *parameters = statement->parameters;
    const char *text = change->text ? change->text : "";
    (void)sqlite3_bind_text(prepared, parameters[HARPE_SCHEMA_JOB_ID], change->job_id, -1,
                            SQLITE_STATIC);
    (void)sqlite3_bind_int64(prepared, parameters[HARPE_SCHEMA_ROUND], change->round);
    (void)sqlite3_bind_int64(prepared, parameters[HARPE_SCHEMA_RANK], change->rank);
    (void)sqlite3_bind_int64(prepared, parameters[HARPE_SCHEMA_NUMBER], change->number);
    if (parameters[HARPE_SCHEMA_TEXT] == 0) return SQLITE_OK;
    return sqlite3_bind_blob64(prepared, parameters[HARPE_SCHEMA_TEXT], text, change->length,
                               SQLITE_STATIC);
}

/* Runs a statement without rows. `bound` is the result of binding its parameters. */
static harpe_status run(const harpe_sqlite *store, sqlite3_stmt *statement, int bound,
                        harpe_error *error) {
    int result = bound == SQLITE_OK ? sqlite3_step(statement) : bound;
    harpe_status status = result == SQLITE_DONE ? HARPE_OK : harpe_sqlite_fail(store, error);
    (void)sqlite3_reset(statement);
    return status;
}

static harpe_status write_one(const harpe_sqlite *store, const harpe_sqlite_statement *statement,
                              const harpe_change *change, harpe_error *error) {
    int result = bind(statement, change);
    return run(store, statement->prepared, result, error);
}

static harpe_status write_changes(const harpe_sqlite *store, const harpe_change *changes,
                                  harpe_error *error) {
    for (const harpe_change *change = changes; change; change = change->next) {
        for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT; i++) {
            if (harpe_schema_writes[i].kind != change->kind) continue;
            harpe_status status = write_one(store, &store->writes[i], change, error);
            if (status != HARPE_OK) return status;
        }
    }
    return HARPE_OK;
}

static harpe_status count_commit(const harpe_sqlite *store, harpe_error *error) {
    (void)sqlite3_bind_int64(store->count, 1, store->record.commits + 1);
    return run(store, store->count, SQLITE_OK, error);
}

static harpe_status write_transaction(harpe_sqlite *store, const harpe_change *changes,
                                      harpe_error *error) {
    harpe_status status = harpe_sqlite_execute(store, "BEGIN IMMEDIATE", error);
    if (status == HARPE_OK) status = write_changes(store, changes, error);
    if (status == HARPE_OK) status = count_commit(store, error);
    if (status == HARPE_OK) status = harpe_sqlite_execute(store, "COMMIT", error);
    if (status != HARPE_OK) {
        roll_back(store);
        note_files(store); /* the log may be longer now */
        return status;
    }
    store->record.commits++;
    if (*store->path.text)
        harpe_commit_record_update(store->path.text, store->record_file, &store->record);
    /* If the name now leads to another file, the commit is in the wrong file and counts as
     * failed. */
    return renew_files(store, error);
}

static harpe_status write_batch(void *state, const harpe_change *changes, harpe_error *error) {
    harpe_sqlite *store = state;
    harpe_lock(&store->lock);
    harpe_status status = check_files(store, error);
    if (status == HARPE_OK) status = bound_log(store, error);
    if (status == HARPE_OK) status = write_transaction(store, changes, error);
    harpe_unlock(&store->lock);
    return status;
}

static harpe_status check(void *state, harpe_error *error) {
    harpe_sqlite *store = state;
    harpe_lock(&store->lock);
    harpe_status status = check_files(store, error);
    harpe_unlock(&store->lock);
    return status;
}

static int64_t free_bytes(void *state) {
    const harpe_sqlite *store = state;
    return harpe_store_free_bytes(store->path.text);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static harpe_status read_rows(const harpe_sqlite *store, size_t which, const harpe_change *key,
                              harpe_record_reader *record, void *user, harpe_error *error) {
    sqlite3_stmt *rows = store->reads[which].prepared;
    harpe_status status = HARPE_OK;
    int result = bind(&store->reads[which], key);
    if (result == SQLITE_OK) result = sqlite3_step(rows);
    for (; result == SQLITE_ROW && status == HARPE_OK; result = sqlite3_step(rows)) {
        const char *text = sqlite3_column_blob(rows, 3); /* NULL when empty */
        const char *id = (const char *)sqlite3_column_text(rows, 4);
        harpe_change change = {
            .kind = harpe_schema_reads[which].kind,
            .job_id = id ? id : key->job_id,
            .round = sqlite3_column_int64(rows, 0),
            .rank = sqlite3_column_int(rows, 1),
            .number = sqlite3_column_int64(rows, 2),
            .text = text ? text : "",
            .length = (size_t)sqlite3_column_bytes(rows, 3),
        };
        status = change.job_id ? record(user, &change, error) : harpe_fail_memory(error);
    }
    if (status == HARPE_OK && result != SQLITE_DONE) status = harpe_sqlite_fail(store, error);
    (void)sqlite3_reset(rows);
    return status;
}

static harpe_status begin_read(void *state, bool takes_snapshot, harpe_error *error) {
    harpe_sqlite *store = state;
    (void)takes_snapshot; /* no other server writes, and this one waits for the lock */
    (void)error;
    harpe_lock(&store->lock);
    return HARPE_OK;
}

static harpe_status read_range(void *state, size_t first, size_t end, const harpe_change *key,
                               harpe_record_reader *record, void *user, harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = first; i < end && status == HARPE_OK; i++)
        status = read_rows(state, i, key, record, user, error);
    return status;
}

static harpe_status end_read(void *state, harpe_status status, harpe_error *error) {
    harpe_sqlite *store = state;
    (void)error;
    harpe_unlock(&store->lock);
    return status;
}

const harpe_store_backend harpe_store_sqlite = {
    .name = "sqlite",
    .accepts = accepts_sqlite,
    .open = open_sqlite,
    .close = close_sqlite,
    .write = write_batch,
    .begin_read = begin_read,
    .read = read_range,
    .end_read = end_read,
    .check = check,
    .free_bytes = free_bytes,
};

const harpe_store_backend harpe_store_memory = {
    .name = "memory",
    .accepts = accepts_memory,
    .open = open_memory,
    .close = close_sqlite,
    .write = write_batch,
    .begin_read = begin_read,
    .read = read_range,
    .end_read = end_read,
};
