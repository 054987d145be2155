/* SPDX-License-Identifier: Apache-2.0 */
/* A call is the content of a request as plain data, without HTTP. This header also has lists of
 * waiting calls. A list keeps its calls in order. A call is in at most one list, and points to that
 * list. Only the loop uses calls and lists. */
#ifndef HARPE_SERVER_ENGINE_CALL_H
#define HARPE_SERVER_ENGINE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum harpe_call_kind {
    HARPE_CALL_REGISTER_JOB,  /* body: JobInfo */
    HARPE_CALL_REGISTER_RANK, /* job_id; body: RankInfo */
    HARPE_CALL_SCHEDULE,      /* job_id, rank; round: the round that the rank has, or -1 */
    HARPE_CALL_RESULT,        /* job_id; round of the result, or -1; body: ProfilingResult */
    HARPE_CALL_STRAGGLER,     /* job_id; body: {"slowdown": 1.2} or {"iteration_time": 51.3} */
    HARPE_CALL_POWER_CAP,     /* job_id; body: {"watts": 2000} */
    HARPE_CALL_PLAN,          /* job_id; body: {"time": 48.5} */
    HARPE_CALL_EVICT,         /* job_id */
    /* Everything about one job as JSON, in pieces. job_id; rank: the first rank of this piece. The
     * answer's round: the first rank of the next piece, or -1. */
    HARPE_CALL_SHOW,
    HARPE_CALL_FRONTIER, /* job_id */
    /* A piece of the list of jobs: see harpe_jobs_list. job_id: a place or NULL; rank: how many
     * jobs to skip from there; round: how many to list at most; body: the query of a sorted list
     * (harpe_jobs_query), or NULL. */
    HARPE_CALL_LIST,
    HARPE_CALL_PIPELINE, /* job_id; round: the number of a plan, or a harpe_pipeline_of */
    /* Changes of one job, or of all. job_id, or NULL for all; round: the version that the client
     * knows, or -1. The call is held until there is a newer version. The answer's round is that
     * version. If the call is about all jobs and the client knows no version of this engine, the
     * answer is a piece of the list of jobs (see harpe_jobs_piece). rank: where the piece begins,
     * or -1. */
    HARPE_CALL_CHANGES,
    HARPE_CALL_END, /* job_id; body: {"rank": 3}: the training of this rank ends */
    /* Final reports of evicted jobs: see finished.h. job_id, or NULL for a list; rank: how many to
     * skip; round: how many to list at most, or -1. */
    HARPE_CALL_FINISHED,
    /* Calls of the fleet, which src/server/fleet handles. job_id: the name of what the call is
     * about, or NULL. */
    HARPE_CALL_FLEET_SHOW,
    HARPE_CALL_FLEET_HISTORY,    /* job_id: "FROM TO POINTS" */
    HARPE_CALL_FLEET_PUT_BUDGET, /* body: a budget with its group */
    HARPE_CALL_FLEET_DELETE_BUDGET,
    HARPE_CALL_FLEET_PUT_GROUP,
    HARPE_CALL_FLEET_DELETE_GROUP,
    HARPE_CALL_FLEET_PUT_JOB,
    HARPE_CALL_FLEET_PUT_LOAD,
    HARPE_CALL_FLEET_DELETE_LOAD,
    /* rank: the power in W that the declared members of the scope may have together, or -1 */
    HARPE_CALL_FLEET_PUT_MEMBER,
    HARPE_CALL_FLEET_DELETE_MEMBER,
    HARPE_CALL_FLEET_REPORT, /* a declared member reports, and gets its plan; rank: as above */
    HARPE_CALL_FLEET_POST_EVENT,
    HARPE_CALL_FLEET_DELETE_EVENT,
    HARPE_CALL_FLEET_PUT_PRICES,
    HARPE_CALL_FLEET_DELETE_PRICES,
    /* A call of the server itself, for the engine: the connection of a rank has ended. job_id,
     * rank; round: ms since the last request for a schedule on it. */
    HARPE_CALL_LOST,
} harpe_call_kind;

typedef struct harpe_call_answer {
    int http_status;
    char *body; /* JSON; the receiver frees it with free() */
    size_t length;
    int64_t round; /* header Harpe-Round: round of a schedule or result, or a version; -1: none */
} harpe_call_answer;

/* The caller of harpe_jobs_handle makes the call. It owns the call again when `answer` is called,
 * or when harpe_jobs_forget returns. */
typedef struct harpe_call harpe_call;
struct harpe_call {
    harpe_call_kind kind;
    char *job_id; /* malloc'ed; may be any text */
    char *scope;  /* malloc'ed; the groups of the client's token (rights/scope.h); NULL: all */
    int64_t rank, round;
    char *body; /* malloc'ed; the engine may take it over, and then sets it to NULL */
    size_t length;
    void (*answer)(harpe_call *call, const harpe_call_answer *answer);
    /* The engine calls this with true when it holds the call and may refuse it to make room for
     * others. It calls this with false when it will no longer refuse the call. May be NULL. */
    void (*gives_way)(harpe_call *call, bool gives_way);
    void *user;
    /* For the engine; NULL at first: */
    struct harpe_job *held_by;         /* the job whose round or queue holds this call */
    struct harpe_operation *operation; /* has this call, or this call waits for it */
    struct harpe_call_list *list;      /* the list in which it waits; NULL: none */
    harpe_call *previous, *next;
    int64_t waits_since_ns; /* belongs to src/server/lead: harpe_clock_boot_ns */
};

/* ---- Lists ----------------------------------------------------------------------------------- */

/* Initialise it with zeros. */
typedef struct harpe_call_list {
    harpe_call *first, *last;
    size_t count;
} harpe_call_list;

void harpe_calls_append(harpe_call_list *list, harpe_call *call);
/* Removes the call from its list. */
void harpe_calls_remove(harpe_call *call);
/* Returns NULL if the list is empty. */
harpe_call *harpe_calls_take_first(harpe_call_list *list);

#endif
