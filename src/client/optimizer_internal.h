/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the pipeline frequency optimizer and the data that they share. There are two
 * threads: the training thread (optimizer_training.c), which must never wait, and the optimizer's
 * own thread (optimizer_thread.c, optimizer_gpu.c), which does all the waiting. Each group of
 * fields names the thread that owns it. */
#ifndef HARPE_CLIENT_OPTIMIZER_INTERNAL_H
#define HARPE_CLIENT_OPTIMIZER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <harpe/instruction_profiler.h>
#include <harpe/pipeline_frequency.h>

#include "client/schedule_follow.h"
#include "client/stream_events.h"
#include "http/client/connection.h"
#include "pfo/result_scan.h"

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

/* How the steps ran: as planned, or why not. The training thread counts, and the optimizer's own
 * thread sends the counts with each result. Only the training thread writes. Initialise with zeros.
 */
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
