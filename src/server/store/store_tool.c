/* SPDX-License-Identifier: Apache-2.0 */
/* Backs up, examines and restores SQLite stores, and accepts stores whose newest commits are lost,
 * while a server runs or without a server. Those that back up and examine do not change the store:
 * they prevent SQLite from copying the log into the file, and from removing the log. When a store
 * is restored, the record of commits is replaced last. A server that starts meanwhile finds either
 * the old store or the new store, or refuses to start. */
#include "server/store/store_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "pfo/models.h"
#include "pfo/result_scan.h"
#include "server/store/sqlite_internal.h"

/* ---- Checks ---------------------------------------------------------------------------------- */

/* Checks a store. SQLite checks the file first. Then these functions check whether a server can
 * continue with the records. */

enum { PROBLEMS_TOLD = 20 };

void harpe_store_report_free(harpe_store_report *report) { harpe_text_free(&report->details); }

static void HARPE_PRINTF(2, 3) add_problem(harpe_store_report *report, const char *format, ...) {
    char line[HARPE_ERROR_MESSAGE_SIZE];
    va_list arguments;
    if (report->problems++ >= PROBLEMS_TOLD) return;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; *c; c++)
        if (*c == '\n') *c = ' ';
    harpe_text_printf(&report->details, "%s\n", line);
}

/* ---- SQLite ---------------------------------------------------------------------------------- */

static harpe_status check_pages(const harpe_store_file *file, harpe_store_report *report,
                                harpe_error *error) {
    sqlite3_stmt *statement = NULL;
    harpe_status status =
        harpe_sqlite_prepare(&file->view, "PRAGMA integrity_check(20)", &statement, error);
    if (status != HARPE_OK) return status;
    int result = sqlite3_step(statement);
    for (; result == SQLITE_ROW; result = sqlite3_step(statement)) {
        const char *line = (const char *)sqlite3_column_text(statement, 0);
        if (line && strcmp(line, "ok") != 0) add_problem(report, "%s", line);
    }
    if (result != SQLITE_DONE) add_problem(report, "%s", sqlite3_errmsg(file->view.db));
    sqlite3_finalize(statement);
    return HARPE_OK;
}

/* Checks that the server's statements fit the tables. */
static void check_tables(const harpe_store_file *file, harpe_store_report *report) {
    for (size_t i = 0; i < HARPE_SCHEMA_WRITE_COUNT + HARPE_SCHEMA_READ_COUNT; i++) {
        const char *sql = i < HARPE_SCHEMA_WRITE_COUNT
                              ? harpe_schema_writes[i].sql
                              : harpe_schema_reads[i - HARPE_SCHEMA_WRITE_COUNT].sql;
        sqlite3_stmt *statement = NULL;
        if (sqlite3_prepare_v2(file->view.db, sql, -1, &statement, NULL) != SQLITE_OK)
            add_problem(report, "a table does not have the columns that a server needs: %s",
                        sqlite3_errmsg(file->view.db));
        sqlite3_finalize(statement);
    }
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Each statement counts records of a kind with which a server cannot continue. */
static const struct {
    const char *sql, *what;
} RULES[] = {
    {"SELECT count(*) FROM ranks WHERE job NOT IN (SELECT number FROM jobs)",
     "ranks belong to no job"},
    {"SELECT count(*) FROM rounds WHERE job NOT IN (SELECT number FROM jobs)",
     "rounds belong to no job"},
    {"SELECT count(*) FROM results WHERE job NOT IN (SELECT number FROM jobs)",
     "results belong to no job"},
    {"SELECT count(*) FROM states WHERE job NOT IN (SELECT number FROM jobs)",
     "states of schedulers belong to no job"},
    {"SELECT count(*) FROM job_requests WHERE job NOT IN (SELECT number FROM jobs)",
     "job requests belong to no job"},
    {"SELECT count(*) FROM ends WHERE job NOT IN (SELECT number FROM jobs)",
     "ends of ranks belong to no job"},
    {"SELECT count(*) FROM jobs WHERE length((SELECT text FROM rounds WHERE job = number"
     " ORDER BY round LIMIT 1)) = 0",
     "jobs have no schedules for their first round"},
    {"SELECT count(*) FROM results AS r WHERE round < 0 OR round > coalesce("
     "(SELECT max(round) FROM rounds WHERE job = r.job), -1)",
     "results are of rounds that were not handed out"},
    {"SELECT count(*) FROM states AS s WHERE length(text) < 2 OR round > coalesce("
     "(SELECT max(round) FROM rounds WHERE job = s.job), -1)",
     "states of schedulers are empty or of later rounds than those handed out"},
};

static harpe_status check_rules(const harpe_store_file *file, harpe_store_report *report,
                                harpe_error *error) {
    for (size_t i = 0; i < sizeof RULES / sizeof RULES[0]; i++) {
        int64_t count = 0;
        harpe_status status = harpe_sqlite_integers(&file->view, RULES[i].sql, &count, 1, error);
        if (status != HARPE_OK) return status;
        if (count > 0) add_problem(report, "%" PRId64 " %s", count, RULES[i].what);
    }
    return HARPE_OK;
}

static void check_rank(const harpe_job_info *job, sqlite3_stmt *ranks, const char *id,
                       harpe_store_report *report) {
    harpe_rank_info info = {0};
    harpe_problems problems = {0};
    int64_t rank = sqlite3_column_int64(ranks, 1);
    const char *text = sqlite3_column_blob(ranks, 3);
    size_t length = (size_t)sqlite3_column_bytes(ranks, 3);
    bool is_sound = harpe_rank_info_parse(text ? text : "", length, &info, NULL) == HARPE_OK &&
                    info.rank == rank && harpe_rank_info_fits(&info, job, &problems);
    if (!is_sound) add_problem(report, "job %.200s: rank %" PRId64 " cannot be read", id, rank);
    harpe_problems_free(&problems);
    harpe_rank_info_free(&info);
}

/* Counts the records of ranks that the job does not have. */
static harpe_status check_range(const harpe_store_file *file, const char *table, int64_t number,
                                int world_size, const char *id, harpe_store_report *report,
                                harpe_error *error) {
    char sql[200];
    int64_t count = 0;
    (void)snprintf(sql, sizeof sql,
                   "SELECT count(*) FROM %s WHERE job = %" PRId64 " AND (rank < 0 OR rank >= %d)",
                   table, number, world_size);
    harpe_status status = harpe_sqlite_integers(&file->view, sql, &count, 1, error);
    if (count > 0)
        add_problem(report, "job %.200s: %" PRId64 " %s are of ranks that it does not have", id,
                    count, table);
    return status;
}

static bool is_result(const char *text, size_t length, int64_t rank) {
    int found;
    harpe_profiling_result result = {0};
    harpe_problems problems = {0};
    if (harpe_profiling_result_scan(text, length, &found)) return found == rank;
    bool is_sound =
        harpe_profiling_result_decode(text, length, &result, &problems) && result.rank == rank;
    harpe_profiling_result_free(&result);
    harpe_problems_free(&problems);
    return is_sound;
}

/* Returns true if the text is a list with one schedule for each rank, or is empty. An empty text
 * means that the round has the schedules of the round before. */
static bool is_round(const char *text, size_t length, int world_size) {
    if (length == 0) return true;
    json_t *list = json_loadb(text, length, 0, NULL);
    bool is_sound = json_is_array(list) && json_array_size(list) == (size_t)world_size;
    json_decref(list);
    return is_sound;
}

/* Checks the texts of the rounds or results of the job `number`. */
static harpe_status check_texts(const harpe_store_file *file, bool of_rounds, int64_t number,
                                const harpe_job_info *job, const char *id,
                                harpe_store_report *report, harpe_error *error) {
    sqlite3_stmt *rows = NULL;
    const char *sql = of_rounds ? "SELECT round, 0, text FROM rounds WHERE job = $1"
                                : "SELECT round, rank, text FROM results WHERE job = $1";
    harpe_status status = harpe_sqlite_prepare(&file->view, sql, &rows, error);
    if (status != HARPE_OK) return status;
    (void)sqlite3_bind_int64(rows, 1, number);
    while (sqlite3_step(rows) == SQLITE_ROW) {
        const char *text = sqlite3_column_blob(rows, 2);
        size_t length = (size_t)sqlite3_column_bytes(rows, 2);
        int64_t rank = sqlite3_column_int64(rows, 1);
        if (!text) text = "";
        if (of_rounds ? is_round(text, length, job->world_size) : is_result(text, length, rank))
            continue;
        add_problem(report, "job %.200s: the %s of round %" PRId64 " cannot be read", id,
                    of_rounds ? "schedules" : "result of a rank",
                    (int64_t)sqlite3_column_int64(rows, 0));
    }
    sqlite3_finalize(rows);
    return HARPE_OK;
}

static harpe_status check_job(const harpe_store_file *file, sqlite3_stmt *jobs, sqlite3_stmt *ranks,
                              harpe_store_report *report, harpe_error *error) {
    harpe_job_info info = {0};
    int64_t number = sqlite3_column_int64(jobs, 0);
    const char *id = (const char *)sqlite3_column_text(jobs, 1);
    const char *text = sqlite3_column_blob(jobs, 2);
    size_t length = (size_t)sqlite3_column_bytes(jobs, 2);
    if (!id) return harpe_fail_memory(error);
    if (harpe_job_info_parse(text ? text : "", length, &info, NULL) != HARPE_OK) {
        add_problem(report, "job %.200s: its record cannot be read", id);
        return HARPE_OK;
    }
    (void)sqlite3_bind_int64(ranks, 1, number);
    while (sqlite3_step(ranks) == SQLITE_ROW)
        check_rank(&info, ranks, id, report);
    (void)sqlite3_reset(ranks);
    harpe_status status = check_range(file, "results", number, info.world_size, id, report, error);
    if (status == HARPE_OK)
        status = check_range(file, "ends", number, info.world_size, id, report, error);
    if (status == HARPE_OK) status = check_texts(file, true, number, &info, id, report, error);
    if (status == HARPE_OK) status = check_texts(file, false, number, &info, id, report, error);
    harpe_job_info_free(&info);
    return status;
}

enum { READ_RANKS = HARPE_READ_OF_JOB + 1 };

static harpe_status check_jobs(const harpe_store_file *file, harpe_store_report *report,
                               harpe_error *error) {
    sqlite3_stmt *jobs = NULL, *ranks = NULL;
    harpe_status status = harpe_sqlite_prepare(
        &file->view, "SELECT number, id, text FROM jobs ORDER BY number", &jobs, error);
    if (status == HARPE_OK)
        status =
            harpe_sqlite_prepare(&file->view, harpe_schema_reads[READ_RANKS].sql, &ranks, error);
    while (status == HARPE_OK && sqlite3_step(jobs) == SQLITE_ROW)
        status = check_job(file, jobs, ranks, report, error);
    sqlite3_finalize(ranks);
    sqlite3_finalize(jobs);
    return status;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static harpe_status count(const harpe_store_file *file, harpe_store_report *report,
                          harpe_error *error) {
    const struct {
        const char *sql;
        int64_t *value;
    } counts[] = {
        {"SELECT count(*) FROM jobs", &report->jobs},
        {"SELECT count(*) FROM ranks", &report->ranks},
        {"SELECT count(*) FROM results", &report->results},
        {"SELECT coalesce(sum(last + 1), 0) FROM (SELECT max(round) AS last FROM rounds"
         " GROUP BY job)",
         &report->rounds},
        {"SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
         &report->bytes},
    };
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && status == HARPE_OK; i++)
        status = harpe_sqlite_integers(&file->view, counts[i].sql, counts[i].value, 1, error);
    return status;
}

static harpe_status check_missing(const harpe_store_file *file, harpe_error *error) {
    if (file->is_in_use) return HARPE_OK;
    harpe_sqlite view = file->view;
    return harpe_sqlite_admit(&view, file->had_log, error);
}

/* Reports faults that make a server refuse to start. check_pages reports rows that cannot be read,
 * so this function does not. */
static void check_commits(const harpe_store_file *file, harpe_store_report *report) {
    harpe_commit_record record = {0};
    harpe_error fault;
    bool in_use = false;
    (void)harpe_sqlite_read_record(&file->view, &record, &in_use, NULL);
    report->commits = record.commits;
    if (check_missing(file, &fault)) add_problem(report, "%s", fault.message);
}

/* Counts the records and looks for problems. */
static harpe_status store_file_check(const harpe_store_file *file, harpe_store_report *report,
                                     harpe_error *error) {
    report->is_in_use = file->is_in_use;
    check_commits(file, report);
    harpe_status status = check_pages(file, report, error);
    check_tables(file, report);
    size_t problems = report->problems;
    harpe_error fault;
    if (status == HARPE_OK &&
        (count(file, report, &fault) || check_rules(file, report, &fault) ||
         check_jobs(file, report, &fault)) &&
        problems == report->problems)
        add_problem(report, "%s", fault.message);
    if (report->details.failed) return harpe_fail_memory(error);
    return status;
}

/* ---- Tools ----------------------------------------------------------------------------------- */

enum {
    ANSWER_S = 600, /* time in which a server must make its copy */
    /* The bytes of a database that SQLite locks: pending, reserved and shared. */
    LOCK_START = 0x40000000,
    LOCK_LENGTH = 512,
};

/* ---- Opening --------------------------------------------------------------------------------- */

/* Locks the database as SQLite does. Fails if a server or another program has it open. `file` is an
 * open descriptor; the lock ends when it is closed. */
static harpe_status store_lock(int file, const char *path, bool is_exclusive, harpe_error *error) {
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

/* Copies the bytes of `from` to `target`, a new file with mode 0600. When it returns, the copy is
 * on disk. */
static harpe_status store_copy_bytes(int from, const char *target, harpe_error *error) {
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
        self->copy ? store_copy_bytes(given, self->copy, error) : harpe_fail_memory(error);
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
    harpe_status status = store_lock(self->lock, path, false, error);
    return status != HARPE_OK ? status : open_unchanging(self, path, error);
}

static void store_file_close(harpe_store_file *file) {
    (void)sqlite3_close(file->view.db);
    if (file->lock >= 0) (void)close(file->lock);
    if (file->copy) (void)unlink(file->copy);
    free(file->copy);
    *file = (harpe_store_file){.lock = -1};
}

/* Opens a store. If no server has it open, opens the file itself, and no server can open the store
 * until it is closed here. Otherwise asks the server for a copy, puts the copy into the directory
 * of `near`, and opens the copy. */
static harpe_status store_file_open(const char *path, const char *near, harpe_store_file *out,
                                    harpe_error *error) {
    harpe_store_file self = {
        .lock = -1, .view.record_file = -1, .view.path = harpe_store_real_path(path)};
    const char *real = self.view.path.text;
    int given = -1;
    (void)snprintf(self.view.name, sizeof self.view.name, "%s", path);
    harpe_status status = harpe_store_control_ask(
        harpe_store_beside(real, HARPE_STORE_CONTROL).text, ANSWER_S, &given, error);
    if (status == HARPE_OK) {
        status = open_copy(&self, given, near, error);
        (void)close(given);
    } else if (status == HARPE_NOT_FOUND) {
        status = harpe_file_check_regular(real, error);
        if (status == HARPE_OK) status = harpe_store_check_kinds(real, error);
        if (status == HARPE_OK) status = open_alone(&self, real, error);
    }
    bool is_empty = false;
    if (status == HARPE_OK) status = harpe_sqlite_identify(&self.view, &is_empty, error);
    if (status == HARPE_OK && is_empty)
        status = harpe_fail(error, HARPE_INVALID_INPUT, "%.600s: is empty, not a store", path);
    if (status != HARPE_OK)
        store_file_close(&self);
    else
        *out = self;
    return status;
}

/* ---- Copying --------------------------------------------------------------------------------- */

/* Copies the open store to `target`, a new file with mode 0600. When it returns, the copy is on
 * disk. */
static harpe_status store_file_copy(const harpe_store_file *file, const char *target,
                                    harpe_error *error) {
    int made = open(target, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made < 0) return harpe_fail_errno(error, errno, "cannot write %s", target);
    int result = harpe_sqlite_copy(file->view.db, target, NULL, NULL);
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

/* ---- Checking a copy ------------------------------------------------------------------------- */

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
    harpe_status status = store_file_open(path, near, &file, error);
    free(near);
    if (status != HARPE_OK) return status;
    status = store_file_check(&file, report, error);
    store_file_close(&file);
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
    harpe_store_name store = harpe_store_real_path(path), there = harpe_store_real_path(target);
    if (!is_of_store(there.text, store.text)) return HARPE_OK;
    return harpe_fail(error, HARPE_ALREADY_EXISTS,
                      "%.600s: is a file of the store itself; use another name", target);
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

/* Copies the store, checks the copy, and reads its record. */
static harpe_status copy_and_check(const harpe_store_file *file, const char *temporary,
                                   harpe_store_report *report, harpe_commit_record *record,
                                   harpe_error *error) {
    harpe_store_file copy;
    bool in_use;
    harpe_status status = store_file_copy(file, temporary, error);
    if (status != HARPE_OK) return status;
    status = store_file_open(temporary, temporary, &copy, error);
    if (status == HARPE_OK) {
        status = store_file_check(&copy, report, error);
        if (status == HARPE_OK && report->problems == 0)
            status = harpe_sqlite_read_record(&copy.view, record, &in_use, error);
        store_file_close(&copy);
    }
    if (status == HARPE_OK) status = refuse_problems(file->view.name, report, error);
    report->is_in_use = file->is_in_use;
    return status;
}

/* Does the work of harpe_store_backup, and reads the record of the copy. */
static harpe_status back_up(const char *path, const char *target, bool replaces,
                            harpe_store_report *report, harpe_commit_record *record,
                            harpe_error *error) {
    harpe_store_file file;
    harpe_status status = refuse_store_as_target(path, target, error);
    if (status == HARPE_OK) status = check_target(target, replaces, error);
    if (status != HARPE_OK) return status;
    char *temporary = harpe_path_temporary(target);
    if (!temporary) return harpe_fail_memory(error);
    harpe_temporary_sweep(target);
    status = store_file_open(path, target, &file, error);
    if (status == HARPE_OK) {
        status = check_missing(&file, error);
        if (status == HARPE_OK) status = copy_and_check(&file, temporary, report, record, error);
        store_file_close(&file);
    }
    if (status == HARPE_OK) status = put_in_place(temporary, target, replaces, error);
    if (status != HARPE_OK) (void)unlink(temporary);
    free(temporary);
    return status;
}

harpe_status harpe_store_backup(const char *path, const char *target, bool replaces,
                                harpe_store_report *report, harpe_error *error) {
    harpe_commit_record record;
    return back_up(path, target, replaces, report, &record, error);
}

/* ---- Names for what is kept ------------------------------------------------------------------ */

enum { NAMES_AT_MOST = 100000 }; /* number of names with the same second */

/* Returns true if a file of a store has this name. */
static bool is_taken(const char *name) {
    static const char *const suffixes[] = {"", HARPE_STORE_COMMITS, HARPE_STORE_LOG,
                                           HARPE_STORE_JOURNAL};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        struct stat info;
        if (lstat(harpe_store_beside(name, suffixes[i]).text, &info) == 0) return true;
    }
    return false;
}

/* Returns a name that no file of a store has, such as PATH.WORD-20261122-140500. If the name is
 * taken, adds .2, .3 and so on. */
static harpe_store_name name_for(const char *path, const char *word) {
    char when[32];
    struct tm local;
    harpe_store_name name;
    time_t now = harpe_clock_wall_whole_s();
    if (!localtime_r(&now, &local) || strftime(when, sizeof when, "%Y%m%d-%H%M%S", &local) == 0)
        (void)snprintf(when, sizeof when, "%lld", (long long)now);
    (void)snprintf(name.text, sizeof name.text, "%s.%s-%s", path, word, when);
    for (int i = 2; is_taken(name.text) && i < NAMES_AT_MOST; i++)
        (void)snprintf(name.text, sizeof name.text, "%s.%s-%s.%d", path, word, when, i);
    return name;
}

/* If `moves` is true, renames PATH+suffix to KEPT+suffix. Otherwise gives the file this second
 * name. A missing file is not an error. */
static harpe_status keep(const char *path, const char *kept, const char *suffix, bool moves,
                         harpe_error *error) {
    harpe_store_name from = harpe_store_beside(path, suffix), to = harpe_store_beside(kept, suffix);
    if ((moves ? rename : link)(from.text, to.text) == 0 || errno == ENOENT) return HARPE_OK;
    return harpe_fail_errno(error, errno, "cannot keep %s as %s", from.text, to.text);
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
    int connection = -1;
    harpe_status status = harpe_store_control_connect(
        harpe_store_beside(path, HARPE_STORE_CONTROL).text, 1, &connection, NULL);
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
    harpe_status status = store_lock(file, temporary, true, error);
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
    int file = open(harpe_store_beside(path, HARPE_STORE_COMMITS).text, O_RDONLY | O_CLOEXEC);
    harpe_status status = file >= 0 ? give_to_owner(path, file, error) : HARPE_OK;
    if (file >= 0) (void)close(file);
    return status;
}

/* Locks the old store, so that no server opens it. `*lock` is -1 if there is none. */
static harpe_status lock_old(const char *path, int *lock, harpe_error *error) {
    struct stat info;
    *lock = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*lock < 0) return errno == ENOENT ? HARPE_OK : harpe_fail_errno(error, errno, "%s", path);
    if (fstat(*lock, &info) != 0 || !S_ISREG(info.st_mode))
        return harpe_fail(error, HARPE_INVALID_INPUT, "%.600s: is not a file", path);
    return store_lock(*lock, path, true, error);
}

static harpe_status replace(const char *path, const char *temporary, const char *kept,
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

harpe_status harpe_store_restore(const char *path, const char *backup, harpe_store_name *replaced,
                                 harpe_store_report *report, harpe_error *error) {
    harpe_commit_record record = {0};
    harpe_store_name real = harpe_store_real_path(path);
    harpe_store_name kept = name_for(real.text, "replaced");
    replaced->text[0] = '\0';
    harpe_status status = refuse_if_served(real.text, error);
    if (status == HARPE_OK) status = harpe_store_check_kinds(real.text, error);
    if (status != HARPE_OK) return status;
    char *temporary = harpe_path_temporary(real.text);
    if (!temporary) return harpe_fail_memory(error);
    harpe_temporary_sweep(real.text);
    bool was_there = access(real.text, F_OK) == 0;
    status = back_up(backup, temporary, false, report, &record, error);
    if (status == HARPE_OK) status = replace(real.text, temporary, kept.text, &record, error);
    (void)unlink(temporary);
    free(temporary);
    if (status == HARPE_OK && was_there) *replaced = kept;
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
    int log = open(harpe_store_beside(path, HARPE_STORE_LOG).text, O_RDONLY | O_CLOEXEC);
    if (log < 0) return HARPE_OK;
    harpe_status status =
        store_copy_bytes(log, harpe_store_beside(kept, HARPE_STORE_LOG).text, error);
    (void)close(log);
    return status;
}

/* Finds the state with which the next server starts. A log that does not belong to the file is not
 * used. */
static harpe_status find_rest(const char *path, harpe_commit_record *here, bool *uses_log,
                              int64_t *missing, harpe_error *error) {
    harpe_store_file file;
    harpe_commit_record beside;
    bool in_use;
    harpe_status status = store_file_open(path, path, &file, error);
    if (status != HARPE_OK) return status;
    if (file.is_in_use)
        status = harpe_fail(error, HARPE_ALREADY_EXISTS, "%.600s: a server has it open", path);
    if (status == HARPE_OK) status = harpe_sqlite_read_record(&file.view, here, &in_use, error);
    *missing = -1;
    *uses_log = true;
    if (harpe_commit_record_read(path, &beside, NULL) == HARPE_OK) {
        *uses_log = !harpe_sqlite_is_older_than_log(&file.view, &beside);
        if (!*uses_log) *here = file.view.alone;
        if (strcmp(here->id, beside.id) == 0)
            *missing = beside.commits > here->commits ? beside.commits - here->commits : 0;
    }
    store_file_close(&file);
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

harpe_status harpe_store_accept(const char *path, harpe_store_name *kept, int64_t *commits,
                                int64_t *missing, harpe_error *error) {
    harpe_store_name real = harpe_store_real_path(path);
    *kept = name_for(real.text, "before-accept");
    harpe_status status = refuse_if_served(real.text, error);
    if (status == HARPE_OK) status = harpe_store_check_kinds(real.text, error);
    *commits = 0;
    if (status == HARPE_OK)
        status = harpe_store_size_of(real.text, "") > 0
                     ? accept_rest(real.text, kept->text, commits, missing, error)
                     : accept_nothing(real.text, kept->text, missing, error);
    if (status == HARPE_OK && *missing == 0) kept->text[0] = '\0';
    return status;
}
