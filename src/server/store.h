/* SPDX-License-Identifier: Apache-2.0 */
/* Where the state lives that survives. A change is a small record; changes are queued on the loop,
 * written by the store's own thread in batches, one transaction (one fsync) each, and acknowledged
 * on the loop in order. While a batch is being written the next one gathers: thousands of
 * registrations cost tens of fsyncs. What is read back at start is the same records.
 *
 * A back-end (store/sqlite.c, store/postgres.c, store/memory.c) is one table of functions. */
#ifndef HARPE_SERVER_STORE_H
#define HARPE_SERVER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "server/loop.h"

typedef enum harpe_change_kind {
    HARPE_CHANGE_JOB,     /* text: JobInfo JSON; number: time of registration, s since 1970; round:
                             as in SEEN; read back: of the last SEEN, -1: not known */
    HARPE_CHANGE_RANK,    /* rank; text: RankInfo JSON */
    HARPE_CHANGE_ROUND,   /* round; text: list of FrequencySchedule JSON, or nothing: those of the
                             round before; it was handed out; number: texts of earlier rounds than
                             this one go, but for that which says what its schedules are */
    HARPE_CHANGE_RESULT,  /* round, rank; text: ProfilingResult JSON as received */
    HARPE_CHANGE_STATE,   /* round; text: the scheduler's state after observing round - 1;
                             results of earlier rounds than round - 1 - number go */
    HARPE_CHANGE_FAILED,  /* text: why the job cannot go on */
    HARPE_CHANGE_SEEN,    /* number: when the job was last heard of, s since 1970; round: for how
                             many seconds servers had run with this store then */
    HARPE_CHANGE_WISH,    /* number: harpe_scheduler_wish; text: value */
    HARPE_CHANGE_END,     /* rank, whose training has ended; number: when */
    HARPE_CHANGE_BACK,    /* rank, which had ended and has not any more */
    HARPE_CHANGE_DELETED, /* the job and all of its records go; an empty marker stays, so that its
                             id is answered with 410: number: when */
    HARPE_CHANGE_PROBE,   /* the store's own: writes a row and takes it back */
    HARPE_CHANGE_UPTIME,  /* of no job; number: for how many seconds servers have run with it */
} harpe_change_kind;

/* One record. `job_id` and `text` point into memory of the caller that lives until `done`. */
typedef struct harpe_change {
    harpe_change_kind kind;
    const char *job_id;
    int64_t round;
    int rank;
    int64_t number;
    const char *text;
    size_t length;
    /* On the loop once the record is on disk (or could not be: `status` and `error` say why; the
     * whole batch failed and nothing of it was written). */
    void (*done)(void *user, harpe_status status, const harpe_error *error);
    void *user;
    struct harpe_change *next; /* the store's */
} harpe_change;

typedef struct harpe_store harpe_store;

/* Opens `where` ("sqlite:FILE" or a path, "postgresql://...", "memory"), creating what is missing;
 * refuses files of a newer Harpe, and a file that another server has open. */
harpe_status harpe_store_open(const char *where, harpe_loop *loop, harpe_log log, harpe_store **out,
                              harpe_error *error);
/* Writes what is queued, then closes. `done` of those is called. Loop thread. */
void harpe_store_close(harpe_store *store);
/* Writes what is queued and acknowledges it, but waits at most `wait_ms`. For a program that must
 * end. False: not everything is written. Loop thread. */
bool harpe_store_flush(harpe_store *store, int64_t wait_ms);

/* Loop thread. Records of one job are applied in the order of submission. */
void harpe_store_submit(harpe_store *store, harpe_change *change);

/* Calls `record` for every record of all jobs (job_id NULL) or of one, before anything is
 * submitted: for all, first the UPTIME, if there is one; per job its JOB, then RANKs by rank,
 * ROUNDs by round, RESULTs by round and rank, but without their texts, the last STATE, WISHes, ENDs
 * by rank, FAILED, SEEN; deleted jobs give one DELETED. Pointers are valid during the call. Blocks.
 */
harpe_status harpe_store_load(harpe_store *store, const char *job_id,
                              harpe_status (*record)(void *user, const harpe_change *change,
                                                     harpe_error *error),
                              void *user, harpe_error *error);

/* The text of one result that was stored earlier; HARPE_NOT_FOUND. Blocks for one
 * read: call it from a worker. */
harpe_status harpe_store_read_result(harpe_store *store, const char *job_id, int64_t round,
                                     int rank, char **text, size_t *length, harpe_error *error);

/* ---- Several servers on one store -------------------------------------------------------------
 * One of them at a time owns the store: it alone writes. Ownership is held by the very session that
 * writes, so a server that has lost it cannot write, whatever it believes. Without a call of
 * harpe_store_own nothing is checked. */

typedef struct harpe_ownership {
    bool is_ours;
    bool may_have_rival; /* the last owner did not resign: it may live and not know yet */
} harpe_ownership;

/* Could several servers share this store? */
bool harpe_store_is_shared(const harpe_store *store);
/* Makes `server` (its id among the peers, > 0) the owner if nobody is. Blocks: call it from a
 * worker, while nothing is submitted. What the last owner wrote is to be loaded after it. */
harpe_status harpe_store_own(harpe_store *store, int64_t server, harpe_ownership *out,
                             harpe_error *error);
/* Resigns. As harpe_store_own. */
void harpe_store_disown(harpe_store *store);
/* False once the session that held it was found to be lost: nothing is written any more until
 * harpe_store_own. */
bool harpe_store_is_owned(const harpe_store *store);

typedef struct harpe_store_counts {
    uint64_t changes, batches; /* that are on disk */
    uint64_t failures;         /* batches that could not be written */
    size_t queued;             /* changes that are not acknowledged yet */
} harpe_store_counts;
/* True: the last write failed, or a write has taken longer than `deadline_s`; `line` gives the
 * reason. After a failure the store tries a small write every second, to notice when writing works
 * again.
 * Loop thread. */
bool harpe_store_fault(harpe_store *store, int64_t deadline_s, char *line, size_t size);
harpe_store_counts harpe_store_count(const harpe_store *store);
/* What it was opened with; may hold a password. */
const char *harpe_store_where(const harpe_store *store);
const char *harpe_store_description(const harpe_store *store); /* "sqlite:harpe.db" */

#endif
