/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline frequency optimizer's parts and what they share. Two threads meet here: the training
 * thread (optimizer_training.c), which must never wait, and the optimizer's own
 * (optimizer_thread.c, optimizer_gpu.c), which does all the waiting. Every field says whose it is.
 */
#ifndef HARPE_CLIENT_OPTIMIZER_PARTS_H
#define HARPE_CLIENT_OPTIMIZER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include <harpe/instruction_profiler.h>
#include <harpe/pipeline_frequency.h>

#include "client/connection.h"
#include "client/marks.h"
#include "client/schedule_follow.h"

#define HARPE_JOB_KEY_SIZE 33  /* of one made up here: hexadecimal digits and a NUL */
#define HARPE_MEETING_SIZE 256 /* of what rank 0 broadcasts */

/* ---- Training thread ------------------------------------------------------------------------- */

typedef struct harpe_pipeline_training {
    harpe_follower follower;
    bool is_measuring;     /* this step */
    bool measures_misfits; /* it counts as it runs, whether it fits or not */
    bool has_lost_marks;   /* in this step: what it measured is worth nothing */
    int asked_mhz;         /* the clock that was asked for last; 0: unknown */
    uint64_t steps, misfits;
    harpe_misfit first_misfit; /* strict mode, for harpe_pipeline_frequency_check */
} harpe_pipeline_training;

/* From the training thread to the log: one misfit at a time, others are only counted meanwhile. */
typedef struct harpe_misfit_note {
    atomic_bool is_full;
    harpe_misfit misfit;
} harpe_misfit_note;

/* ---- The optimizer's own thread -------------------------------------------------------------- */

/* What keeps the server from answering as it should. */
typedef enum harpe_trouble {
    HARPE_TROUBLE_NONE,
    HARPE_TROUBLE_AWAY, /* no answer, or none of a harpe server's: again and again, from 0.1 s on */
    HARPE_TROUBLE_FAILED, /* it cannot serve this job, or not us: again after a minute */
} harpe_trouble;

typedef struct harpe_conversation {
    harpe_connection *connection;
    harpe_trouble trouble;
    int64_t trouble_since_ns;
    double pause_s; /* before the next try */
    unsigned random;
    bool counts_rounds; /* the server says Harpe-Round */
    bool has_no_round;  /* ask for whatever is current, not for `round` + 1 */
    bool has_told_conflict;
    bool knows_keys;                /* the server does: it was asked */
    int64_t round;                  /* of the last schedule; -1: none */
    int64_t series;                 /* of the last schedule, from 1 on */
    bool runs_trial;                /* the last schedule is a trial, and is run */
    bool has_left_trial;            /* the last schedule was a trial, and is run no more */
    int64_t progress_ns;            /* when it came, or a step of it was measured last */
    size_t measured_steps;          /* of it, so far */
    char *report;                   /* the result that is to be sent */
    int failed_reports;             /* how often this round's result could not be made */
    int64_t failed_report_since_ns; /* the first of them */
    bool has_told_few_steps;
    int64_t farewell_until_ns; /* harpe_clock_ns; the last request may take so long; 0: not yet */
    unsigned told_misfits;     /* bit set of kinds */
} harpe_conversation;

/* How long something may last. */
typedef struct harpe_pipeline_patience {
    double trial_alone_s;    /* a trial runs on without a server that answers */
    double trial_stagnant_s; /* ... without a measured step or another round */
    double held_s;           /* a request is held; then it is asked again */
    double report_s;         /* a result that cannot be made is tried again */
} harpe_pipeline_patience;

typedef struct harpe_controller_care {
    bool is_wanted;
    harpe_status told;   /* what the log knows; HARPE_OK: all is well */
    int64_t next_try_ns; /* harpe_clock_ns */
    double pause_s;
    uint64_t written_before; /* the last refusal */
} harpe_controller_care;

/* ---- Together -------------------------------------------------------------------------------- */

struct harpe_pipeline_frequency_optimizer {
    /* Never changes after construction. */
    harpe_pipeline_frequency_options options; /* texts are our own */
    harpe_pipeline_patience patience;
    char *job_body, *rank_body; /* JSON */
    harpe_gpus *gpus;           /* NULL: no GPU */
    bool owns_gpus;
    int *clocks_mhz; /* highest first */
    size_t clock_count;
    harpe_instruction_profiler *profiler;
    harpe_marks *marks;        /* NULL: at once */
    const unsigned char *here; /* a page that reads 1 in this process and 0 in a forked child */

    harpe_pipeline_training training;

    /* Between the threads. */
    harpe_schedule_exchange exchange;
    _Atomic int64_t measured_series; /* steps of this schedule are to be measured; -1: none */
    _Atomic(harpe_frequency_controller *) controller; /* NULL: not started yet */
    _Atomic uint64_t steps, misfits;                  /* copies of the training thread's */
    atomic_bool has_lost_marks;
    atomic_bool is_stopping;
    harpe_misfit_note note;

    /* Own thread. */
    harpe_conversation conversation;
    harpe_controller_care care;
    bool has_told_lost_marks;
    pthread_t thread;
    bool has_thread;

    /* Any thread, under `lock`; the training thread only where it asks for it. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* monotonic clock */
    harpe_pipeline_frequency_state state;
    char job_id[256];
    int64_t round;
    uint64_t reconnects;
};

typedef harpe_pipeline_frequency_optimizer harpe_pipeline;

/* Nobody's, or a child's of fork: a worker that loads data shares the controller's memory with its
 * parent, has none of its threads and perhaps its locks, and must leave all of that alone. */
static inline bool harpe_pipeline_is_elsewhere(const harpe_pipeline *optimizer) {
    return !optimizer || !*optimizer->here;
}

/* optimizer.c: harpe_pipeline_frequency_new with less patience (tests). */
harpe_status harpe_pipeline_new_with(const harpe_pipeline_frequency_options *options,
                                     const harpe_pipeline_patience *patience, harpe_pipeline **out,
                                     harpe_error *error);

/* optimizer_options.c: checks, fills in defaults and copies; then the bodies of the two
 * registrations, with a key that all ranks share, and perhaps the job's id.
 * harpe_pipeline_forget_options frees the texts. */
harpe_status harpe_pipeline_take_options(harpe_pipeline *optimizer,
                                         const harpe_pipeline_frequency_options *options,
                                         harpe_error *error);
harpe_status harpe_pipeline_agree_on_job(harpe_pipeline *optimizer, harpe_error *error);
/* For a rank that fails earlier: takes part in the broadcast, because the other ranks wait in it.
 */
void harpe_pipeline_miss_meeting(const harpe_pipeline_frequency_options *options);
harpe_status harpe_pipeline_format_rank(harpe_pipeline *optimizer, harpe_error *error);
void harpe_pipeline_forget_options(harpe_pipeline *optimizer);

/* optimizer_meeting.c: registers the job, which takes a few seconds at most; "" if the server does
 * not answer correctly. Called before the conversation begins. */
void harpe_pipeline_ask_for_job(const harpe_pipeline *optimizer, char *job_id, size_t size);

/* optimizer_gpu.c */
harpe_status harpe_pipeline_find_gpu(harpe_pipeline *optimizer, harpe_error *error);
harpe_status harpe_pipeline_start_controller(harpe_pipeline *optimizer, harpe_error *error);
/* Has a controller that is missing or dead started (again), now and then. Own thread. */
void harpe_pipeline_tend_controller(harpe_pipeline *optimizer);

/* optimizer_training.c: what an event does to clocks and time stamps. `user`: the optimizer. */
void harpe_pipeline_carry_out(void *user, const harpe_marked_event *event);

/* optimizer_thread.c: the thread's main function, and what the thread does beside the conversation
 * (connection's `go_on`): false when it is to end. `user`: the optimizer. */
void *harpe_pipeline_run(void *user);
bool harpe_pipeline_go_on(void *user);

/* optimizer.c: a line for the log. */
void harpe_pipeline_say(const harpe_pipeline *optimizer, harpe_log_level level, const char *format,
                        ...) HARPE_PRINTF(3, 4);

#endif
