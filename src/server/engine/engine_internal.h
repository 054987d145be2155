/* SPDX-License-Identifier: Apache-2.0 */
/* The structures of the engine, and the functions that its files share: a job and its ranks, an
 * operation (work that ends later, on a worker or in the store), a turn (an operation of a job with
 * its scheduler; a job has only one at a time), and the table of jobs. Only the loop uses these
 * structures, except that a worker may read or write a member whose comment says so. */
#ifndef HARPE_SERVER_ENGINE_ENGINE_INTERNAL_H
#define HARPE_SERVER_ENGINE_ENGINE_INTERNAL_H

#include "pfo/metadata.h"
#include "pfo/rank_clocks.h"
#include "server/engine/engine.h"

typedef struct harpe_operation harpe_operation;
typedef struct harpe_turn harpe_turn;
typedef struct harpe_dump harpe_dump;

/* ---- Data ------------------------------------------------------------------------------------ */

enum { HARPE_EVICTED_KEPT = 100000 }; /* the store remembers the same number of evicted jobs */

/* What the table finds by its id: a job, or what is kept of an evicted job. */
typedef struct harpe_table_entry {
    struct harpe_table_entry *same_bucket;
    char *id;
    bool is_evicted; /* it is a harpe_evicted_job */
} harpe_table_entry;

/* One piece of memory of about 150 bytes. */
typedef struct harpe_evicted_job {
    harpe_table_entry entry;
    struct harpe_evicted_job *older, *newer; /* by time of eviction */
    int64_t version;   /* of its last change; does not fall from older to newer */
    const char *group; /* NULL: none */
    char text[];       /* the id and the group */
} harpe_evicted_job;

/* Sums over jobs. */
typedef struct harpe_figure_sums {
    int64_t jobs;
    double used_j, power_w;
    /* Sums over the jobs that have a baseline. `variance` is the variance of saved_j: the sum of
     * the squares of the jobs' uncertainties. */
    int64_t compared;
    double saved_j, variance, baseline_j;
} harpe_figure_sums;

typedef struct harpe_finished_job {
    char *id;
    char *text;  /* JSON */
    char *group; /* of the job; NULL: none */
    int64_t uptime_s;
    harpe_figure_sums sums; /* of this job alone */
} harpe_finished_job;

/* A ring: the oldest report is at `first`. */
typedef struct harpe_finished {
    harpe_finished_job *jobs;
    size_t capacity, first, count;
} harpe_finished;

/* The schedules of one round in the form in which they are sent: a JSON list with one schedule for
 * each rank. The schedule of rank r begins at text[offsets[r]] and ends before text[offsets[r + 1]
 * - 1]. */
typedef struct harpe_round_text {
    int references;
    char *text;
    size_t length;
    size_t *offsets; /* world_size + 1 */
} harpe_round_text;

/* The result of one rank as it was received. */
typedef struct harpe_result_text {
    char *text; /* NULL: not received yet, or only in the store */
    size_t length;
    bool is_plain; /* strict JSON that has only members of the model */
} harpe_result_text;

/* The results of one round. */
typedef struct harpe_round_results {
    int references, count;
    bool is_dumped; /* the dump was begun or is finished */
    harpe_result_text texts[];
} harpe_round_results;

/* One rank and its part in the round. These members determine its state: unknown (not registered),
 * asking, reported, served (it has the schedule of the round), registered, ended. */
typedef struct harpe_rank {
    harpe_call *asking;         /* its held call for the next schedule; NULL: none */
    harpe_operation *operation; /* stores its registration, result or end; others wait for it */
    harpe_rank_info info; /* valid after it has registered; fixed after all ranks have registered */
    int taken_by; /* 1 + the rank whose harpe_job_coordinate is this rank's number; 0: none */
    bool is_registered;
    bool has_reported;  /* its result of the current round is stored */
    bool is_uncounted;  /* that result comes from an earlier server, and is not in the figures */
    bool may_ask_again; /* the current round's schedule may not have arrived */
    bool has_ended;     /* the rank has reported the end of its training */
    bool is_lost;       /* its connection has ended, and it has sent nothing since */
    double heard_s;     /* harpe_jobs_steady_s at its last request for a schedule or result */
} harpe_rank;

/* A stored job request, and the round in which or before which it came. */
typedef struct harpe_stored_job_request {
    harpe_scheduler_job_request kind;
    double value;
    int64_t round;        /* the round that ran, or the first round that the request could change */
    bool is_within_round; /* the round was running */
} harpe_stored_job_request;

/* Files for people that a worker writes one after the other: the dumps of a job, or its profile. */
typedef struct harpe_dump_queue {
    harpe_dump *first; /* is being written, or waits to be tried again; NULL: none */
    harpe_dump **end;
    int new_count;   /* without those that were queued at the start */
    bool has_failed; /* the last attempt has failed, and the failure was logged */
    bool was_given_up;
} harpe_dump_queue;

typedef enum harpe_job_state {
    HARPE_JOB_REGISTERING, /* ranks register */
    HARPE_JOB_PREPARING,   /* a worker makes the scheduler, or replays the rounds after a restart */
    HARPE_JOB_GATHERING,   /* the next schedules exist; ranks ask for them */
    HARPE_JOB_RUNNING,     /* the ranks have their schedules, and send results */
    HARPE_JOB_OBSERVING,   /* a worker shows the results to the scheduler */
    HARPE_JOB_ENDED,       /* every rank has reported its end */
    HARPE_JOB_FAILED,
    HARPE_JOB_EVICTED,
} harpe_job_state;

struct harpe_job {
    harpe_table_entry entry;
    harpe_jobs *jobs;
    char *id;                 /* the same as that of the entry */
    harpe_job *older, *newer; /* by time of registration; of evicted jobs `older` by eviction */

    harpe_job_info info;
    char *group;                   /* of its metadata; NULL: none */
    char *words[HARPE_WORDS];      /* of its metadata; NULL: none */
    double power_cap_w;            /* the cap that its scheduler keeps; 0: none */
    int64_t registered_s;          /* wall clock at its registration, s since 1970; fixed */
    int64_t serial;                /* number in the table; larger for later jobs */
    int64_t seen_s;                /* wall clock at the last request; see harpe_job_seen_s */
    int64_t last_request_s;        /* harpe_jobs_uptime_s at the last request */
    int64_t stored_last_request_s; /* the last_request_s that is in the store */
    bool has_sent_request;         /* a request has come since this server started */
    int64_t version;               /* the version of its last change: see view.c */
    bool is_stored;                /* until this is true, no other request can use the job */
    harpe_operation *registration; /* is being stored; registrations with the same key wait */
    bool is_evicted;
    harpe_operation *eviction; /* is being stored; calls wait for it */
    char *failure;             /* one line; NULL: none */

    void *ranks;                  /* of job.c; NULL: no request has named a rank */
    harpe_round_results *results; /* of the current round; NULL until the first result */
    int registered, asking, reported, ended, lost; /* numbers of ranks */
    int64_t lost_s; /* wall clock when the last connection of a rank ended */

    /* Rounds. These members determine the job's state: see harpe_job_state_of. */
    int64_t round;             /* the latest round that was handed out; -1: none yet */
    harpe_round_text *current; /* its schedules */
    harpe_round_text *next;    /* the schedules of round + 1; NULL: not known yet */
    bool is_ready;             /* the scheduler is made */
    bool is_finished;          /* the scheduler needs no more results, and keeps its schedules */
    bool refuses_job_requests;
    harpe_scheduler *scheduler; /* may be NULL in a finished job; belongs to the turn, if any */
    char *state_text; /* the scheduler's state, stored with round + 1; NULL: it is not kept */
    size_t state_length;
    int64_t state_round;   /* a replay with state_text begins with this round */
    harpe_turn *turn;      /* in flight */
    harpe_call_list queue; /* job requests and frontier requests that wait for their turn */
    bool is_marked;        /* it is in the list of marked jobs */
    harpe_job *next_marked;

    harpe_figures figures;             /* with the figures of the scheduler */
    harpe_result_totals round_totals;  /* of the results that came in `totalled_round` */
    harpe_conduct_round conduct_round; /* of the same results */
    int64_t totalled_round;
    int totalled;      /* the number of these results */
    int64_t sums_from; /* after a restart: the last round in the stored sums; -1: none */
    int uncounted;     /* number of ranks whose result is not in the figures */

    /* Read from the store, and kept until the scheduler is made: */
    harpe_stored_job_request *requests;
    size_t request_count, request_capacity;

    int operations; /* in flight; an evicted job keeps its data until there is none */
    harpe_dump_queue dumps, profiles;
    bool is_restoring;      /* its dumps may be on disk already */
    void *member, *account; /* for src/server/fleet; NULL at first */
};

/* A step of an operation. */
typedef void harpe_step(harpe_operation *operation);

/* A piece of work that the loop begins and that ends later: it runs on a worker, or waits for the
 * store. Most operations handle a call: they decode the body (on a worker if the body is long),
 * check and store the change, and answer the call. A member that an operation does not need is 0.
 * Turns and dumps have more members, in structures that begin with this one. */
struct harpe_operation {
    harpe_operation *previous, *following; /* of the operations in flight */
    harpe_step *free_own; /* frees the members that only some operations have; NULL: none */
    harpe_jobs *jobs;
    harpe_job *job;          /* NULL: it belongs to no job */
    bool is_request;         /* it was made for a call */
    harpe_call *call;        /* NULL: its client is gone, or the engine itself made the operation */
    harpe_call_list waiters; /* calls that are handled again when this operation has ended */
    char *body;              /* of the call */
    size_t length;
    int64_t round; /* of the call */

    harpe_step *work, *done; /* the next step on a worker, and what follows on the loop */
    union {                  /* it is on a worker or in the store, never at both */
        harpe_work worker;
        harpe_change change;
    };
    harpe_change *earlier;    /* another change, stored just before `change`; NULL: none */
    harpe_status status;      /* of the step that has ended; a worker may write it */
    const harpe_error *error; /* if `status` is not HARPE_OK; valid during `done` */

    /* The content of the body. A worker may write these members. */
    bool is_decoded;         /* the body is valid */
    harpe_problems problems; /* of the body */
    union {
        struct {
            harpe_job_info job_info; /* of the job that registers */
            char *group;             /* group that its metadata names; NULL: none */
        };
        harpe_rank_info rank_info; /* of the rank that registers */
        struct {
            int rank;                   /* rank that sends the result */
            bool is_plain;              /* see harpe_result_text */
            bool is_same;               /* the stored result is equal */
            harpe_result_totals totals; /* sums over the iterations of the result */
        };
        harpe_scheduler *scheduler; /* scheduler to free; NULL: none */
        bool looks_at_all;          /* the sweep of dumps looks at all files */
    };
};

/* The result of a turn with the scheduler. A worker collects it, and the loop applies it. */
typedef struct harpe_turn_outcome {
    harpe_round_text *next; /* NULL: the schedules are as before */
    bool is_finished;
    char *state_text; /* NULL: the state is not kept */
    size_t state_length;
    harpe_figures figures;
    bool has_figures;
    harpe_conduct_sums conduct;
    int64_t tokens_per_step;   /* 0: not known */
    harpe_scheduler_file file; /* a file to write; path NULL: none */
} harpe_turn_outcome;

/* A stored result that is not in the figures yet. */
typedef struct harpe_counted_result {
    int rank;
    bool is_read;
    harpe_result_totals totals;
} harpe_counted_result;

/* An operation with the job's scheduler or its round. A job has at most one at a time. A member
 * that a turn does not need is 0. The worker writes `error` and the members after `text`. */
struct harpe_turn {
    harpe_operation operation;
    bool only_reads;  /* it changes nothing that watchers see */
    bool is_over;     /* the round was over when the turn began */
    bool wants_next;  /* after a job request the scheduler is asked for new schedules */
    bool is_pipeline; /* reads a pipeline, not the frontier */
    harpe_stored_job_request request;
    harpe_change sums; /* of the results up to the last round, stored with the next one */
    char *text;        /* of the sums, or of the job request */
    harpe_error error; /* if the work has failed */
    bool is_taken;     /* the scheduler has accepted the job request */
    harpe_turn_outcome outcome;
    harpe_scheduler *made; /* a new scheduler; NULL: the job keeps its own */
    char *json;            /* the frontier or the pipeline */
    harpe_counted_result *counted;
    size_t counted_count;
};

typedef struct harpe_job_table {
    harpe_table_entry **buckets;
    size_t bucket_count, count; /* count: of all entries */
    uint64_t seed;
    harpe_job *newest; /* the job that registered last, of the jobs that are not evicted */
    int64_t first_serial, last_serial;
    harpe_job *leaving; /* evicted jobs that work may still use; the latest comes first */
    /* What is kept of all others; requests about evicted jobs get 410. */
    harpe_evicted_job *oldest_evicted, *newest_evicted;
    size_t evicted_count;
} harpe_job_table;

/* What the engine knows of the files that dumps have written. */
typedef struct harpe_dumps_seen {
    harpe_text forgotten; /* ids of forgotten jobs, one per line; their files are to be removed */
    int64_t bytes;        /* written since the last look at all files */
    int64_t swept_s;      /* uptime at the last look at all files; valid if was_swept */
    bool was_swept, is_sweeping;
} harpe_dumps_seen;

struct harpe_jobs {
    harpe_jobs_options options;
    harpe_job_table table;
    harpe_operation *in_flight;            /* all operations, the latest first */
    harpe_call_list again;                 /* calls that will be handled again */
    harpe_job *first_marked, *last_marked; /* jobs for harpe_job_advance */
    harpe_finished finished;
    harpe_dumps_seen dumps_seen;
    bool has_news;                   /* the watchers have not been told of all changes */
    harpe_posted posted;             /* makes the loop handle `again` and the marked jobs */
    void (*drain)(harpe_jobs *jobs); /* handles both at once */
    bool is_posted, is_draining;
    harpe_call_list unregistered; /* held calls of ranks that are not registered, oldest first */
    harpe_timer *idle_timer;
    double steady_start_s;
    int64_t earlier_uptime_s;       /* the uptime of the earlier servers with this store */
    int64_t version, first_version; /* the latest of all jobs; the first of this engine */
    harpe_call_list watchers;       /* calls that wait for a change */
    harpe_timer *tell_timer;
    bool is_loading, is_stopping;
    bool is_ending;                 /* the program ends, and there may be no workers any more */
    const harpe_group_tree *groups; /* which group is inside of which; NULL: none */
    void (*eviction_begins)(void *user, const harpe_job_glance *glance); /* NULL: none */
    void *eviction_user;
    int64_t regrouped; /* the version at which the tree of groups has changed last */
    harpe_jobs_counts counts;
};

/* ---- Work in flight -------------------------------------------------------------------------- */

/* Makes an operation, and takes over `call` and its body. `call` NULL: the engine itself makes the
 * operation. If there is no memory, answers the call and returns NULL. */
harpe_operation *harpe_operation_new(harpe_jobs *jobs, harpe_job *job, harpe_call *call);
/* Makes a structure of `size` bytes that begins with a harpe_operation. The other bytes are 0.
 * `free_own` frees the data in them. */
void *harpe_operation_new_kind(harpe_jobs *jobs, harpe_job *job, harpe_call *call, size_t size,
                               harpe_step *free_own);
/* Runs `work` on a worker of the pool, and then `done` on the loop. Ends the operation instead of
 * `done` if it must not continue: if its client is gone, its job is evicted, or the server stops. A
 * turn continues unless its job is evicted, and an operation of the engine continues always. */
void harpe_operation_run(harpe_operation *operation, harpe_pool pool, harpe_step *work,
                         harpe_step *done);
/* Does the same as harpe_operation_run, in the pool for bodies. If the body is short, runs `work`
 * and `done` on the loop before it returns. */
void harpe_operation_decode(harpe_operation *operation, harpe_step *work, harpe_step *done);
/* Stores the operation's change, sets `status` and `error`, and then calls `done`. */
void harpe_operation_store(harpe_operation *operation, harpe_change_kind kind, harpe_step *done);
/* Frees `operation`. Its call is handled again when `other` has ended. */
void harpe_operation_wait_for(harpe_operation *operation, harpe_operation *other);
void harpe_call_wait_for(harpe_call *call, harpe_operation *other);
/* Returns the call, which the caller answers. NULL: its client is gone. */
harpe_call *harpe_operation_take_call(harpe_operation *operation);
/* Frees the operation, and returns its call, which the caller answers. NULL: its client is gone.
 * The calls that waited for the operation are handled again. */
harpe_call *harpe_operation_end(harpe_operation *operation);
/* Answers 422 with the problems of the body, and frees the operation. */
void harpe_operation_refuse(harpe_operation *operation);
/* Frees all operations in flight, when the engine is freed. Answers their calls with 503. */
void harpe_operations_drop(harpe_jobs *jobs);

/* Begins a turn. If there is no memory, answers the call and returns NULL. */
harpe_turn *harpe_turn_new(harpe_job *job, harpe_call *call);
/* Frees the turn and marks its job. */
void harpe_turn_end(harpe_turn *turn);
/* Does the same as harpe_operation_run, in the pool of the job's scheduler. */
void harpe_turn_run(harpe_turn *turn, harpe_step *work, harpe_step *done);
/* Stores the turn's error, makes the job fail, and ends the turn. */
void harpe_turn_fail_job(harpe_turn *turn);

/* Frees all texts and schedules of the turn's outcome, and then sets its members to 0. */
void harpe_turn_outcome_clear(harpe_turn_outcome *outcome);
/* Collects the scheduler's new state, schedules, figures and file in the turn's outcome.
 * `schedules` NULL: the schedules have not changed. Call this on a worker. */
harpe_status harpe_turn_conclude(harpe_turn *turn, harpe_scheduler *scheduler,
                                 const harpe_frequency_schedule *schedules);
/* Applies the outcome to the job, and takes over the outcome's data. Call this on the loop. */
void harpe_apply_turn(harpe_turn *turn);

/* Frees the job's scheduler on a worker, because the worker may have to wait until a program of the
 * scheduler has ended. Does not change job->scheduler. */
void harpe_job_end_scheduler(const harpe_job *job);

void harpe_begin_prepare(harpe_job *job);
void harpe_begin_observe(harpe_job *job);

/* ---- Marks and clocks ------------------------------------------------------------------------ */

/* Call this when the job's row in a list may have changed, when the job may have to
 * continue, and after job requests. The loop then does what the job's state requires
 * (harpe_job_advance), and answers the watchers. This function calls no other function of the
 * engine, with one exception: when the program ends, the loop does not run any more, and this
 * function handles the jobs itself. */
void harpe_job_changed(harpe_job *job);
/* Does the same as harpe_job_changed, for a change that watchers do not see. */
void harpe_job_wake(harpe_job *job);
/* Takes all calls out of `calls`. The loop handles them again later. Until then harpe_jobs_forget
 * may remove each of them. */
void harpe_jobs_handle_again(harpe_jobs *jobs, harpe_call_list *calls);

/* Returns the time of harpe_jobs_wall_s in whole seconds. */
int64_t harpe_jobs_now_s(const harpe_jobs *jobs);
/* Returns the number of seconds for which servers have run with this store, as measured by their
 * CLOCK_MONOTONIC. The count stops while no server runs, and while the server's machine is
 * suspended, because clients cannot send requests then. */
int64_t harpe_jobs_uptime_s(const harpe_jobs *jobs);
/* Returns the time of the job's last request, in s since 1970, as the wall clock counts now. It is
 * only for people, and is never in the future. If this server received the request, the result is
 * right even if the wall clock was set after the request. */
int64_t harpe_job_seen_s(const harpe_job *job);

/* ---- Jobs ------------------------------------------------------------------------------------ */

/* Makes a job without ranks, and takes over `id` and `info` on success. Returns NULL if there is no
 * memory. */
harpe_job *harpe_job_new(harpe_jobs *jobs, char *id, harpe_job_info *info);
void harpe_job_free(harpe_job *job);
/* Frees all data that an evicted job does not need. No operation may use the job. */
void harpe_job_release(harpe_job *job);
harpe_job_state harpe_job_state_of(const harpe_job *job);
const char *harpe_job_state_name(harpe_job_state state);
const char *harpe_rank_state_name(const harpe_job *job, int rank);
/* Returns true if all ranks have reported their result of the current round, or if there was no
 * round yet. */
bool harpe_job_round_is_over(const harpe_job *job);
/* Returns true if all ranks have reported the end of their training. */
bool harpe_job_has_ended(const harpe_job *job);

/* Returns the rank with this number. Returns NULL if the number is not from 0 to world_size - 1, or
 * if the rank does not exist yet. All ranks that requests have named exist; other ranks may exist
 * too, and are empty. A rank stays valid until harpe_job_release. */
harpe_rank *harpe_job_rank(const harpe_job *job, int rank);
/* Returns the rank with this number, and makes an empty rank first if the rank does not exist yet.
 * Returns NULL if the number is not from 0 to world_size - 1, or if there is no memory. */
harpe_rank *harpe_job_make_rank(harpe_job *job, int rank);
/* Returns the first rank that exists and whose number is *rank or higher, and sets *rank to the
 * number of this rank. If there is no such rank, returns NULL and sets *rank to world_size. A loop
 * that calls this function with r, and then adds 1 to r, visits every rank that exists, and so
 * every registered or asking rank. */
harpe_rank *harpe_job_next_rank(const harpe_job *job, int *rank);
/* Returns an array of all ranks in their order, for a job whose ranks are all registered. Free the
 * array with free(); its elements point to memory of the job. Returns NULL if memory runs out.
 * May be called on a worker. */
harpe_rank_info *harpe_job_rank_infos(const harpe_job *job);
/* Returns the index of a rank's coordinates (dp_rank, pp_rank, tp_rank) among all coordinates of
 * the job. */
size_t harpe_job_coordinate(const harpe_job *job, const harpe_rank_info *rank);

/* Returns false if memory runs out. */
bool harpe_job_table_add(harpe_job_table *table, harpe_job *job);
void harpe_job_table_remove(harpe_job_table *table, harpe_job *job);
/* Returns NULL if no job has this id. Finds an evicted job, too, as long as a piece of work still
 * uses the job. */
harpe_job *harpe_job_table_find(const harpe_job_table *table, const char *id);
/* Returns the newest job with this key in this group (NULL: in no group) that is not evicted. */
harpe_job *harpe_job_table_find_key(const harpe_job_table *table, const char *key,
                                    const char *group);
/* Moves a job to the evicted jobs. A later call frees it when no work uses it any more. The table
 * keeps the id of the job until HARPE_EVICTED_KEPT other jobs have been evicted after it. */
void harpe_job_table_retire(harpe_job_table *table, harpe_job *job);
/* Adds the id of a job that was evicted earlier. Returns false if memory runs out. */
bool harpe_job_table_add_evicted(harpe_job_table *table, const char *id);
/* Returns true if a job with this id was evicted and harpe_job_table_find does not find it. */
bool harpe_job_table_has_evicted(const harpe_job_table *table, const char *id);
/* Frees the table with all jobs. */
void harpe_job_table_free(harpe_job_table *table);

/* Finds the group that a job's metadata names with the word fleet_group=NAME. Returns false if
 * memory runs out. `*group` is NULL if the metadata names no group; otherwise free it with free().
 */
bool harpe_metadata_group(const char *metadata, char **group);
/* Sets `words` from the metadata. At most 64 bytes of a word are kept. Returns false if memory runs
 * out. */
bool harpe_job_read_words(harpe_job *job);
/* Returns true if the scope covers the job's group. */
bool harpe_job_is_in_scope(const harpe_job *job, const char *scope);
/* Answers 403: the client's token is not for the group of this job. */
void harpe_reply_out_of_scope(harpe_call *call, const harpe_job *job, const char *scope);
/* Answers 403: the client's token cannot register a job of this group (NULL: of no group). */
void harpe_reply_wrong_group(harpe_call *call, const char *group, const char *scope);

/* ---- Calls ----------------------------------------------------------------------------------- */

/* Answers 422, or 503 if there was no memory to collect the problems. */
void harpe_reply_problems(harpe_call *call, const harpe_problems *problems);
/* Adds the problem that the job has no rank with this number. `place`: "body" or "query". */
void harpe_add_unknown_rank(harpe_problems *problems, const char *place, int64_t rank,
                            const harpe_job *job);
void harpe_reply_evicted(harpe_call *call, const char *job_id);
/* Returns the HTTP status for a scheduler's error. */
int harpe_http_status_of(harpe_status status);

void harpe_register_job(harpe_jobs *jobs, harpe_call *call);
void harpe_register_rank(harpe_job *job, harpe_call *call);

void harpe_take_end(harpe_job *job, harpe_call *call);
/* Sets whether a rank has ended. Call this after the rank's end was stored, or when the end is read
 * from the store. */
void harpe_job_set_ended(harpe_job *job, int rank, bool has_ended);

/* Returns true if every registered rank has either reported its end or lost its connection, and at
 * least one has lost its connection. A failed or evicted job is never out of contact. */
bool harpe_job_is_out_of_contact(const harpe_job *job);
/* Call this when a request of the rank has arrived. */
void harpe_rank_is_heard(harpe_job *job, int rank);
/* Handles a call of the kind HARPE_CALL_LOST. */
void harpe_take_loss(harpe_job *job, harpe_call *call);

/* Takes a held request out of the job. The caller answers the request. */
void harpe_job_unhold(harpe_job *job, harpe_call *call);
/* Call this when a rank has registered: its held request will no longer be refused to make room for
 * others. */
void harpe_job_keep_held(harpe_job *job, int rank);
/* Answers all held requests, and all calls of the queue, with an error. */
void harpe_job_refuse_held(harpe_job *job, int http_status, const char *detail);

void harpe_ask_for_schedule(harpe_job *job, harpe_call *call);
/* Call this when the answer with the schedule of `round` may not have arrived at its rank. */
void harpe_job_schedule_is_lost(harpe_job *job, int rank, int64_t round);
/* Does the next step that the job's state requires, if any. The loop calls this for marked jobs. */
void harpe_job_advance(harpe_job *job);

void harpe_take_result(harpe_job *job, harpe_call *call);

void harpe_take_job_request(harpe_job *job, harpe_call *call);
void harpe_take_frontier_request(harpe_job *job, harpe_call *call);
/* Begins the turn of the first call in the job's queue. */
void harpe_begin_queued(harpe_job *job);
/* Returns true if the call only reads from the scheduler, so it is not a job request. */
bool harpe_call_only_reads(const harpe_call *call);
/* Adds a stored job request to the job. */
harpe_status harpe_job_read_request(harpe_job *job, const harpe_change *record, harpe_error *error);

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* Writes the schedules of `count` ranks. May be called on a worker. */
harpe_status harpe_round_text_format(const harpe_frequency_schedule *schedules, int count,
                                     harpe_round_text **out, harpe_error *error);
/* Makes a harpe_round_text from the stored text of a round, and finds the schedule of each rank in
 * the text. */
harpe_status harpe_round_text_split(const char *text, size_t length, int count,
                                    harpe_round_text **out, harpe_error *error);
harpe_round_text *harpe_round_text_ref(harpe_round_text *text); /* accepts NULL */
void harpe_round_text_unref(harpe_round_text *text);            /* accepts NULL */

/* Returns the results of a round, without texts, because all texts are in the store. Returns NULL
 * if memory runs out. */
harpe_round_results *harpe_round_results_new(int count);
harpe_round_results *harpe_round_results_ref(harpe_round_results *results);
void harpe_round_results_unref(harpe_round_results *results); /* accepts NULL */

/* The round in the store from which missing texts are read. */
typedef struct harpe_stored_round {
    harpe_store *store;
    const char *job_id;
    int64_t round;
} harpe_stored_round;

/* What the ranks report of a round, one element per rank. */
typedef struct harpe_round_reports {
    size_t count;
    harpe_profiling_result *results;
    harpe_conduct *conducts;
    harpe_rank_clocks *clocks;
} harpe_round_reports;

/* Decodes the results for a scheduler. A rank has `gpus` GPUs. If a result has more energy than
 * these GPUs can use in its time, one of Harpe's own schedulers gets the result without its steps,
 * and a scheduler of the user gets the result unchanged. Free the results with
 * harpe_round_reports_free. Call this on a worker. */
harpe_status harpe_round_results_decode(const harpe_stored_round *from,
                                        const harpe_round_results *results,
                                        const harpe_scheduler *scheduler, int gpus,
                                        harpe_round_reports *out, harpe_error *error);
void harpe_round_reports_free(harpe_round_reports *reports);
/* Appends all results as one JSON list. Call this on a worker. */
harpe_status harpe_round_results_format(const harpe_stored_round *from,
                                        const harpe_round_results *results, harpe_text *to,
                                        harpe_error *error);

/* Finds out which figures of a loaded job are known. */
void harpe_count_stored_begin(harpe_job *job);
/* Begins the turn that counts the results of job->uncounted ranks. */
void harpe_begin_count_stored(harpe_job *job);

/* ---- Dumps ----------------------------------------------------------------------------------- */

void harpe_dump_ranks(harpe_job *job);
void harpe_dump_schedules(harpe_job *job, int64_t round, harpe_round_text *text);
/* Queues the dump of a round's results. `results` NULL: all results are in the store. */
void harpe_dump_results(harpe_job *job, int64_t round, harpe_round_results *results);
/* Returns the first round whose dump is not finished, but `otherwise` if there is no such round or
 * if `otherwise` is earlier. */
int64_t harpe_dumps_first_round(const harpe_job *job, int64_t otherwise);
/* Starts to write the dumps that were queued while the job was restored. */
void harpe_dumps_begin(harpe_job *job);
/* Stops trying to write files that have failed. The next server tries again. */
void harpe_dumps_give_up(harpe_job *job);
/* Returns the path of the job's directory, which need not exist; NULL: none is possible, or memory
 * ran out. Free it with free(). Any thread. */
char *harpe_dump_directory(const harpe_jobs *jobs, const char *job_id);

/* Takes over `file`, and writes it on a worker. */
void harpe_dump_profile(harpe_job *job, harpe_scheduler_file *file);

/* Makes the next sweep remove the dumped files of this job. If memory runs out, the files stay
 * until they are too old. */
void harpe_dump_sweep_forget(harpe_jobs *jobs, const char *job_id);
/* Begins a sweep, which removes files of dumps, if a sweep is due. Call this function often. */
void harpe_dump_sweep_check(harpe_jobs *jobs);

/* ---- Start and end --------------------------------------------------------------------------- */

/* Loads all jobs of the store. Blocks. */
harpe_status harpe_jobs_load(harpe_jobs *jobs, harpe_error *error);

/* Evicts the job and answers the call. `call` NULL: the job has been idle for too long. */
void harpe_evict(harpe_job *job, harpe_call *call);
/* Evicts the jobs that have been idle for too long, and stores the last requests of the others. */
void harpe_jobs_check_idle(harpe_jobs *jobs);
/* Starts a timer that calls harpe_jobs_check_idle regularly. */
harpe_status harpe_jobs_watch_idle(harpe_jobs *jobs, harpe_error *error);

/* Answers a call of the kind HARPE_CALL_FINISHED: {"jobs": [...], "count": N}, the newest first, or
 * one report. The answer has only reports of jobs whose groups the scope of the call covers. */
void harpe_finished_answer(const harpe_jobs *jobs, harpe_call *call);
void harpe_finished_free(harpe_finished *finished);

/* ---- Showing --------------------------------------------------------------------------------- */

/* Adds a stored result of `rank` to the job's figures. */
void harpe_job_count_result(harpe_job *job, int rank, const harpe_result_totals *totals);
/* Takes over the figures of the job's scheduler. */
void harpe_job_take_figures(harpe_job *job, const harpe_figures *figures);
/* Takes over the sums that the scheduler has counted. Values that are 0, as from a scheduler that
 * reads no results, change nothing. */
void harpe_job_take_conduct(harpe_job *job, const harpe_conduct_sums *conduct,
                            int64_t tokens_per_step);
/* Returns the job's sums as the text that is stored; NULL: out of memory. The caller frees the text
 * with free(). */
char *harpe_job_save_sums(const harpe_job *job);
/* Takes over stored sums. Returns false if they cannot be read. */
bool harpe_job_load_sums(harpe_job *job, const harpe_change *record);
/* Appends the figures as a JSON object. */
void harpe_job_append_figures(harpe_text *text, const harpe_job *job);
/* Adds the figures of one job to the sums. `saved_j` counts only if its uncertainty is finite and
 * the job has a baseline. */
void harpe_figure_sums_add(harpe_figure_sums *sums, double used_j, double power_w, double saved_j,
                           double uncertainty_j, double baseline_j);
/* Appends the sums as a JSON object. */
void harpe_figure_sums_append(harpe_text *text, const char *name, const harpe_figure_sums *sums);

/* Appends the report of the job as a JSON object. The report says how far the job's figures can be
 * trusted. */
void harpe_job_append_report(harpe_text *text, const harpe_job *job);

/* Answers a call of the kind HARPE_CALL_SHOW. */
void harpe_show_job(const harpe_job *job, harpe_call *call);
/* Returns the job's final report as JSON: a row with the report and the time of the eviction,
 * without ranks. Returns NULL if memory runs out. */
char *harpe_job_final_report(const harpe_job *job, int64_t evicted_s);

/* Answers a call of the kind HARPE_CALL_LIST without a query. */
void harpe_show_list(const harpe_jobs *jobs, harpe_call *call);
/* Answers a call of the kind HARPE_CALL_LIST with a query: the sort key, a line feed, and a search.
 * Lists the jobs in which every word of the search occurs. Jobs without a value for the key come
 * last. The answer also has the number of all jobs, and sums over the jobs that match. */
void harpe_show_sorted(const harpe_jobs *jobs, harpe_call *call);

/* Call this before the first job is made. */
void harpe_changes_begin(harpe_jobs *jobs);
/* Call this after changes. Answers the watchers after a short delay. */
void harpe_changes_tell(harpe_jobs *jobs);
/* Answers the call if its client knows no version of this engine. Otherwise holds the call until
 * there is a newer version. `job` NULL: the call is about all jobs. */
void harpe_ask_for_changes(harpe_jobs *jobs, harpe_job *job, harpe_call *call);
/* Answers 503 to all watchers. */
void harpe_changes_end(harpe_jobs *jobs);

/* Calls jobs->eviction_begins, if there is one, for this job. */
void harpe_job_tell_eviction(harpe_job *job);

#endif
