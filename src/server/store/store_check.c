/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a store. SQLite checks the file first. Then these functions check whether a server can
 * continue with the records. */
#include "server/store/store_tools.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "pfo/models.h"
#include "pfo/result_scan.h"
#include "server/store/sqlite_internal.h"

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

/* Reports faults that make a server refuse to start. check_pages reports rows that cannot be read,
 * so this function does not. */
static void check_commits(const harpe_store_file *file, harpe_store_report *report) {
    harpe_commit_record record = {0};
    harpe_error fault;
    bool in_use = false;
    (void)harpe_sqlite_read_record(&file->view, &record, &in_use, NULL);
    report->commits = record.commits;
    if (file->is_in_use) return;
    harpe_sqlite view = file->view;
    if (harpe_sqlite_admit(&view, file->had_log, &fault)) add_problem(report, "%s", fault.message);
}

harpe_status harpe_store_file_check(const harpe_store_file *file, harpe_store_report *report,
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
