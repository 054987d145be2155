/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a store's back-end. Each back-end has one constant table of functions in one
 * file, and one row in harpe_store_backends (store.c). store.c makes the batches and acknowledges
 * changes on the right threads, so a back-end does not. */
#ifndef HARPE_SERVER_STORE_BACKEND_H
#define HARPE_SERVER_STORE_BACKEND_H

#include <stddef.h>

#include <harpe/callback.h>

#include "server/store/change.h"

typedef struct harpe_store_backend {
    const char *name;
    /* Returns true if `where` names this back-end. */
    bool (*accepts)(const char *where);
    harpe_status (*open)(const char *where, harpe_log log, void **state, harpe_error *error);
    void (*close)(void *state);
    /* Writes the list `changes` in one transaction. When it returns, either all changes are
     * durable, or none is stored. Called only on the store's thread. */
    harpe_status (*write)(void *state, const harpe_change *changes, harpe_error *error);
    /* The next three can be called on any thread, also during a write. If begin_read succeeds, only
     * its thread reads until it calls end_read, with the status of what it has read. In a snapshot,
     * changes that other servers make meanwhile are not visible. */
    harpe_status (*begin_read)(void *state, bool takes_snapshot, harpe_error *error);
    /* Runs the statements harpe_schema_reads[first] up to `end` (not included) with the values of
     * `key` as parameters. Calls `record` for every row until it fails. */
    harpe_status (*read)(void *state, size_t first, size_t end, const harpe_change *key,
                         harpe_record_reader *record, void *user, harpe_error *error);
    harpe_status (*end_read)(void *state, harpe_status status, harpe_error *error);
    /* Checks that the store is still in the place where it was opened. Called on the store's
     * thread, between writes. NULL if no other program can move or remove the store. */
    harpe_status (*check)(void *state, harpe_error *error);
    /* Returns the bytes that its file system has free; -1: not known. Called on the store's thread,
     * between writes. NULL if the store has no file. */
    int64_t (*free_bytes)(void *state);
    /* The next four do the work of harpe_store_own, harpe_store_watch, harpe_store_disown and
     * harpe_store_is_owned. NULL if several servers cannot share the store. */
    harpe_status (*own)(void *state, const harpe_store_server *server, harpe_ownership *out,
                        harpe_error *error);
    harpe_status (*watch)(void *state, int64_t owner, int64_t dead_beat, harpe_store_leader *out,
                          harpe_error *error);
    void (*disown)(void *state);
    bool (*is_owned)(const void *state);
} harpe_store_backend;

extern const harpe_store_backend harpe_store_sqlite;
extern const harpe_store_backend harpe_store_postgres;
extern const harpe_store_backend harpe_store_memory;

/* ---- Tables ---------------------------------------------------------------------------------- */

/* The tables for the records, for both databases. The statements that create tables, write changes
 * and read records use only SQL that both SQLite and PostgreSQL understand. Private to the
 * back-ends.
 *
 * Every write is idempotent: it replaces a record that exists. The caller may therefore submit a
 * change again if it does not know whether the change was stored. Records of a job that an earlier
 * change has deleted are dropped. */

/* Written into the database. A database with a higher version is refused. */
enum { HARPE_SCHEMA_VERSION = 1 };

/* The parameters are types for which the two databases have different names. */
#define HARPE_SCHEMA_TABLES(COUNTED_KEY, BYTES) \
    "CREATE TABLE IF NOT EXISTS jobs (number " COUNTED_KEY ", id TEXT NOT NULL UNIQUE," \
    " registered_at BIGINT NOT NULL, text " BYTES " NOT NULL, failed " BYTES ", seen_at BIGINT);" \
    "CREATE TABLE IF NOT EXISTS ranks (job BIGINT, rank BIGINT, text " BYTES " NOT NULL," \
    " PRIMARY KEY (job, rank));" \
    "CREATE TABLE IF NOT EXISTS rounds (job BIGINT, round BIGINT, text " BYTES " NOT NULL," \
    " PRIMARY KEY (job, round));" \
    "CREATE TABLE IF NOT EXISTS results (job BIGINT, round BIGINT, rank BIGINT," \
    " text " BYTES " NOT NULL, PRIMARY KEY (job, round, rank));" \
    "CREATE TABLE IF NOT EXISTS states (job BIGINT PRIMARY KEY, round BIGINT NOT NULL," \
    " text " BYTES " NOT NULL);" \
    "CREATE TABLE IF NOT EXISTS job_sums (job BIGINT PRIMARY KEY, round BIGINT NOT NULL," \
    " text " BYTES " NOT NULL);" \
    "CREATE TABLE IF NOT EXISTS job_requests (job BIGINT, kind BIGINT, place BIGINT NOT NULL," \
    " round BIGINT NOT NULL, text " BYTES " NOT NULL, PRIMARY KEY (job, kind));" \
    "CREATE TABLE IF NOT EXISTS ends (job BIGINT, rank BIGINT, ended_at BIGINT NOT NULL," \
    " PRIMARY KEY (job, rank));" \
    "CREATE TABLE IF NOT EXISTS deleted (number " COUNTED_KEY ", id TEXT NOT NULL UNIQUE," \
    " deleted_at BIGINT NOT NULL);" \
    "CREATE TABLE IF NOT EXISTS finished (number " COUNTED_KEY ", id TEXT NOT NULL UNIQUE," \
    " finished_at BIGINT NOT NULL, uptime_s BIGINT NOT NULL, text " BYTES " NOT NULL);" \
    "CREATE TABLE IF NOT EXISTS heard (job BIGINT PRIMARY KEY, uptime_s BIGINT NOT NULL);" \
    "CREATE TABLE IF NOT EXISTS uptime (is_one BIGINT PRIMARY KEY, seconds BIGINT NOT NULL);" \
    "CREATE TABLE IF NOT EXISTS notes (key TEXT PRIMARY KEY, text " BYTES " NOT NULL);"

/* The server that owns the store, of several on one PostgreSQL. It contains no state of jobs. */
#define HARPE_SCHEMA_LEAD \
    "CREATE TABLE IF NOT EXISTS lead (is_one BOOLEAN PRIMARY KEY CHECK (is_one)," \
    " server BIGINT NOT NULL, beat BIGINT NOT NULL, address TEXT NOT NULL," \
    " since TIMESTAMPTZ NOT NULL DEFAULT now());"

/* The values of $1 .. $5. A statement may use them in any order. */
enum {
    HARPE_SCHEMA_JOB_ID, /* text */
    HARPE_SCHEMA_ROUND,  /* 64-bit integers */
    HARPE_SCHEMA_RANK,
    HARPE_SCHEMA_NUMBER,
    HARPE_SCHEMA_TEXT, /* bytes */
    HARPE_SCHEMA_PARAMETER_COUNT,
};

typedef struct harpe_schema_statement {
    harpe_change_kind kind;
    const char *sql;
} harpe_schema_statement;

/* A change of `kind` is written by all statements of that kind, in the order of the list. */
enum { HARPE_SCHEMA_WRITE_COUNT = 34 };
extern const harpe_schema_statement harpe_schema_writes[HARPE_SCHEMA_WRITE_COUNT];

/* Each of these reads records of `kind`: rows of round, rank, number, text and id. text is NULL if
 * the record has no text, and id if it is that of the parameters. */
enum {
    /* The records of the job with the number $4, in the order of harpe_store_load. The texts of
     * results are not read. */
    HARPE_READ_OF_JOB,
    HARPE_READ_OF_JOB_END = HARPE_READ_OF_JOB + 10,
    /* All jobs, the oldest first, or the job with the id $1. `number` is the job's number. */
    HARPE_READ_JOBS = HARPE_READ_OF_JOB_END,
    HARPE_READ_ONE_JOB,
    /* All deleted jobs, the oldest first, or the one with the id $1. */
    HARPE_READ_DELETED,
    HARPE_READ_ONE_DELETED,
    HARPE_READ_FINISHED, /* the final reports, the oldest first */
    HARPE_READ_UPTIME,   /* there may be none */
    HARPE_READ_NOTES,    /* by key */
    HARPE_READ_RESULT,   /* with its text: of the job with the id $1, round $2, rank $3 */
    HARPE_SCHEMA_READ_COUNT,
};
extern const harpe_schema_statement harpe_schema_reads[HARPE_SCHEMA_READ_COUNT];

#endif
