/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the pipeline frequency optimizer and the data that they share. There are two
 * threads: the training thread (optimizer_training.c), which must never wait, and the optimizer's
 * own thread (optimizer_thread.c, optimizer_gpu.c), which does all the waiting. Each group of
 * fields names the thread that owns it. */
#ifndef HARPE_CLIENT_OPTIMIZER_INTERNAL_H
#define HARPE_CLIENT_OPTIMIZER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/instruction_profiler.h>
#include <harpe/pfo.h>
#include <harpe/pipeline_frequency.h>

#include "http/client/connection.h"
#include "pfo/result_scan.h"

/* ---- Schedules ------------------------------------------------------------------------------- */

/* The training thread follows a frequency schedule: it finds the entry of each instruction, and
 * checks whether the step fits the schedule. The optimizer's own thread posts new schedules, and
 * the training thread gives old schedules back, both without a lock. The training thread never
 * frees memory. The optimizer's own thread calls harpe_schedule_post and
 * harpe_schedule_exchange_clear; the training thread calls all other functions. */

/* A schedule for the training thread. It does not change after it is posted. */
typedef struct harpe_followed_schedule {
    harpe_frequency_schedule schedule; /* if it has no instructions, every step fits and runs at
                                        * `highest_mhz` */
    int highest_mhz;                   /* 0: unknown, clocks are left alone */
    int64_t series;                    /* number among all schedules of this optimizer */
    int64_t round;                     /* the server's round; -1: unknown */
    struct harpe_followed_schedule *given_back_before; /* list of schedules that were given back */
} harpe_followed_schedule;

/* ---- Handing over ---------------------------------------------------------------------------- */

typedef struct harpe_schedule_exchange {
    _Atomic(harpe_followed_schedule *) next; /* posted, but not yet taken */
    _Atomic(harpe_followed_schedule *) used; /* the schedule that was given back last; the head of a
                                              * list */
} harpe_schedule_exchange;

/* Makes a schedule. Moves `frequencies` into the schedule and sets `*frequencies` to zeros. NULL:
 * out of memory. */
harpe_followed_schedule *harpe_followed_schedule_new(harpe_frequency_schedule *frequencies);
void harpe_followed_schedule_free(harpe_followed_schedule *schedule);

/* Posts a schedule. Frees the previous schedule if it was not taken yet, and all schedules that the
 * training thread has given back. */
void harpe_schedule_post(harpe_schedule_exchange *exchange, harpe_followed_schedule *schedule);
void harpe_schedule_exchange_clear(harpe_schedule_exchange *exchange);

/* ---- Following ------------------------------------------------------------------------------- */

typedef enum harpe_mismatch_kind {
    HARPE_MISMATCH_NONE = 0,
    HARPE_MISMATCH_NAME,   /* the schedule has another instruction at this position */
    HARPE_MISMATCH_LONGER, /* the step has more instructions than the schedule */
    HARPE_MISMATCH_SHORTER,
    HARPE_MISMATCH_UNNAMED, /* the training passed NULL as a name */
} harpe_mismatch_kind;

#define HARPE_INSTRUCTION_SIZE 64

/* Describes why a step does not fit. The structure is plain data, so another thread can later make
 * a text of it. */
typedef struct harpe_mismatch {
    harpe_mismatch_kind kind;
    int64_t round;
    size_t position, count;             /* position of the instruction from 0; length of the
                                         * schedule */
    char found[HARPE_INSTRUCTION_SIZE]; /* "": none */
    char scheduled[HARPE_INSTRUCTION_SIZE];
} harpe_mismatch;

typedef struct harpe_follower {
    harpe_followed_schedule *schedule; /* NULL: none yet */
    size_t position;                   /* instructions begun in this step */
    size_t fitting_steps;              /* complete steps that fitted this schedule */
    size_t mismatches_in_a_row;        /* latest consecutive mismatches with this schedule */
    bool has_ever_fitted;              /* a step has fitted any schedule that has instructions */
    bool is_in_step;
    bool fits; /* true if the step has fitted so far */
} harpe_follower;

/* Takes the posted schedule, if there is one. */
void harpe_follower_begin_step(harpe_follower *follower, harpe_schedule_exchange *exchange);
/* Sets `*frequency_mhz` to the frequency of the next instruction; 0: leave the clock alone. Returns
 * false at the first instruction of a step that does not fit, and describes this instruction in
 * `*mismatch`. This instruction and the rest of the step run at the highest clock. */
bool harpe_follower_next(harpe_follower *follower, const char *instruction, int *frequency_mhz,
                         harpe_mismatch *mismatch);
/* Ends the step. If the step has fitted, but has fewer instructions than the schedule, returns
 * false and describes this in `*mismatch`. */
bool harpe_follower_end_step(harpe_follower *follower, harpe_mismatch *mismatch);

/* Returns true if too many consecutive steps did not fit. So many steps cannot be an evaluation:
 * the training itself does not fit the schedule. */
bool harpe_follower_is_lost(const harpe_follower *follower);

/* Writes one line: "step does not fit its schedule (round 3): ...". */
void harpe_mismatch_describe(const harpe_mismatch *mismatch, char *line, size_t size);

/* ---- Checking -------------------------------------------------------------------------------- */

/* Checks the clocks of a schedule that a server has sent. If the job may not use one of these
 * clocks, the whole schedule is refused, because the other clocks belong to the same plan. */

/* The clocks that a job may use. */
typedef struct harpe_allowed_clocks {
    const int *clocks_mhz; /* highest first: the clocks that the rank has registered */
    size_t count;          /* 0: not known */
    int lowest_mhz;        /* the job's own lowest clock; 0: none */
} harpe_allowed_clocks;

/* Returns HARPE_OK if each instruction has an allowed clock or 0, which leaves the clock as it is.
 * If the allowed clocks are not known, every clock up to the highest of any GPU (base/possible.h)
 * is allowed, but none below the job's lowest clock. If a clock is not allowed, fails with
 * HARPE_INVALID_INPUT and names the first instruction with such a clock. Takes time proportional to
 * instructions * log(clocks). */
harpe_status harpe_schedule_check(const harpe_frequency_schedule *schedule,
                                  const harpe_allowed_clocks *allowed, harpe_error *error);

/* ---- Stream events --------------------------------------------------------------------------- */

/* A stream event is a change of clock or a time stamp that the training thread requests. If the
 * process has loaded CUDA, an event is handled when the caller's CUDA stream reaches it; otherwise
 * it is handled at once. Events keep their order. The handler decides the effect of an event. */

typedef enum harpe_stream_event_kind {
    HARPE_STREAM_EVENT_BEGIN_STEP,
    HARPE_STREAM_EVENT_END_STEP,
    HARPE_STREAM_EVENT_CANCEL_STEP,
    HARPE_STREAM_EVENT_BEGIN,
    HARPE_STREAM_EVENT_END,
} harpe_stream_event_kind;

typedef struct harpe_stream_event {
    harpe_stream_event_kind kind;
    bool is_measured;  /* BEGIN and END: record a time stamp */
    int set_mhz;       /* BEGIN: the clock to set; 0: leave the clock alone */
    int asked_mhz;     /* BEGIN: the clock that was requested; 0: unknown */
    int64_t series;    /* BEGIN_STEP and BEGIN: series of the schedule */
    uint32_t position; /* BEGIN: place in the schedule, or HARPE_POSITION_LOST */
    const char *name;  /* BEGIN */
} harpe_stream_event;

typedef void harpe_stream_event_handler(void *user, const harpe_stream_event *event);

/* Events on their way through a stream. */
typedef struct harpe_stream_events harpe_stream_events;

/* Returns NULL if this process has not loaded CUDA, or if memory is short. */
harpe_stream_events *harpe_stream_events_new(void *cuda_stream, harpe_stream_event_handler *handler,
                                             void *user);
/* Sends an event. Only the training thread may call this function. The first calls may set up the
 * memory and the thread that follow the stream. If the stream captures a CUDA graph, `handler` is
 * called at once, on the training thread. Returns false if the stream does not accept the event, or
 * if too many events are on their way; `handler` then does not receive the event. */
bool harpe_stream_events_send(harpe_stream_events *events, const harpe_stream_event *event);
/* Returns true if the stream runs host functions because it has no writes to memory. Any thread may
 * call it. */
bool harpe_stream_events_call(const harpe_stream_events *events);
/* Frees `events`. Waits a short time for events that are on their way. `handler` is not called
 * afterwards. If the stream has not reached all events by then, the memory that it still uses is
 * leaked. */
void harpe_stream_events_free(harpe_stream_events *events);

/* ---- The server's answers -------------------------------------------------------------------- */

/* Sorts the server's answers into a few outcomes, with a reason in words. An answer that cannot
 * come from a harpe server counts as "there is no server". */

typedef enum harpe_reply_outcome {
    HARPE_REPLY_ANSWERED,    /* the request succeeded */
    HARPE_REPLY_INTERRUPTED, /* the connection's `go_on` returned false */
    HARPE_REPLY_AWAY,        /* no server, or not a harpe server */
    HARPE_REPLY_GONE,        /* the server does not know the job */
    HARPE_REPLY_CONFLICT,    /* the server has other data in this place */
    HARPE_REPLY_REFUSED,     /* the server will never accept this request */
    HARPE_REPLY_FAILED,      /* the job has failed on the server, or the token is wrong */
} harpe_reply_outcome;

typedef struct harpe_reply {
    harpe_reply_outcome outcome;
    int64_t round;                  /* from the header Harpe-Round; -1: none */
    char reason[HARPE_REASON_SIZE]; /* set if the outcome is not ANSWERED */
} harpe_reply;

/* Sends a request whose answer has no content. */
void harpe_reply_to(harpe_connection *connection, const harpe_request *request, harpe_reply *reply);
/* Sends POST /register_job. */
void harpe_reply_to_registration(harpe_connection *connection, const char *job_body, char *job_id,
                                 size_t size, harpe_reply *reply);
/* Returns true if GET /info is answered as by the published server, which has no such page. The
 * published server makes a separate job for each rank that registers. */
bool harpe_reply_is_published(harpe_connection *connection);
/* Sends GET /schedule. If the outcome is ANSWERED, the caller frees `*schedule`. */
void harpe_reply_with_schedule(harpe_connection *connection, const harpe_request *request, int rank,
                               harpe_frequency_schedule *schedule, harpe_reply *reply);

/* ---- Training thread ------------------------------------------------------------------------- */

typedef struct harpe_pipeline_training {
    harpe_follower follower;
    bool is_measuring;         /* true if this step is measured */
    bool was_measuring;        /* true if this step was to be measured when it began */
    bool measures_mismatches;  /* true if steps that do not fit are measured too */
    bool has_lost_events;      /* events of this step were lost, so its measurements are useless */
    int asked_mhz;             /* the clock requested last; 0: unknown */
    uint64_t disobeyed_before; /* the controller's count at the beginning of the step */
    int64_t spoiled_series;    /* series of `spoiled_in_series` */
    int spoiled_in_series;     /* steps that were not measured because the GPU did not obey */
    uint64_t steps, mismatches;
    harpe_mismatch first_mismatch; /* strict mode, for harpe_pipeline_frequency_check */
} harpe_pipeline_training;

/* The numbers of steps that ran as planned, and of steps that did not, by reason. Only the training
 * thread counts. The optimizer's own thread sends the counts with each result. Initialise with
 * zeros. */
typedef struct harpe_conduct_counts {
    _Atomic int64_t steps, as_planned, misfits, misfits_measured, disobeyed, lost, left_out;
    _Atomic int64_t wanted_mhz, held_mhz;
} harpe_conduct_counts;

/* One mismatch on its way from the training thread to the log. Further mismatches are only counted
 * until this one is logged. */
typedef struct harpe_mismatch_note {
    atomic_bool is_full;
    harpe_mismatch mismatch;
} harpe_mismatch_note;

/* ---- The optimizer's own thread -------------------------------------------------------------- */

/* The reason for which the server does not give the expected answer. */
typedef enum harpe_connection_error {
    HARPE_CONNECTION_ERROR_NONE,
    HARPE_CONNECTION_ERROR_NO_ANSWER, /* no answer of a harpe server; retries come soon */
    HARPE_CONNECTION_ERROR_REFUSED,   /* the server cannot serve this job or this client; the retry
                                       * comes after a minute */
} harpe_connection_error;

typedef struct harpe_conversation {
    harpe_connection *connection;
    harpe_connection_error connection_error;
    int64_t failing_since_ns;
    double pause_s; /* time before the next attempt */
    unsigned random;
    bool counts_rounds; /* the server sends Harpe-Round */
    bool has_no_round;  /* ask for the current schedule, not for that of `round` + 1 */
    bool comes_back;    /* the rank is registered already */
    bool has_told_conflict;
    int refused_requests; /* consecutive requests for a schedule that the server has refused */
    bool has_told_refused_requests, has_told_trial_memory;
    bool knows_keys;                /* the server was asked and knows keys */
    int64_t round;                  /* round of the last schedule; -1: none */
    int64_t series;                 /* series of the last schedule, from 1 on */
    bool runs_trial;                /* the last schedule is a trial and still runs */
    bool has_left_schedule;         /* the last schedule was a trial and no longer runs, or was
                                     * refused: none of its steps is measured any more */
    bool has_told_refusal;          /* of a schedule, and no schedule was accepted since */
    int64_t tell_refusal_ns;        /* do not log another refusal before this time
                                     * (harpe_clock_ns) */
    double refusal_pause_s;         /* before the result of a refused schedule */
    int64_t progress_ns;            /* time at which the last schedule arrived, or at which one of
                                     * its steps was last measured */
    size_t measured_steps;          /* steps of the last schedule that are measured so far */
    char *report;                   /* the result to be sent */
    harpe_conduct told;             /* the conduct that is in the reports so far */
    int failed_reports;             /* failed attempts to make this round's result */
    int64_t failed_report_since_ns; /* time of the first failed attempt */
    bool has_told_few_steps;
    int64_t end_notice_until_ns; /* time limit of the last request (harpe_clock_ns); 0: not set
                                  * yet */
    unsigned told_mismatches;    /* bit set of the kinds already logged */
} harpe_conversation;

/* Time limits, pauses and periods. */
typedef struct harpe_pipeline_timeouts {
    double trial_alone_s;    /* for a trial without an answering server */
    double trial_stagnant_s; /* for a trial without a measured step or another round */
    double held_s;           /* for a held request, which is then sent again */
    double answer_s;         /* limit of a whole answer */
    double report_s;         /* for further attempts to make a result */
    double meeting_s;        /* for the job's registration before the broadcast */
    double end_notice_s;     /* for the notice that the training has ended */
    /* Pauses between attempts become twice as long each time: requests that get no answer, and
     * starts of the controller. */
    double first_pause_s, longest_pause_s;
    double first_controller_pause_s;
    double sample_period_s;    /* of the energy; see harpe_instruction_profiler_options */
    size_t event_capacity;     /* the same */
    double measuring_period_s; /* between two looks at the measured steps */
} harpe_pipeline_timeouts;

typedef struct harpe_controller_care {
    bool is_wanted;
    harpe_status told;                 /* the status last logged; HARPE_OK: no fault */
    int64_t next_look_ns, next_try_ns; /* harpe_clock_ns */
    double pause_s;
    uint64_t written_before;      /* the controller's count `written` at the last failure */
    uint64_t told_disobeyed;      /* the controller's count `disobeyed` when it was last logged */
    int64_t tell_disobedience_ns; /* do not log it again before this time (harpe_clock_ns) */
    int64_t told_pause_ns;        /* between the last line and that time */
} harpe_controller_care;

/* ---- Together -------------------------------------------------------------------------------- */

struct harpe_pipeline_frequency_optimizer {
    /* The members below do not change after construction. */
    harpe_pipeline_frequency_options options; /* owns its texts */
    harpe_pipeline_timeouts timeouts;
    char *job_body, *rank_body; /* JSON */
    harpe_gpus *gpus;           /* NULL: no GPU */
    bool owns_gpus;
    int *clocks_mhz; /* highest first */
    size_t clock_count;
    harpe_instruction_profiler *profiler;
    harpe_stream_events *stream_events; /* NULL: events take effect at once */
    const unsigned char *here; /* a page that reads 1 in this process and 0 in a forked child */

    harpe_pipeline_training training;

    /* Shared by the two threads. */
    harpe_schedule_exchange exchange;
    _Atomic int64_t measured_series; /* series whose steps are to be measured; -1: none */
    _Atomic(harpe_frequency_controller *) controller; /* NULL: not started yet */
    _Atomic uint64_t spoiled_steps; /* steps that are not measured because the GPU did not obey */
    _Atomic uint64_t steps, mismatches; /* copies of the training thread's counts */
    atomic_bool has_lost_events;
    atomic_bool is_stopping;
    harpe_mismatch_note note;
    harpe_conduct_counts conduct;
    _Atomic int64_t tokens_per_step; /* of the whole job; 0: not known */

    /* Used by the optimizer's own thread. */
    harpe_conversation conversation;
    harpe_controller_care care;
    bool has_told_lost_events, has_told_host_functions;
    pthread_t thread;
    bool has_thread;

    /* Any thread, with `lock` held. The training thread takes the lock only if the caller asks for
     * the status or for a round. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* monotonic clock */
    harpe_pipeline_frequency_state state;
    char job_id[256];
    int64_t round;
    uint64_t reconnects;
};

typedef harpe_pipeline_frequency_optimizer harpe_pipeline;

/* Returns true if there is no optimizer, or if this process is a forked child. Such a child is, for
 * example, a worker that loads data. The child shares the controller's memory with its parent, has
 * no threads of the optimizer, and its locks may be held for ever. Therefore the child must not use
 * the optimizer. */
static inline bool harpe_pipeline_is_elsewhere(const harpe_pipeline *optimizer) {
    return !optimizer || !*optimizer->here;
}

extern const harpe_pipeline_timeouts harpe_pipeline_usual_timeouts; /* optimizer.c */

/* optimizer.c: works like harpe_pipeline_frequency_new with other times (for tests). */
harpe_status harpe_pipeline_new_with(const harpe_pipeline_frequency_options *options,
                                     const harpe_pipeline_timeouts *timeouts, harpe_pipeline **out,
                                     harpe_error *error);

/* optimizer_gpu.c */
harpe_status harpe_pipeline_find_gpu(harpe_pipeline *optimizer, harpe_error *error);
harpe_status harpe_pipeline_start_controller(harpe_pipeline *optimizer, harpe_error *error);
/* Plans the next start of a controller after a pause, which becomes longer each time. */
void harpe_pipeline_plan_next_start(harpe_pipeline *optimizer);
/* Starts a controller if it is missing or dead; tries again at intervals. Call it from the
 * optimizer's own thread. */
void harpe_pipeline_tend_controller(harpe_pipeline *optimizer);

/* Adds to a report at which clocks the instructions of `spans` ran, and how
 * long changes take. Without a controller, or without memory, the report stays as it is. */
struct harpe_profiler_spans;
void harpe_pipeline_append_clocks(const harpe_pipeline *optimizer,
                                  const struct harpe_profiler_spans *spans, char **report);

/* optimizer_training.c: applies an event to clocks and time stamps. `user`: the optimizer. */
void harpe_pipeline_carry_out(void *user, const harpe_stream_event *event);

/* optimizer_thread.c: _run is the thread's main function. _go_on is the connection's `go_on`: it
 * does the thread's other work during a request, and returns false when the thread must end.
 * `user`: the optimizer. */
void *harpe_pipeline_run(void *user);
bool harpe_pipeline_go_on(void *user);

/* optimizer.c: writes a line to the log. */
void harpe_pipeline_say(const harpe_pipeline *optimizer, harpe_log_level level, const char *format,
                        ...) HARPE_PRINTF(3, 4);

#endif
