/* SPDX-License-Identifier: Apache-2.0 */
/* The records that are written to a store and read back from it. Plain data. */
#ifndef HARPE_SERVER_STORE_CHANGE_H
#define HARPE_SERVER_STORE_CHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

typedef enum harpe_change_kind {
    HARPE_CHANGE_JOB,   /* text: JobInfo JSON; number: time of registration, s since 1970; round: as
                           in SEEN. When read back, round is that of the last SEEN, or -1 if there
                           was none */
    HARPE_CHANGE_RANK,  /* rank; text: RankInfo JSON */
    HARPE_CHANGE_ROUND, /* a round that was handed out. round; text: list of FrequencySchedule JSON,
                           or nothing if the schedules are those of the round before. number: texts
                           of rounds before the round `number` are deleted, except a text that a
                           later round without text uses */
    HARPE_CHANGE_RESULT, /* round, rank; text: ProfilingResult JSON as received */
    HARPE_CHANGE_STATE,  /* round; text: the scheduler's state after it observed round - 1; results
                            of rounds before round - 1 - number are deleted */
    HARPE_CHANGE_SUMS,   /* round; text: what the ranks have reported up to this round, in sums */
    HARPE_CHANGE_FAILED, /* text: why the job cannot continue */
    HARPE_CHANGE_SEEN,   /* number: time of the job's last request, s since 1970; round: the seconds
                            for which servers had run with this store at that time */
    HARPE_CHANGE_JOB_REQUEST, /* number: harpe_scheduler_job_request; text: value */
    HARPE_CHANGE_END,         /* rank: its training has ended; number: time of the end */
    HARPE_CHANGE_BACK,        /* rank: its training had ended, and runs again */
    /* Deletes the job and all of its records; the id is kept, so that requests for it get 410.
     * number: time of the deletion. text: the job's final report, or nothing. If there is a report,
     * round is the uptime, and rank the number of reports that are kept. */
    HARPE_CHANGE_DELETED,
    HARPE_CHANGE_PROBE,    /* made by the store itself: a test that writes a row and removes it */
    HARPE_CHANGE_UPTIME,   /* belongs to no job; number: the seconds for which servers have run with
                              the store. round: final reports of an earlier uptime are deleted */
    HARPE_CHANGE_FINISHED, /* only read back: the final report of a deleted job, as in DELETED */
    HARPE_CHANGE_NOTE, /* belongs to no job; job_id: the key of the note; text: the note. An empty
                          text removes the note */
} harpe_change_kind;

/* One record. `job_id` and `text` point to memory of the caller, which must stay valid until `done`
 * is called. */
typedef struct harpe_change {
    harpe_change_kind kind;
    const char *job_id;
    int64_t round;
    int rank;
    int64_t number;
    const char *text;
    size_t length;
    /* Called on the loop when the record is on disk, or when it could not be written. In the second
     * case `status` and `error` give the reason, and no record of the batch was written. */
    void (*done)(void *user, harpe_status status, const harpe_error *error);
    void *user;
    struct harpe_change *next; /* used by the store */
} harpe_change;

/* Gets a record that is read back. Its pointers are valid during the call. */
typedef harpe_status harpe_record_reader(void *user, const harpe_change *change,
                                         harpe_error *error);

enum { HARPE_STORE_ADDRESS_SIZE = 272 };

/* A server of several that share a store. */
typedef struct harpe_store_server {
    int64_t id; /* random, above 0 */
    char address[HARPE_STORE_ADDRESS_SIZE];
} harpe_store_server;

/* The server that owns the store. */
typedef struct harpe_store_leader {
    int64_t id;   /* 0: no server owns the store, or its owner has called harpe_store_disown */
    int64_t beat; /* number of its heartbeats */
    char address[HARPE_STORE_ADDRESS_SIZE];
} harpe_store_leader;

/* The result of harpe_store_own. */
typedef struct harpe_ownership {
    bool is_ours;
    bool may_have_rival; /* the last owner did not call harpe_store_disown: it may still run,
                            without knowing that it has lost the store */
} harpe_ownership;

#endif
