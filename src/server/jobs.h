/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: jobs, their ranks and rounds, as explicit states. It takes calls (a request without
 * its HTTP: plain data, so that a call may also come from another server) and answers each exactly
 * once, at any later time. What it answers is durable before. Everything on the loop's thread.
 *
 * A job:    registering -> preparing -> gathering -> running -> observing -> gathering -> ...
 *           (ranks come)   (scheduler    (ranks ask)  (results    (on a worker:
 *                           is made on a              come)        observe, next)
 *                           worker)
 *           and from anywhere -> ended (all ranks say so; back when one registers again), failed,
 *           evicted
 * A rank:   unknown -> registered -> asking (its call is held) -> served -> reported -> asking ...
 *
 * Round k's schedules are handed out when every rank is asking; the round is stored first. A rank
 * that is served and asks again without saying which round it has is held for round k+1, unless
 * its answer may not have arrived (the connection broke under it, or the server has been restarted
 * since): then it gets round k again, once. */
#ifndef HARPE_SERVER_JOBS_H
#define HARPE_SERVER_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "pfo/settings.h"
#include "server/loop.h"
#include "server/scheduler_host.h"
#include "server/store.h"

/* ---- Calls ------------------------------------------------------------------------------------
 */

typedef enum harpe_call_kind {
    HARPE_CALL_REGISTER_JOB,  /* body: JobInfo */
    HARPE_CALL_REGISTER_RANK, /* job_id; body: RankInfo */
    HARPE_CALL_SCHEDULE,      /* job_id, rank, round (the one it has) or -1 */
    HARPE_CALL_RESULT,        /* job_id, round or -1; body: ProfilingResult */
    HARPE_CALL_STRAGGLER,     /* job_id; body: {"slowdown": 1.2} or {"iteration_time": 51.3} */
    HARPE_CALL_POWER_CAP,     /* job_id; body: {"watts": 2000} */
    HARPE_CALL_PLAN,          /* job_id; body: {"time": 48.5} */
    HARPE_CALL_EVICT,         /* job_id */
    HARPE_CALL_SHOW,          /* job_id: everything known of one job, as JSON, in pieces. rank: the
                               * first rank of this piece; the answer's round: that of the next
                               * piece, or -1 */
    HARPE_CALL_FRONTIER,      /* job_id */
    HARPE_CALL_LIST,          /* job_id: a place or NULL; rank: how many jobs to skip from there;
                               * round: how many to list at most: see harpe_jobs_list */
    HARPE_CALL_PIPELINE,      /* job_id, round: the plan's number, or of harpe_pipeline_of */
    HARPE_CALL_CHANGES,       /* job_id or NULL: all; round: the version that is known, or -1. Held
                               * until there is a newer one, which is the answer's round */
    HARPE_CALL_END,           /* job_id; body: {"rank": 3}, whose training ends */
} harpe_call_kind;

typedef struct harpe_call_answer {
    int http_status;
    char *body; /* JSON; freed by the receiver with free() */
    size_t length;
    int64_t round; /* of a schedule or result, or a version; -1: none (header Harpe-Round) */
} harpe_call_answer;

/* Made and owned by whoever asks, until `answer` was called or harpe_jobs_forget returned. */
typedef struct harpe_call harpe_call;
struct harpe_call {
    harpe_call_kind kind;
    char *job_id; /* malloc'ed; may be any text */
    int64_t rank, round;
    int64_t asked_ns; /* when the client asked, harpe_clock_boot_ns; 0: not known */
    char *body;       /* malloc'ed; the engine may take it over (and set it NULL) */
    size_t length;
    void (*answer)(harpe_call *call, const harpe_call_answer *answer);
    /* Called when the call is held and may be lost to make room for others, and when that changes.
     * May be NULL. */
    void (*gives_way)(harpe_call *call, bool gives_way);
    void *user;
    /* The engine's own; NULL at first: */
    struct harpe_job *held_by;         /* the job whose round or queue holds this call */
    struct harpe_operation *operation; /* what carries this call, or what it waits for */
    struct harpe_call_list *list;      /* in which it waits; NULL: none */
    harpe_call *previous, *next;
    /* For whoever stands before the engine (peers.c); zero at first: */
    struct harpe_pending *pending; /* waits for the server that leads */
    int64_t number;                /* by which that one knows it; 0: it was not sent */
    void (*pass_on)(harpe_call *call, const harpe_call_answer *answer); /* what `answer` was */
};

/* ---- The engine -------------------------------------------------------------------------------
 */

typedef struct harpe_jobs harpe_jobs;

typedef struct harpe_jobs_options {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_store *store;
    const harpe_scheduler_kind *scheduler;
    const harpe_settings *settings;
    harpe_log log;
    /* How many this server takes at once; each rank that waits needs one. 0: any number. */
    int connections;
    /* NULL: the system's clocks; tests have their own. The wall clock may be set to any time at
     * any moment and is only shown to people; the steady clock measures how long jobs are idle. */
    double (*wall_clock_s)(void);
    double (*steady_clock_s)(void);
} harpe_jobs_options;

/* Loads every job of the store and goes on where they were. Blocks. Pointers in options stay valid
 * until free. */
harpe_status harpe_jobs_new(const harpe_jobs_options *options, harpe_jobs **out,
                            harpe_error *error);
/* Whoever is still there is answered 503. The order at the end: harpe_jobs_stop,
 * harpe_workers_free, harpe_store_close (which acknowledges what it writes), then this. */
void harpe_jobs_free(harpe_jobs *jobs);

void harpe_jobs_handle(harpe_jobs *jobs, harpe_call *call);
/* The asker of a call that is not answered yet went away; it may free the call. */
void harpe_jobs_forget(harpe_jobs *jobs, harpe_call *call);
/* What became of a schedule that was answered: false when it may not have arrived. */
void harpe_jobs_delivered(harpe_jobs *jobs, const char *job_id, int rank, int64_t round,
                          bool has_arrived);

/* As harpe_jobs_stop, but the workers and the program go on; and the calls for a schedule that are
 * held are not answered but given back, linked by `next`: nothing was done for them yet, so that
 * somebody else may handle them. */
harpe_call *harpe_jobs_retire(harpe_jobs *jobs);
/* Answers every held call with 503 (the server is stopping; clients retry) and lets what is being
 * stored end. Calls that come later get 503. */
void harpe_jobs_stop(harpe_jobs *jobs);
/* Nothing is under way any more. */
bool harpe_jobs_are_idle(const harpe_jobs *jobs);

/* ---- Looking at it ----------------------------------------------------------------------------
 */

/* A piece of the list of all jobs, newest first: those after the place `after` (NULL: from the
 * newest on), without the first `offset` of them; at most `limit`, and fewer if they are long. A
 * place stays valid while jobs come and go: a job that exists all the time is listed once. With
 * the place of another engine (after a restart), jobs that were registered in the same second may
 * be listed again.
 *
 * The text is a line "COUNT TOTAL PLACE" (how many rows follow, how many jobs there are, and the
 * place after these rows, or "-" if there is no further job), and then the rows as JSON objects,
 * separated by commas. Free it with free(). NULL: out of memory. */
char *harpe_jobs_list(const harpe_jobs *jobs, const char *after, size_t offset, size_t limit);
/* Can `text` be a place? */
bool harpe_jobs_is_place(const char *text);

typedef struct harpe_jobs_counts {
    size_t jobs, failed, ended, ranks, ranks_waiting;
    uint64_t registered_jobs, registered_ranks, rounds, results, evicted;
} harpe_jobs_counts;
harpe_jobs_counts harpe_jobs_count(const harpe_jobs *jobs);

#endif
