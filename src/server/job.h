/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine is made of: a job and its ranks, an operation (one call on its way through a
 * worker and the store), a turn (the one thing at a time that a job does with its scheduler), and
 * the table of jobs. Shared by the files of the engine (jobs.c, registration.c, rounds.c,
 * results.c, round_results.c, turns.c, wishes.c, restore.c, idle.c, dumps.c, job_figures.c,
 * job_ranks.c, job_view.c), by metrics_jobs.c, and by nobody else. */
#ifndef HARPE_SERVER_JOB_H
#define HARPE_SERVER_JOB_H

#include "base/text.h"
#include "pfo/models.h"
#include "server/call_list.h"
#include "server/jobs.h"

typedef struct harpe_job harpe_job;
typedef struct harpe_operation harpe_operation;
typedef struct harpe_dump harpe_dump;

/* ---- Data --------------------------------------------------------------------------------- */

/* Everything that was begun and has not come back is in one list, so that it can be waited for, and
 * freed when it never comes back. First member of what is in the list. */
typedef struct harpe_under_way {
    struct harpe_under_way *previous, *following;
    /* Frees it when the engine goes; its call, if any, is answered 503. */
    void (*drop)(struct harpe_under_way *self);
} harpe_under_way;

/* The schedules of one round as they go over the wire, one after the other in a JSON list: rank r's
 * is text[offsets[r]] up to, and without, text[offsets[r + 1] - 1]. References belong to the loop.
 */
typedef struct harpe_round_text {
    int references;
    char *text;
    size_t length;
    size_t *offsets; /* world_size + 1 */
} harpe_round_text;

/* One rank's result as it came. */
typedef struct harpe_result_text {
    char *text; /* NULL: not come yet, or only in the store */
    size_t length;
    bool is_plain; /* strict JSON with no members but the model's */
} harpe_result_text;

/* Those of one round. References belong to the loop. */
typedef struct harpe_round_results {
    int references, count;
    bool is_dumped; /* or it has begun */
    harpe_result_text texts[];
} harpe_round_results;

/* One rank's part of the round. Its state follows: unknown (not registered), asking, reported,
 * served (a round was handed out), registered. */
typedef struct harpe_rank {
    harpe_call *asking;         /* its call for the next schedule, held; NULL: does not ask */
    harpe_operation *operation; /* stores its registration or result; others wait for it */
    harpe_rank_info info;       /* once it is registered; fixed once all ranks are */
    int taken_by; /* 1 + the rank whose place (harpe_job_coordinate) has this number; 0: free */
    bool is_registered;
    bool has_reported;  /* its result of the current round is stored */
    bool may_ask_again; /* the current round's schedule may not have arrived */
    bool has_ended;     /* the rank has reported the end of its training */
} harpe_rank;

/* A wish as it was stored: what it is and where among the rounds it came. */
typedef struct harpe_stored_wish {
    harpe_scheduler_wish wish;
    double value;
    int64_t round;        /* the first round that it could influence, or */
    bool is_within_round; /* the round that was running */
} harpe_stored_wish;

typedef enum harpe_job_state {
    HARPE_JOB_REGISTERING, /* ranks come */
    HARPE_JOB_PREPARING,   /* a worker makes the scheduler (or brings it back after a restart) */
    HARPE_JOB_GATHERING,   /* the next schedules are there; ranks ask */
    HARPE_JOB_RUNNING,     /* schedules are handed out; results come */
    HARPE_JOB_OBSERVING,   /* a worker shows the results to the scheduler */
    HARPE_JOB_ENDED,       /* every rank has reported its end */
    HARPE_JOB_FAILED,
    HARPE_JOB_EVICTED,
} harpe_job_state;

struct harpe_job {
    harpe_jobs *jobs;
    char *id;
    harpe_job *same_bucket, *older, *newer; /* the table's; of evicted jobs by time of eviction */

    harpe_job_info info;
    int64_t registered_s; /* wall clock, s since 1970 */
    int64_t serial;       /* in the table; later ones have larger numbers */
    int64_t seen_s;       /* wall clock when it was last heard of; see harpe_job_seen_s */
    int64_t heard_s;      /* harpe_jobs_uptime_s at that moment */
    int64_t stored_heard_s;
    bool was_heard;                /* by this server, since it started */
    int64_t version;               /* of its last change: see changes.c */
    bool is_stored;                /* before that nobody else knows the job */
    harpe_operation *registration; /* being stored; those with the same key wait for it */
    bool is_evicted;
    harpe_operation *eviction; /* being stored; calls wait for it */
    char *failure;             /* one line; NULL: none */

    void *ranks;                  /* job_ranks.c's; NULL: nobody has spoken of any rank */
    harpe_round_results *results; /* of the current round; NULL until the first */
    int registered, asking, reported, ended; /* how many */

    /* Rounds. The state is what these say: see harpe_job_state_of. */
    int64_t round;             /* the one handed out last; -1: none yet */
    harpe_round_text *current; /* its schedules */
    harpe_round_text *next;    /* those of round + 1; NULL: not known yet */
    bool is_ready;             /* the scheduler is made */
    bool is_finished;          /* it has no more to say: no results are shown to it */
    bool knows_no_wishes;
    harpe_scheduler *scheduler; /* may be missing in a finished job; a turn's while there is one */
    char *state_text;           /* to be stored with round + 1; NULL: nothing to store */
    size_t state_length;
    int64_t state_round;     /* the round that was next then */
    struct harpe_turn *turn; /* under way */
    harpe_call_list queue;   /* wishes and frontiers that wait for their turn */
    bool is_marked;          /* it is in the list of jobs that harpe_job_advance has to look at */
    harpe_job *next_marked;

    harpe_figures figures;            /* with what the scheduler says of itself */
    harpe_result_totals round_totals; /* of the results that came in `totalled_round` */
    int64_t totalled_round;
    int totalled; /* how many */

    /* From the store, until the scheduler is back: */
    char *saved_text;
    size_t saved_length;
    int64_t saved_round;
    harpe_stored_wish *wishes;
    size_t wish_count, wish_capacity;

    int users;            /* pieces of work that read this job's ranks on a worker */
    int operations;       /* that are under way */
    harpe_dump *dumps;    /* the first is being written; the others wait for it */
    bool dump_has_failed; /* and was logged */
    bool dumps_were_given_up;
    bool is_restoring; /* its dumps may be on disk already */
};

typedef enum harpe_result_comparison {
    HARPE_RESULT_EQUAL,
    HARPE_RESULT_DIFFERENT,
    HARPE_RESULT_NOT_STORED,
    HARPE_RESULT_UNREADABLE,
} harpe_result_comparison;

/* A call on its way: decoded (on a worker when large), checked, stored, answered. */
struct harpe_operation {
    harpe_under_way under_way;
    harpe_jobs *jobs;
    harpe_job *job;
    harpe_call *call;        /* NULL: its client went away, or the engine's own */
    harpe_call_list waiters; /* calls that are handled anew once this one has ended */
    char *body;              /* the call's */
    size_t length;
    harpe_work work;
    harpe_change change;
    harpe_problems problems;
    harpe_rank_info rank_info;
    int rank;      /* of a result */
    int64_t round; /* of a result */
    harpe_result_comparison comparison;
    bool is_decoded, is_plain;
    harpe_result_totals totals; /* of a result */
};

typedef enum harpe_turn_kind {
    HARPE_TURN_PREPARE,
    HARPE_TURN_OBSERVE,
    HARPE_TURN_HAND_OUT,
    HARPE_TURN_WISH,
    HARPE_TURN_FRONTIER,
    HARPE_TURN_FAIL,
} harpe_turn_kind;

/* The one thing that a job does with its scheduler or its round; at most one at a time. */
typedef struct harpe_turn {
    harpe_under_way under_way;
    harpe_turn_kind kind;
    harpe_jobs *jobs;
    harpe_job *job;
    harpe_operation *carrier; /* of the call behind a wish or a frontier; NULL: none */
    harpe_work work;
    harpe_change change;
    char text[96]; /* of a wish's change */

    /* Read on the worker: */
    harpe_stored_wish wish;
    bool wants_next;  /* after a wish, at once */
    bool is_over;     /* the round, when the turn began */
    bool is_pipeline; /* what is looked at; else the frontier */

    /* Made on the worker: */
    harpe_status status;
    harpe_error error;
    bool is_told;               /* the scheduler took the wish */
    harpe_scheduler *scheduler; /* PREPARE */
    harpe_round_text *next;     /* NULL: as before */
    bool is_finished;
    char *state_text, *json;
    size_t state_length;
    harpe_figures figures;
    bool has_figures;
} harpe_turn;

enum { HARPE_EVICTED_KEPT = 100000 }; /* so many deleted jobs the store remembers, too */

typedef struct harpe_job_table {
    harpe_job **buckets;
    size_t bucket_count, count; /* evicted ones included: they are answered 410 */
    uint64_t seed;
    harpe_job *newest; /* jobs that live, in the order of registration */
    int64_t first_serial, last_serial;
    harpe_job *first_evicted, *last_evicted;
    size_t evicted_count;
} harpe_job_table;

struct harpe_jobs {
    harpe_jobs_options options;
    harpe_job_table table;
    harpe_under_way *under_way;
    harpe_call_list again; /* calls that are about to be handled anew */
    bool is_handling_again;
    harpe_job *marked; /* jobs that harpe_job_advance has to look at */
    bool is_advancing;
    harpe_call_list strangers; /* held calls of ranks that are not registered, oldest first */
    harpe_timer *idle_timer;
    double steady_start_s;
    int64_t earlier_uptime_s;       /* of the servers that had this store before */
    int64_t version, first_version; /* of all jobs; what this engine began with */
    harpe_call_list onlookers;      /* calls that wait for a change */
    harpe_timer *tell_timer;
    bool is_loading, is_stopping;
    bool is_ending; /* so is the program: perhaps there are no workers any more */
    harpe_jobs_counts counts;
};

/* ---- Jobs (job.c) -------------------------------------------------------------------------- */

/* A job without ranks; takes `info` over on success. NULL: out of memory. */
harpe_job *harpe_job_new(harpe_jobs *jobs, char *id, harpe_job_info *info);
void harpe_job_free(harpe_job *job);
/* Frees its scheduler, on a worker where that may wait for a program. */
void harpe_job_leave_scheduler(harpe_job *job);
/* When a job has ended, its scheduler is freed if it runs in a process. Another one is prepared
 * when the job goes on (turns.c). */
bool harpe_job_rests(const harpe_job *job);
void harpe_job_rest(harpe_job *job);
/* Frees all that only a living job needs, once no worker reads it. */
void harpe_job_bury(harpe_job *job);
harpe_job_state harpe_job_state_of(const harpe_job *job);
const char *harpe_job_state_name(harpe_job_state state);
const char *harpe_rank_state_name(const harpe_job *job, int rank);
/* The time of the wall clock. It is only for people, because this clock may jump. */
int64_t harpe_jobs_now_s(const harpe_jobs *jobs);
/* For how long servers have run with this store, one after the other, by their CLOCK_MONOTONIC. No
 * time passes while there is no server or while its machine is suspended, because no client can be
 * heard then. */
int64_t harpe_jobs_uptime_s(const harpe_jobs *jobs);
void harpe_jobs_log(const harpe_jobs *jobs, harpe_log_level level, const char *format, ...)
    HARPE_PRINTF(3, 4);

/* ---- Ranks (job_ranks.c) ------------------------------------------------------------------- */

/* NULL: nobody has spoken of this rank, or the job has no such rank. Valid as long as the job is
 * not buried. */
harpe_rank *harpe_job_rank(const harpe_job *job, int rank);
/* As harpe_job_rank, but makes the rank if nobody has spoken of it yet. NULL: out of memory, or
 * the job has no such rank. */
harpe_rank *harpe_job_make_rank(harpe_job *job, int rank);
/* The first rank that exists and whose number is *rank or higher; *rank becomes its number. NULL:
 * there is none, and *rank is world_size. For loops:
 * `for (int r = 0; (slot = harpe_job_next_rank(job, &r)); r++)` gives every registered or asking
 * rank, and perhaps others that are empty. */
harpe_rank *harpe_job_next_rank(const harpe_job *job, int *rank);
/* An array of all ranks in their order, for a job whose ranks are all registered. Free the array
 * with free(); what its elements point to belongs to the job. NULL: out of memory. May be called
 * on a worker. */
harpe_rank_info *harpe_job_rank_infos(const harpe_job *job);
void harpe_job_free_ranks(harpe_job *job);

/* ---- The table of jobs (job_table.c) -------------------------------------------------------- */

bool harpe_job_table_add(harpe_job_table *table, harpe_job *job);
void harpe_job_table_remove(harpe_job_table *table, harpe_job *job);
harpe_job *harpe_job_table_find(const harpe_job_table *table, const char *id);
/* Among those that live, newest first. */
harpe_job *harpe_job_table_find_key(const harpe_job_table *table, const char *key);
/* Takes a job out of those that live. Its id stays known until HARPE_EVICTED_KEPT others were
 * evicted after it. */
void harpe_job_table_retire(harpe_job_table *table, harpe_job *job);
void harpe_job_table_free(harpe_job_table *table); /* with all jobs */

/* ---- Calls and operations (operation.c, replies.c)
 * --------------------------------------------------- */

void harpe_under_way_add(harpe_jobs *jobs, harpe_under_way *entry,
                         void (*drop)(harpe_under_way *self));
void harpe_under_way_remove(harpe_jobs *jobs, harpe_under_way *entry);

/* Each answers `call` (NULL: nobody is there any more); it is not the engine's after that. */
void harpe_reply(harpe_call *call, int http_status, char *body, size_t length, int64_t round);
void harpe_reply_null(harpe_call *call, int64_t round);
void harpe_reply_detail(harpe_call *call, int http_status, const char *format, ...)
    HARPE_PRINTF(3, 4);
/* 422, or 503 where there was no memory to collect them. */
void harpe_reply_problems(harpe_call *call, const harpe_problems *problems);
void harpe_reply_out_of_memory(harpe_call *call);
void harpe_reply_stopping(harpe_call *call);
void harpe_reply_evicted(harpe_call *call, const char *job_id);
void harpe_reply_not_stored(harpe_call *call, const harpe_error *error);
/* Of a scheduler's refusal. */
int harpe_http_status_of(harpe_status status);
/* Empties the list and handles its calls again; any of them may be dropped meanwhile. If it is
 * called while it runs, it only adds to the work. */
void harpe_jobs_handle_again(harpe_jobs *jobs, harpe_call_list *calls);

/* Takes over `call` and its body; NULL (and the call is answered) when out of memory. */
harpe_operation *harpe_operation_new(harpe_jobs *jobs, harpe_job *job, harpe_call *call);
/* Runs `work` on a worker and then `done` on the loop; or both at once when the body is short. */
void harpe_operation_decode(harpe_operation *operation, void (*work)(void *user),
                            void (*done)(void *user));
/* Runs `work`, which reads from the store, on a worker and then `done` on the loop. */
void harpe_operation_read(harpe_operation *operation, void (*work)(void *user),
                          void (*done)(void *user));
void harpe_operation_store(harpe_operation *operation, harpe_change_kind kind,
                           void (*done)(void *user, harpe_status status, const harpe_error *error));
/* Nothing more to do for it: the client is gone, the job evicted, the server stopping. Answers as
 * fits, frees it and says true. */
bool harpe_operation_is_void(harpe_operation *operation);
/* The call of `operation`, which is freed, is handled anew after `other`. */
void harpe_operation_wait_for(harpe_operation *operation, harpe_operation *other);
void harpe_call_wait_for(harpe_call *call, harpe_operation *other);
/* The call, to be answered after harpe_operation_end. */
harpe_call *harpe_operation_release(harpe_operation *operation);
/* Frees it and handles anew those who waited for it. */
void harpe_operation_end(harpe_operation *operation);

/* ---- Changes (changes.c) ------------------------------------------------------------------ */

/* Before any job is there. */
void harpe_changes_begin(harpe_jobs *jobs);
/* To be called whenever a row of it (harpe_job_row) may read otherwise than before, and after
 * wishes. */
void harpe_job_changed(harpe_job *job);
/* `job` NULL: all. */
void harpe_ask_for_changes(harpe_jobs *jobs, harpe_job *job, harpe_call *call);
/* Answers 503 to all who wait. */
void harpe_changes_end(harpe_jobs *jobs);
/* One job as JSON, its ranks by state. NULL: out of memory (job_view.c). */
char *harpe_job_row(const harpe_job *job);
/* Rows of all jobs that changed after version `since`, newest job first, and the ids of those that
 * are gone; -1: all, and "whole". */
char *harpe_jobs_rows(const harpe_jobs *jobs, int64_t since);

/* ---- What calls do ------------------------------------------------------------------------ */

void harpe_register_job(harpe_jobs *jobs, harpe_call *call);     /* registration.c */
void harpe_register_rank(harpe_job *job, harpe_call *call);      /* registration.c */
void harpe_ask_for_schedule(harpe_job *job, harpe_call *call);   /* rounds.c */
void harpe_take_result(harpe_job *job, harpe_call *call);        /* results.c */
void harpe_take_wish(harpe_job *job, harpe_call *call);          /* wishes.c */
void harpe_take_frontier_call(harpe_job *job, harpe_call *call); /* wishes.c */
void harpe_evict(harpe_job *job, harpe_call *call);              /* idle.c; call may be NULL */
void harpe_take_end(harpe_job *job, harpe_call *call);           /* ends.c */
void harpe_show_job(const harpe_job *job, harpe_call *call);     /* job_view.c */
/* Index of a rank's place among those of the job. */
size_t harpe_job_coordinate(const harpe_job *job, const harpe_rank_info *rank);

/* ---- Figures (job_figures.c) --------------------------------------------------------------- */

/* A result that is stored. */
void harpe_job_count_result(harpe_job *job, const harpe_result_totals *totals);
/* What the scheduler says. */
void harpe_job_take_figures(harpe_job *job, const harpe_figures *figures);
/* An object. */
void harpe_job_append_figures(harpe_text *text, const harpe_job *job);

/* ---- Ends (ends.c) ------------------------------------------------------------------------- */

bool harpe_job_has_ended(const harpe_job *job);
/* What is stored, or read from the store. */
void harpe_job_set_ended(harpe_job *job, int rank, bool has_ended);
/* A rank that had ended registers again: stores that, answers the call of `operation` and ends it.
 */
void harpe_rank_comes_back(harpe_operation *operation, int rank);

/* ---- Rounds (rounds.c) and turns (turns.c, wishes.c) --------------------------------------- */

/* Does the next step that the job's state requires, if any. Call it after every change of the
 * state. It marks the job; the outermost call processes marked jobs until none is left, so that
 * nested calls do not use up the stack. */
void harpe_job_advance(harpe_job *job);
bool harpe_job_round_is_over(const harpe_job *job);
/* Answers all who ask (and all who are queued); the ranks ask no longer. */
void harpe_job_refuse_asking(harpe_job *job, int http_status, const char *detail);
void harpe_job_refuse_held(harpe_job *job, int http_status, const char *detail);
void harpe_job_unhold(harpe_job *job, harpe_call *call);
/* Call it when a rank has registered: if the rank asks already, its call no longer gives way. */
void harpe_job_meet(harpe_job *job, int rank);

harpe_turn *harpe_turn_new(harpe_job *job, harpe_turn_kind kind);
void harpe_turn_end(harpe_turn *turn);
void harpe_turn_run(harpe_turn *turn, void (*work)(void *user), void (*done)(void *user));
/* After harpe_turn_run. False: the job was evicted meanwhile, and the turn has ended. */
bool harpe_turn_is_back(harpe_turn *turn);
void harpe_begin_prepare(harpe_job *job);
void harpe_begin_observe(harpe_job *job);
void harpe_begin_queued(harpe_job *job);
bool harpe_call_only_looks(const harpe_call *call);
/* Ends `turn`; the job fails with `error`, which is stored first. */
void harpe_turn_fail_job(harpe_turn *turn, const harpe_error *error);
/* On a worker: what a turn of the scheduler leaves behind. `schedules` NULL: as before. */
harpe_status harpe_turn_conclude(harpe_turn *turn, harpe_scheduler *scheduler,
                                 const harpe_frequency_schedule *schedules);
/* On the loop: takes over what harpe_turn_conclude left. */
void harpe_turn_take_lesson(harpe_turn *turn);
/* On a worker: shows the results of `round` to the scheduler, if it wants to see any. */
harpe_status harpe_turn_observe(harpe_turn *turn, harpe_scheduler *scheduler, int64_t round,
                                const harpe_round_results *results);
/* The scheduler's last state, from the store or from its last turn. `text` NULL: there is none. */
typedef struct harpe_saved_state {
    const char *text;
    size_t length;
    int64_t round; /* the one that was next, or was running, then */
} harpe_saved_state;
harpe_saved_state harpe_job_saved_state(const harpe_job *job); /* bring_back.c */
/* On a worker: brings a new scheduler to where the stored rounds left it (bring_back.c). */
harpe_status harpe_turn_bring_back(harpe_turn *turn, harpe_scheduler **scheduler);

/* ---- Results of rounds (round_results.c) --------------------------------------------------- */

/* Without any text: all is in the store. NULL: out of memory. */
harpe_round_results *harpe_round_results_new(int count);
harpe_round_results *harpe_round_results_ref(harpe_round_results *results);
void harpe_round_results_unref(harpe_round_results *results); /* NULL is fine */

/* Where texts that are missing are. */
typedef struct harpe_stored_round {
    harpe_store *store;
    const char *job_id;
    int64_t round;
} harpe_stored_round;
/* On a worker: one model per rank, to be freed with harpe_profiling_results_free. */
harpe_status harpe_round_results_decode(const harpe_stored_round *from,
                                        const harpe_round_results *results,
                                        harpe_profiling_result **out, harpe_error *error);
/* On a worker: all of them as one JSON list. */
harpe_status harpe_round_results_format(const harpe_stored_round *from,
                                        const harpe_round_results *results, harpe_text *to,
                                        harpe_error *error);

/* ---- Texts of rounds (round_text.c) -------------------------------------------------------- */

harpe_status harpe_round_text_format(const harpe_frequency_schedule *schedules, int count,
                                     harpe_round_text **out, harpe_error *error);
harpe_status harpe_round_text_split(const char *text, size_t length, int count,
                                    harpe_round_text **out, harpe_error *error);
harpe_round_text *harpe_round_text_ref(harpe_round_text *text); /* NULL is fine */
void harpe_round_text_unref(harpe_round_text *text);            /* NULL is fine */

/* ---- The rest ------------------------------------------------------------------------------ */

harpe_status harpe_jobs_load(harpe_jobs *jobs, harpe_error *error); /* restore.c */
harpe_status harpe_job_read_wish(harpe_job *job, const harpe_change *record, harpe_error *error);

/* When the job was last heard of, in s since 1970 by the present wall clock. It is only for
 * people, and never in the future. If this server has heard of the job, the time that has passed
 * since then is right even if the clock was set meanwhile (idle.c). */
int64_t harpe_job_seen_s(const harpe_job *job);
int64_t harpe_job_registered_s(const harpe_job *job); /* not later than that */
/* Evicts what has been idle for too long and stores when jobs were last heard of (idle.c). */
void harpe_jobs_check_idle(harpe_jobs *jobs);
harpe_status harpe_jobs_watch_idle(harpe_jobs *jobs, harpe_error *error);

/* Each has a dump written on a worker, where the settings say so (dumps.c). */
void harpe_dump_ranks(harpe_job *job);
void harpe_dump_schedules(harpe_job *job, int64_t round, harpe_round_text *text);
void harpe_dump_results(harpe_job *job, int64_t round, harpe_round_results *results);
typedef enum harpe_dump_kind {
    HARPE_DUMP_RANKS,
    HARPE_DUMP_SCHEDULES,
    HARPE_DUMP_RESULTS,
} harpe_dump_kind;
/* The first round that waits to be dumped or is being; `otherwise`, when no earlier one does. */
int64_t harpe_dumps_first_round(const harpe_job *job, int64_t otherwise);
/* Starts to write the dumps that were queued while the job was restored. */
void harpe_dumps_begin(const harpe_job *job);
/* Leaves the dumps that have failed and wait to the next server. */
void harpe_dumps_give_up(harpe_job *job);
/* On a worker: the job's directory, made if missing and `makes_it`; to be freed with free(). */
harpe_status harpe_dump_directory(const harpe_jobs *jobs, const char *job_id, bool makes_it,
                                  char **directory, harpe_error *error);

#endif
