/* SPDX-License-Identifier: Apache-2.0 */
/* The structures of the engine: a job and its ranks, an operation (one call on its way through a
 * worker and the store), a turn (the one thing at a time that a job does with its scheduler), and
 * the table of jobs. Only the loop uses them. If a worker reads or writes a member, the member's
 * comment says so. This header declares no functions. */
#ifndef HARPE_SERVER_ENGINE_JOB_STATE_H
#define HARPE_SERVER_ENGINE_JOB_STATE_H

#include "pfo/metadata.h"
#include "pfo/models.h"
#include "pfo/result_scan.h"
#include "rights/group_tree.h"
#include "server/engine/call.h"
#include "server/engine/evicted_jobs.h"
#include "server/engine/finished_state.h"
#include "server/engine/jobs_options.h"

typedef struct harpe_jobs harpe_jobs;
typedef struct harpe_job harpe_job;
typedef struct harpe_operation harpe_operation;
typedef struct harpe_turn harpe_turn;
typedef struct harpe_dump harpe_dump;
typedef struct harpe_profile_dump harpe_profile_dump;
struct harpe_job_glance;

/* An entry of the list of work in flight (in_flight.h). It is the first member of each structure
 * that can be in this list. */
typedef struct harpe_in_flight {
    struct harpe_in_flight *previous, *following;
    /* Frees the structure when the engine is freed. Answers its call, if it has one, with 503. */
    void (*drop)(struct harpe_in_flight *self);
} harpe_in_flight;

/* ---- Rounds ---------------------------------------------------------------------------------- */

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

/* ---- Jobs ------------------------------------------------------------------------------------ */

/* One rank and its part in the round. These members determine its state: unknown (not registered),
 * asking, reported, served (it has the schedule of the round), registered, ended. */
typedef struct harpe_rank {
    harpe_call *asking;         /* its held call for the next schedule; NULL: none */
    harpe_operation *operation; /* stores its registration, result or end; others wait for it */
    harpe_rank_info info; /* valid after it has registered; fixed after all ranks have registered */
    int taken_by;         /* 1 + the rank whose harpe_job_coordinate this is; 0: none */
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
    harpe_jobs *jobs;
    char *id;
    harpe_job *same_bucket;   /* of the table */
    harpe_job *older, *newer; /* by time of registration; of evicted jobs `older` by eviction */

    harpe_job_info info;
    char *group;                   /* of its metadata; NULL: none */
    char *words[HARPE_WORDS];      /* of its metadata; NULL: none */
    double power_cap_w;            /* that its scheduler keeps; 0: none */
    int64_t registered_s;          /* wall clock at that moment, s since 1970; never changes */
    int64_t serial;                /* in the table; later ones have larger numbers */
    int64_t seen_s;                /* wall clock at the last request; see harpe_job_seen_s */
    int64_t last_request_s;        /* harpe_jobs_uptime_s at the last request */
    int64_t stored_last_request_s; /* the last_request_s that is in the store */
    bool has_sent_request;         /* since this server started */
    int64_t version;               /* the version of its last change: see changes.c */
    bool is_stored;                /* until this is true, no other request can use the job */
    harpe_operation *registration; /* is being stored; registrations with the same key wait */
    bool is_evicted;
    harpe_operation *eviction; /* is being stored; calls wait for it */
    char *failure;             /* one line; NULL: none */

    void *ranks;                  /* of job_ranks.c; NULL: no request has named a rank */
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
    char *state_text; /* the scheduler's state, stored with round + 1; NULL: nothing to store */
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
    char *saved_text;
    size_t saved_length;
    int64_t saved_round;
    harpe_stored_job_request *requests;
    size_t request_count, request_capacity;

    int users;         /* pieces of work that read this job's ranks on a worker */
    int operations;    /* in flight */
    harpe_dump *dumps; /* the first is being written; the others wait for it */
    harpe_dump **dumps_end;
    int new_dumps;        /* number of dumps, without those that were queued at the start */
    bool dump_has_failed; /* a dump has failed, and the failure was logged */
    bool dumps_were_given_up;
    bool is_restoring;                /* its dumps may be on disk already */
    void *member, *account;           /* for src/server/fleet; NULL at first */
    harpe_profile_dump *profile_dump; /* NULL: none waits or is being written */
};

/* ---- Operations ------------------------------------------------------------------------------ */

/* The part that all operations have in common. An operation handles one call: it decodes the body
 * (on a worker if the body is long), checks and stores the change, and answers the call. A kind of
 * operation with data of its own is a structure that begins with this one (registration.c,
 * results.c). */
struct harpe_operation {
    harpe_in_flight in_flight;
    void (*free_own)(harpe_operation *operation); /* frees the kind's own data; NULL: none */
    harpe_jobs *jobs;
    harpe_job *job;
    harpe_call *call;        /* NULL: its client is gone, or the engine itself made the operation */
    harpe_call_list waiters; /* calls that are handled again when this operation has ended */
    char *body;              /* of the call */
    size_t length;
    bool is_decoded;         /* the body is valid; a worker may write this */
    harpe_problems problems; /* of the body; a worker may write them */
    harpe_work work;
    harpe_change change;
};

/* ---- Turns ----------------------------------------------------------------------------------- */

typedef struct harpe_turn_kind {
    size_t size;                        /* of its structure */
    bool only_reads;                    /* such a turn changes nothing that watchers see */
    void (*free_own)(harpe_turn *turn); /* frees the kind's own data; NULL: none */
} harpe_turn_kind;

/* The part that all turns have in common. A turn is one thing that a job does with its scheduler or
 * its round. A job has at most one turn at a time. Each kind of turn is a structure that begins
 * with this one. Only the file that begins turns of a kind knows the structure of that kind. */
struct harpe_turn {
    harpe_in_flight in_flight;
    const harpe_turn_kind *kind;
    harpe_job *job;
    harpe_work work;
    bool is_over;        /* the round was over when the turn began */
    harpe_status status; /* of the work; written by the worker */
    harpe_error error;   /* if the work has failed; written by the worker */
};

/* ---- All jobs -------------------------------------------------------------------------------- */

typedef struct harpe_job_table {
    harpe_job **buckets;
    size_t bucket_count, count; /* count: with the jobs that are leaving */
    uint64_t seed;
    harpe_job *newest; /* the job that registered last, of the jobs that are not evicted */
    int64_t first_serial, last_serial;
    harpe_job *leaving;         /* evicted jobs that work may still use; the latest comes first */
    harpe_evicted_jobs evicted; /* all others; requests about evicted jobs get 410 */
} harpe_job_table;

/* What is known of the files of dumps. */
typedef struct harpe_dumps_seen {
    harpe_text forgotten; /* ids of forgotten jobs, one per line; their files are to be removed */
    int64_t bytes;        /* written since the last look at all files */
    int64_t swept_s;      /* uptime at that look, if there was one */
    bool was_swept, is_sweeping;
} harpe_dumps_seen;

struct harpe_jobs {
    harpe_jobs_options options;
    harpe_job_table table;
    harpe_in_flight *in_flight;
    harpe_call_list again;                 /* calls that will be handled again */
    harpe_job *first_marked, *last_marked; /* jobs for harpe_job_advance */
    harpe_finished finished;
    harpe_dumps_seen dumps_seen;
    bool has_news;                   /* the watchers have not been told of all changes */
    harpe_posted posted;             /* makes the loop handle `again` and the marked jobs */
    void (*drain)(harpe_jobs *jobs); /* does that at once */
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
    void (*eviction_begins)(void *user, const struct harpe_job_glance *glance); /* NULL: none */
    void *eviction_user;
    int64_t regrouped; /* the version at which the tree of groups has changed last */
    harpe_jobs_counts counts;
};

#endif
