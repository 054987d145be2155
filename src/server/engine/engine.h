/* SPDX-License-Identifier: Apache-2.0 */
/* The engine keeps jobs, their ranks and their rounds as explicit states. It takes calls (requests
 * without HTTP) and answers each call exactly once, at once or later. It stores a change durably
 * before it answers the call. All functions run on the loop's thread.
 *
 * A job:    registering -> preparing -> gathering -> running -> observing -> gathering -> ...
 *           (ranks         (a worker     (ranks ask)  (results    (a worker shows
 *           register)      makes the                  come)       the results to
 *                          scheduler)                             the scheduler)
 *
 * A job in any state can become ended (all ranks have reported their end; the job continues if one
 * registers again), failed or evicted.
 *
 * A rank:   unknown -> registered -> asking (its call is held) -> served -> reported -> asking ...
 *
 * When every rank asks, the schedules of round k are stored and then handed out. A rank that has
 * the schedule of round k may ask again without saying which round it has. Its call is then held
 * for the next round. There is an exception: if the answer may not have arrived (the connection
 * broke, or the server was restarted after the answer), the rank gets the schedule of round k
 * again, once. */
#ifndef HARPE_SERVER_ENGINE_ENGINE_H
#define HARPE_SERVER_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "base/file_processes.h"
#include "base/text.h"
#include "http/loop.h"
#include "pfo/models.h"
#include "pfo/settings.h"
#include "rights/tokens.h"
#include "server/scheduler/figures.h"
#include "server/scheduler/scheduler_host.h"
#include "server/store/store.h"

/* ---- Calls ----------------------------------------------------------------------------------- */
/* A call is the content of a request as plain data, without HTTP. A list keeps its calls in order.
 * A call is in at most one list, and points to that list. Only the loop uses calls and lists. */

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
    /* The list of all jobs as JSON, newest first, in pieces. job_id: a place of an earlier list,
     * after which this one begins, or NULL; rank: how many jobs to skip from there; round: how many
     * to list at most; body: the query of a sorted list (harpe_show_sorted), or NULL. If the
     * answer's round is not -1, a piece follows: the engine has changed the call so that it asks
     * for that piece.
     *
     * A place stays valid while jobs are added and evicted. A job that exists all the time is
     * listed once. If another engine gave the place, for example before a restart, jobs that were
     * registered in the same second may be listed again. */
    HARPE_CALL_LIST,
    HARPE_CALL_PIPELINE, /* job_id; round: the number of a plan, or a harpe_pipeline_of */
    /* Changes of one job, or of all. job_id, or NULL for all; round: the version that the client
     * knows, or -1; rank: -1. The call is held until there is a newer version. The answer's round
     * is that version. If the call is about all jobs and the client knows no version of this
     * engine, the answer is all jobs, in pieces: the engine sets `rank` to the place of the next
     * piece, and to -1 with the last one. */
    HARPE_CALL_CHANGES,
    HARPE_CALL_END, /* job_id; body: {"rank": 3}: the training of this rank ends */
    /* Final reports of evicted jobs: see harpe_finished_answer. job_id, or NULL for a list; rank:
     * how many to skip; round: how many to list at most, or -1. */
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
    char *scope;  /* malloc'ed; the groups of the client's token (rights/tokens.h); NULL: all */
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
/* Frees the texts of a call that is in no list. */
void harpe_call_clear(harpe_call *call);

/* ---- Replies --------------------------------------------------------------------------------- */
/* These answer a call. If `call` is NULL, its client is gone, and they do nothing. After the answer
 * the call no longer belongs to the engine. */

/* Takes over `body`, which may be NULL. */
void harpe_reply(harpe_call *call, int http_status, char *body, size_t length, int64_t round);
/* Answers 200 with the text, which is taken over, or 503 if an allocation has failed. */
void harpe_reply_text(harpe_call *call, harpe_text *text, int64_t round);
void harpe_reply_null(harpe_call *call, int64_t round);
void harpe_reply_detail(harpe_call *call, int http_status, const char *format, ...)
    HARPE_PRINTF(3, 4);
void harpe_reply_out_of_memory(harpe_call *call);
void harpe_reply_stopping(harpe_call *call);
void harpe_reply_not_stored(harpe_call *call, const harpe_error *error);

/* ---- Options --------------------------------------------------------------------------------- */

typedef struct harpe_jobs_options {
    harpe_loop *loop;
    harpe_workers *workers;
    harpe_store *store;
    const harpe_scheduler_kind *scheduler;
    const harpe_settings *settings;
    harpe_log log;
    harpe_file_processes *dump_files; /* NULL: the workers use the files themselves */
    /* The largest number of connections that this server has at a time. Each waiting rank needs a
     * connection. 0: no limit. */
    int connections;
    /* NULL: the clocks of the system. Tests set their own clocks. The wall clock may be changed at
     * any moment, so its times are only shown to people. The steady clock measures how long jobs
     * are idle. */
    double (*wall_clock_s)(void);
    double (*steady_clock_s)(void);
} harpe_jobs_options;

typedef struct harpe_jobs_counts {
    size_t jobs, failed, ended, ranks, ranks_waiting;
    uint64_t registered_jobs, registered_ranks, rounds, results, evicted;
} harpe_jobs_counts;

/* The server's pools of workers. Each kind of work has its own pool, so that it does not wait for
 * another kind. */
typedef enum harpe_pool {
    HARPE_POOL_DECODE,   /* bodies of requests */
    HARPE_POOL_STORE,    /* reads from the store, and the looks of src/server/lead */
    HARPE_POOL_SCHEDULE, /* schedulers that compute little, or that wait for another program */
    HARPE_POOL_PLAN,     /* schedulers that compute plans; their threads have a lower priority */
    HARPE_POOL_DUMP,     /* files for people */
    HARPE_POOL_FLEET,    /* splits of power budgets */
    HARPE_POOL_TOKENS,   /* the file of tokens */
    HARPE_POOL_AUDIT,    /* the audit log */
    HARPE_POOL_COUNT,
} harpe_pool;

/* For harpe_workers_new. The subject of each piece of work is the id of its job, or a path. */
extern const harpe_pool_kind harpe_pools[HARPE_POOL_COUNT + 1];

/* ---- The engine ------------------------------------------------------------------------------ */

typedef struct harpe_jobs harpe_jobs;
typedef struct harpe_job harpe_job;

/* Makes an engine and loads all jobs of the store. Each job continues in its stored state. Blocks.
 * Pointers in `options` must stay valid until harpe_jobs_free. */
harpe_status harpe_jobs_new(const harpe_jobs_options *options, harpe_jobs **out,
                            harpe_error *error);
/* Answers all remaining calls with 503 and frees the engine. At the end of the program, call
 * harpe_jobs_stop, harpe_workers_free, harpe_store_close (which completes the pending changes) and
 * then this function. */
void harpe_jobs_free(harpe_jobs *jobs);
void harpe_jobs_handle(harpe_jobs *jobs, harpe_call *call);
/* Call this when the client of a call disconnects before the answer. The caller may free the call
 * afterwards. */
void harpe_jobs_forget(harpe_jobs *jobs, harpe_call *call);
/* Call this after an answer with a schedule was sent. `has_arrived` is false if the answer may not
 * have arrived. */
void harpe_jobs_delivered(harpe_jobs *jobs, const char *job_id, int rank, int64_t round,
                          bool has_arrived);
/* Says which group is inside of which other one (rights/tokens.h). `tree` must stay valid until
 * the engine is freed or gets NULL, and the caller calls harpe_jobs_regroup after each change of
 * it.
 */
void harpe_jobs_use_groups(harpe_jobs *jobs, const harpe_group_tree *tree);
/* Clients whose tokens are limited to groups may see other jobs after it, and get the whole list
 * again. */
void harpe_jobs_regroup(harpe_jobs *jobs);
/* Stops the engine like harpe_jobs_stop, but the workers and the program continue. Returns the held
 * calls for schedules without answering them, as a list linked by `next`. Another engine can handle
 * them. */
harpe_call *harpe_jobs_retire(harpe_jobs *jobs);
/* Answers every held call with 503 (the server is stopping, so the client tries again). Changes
 * that are being stored are still completed. Later calls get 503. */
void harpe_jobs_stop(harpe_jobs *jobs);
/* Returns true if nothing is in flight. */
bool harpe_jobs_are_idle(const harpe_jobs *jobs);
harpe_jobs_counts harpe_jobs_count(const harpe_jobs *jobs);

/* ---- Looking at it --------------------------------------------------------------------------- */

typedef struct harpe_job_glance {
    const char *id, *metadata; /* metadata may be NULL */
    const char *group;         /* NULL: none */
    int world_size;
    bool has_begun; /* all ranks have registered */
    bool has_ended;
    bool has_failed;        /* its scheduler has failed, and its ranks may still train */
    bool is_ready;          /* its scheduler is made */
    int64_t round;          /* the round that was handed out last; -1: none */
    int64_t reported_round; /* the last round of which all results came; -1: none */
    const harpe_figures *figures;
    /* The caller may keep pointers here, as long as the job exists. */
    void **member, **account;
} harpe_job_glance;

/* Calls `visit` for each job that was not evicted. `visit` must not call the engine. The pointers
 * of a glance are valid until `visit` returns. */
void harpe_jobs_glance(harpe_jobs *jobs, void (*visit)(void *user, const harpe_job_glance *glance),
                       void *user);
/* Calls `begins` for each job whose eviction begins, before it is stored. NULL: no longer. */
void harpe_jobs_on_eviction(harpe_jobs *jobs,
                            void (*begins)(void *user, const harpe_job_glance *glance), void *user);
/* Returns the round of a job that was handed out last, or -1. */
int64_t harpe_jobs_round_of(const harpe_jobs *jobs, const char *job_id);
/* Returns true if the job exists and was not evicted. */
bool harpe_jobs_have(const harpe_jobs *jobs, const char *job_id);

/* Returns the time of the wall clock, in s since 1970. This clock may jump, so it serves only for
 * times that people see or name. */
double harpe_jobs_wall_s(const harpe_jobs *jobs);
/* Returns the time of a clock that never jumps, in s. Its zero has no meaning. */
double harpe_jobs_steady_s(const harpe_jobs *jobs);

/* Returns true if `text` can be a place in the list of jobs. */
bool harpe_jobs_is_place(const char *text);

/* The keys by which a list can be sorted. */
#define HARPE_SORT_KEYS \
    "start, seen, name, state, user, group, node, slurm_job, gpus, round, power, power_cap, " \
    "energy, saved, time_lost"

/* Returns true if a list can be sorted by `text`: a key, with '-' in front for the reverse order.
 */
bool harpe_jobs_can_sort(const char *text);

/* ---- Files ----------------------------------------------------------------------------------- */

/* What is to be done, in this order. */
typedef struct harpe_dump_order {
    const char *directory; /* made first, with those above it, for the server's user alone; NULL:
                              none */
    bool only_looks;       /* makes and writes nothing */
    bool cleans;           /* removes incomplete files of an earlier server from the directory */
    const char *path;      /* NULL: no file */
    const char *text;      /* what the file gets, as a whole; NULL: it is not written */
    size_t length;
    bool unless_there, unless_same; /* does not write if the file exists, or has this text */
    bool sweeps;                    /* removes incomplete files of this path */
    bool leaves_cache;              /* nobody reads the file soon */
    /* Does nothing else but keep_bounds (dump_files.c); `text` names the forgotten jobs. */
    bool bounds;
    int64_t most_bytes, most_age_s;
} harpe_dump_order;

typedef struct harpe_dump_finding {
    bool is_there;    /* the file existed before */
    mode_t open_mode; /* see harpe_open_mode; of the directory, if the order only looks */
} harpe_dump_finding;

/* Call it on a worker. The order names a directory or a path. */
harpe_status harpe_dump_files_do(harpe_file_processes *files, const harpe_dump_order *order,
                                 harpe_dump_finding *finding, harpe_error *error);
/* What a file process does. */
harpe_status harpe_dump_files_work(const struct iovec *parts, size_t count, harpe_text *answer,
                                   harpe_error *error);
/* Returns the mode of a directory if other users may read it. Otherwise, or if it does not exist,
 * returns 0. */
mode_t harpe_open_mode(const char *directory);

#endif
