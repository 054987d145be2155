/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's own thread: its conversation with the server as a state machine, and side work
 * for the training thread (log lines, the controller's health). Each answer of the server has one
 * of a few outcomes, and every state handles each of them:
 *
 *   registering  answered -> the rank is registered too -> waiting
 *   waiting      answered: schedule handed over -> measuring
 *   measuring    enough steps measured -> reporting
 *   reporting    answered, or the server has another result -> waiting for the next round
 *   any          gone -> registering again; away -> again soon; failed -> again in a minute;
 *                refused -> off
 *
 * A trial schedule (the low clocks of a sweep) is not followed forever: without a server, or
 * without progress, the training returns to its highest clocks. It also does so if a schedule has
 * clocks that the job may not have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/wait.h"
#include "client/optimizer_internal.h"
#include "client/profiler_internal.h"

#define PAUSE_AFTER_FAILURE_S 60.0
#define SIDE_WORK_PERIOD_S 0.1
#define UNMEASURED_SERIES 0
#define TELL_REFUSAL_AGAIN_NS INT64_C(60000000000)
#define REFUSED_REQUESTS_TOLD 3 /* one or two are usual after a lost connection */

/* ---- Side work ------------------------------------------------------------------------------- */

/* Logs one mismatch of each kind. Evaluation steps never match the schedule and would fill the
 * log. */
static void tell_mismatch(harpe_pipeline *optimizer) {
    harpe_mismatch_note *note = &optimizer->note;
    if (!atomic_load_explicit(&note->is_full, memory_order_acquire)) return;
    unsigned kind = 1U << note->mismatch.kind;
    char line[512];
    harpe_mismatch_describe(&note->mismatch, line, sizeof line);
    atomic_store_explicit(&note->is_full, false, memory_order_release);
    if (optimizer->conversation.told_mismatches & kind) return;
    optimizer->conversation.told_mismatches |= kind;
    harpe_pipeline_say(
        optimizer, HARPE_LOG_WARNING,
        "%s; such steps end at the highest clock, and are measured only if no step fits", line);
}

static void tell_lost_events(harpe_pipeline *optimizer) {
    if (optimizer->has_told_lost_events ||
        !atomic_load_explicit(&optimizer->has_lost_events, memory_order_relaxed))
        return;
    optimizer->has_told_lost_events = true;
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "the CUDA stream does not accept all marks: its clocks may be "
                       "late, and steps without all their marks are not measured");
}

static void tell_host_functions(harpe_pipeline *optimizer) {
    if (optimizer->has_told_host_functions || !optimizer->stream_events ||
        !harpe_stream_events_call(optimizer->stream_events))
        return;
    optimizer->has_told_host_functions = true;
    harpe_pipeline_say(optimizer, HARPE_LOG_INFO,
                       "marks of the CUDA stream are host functions, during which it does no other "
                       "work, because writes to memory could not be set up");
}

/* ---- Highest clocks -------------------------------------------------------------------------- */

static int highest_clock(const harpe_pipeline *optimizer) {
    return optimizer->clock_count > 0 ? optimizer->clocks_mhz[0] : 0;
}

/* Lets the training run at its highest clock from the next step on. Returns false if there is no
 * memory. */
static bool run_at_highest(harpe_pipeline *optimizer) {
    harpe_conversation *talk = &optimizer->conversation;
    harpe_followed_schedule *highest = harpe_followed_schedule_new(&(harpe_frequency_schedule){0});
    if (!highest) return false;
    highest->highest_mhz = highest_clock(optimizer);
    highest->series = UNMEASURED_SERIES;
    highest->round = talk->round;
    harpe_schedule_post(&optimizer->exchange, highest);
    talk->runs_trial = false;
    talk->has_left_schedule = true;
    return true;
}

static void leave_trial(harpe_pipeline *optimizer, const char *reason) {
    harpe_conversation *talk = &optimizer->conversation;
    if (!run_at_highest(optimizer)) {
        if (!talk->has_told_trial_memory)
            harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                               "no memory to leave the trial clocks of round %lld: trying again",
                               (long long)talk->round);
        talk->has_told_trial_memory = true;
        return;
    }
    talk->has_told_trial_memory = false;
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "round %lld only tried its clocks, back to the highest ones: %s",
                       (long long)talk->round, reason);
}

static void tend_trial(harpe_pipeline *optimizer) {
    const harpe_conversation *talk = &optimizer->conversation;
    if (!talk->runs_trial) return;
    double now_s = harpe_clock_s();
    bool is_alone =
        talk->connection_error != HARPE_CONNECTION_ERROR_NONE || optimizer->state == HARPE_PFO_OFF;
    if (is_alone &&
        now_s - (double)talk->failing_since_ns * 1e-9 > optimizer->timeouts.trial_alone_s)
        leave_trial(optimizer, "the server sends no next schedule");
    else if (now_s - (double)talk->progress_ns * 1e-9 > optimizer->timeouts.trial_stagnant_s)
        leave_trial(optimizer, "for a long time no step was measured and no other round came");
}

bool harpe_pipeline_go_on(void *user) {
    harpe_pipeline *optimizer = user;
    tell_mismatch(optimizer);
    tell_lost_events(optimizer);
    tell_host_functions(optimizer);
    if (optimizer->conversation.end_notice_until_ns != 0)
        return harpe_clock_ns() < optimizer->conversation.end_notice_until_ns;
    if (atomic_load(&optimizer->is_stopping)) return false;
    harpe_pipeline_tend_controller(optimizer);
    tend_trial(optimizer);
    return true;
}

/* Sleeps, and meanwhile does the side work and checks for the end. */
static void rest(harpe_pipeline *optimizer, double seconds) {
    int64_t end_ns = harpe_clock_ns() + (int64_t)(seconds * 1e9);
    while (harpe_pipeline_go_on(optimizer)) {
        int64_t now_ns = harpe_clock_ns();
        if (now_ns >= end_ns) return;
        int64_t slice_ns = (int64_t)(SIDE_WORK_PERIOD_S * 1e9);
        int64_t until_ns = end_ns - now_ns < slice_ns ? end_ns : now_ns + slice_ns;
        harpe_lock(&optimizer->lock);
        if (!atomic_load(&optimizer->is_stopping))
            (void)harpe_wait_until(&optimizer->changed, &optimizer->lock, until_ns);
        harpe_unlock(&optimizer->lock);
    }
}

/* ---- Connection errors ----------------------------------------------------------------------- */

static void enter(harpe_pipeline *optimizer, harpe_pipeline_frequency_state state) {
    harpe_lock(&optimizer->lock);
    optimizer->state = state;
    harpe_unlock(&optimizer->lock);
}

static void give_up(harpe_pipeline *optimizer, const char *reason) {
    harpe_conversation *talk = &optimizer->conversation;
    if (talk->connection_error == HARPE_CONNECTION_ERROR_NONE)
        talk->failing_since_ns = harpe_clock_ns();
    enter(optimizer, HARPE_PFO_OFF);
    harpe_broadcast(&optimizer->changed);
    harpe_pipeline_say(optimizer, HARPE_LOG_ERROR,
                       "off for the rest of this training, which continues unchanged: %s", reason);
}

static void tell_connection_error(harpe_pipeline *optimizer,
                                  harpe_connection_error connection_error, const char *reason) {
    harpe_conversation *talk = &optimizer->conversation;
    if (talk->connection_error == connection_error) return;
    if (talk->connection_error == HARPE_CONNECTION_ERROR_NONE)
        talk->failing_since_ns = harpe_clock_ns();
    talk->connection_error = connection_error;
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "no schedules for now, training continues unchanged: %s", reason);
}

static void tell_recovery(harpe_pipeline *optimizer) {
    harpe_conversation *talk = &optimizer->conversation;
    if (talk->connection_error == HARPE_CONNECTION_ERROR_NONE) return;
    talk->connection_error = HARPE_CONNECTION_ERROR_NONE;
    talk->pause_s = optimizer->timeouts.first_pause_s; /* the server answers, so the pause after the
                                                        * next failure is short */
    harpe_lock(&optimizer->lock);
    optimizer->reconnects++;
    harpe_unlock(&optimizer->lock);
    harpe_pipeline_say(optimizer, HARPE_LOG_INFO, "the server is back after %.1f s",
                       (double)(harpe_clock_ns() - talk->failing_since_ns) * 1e-9);
}

/* Waits a random time, so that ranks that lost the same server do not all return at the same
 * moment. */
static void pause_and_try_again(harpe_pipeline *optimizer) {
    harpe_conversation *talk = &optimizer->conversation;
    double jitter = 0.5 + (double)rand_r(&talk->random) / RAND_MAX / 2;
    rest(optimizer, talk->pause_s * jitter);
    double longest_s = optimizer->timeouts.longest_pause_s;
    talk->pause_s = talk->pause_s * 2 < longest_s ? talk->pause_s * 2 : longest_s;
}

static void register_anew(harpe_pipeline *optimizer, const char *reason) {
    harpe_conversation *talk = &optimizer->conversation;
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "the server no longer knows this job, registering again: %s", reason);
    talk->has_no_round = true;
    free(talk->report);
    talk->report = NULL;
    harpe_lock(&optimizer->lock);
    optimizer->job_id[0] = '\0';
    optimizer->round = -1; /* the next job counts its rounds from 0 */
    optimizer->state = HARPE_PFO_REGISTERING;
    harpe_unlock(&optimizer->lock);
    pause_and_try_again(optimizer);
}

/* Handles the outcomes that are the same in every state. Returns true if it handled the outcome;
 * the request is then sent again. */
static bool has_connection_error(harpe_pipeline *optimizer, const harpe_reply *reply) {
    switch (reply->outcome) {
    case HARPE_REPLY_AWAY:
        tell_connection_error(optimizer, HARPE_CONNECTION_ERROR_NO_ANSWER, reply->reason);
        pause_and_try_again(optimizer);
        return true;
    case HARPE_REPLY_FAILED:
        tell_connection_error(optimizer, HARPE_CONNECTION_ERROR_REFUSED, reply->reason);
        rest(optimizer, PAUSE_AFTER_FAILURE_S);
        return true;
    case HARPE_REPLY_REFUSED: give_up(optimizer, reply->reason); return true;
    case HARPE_REPLY_INTERRUPTED: return true;
    default: tell_recovery(optimizer); return false;
    }
}

/* ---- Registering ----------------------------------------------------------------------------- */

static void register_job(harpe_pipeline *optimizer) {
    harpe_reply reply;
    char job_id[sizeof optimizer->job_id] = "";
    harpe_reply_to_registration(optimizer->conversation.connection, optimizer->job_body, job_id,
                                sizeof job_id, &reply);
    if (has_connection_error(optimizer, &reply)) return;
    harpe_conversation *talk = &optimizer->conversation;
    if (optimizer->options.world_size > 1 && !talk->knows_keys) {
        if (harpe_reply_is_published(talk->connection)) {
            give_up(optimizer,
                    "the server is not harpe serve and gives each rank a job of its own: let the "
                    "ranks meet by a broadcast (torch.distributed or MPI, initialised before, "
                    "without a job_key) while the server runs, or use harpe serve");
            return;
        }
        talk->knows_keys = true;
    }
    harpe_lock(&optimizer->lock);
    memcpy(optimizer->job_id, job_id, sizeof job_id);
    harpe_unlock(&optimizer->lock);
}

static void register_rank(harpe_pipeline *optimizer) {
    harpe_reply reply;
    harpe_conversation *talk = &optimizer->conversation;
    if (talk->comes_back && !talk->knows_keys && harpe_reply_is_published(talk->connection)) {
        talk->comes_back = false;
        enter(optimizer, HARPE_PFO_WAITING);
        return;
    }
    harpe_request request = {.path = "/register_rank/",
                             .segment = optimizer->job_id,
                             .query = "",
                             .body = optimizer->rank_body};
    harpe_reply_to(optimizer->conversation.connection, &request, &reply);
    if (reply.outcome == HARPE_REPLY_CONFLICT) reply.outcome = HARPE_REPLY_FAILED;
    if (has_connection_error(optimizer, &reply)) return;
    if (reply.outcome == HARPE_REPLY_GONE) {
        register_anew(optimizer, reply.reason);
        return;
    }
    harpe_pipeline_say(optimizer, HARPE_LOG_DEBUG, "registered in job %s", optimizer->job_id);
    talk->comes_back = false;
    enter(optimizer, HARPE_PFO_WAITING);
}

/* ---- Schedules ------------------------------------------------------------------------------- */

static void begin_round(harpe_pipeline *optimizer, int64_t round) {
    harpe_conversation *talk = &optimizer->conversation;
    talk->counts_rounds = round >= 0;
    talk->round = round >= 0 ? round : talk->round + 1;
    talk->has_no_round = false;
    talk->pause_s = optimizer->timeouts.first_pause_s;
    talk->has_left_schedule = false;
    talk->progress_ns = harpe_clock_ns();
    talk->measured_steps = 0;
    talk->failed_reports = 0;
    talk->refused_requests = 0;
    talk->series++;
}

static void enter_round(harpe_pipeline *optimizer) {
    const harpe_conversation *talk = &optimizer->conversation;
    harpe_lock(&optimizer->lock);
    optimizer->round = talk->round;
    optimizer->state = HARPE_PFO_MEASURING;
    harpe_broadcast(&optimizer->changed);
    harpe_unlock(&optimizer->lock);
}

static void has_no_memory_for_schedule(harpe_pipeline *optimizer) {
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "no memory for a schedule: asking again in a minute");
    rest(optimizer, PAUSE_AFTER_FAILURE_S);
}

static void hand_over(harpe_pipeline *optimizer, harpe_frequency_schedule *frequencies,
                      int64_t round) {
    harpe_conversation *talk = &optimizer->conversation;
    harpe_followed_schedule *schedule = harpe_followed_schedule_new(frequencies);
    if (!schedule) {
        harpe_frequency_schedule_free(frequencies);
        has_no_memory_for_schedule(optimizer);
        return;
    }
    begin_round(optimizer, round);
    talk->runs_trial = schedule->schedule.is_trial;
    schedule->highest_mhz = highest_clock(optimizer);
    schedule->series = talk->series;
    schedule->round = talk->round;
    atomic_store_explicit(&optimizer->measured_series, talk->series, memory_order_relaxed);
    harpe_schedule_post(&optimizer->exchange, schedule);
    if (talk->has_told_refusal)
        harpe_pipeline_say(optimizer, HARPE_LOG_INFO,
                           "the schedule of round %lld has allowed clocks again",
                           (long long)talk->round);
    talk->has_told_refusal = false;
    talk->refusal_pause_s = optimizer->timeouts.first_pause_s;
    enter_round(optimizer);
}

/* Refuses a schedule: the training runs at its highest clock, and the rank reports that it has no
 * result, because the other ranks wait for one. A server that sends nothing else is answered less
 * and less often, and a line is logged at most once a minute. */
static void refuse_schedule(harpe_pipeline *optimizer, int64_t round, const char *reason) {
    harpe_conversation *talk = &optimizer->conversation;
    if (!run_at_highest(optimizer)) {
        has_no_memory_for_schedule(optimizer);
        return;
    }
    begin_round(optimizer, round);
    talk->has_left_schedule = true;
    if (!talk->has_told_refusal && harpe_clock_ns() >= talk->tell_refusal_ns) {
        talk->has_told_refusal = true;
        talk->tell_refusal_ns = harpe_clock_ns() + TELL_REFUSAL_AGAIN_NS;
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                           "the schedule of round %lld is refused: %s; training runs at the "
                           "highest clock until a schedule with allowed clocks arrives",
                           (long long)talk->round, reason);
    }
    enter_round(optimizer);
    rest(optimizer, talk->refusal_pause_s);
    double longest_s = optimizer->timeouts.longest_pause_s;
    talk->refusal_pause_s =
        talk->refusal_pause_s * 2 < longest_s ? talk->refusal_pause_s * 2 : longest_s;
}

/* Hands a schedule over if this job may have its clocks. */
static void take_schedule(harpe_pipeline *optimizer, harpe_frequency_schedule *frequencies,
                          int64_t round) {
    harpe_allowed_clocks allowed = {optimizer->clocks_mhz, optimizer->clock_count,
                                    optimizer->options.lowest_clock_mhz};
    harpe_error error;
    if (harpe_schedule_check(frequencies, &allowed, &error) == HARPE_OK) {
        hand_over(optimizer, frequencies, round);
        return;
    }
    harpe_frequency_schedule_free(frequencies);
    refuse_schedule(optimizer, round, error.message);
}

/* The server may have given this rank a schedule that did not arrive. A request without a round
 * would then get the schedule after the lost one. So the rank first registers again: a rank that
 * has come back gets the current schedule. The published server does not know this. */
static void come_back(harpe_pipeline *optimizer) {
    optimizer->conversation.comes_back = true;
    enter(optimizer, HARPE_PFO_REGISTERING);
}

/* Asks again after a pause. Logs repeated refusals, because another process may be using this rank
 * of the job. */
static void request_was_refused(harpe_pipeline *optimizer, const char *reason) {
    harpe_conversation *talk = &optimizer->conversation;
    talk->has_no_round = true;
    talk->refused_requests++;
    if (talk->refused_requests >= REFUSED_REQUESTS_TOLD && !talk->has_told_refused_requests) {
        talk->has_told_refused_requests = true;
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                           "the server does not accept the request for a schedule, which is "
                           "repeated; does another process have this rank and job_key? %s",
                           reason);
    }
    come_back(optimizer);
    pause_and_try_again(optimizer);
}

static void ask_for_schedule(harpe_pipeline *optimizer) {
    harpe_conversation *talk = &optimizer->conversation;
    char query[64];
    int length = snprintf(query, sizeof query, "?rank=%d", optimizer->options.rank);
    bool has_round = talk->counts_rounds && !talk->has_no_round;
    if (has_round) {
        (void)snprintf(query + length, sizeof query - (size_t)length, "&round=%lld",
                       (long long)talk->round + 1);
    }
    harpe_request request = {
        .path = "/schedule/", .segment = optimizer->job_id, .query = query, .is_held = true};
    harpe_reply reply;
    harpe_frequency_schedule frequencies = {0};
    harpe_reply_with_schedule(talk->connection, &request, optimizer->options.rank, &frequencies,
                              &reply);
    bool is_lost = reply.outcome == HARPE_REPLY_AWAY || reply.outcome == HARPE_REPLY_INTERRUPTED;
    if (is_lost && !has_round) come_back(optimizer);
    if (has_connection_error(optimizer, &reply)) return;
    if (reply.outcome == HARPE_REPLY_GONE)
        register_anew(optimizer, reply.reason);
    else if (reply.outcome == HARPE_REPLY_CONFLICT)
        request_was_refused(optimizer, reply.reason);
    else
        take_schedule(optimizer, &frequencies, reply.round);
}

/* ---- Results --------------------------------------------------------------------------------- */

static int64_t value_of(const _Atomic int64_t *count) {
    return atomic_load_explicit(count, memory_order_relaxed);
}

/* Returns the counts since the start. */
static harpe_conduct counted_conduct(const harpe_conduct_counts *counts) {
    /* `steps` is read last and written first, so no other count is larger. */
    harpe_conduct conduct = {.is_known = true,
                             .misfits_measured = value_of(&counts->misfits_measured),
                             .misfits = value_of(&counts->misfits),
                             .as_planned = value_of(&counts->as_planned),
                             .disobeyed = value_of(&counts->disobeyed),
                             .lost = value_of(&counts->lost),
                             .left_out = value_of(&counts->left_out),
                             .wanted_mhz = value_of(&counts->wanted_mhz),
                             .held_mhz = value_of(&counts->held_mhz)};
    conduct.steps = value_of(&counts->steps);
    return conduct;
}

/* Returns the conduct since `before`. */
static harpe_conduct conduct_since(const harpe_conduct *now, const harpe_conduct *before) {
    harpe_conduct since = *now;
    since.steps -= before->steps;
    since.as_planned -= before->as_planned;
    since.misfits -= before->misfits;
    since.misfits_measured -= before->misfits_measured;
    since.disobeyed -= before->disobeyed;
    since.lost -= before->lost;
    since.impossible -= before->impossible;
    since.left_out -= before->left_out;
    if (since.disobeyed == 0) since.wanted_mhz = since.held_mhz = 0;
    return since;
}

/* Adds the conduct since the last report. If there is no memory, the next report has it. */
static void append_conduct(harpe_pipeline *optimizer, char **report) {
    harpe_profiler_conduct profiled = harpe_profiler_conduct_of(optimizer->profiler);
    harpe_conduct *told = &optimizer->conversation.told;
    harpe_conduct now = counted_conduct(&optimizer->conduct);
    now.lost += (int64_t)profiled.lost_steps;
    now.left_out += (int64_t)profiled.lost_steps;
    now.impossible = (int64_t)profiled.impossible;
    harpe_conduct since = conduct_since(&now, told);
    since.tokens_per_step = atomic_load_explicit(&optimizer->tokens_per_step, memory_order_relaxed);
    since.counter_j = profiled.energy.counter_j;
    since.power_j = profiled.energy.power_j;
    since.energy_uncertainty_j = profiled.energy.uncertainty_j;
    since.late_energy_j = profiled.energy.late_j;
    if (harpe_conduct_append(&since, report, NULL) == HARPE_OK) *told = now;
}

/* Makes a report, which the caller frees. With 0 steps the report says that there is no result. */
static harpe_status make_report(harpe_pipeline *optimizer, size_t steps, char **report,
                                harpe_error *error) {
    harpe_profiling_result result = {.rank = optimizer->options.rank};
    harpe_profiler_spans spans = {0};
    harpe_status status = HARPE_OK;
    if (steps > 0) {
        (void)harpe_profiler_copy_spans(optimizer->profiler, optimizer->conversation.series, steps,
                                        &spans);
        status =
            harpe_instruction_profiler_take(optimizer->profiler, optimizer->conversation.series,
                                            steps, optimizer->options.rank, &result, error);
    }
    if (status == HARPE_OK) status = harpe_profiling_result_format(&result, report, error);
    if (status == HARPE_OK) append_conduct(optimizer, report);
    if (status == HARPE_OK) harpe_pipeline_append_clocks(optimizer, &spans, report);
    harpe_profiler_spans_free(&spans);
    harpe_profiling_result_free(&result);
    return status;
}

/* Returns the number of steps to report. Halves the number after each failed attempt, because fewer
 * steps need less memory. After the time limit the result is empty, because the other ranks wait
 * for it. */
static size_t reported_steps(const harpe_pipeline *optimizer, size_t measured) {
    const harpe_conversation *talk = &optimizer->conversation;
    if (talk->failed_reports == 0 || measured == 0) return measured;
    double failing_s = (double)(harpe_clock_ns() - talk->failed_report_since_ns) * 1e-9;
    if (failing_s > optimizer->timeouts.report_s) return 0;
    size_t steps = talk->failed_reports < 32 ? measured >> talk->failed_reports : 0;
    return steps > 0 ? steps : 1;
}

static void report_has_failed(harpe_pipeline *optimizer, const char *reason) {
    harpe_conversation *talk = &optimizer->conversation;
    if (talk->failed_reports++ == 0) {
        talk->failed_report_since_ns = harpe_clock_ns();
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                           "a result cannot be made, fewer steps of round %lld are tried: %s",
                           (long long)talk->round, reason);
    }
    pause_and_try_again(optimizer);
}

/* Makes the report that is sent next. After a failure, the next call tries again with fewer
 * steps. */
static void conclude_measuring(harpe_pipeline *optimizer, size_t measured) {
    harpe_conversation *talk = &optimizer->conversation;
    size_t steps = reported_steps(optimizer, measured);
    harpe_error error;
    if (make_report(optimizer, steps, &talk->report, &error)) {
        report_has_failed(optimizer, error.message);
        return;
    }
    if (talk->failed_reports > 0 && steps == 0) {
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                           "this rank reports that it has no result of round %lld, so that the "
                           "job goes on",
                           (long long)talk->round);
    }
    talk->pause_s = optimizer->timeouts.first_pause_s;
    atomic_store_explicit(&optimizer->measured_series, -1, memory_order_relaxed);
    enter(optimizer, HARPE_PFO_REPORTING);
}

static void tell_few_steps(harpe_pipeline *optimizer, size_t steps) {
    harpe_conversation *talk = &optimizer->conversation;
    if (talk->has_told_few_steps) return;
    talk->has_told_few_steps = true;
    harpe_pipeline_say(optimizer, HARPE_LOG_WARNING,
                       "the profiler cannot keep so many steps: %zu are reported, fewer steps than "
                       "iterations asks for (%d); set iterations lower",
                       steps, optimizer->options.iterations);
}

static void measure(harpe_pipeline *optimizer) {
    harpe_conversation *talk = &optimizer->conversation;
    size_t wanted = (size_t)optimizer->options.iterations;
    size_t steps = harpe_instruction_profiler_step_count(optimizer->profiler, talk->series);
    bool has_forgotten = steps < talk->measured_steps;
    if (steps != talk->measured_steps) talk->progress_ns = harpe_clock_ns();
    talk->measured_steps = steps;
    if (steps >= wanted) {
        conclude_measuring(optimizer, wanted);
    } else if (has_forgotten) {
        /* The profiler has dropped steps. It would drop steps again before there were enough. */
        tell_few_steps(optimizer, steps);
        conclude_measuring(optimizer, steps);
    } else if (talk->has_left_schedule || talk->failed_reports > 0) {
        /* No more steps will arrive, or no more can be kept, and the other ranks wait for this
         * result. */
        conclude_measuring(optimizer, steps);
    } else {
        rest(optimizer, optimizer->timeouts.measuring_period_s);
    }
}

static void report(harpe_pipeline *optimizer) {
    harpe_conversation *talk = &optimizer->conversation;
    char query[32] = "";
    if (talk->counts_rounds)
        (void)snprintf(query, sizeof query, "?round=%lld", (long long)talk->round);
    harpe_request request = {
        .path = "/result/", .segment = optimizer->job_id, .query = query, .body = talk->report};
    harpe_reply reply;
    harpe_reply_to(talk->connection, &request, &reply);
    if (has_connection_error(optimizer, &reply)) return;
    if (reply.outcome == HARPE_REPLY_GONE) {
        register_anew(optimizer, reply.reason);
        return;
    }
    if (reply.outcome == HARPE_REPLY_CONFLICT && !talk->has_told_conflict) {
        talk->has_told_conflict = true;
        harpe_pipeline_say(optimizer, HARPE_LOG_WARNING, "the server did not accept a result: %s",
                           reply.reason);
    }
    free(talk->report);
    talk->report = NULL;
    talk->pause_s = optimizer->timeouts.first_pause_s;
    enter(optimizer, HARPE_PFO_WAITING);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Tells the server, if it can be reached, that the training of this rank has ended. A published
 * server does not know the route, so the answer is ignored. The training waits for this request. */
static void send_end_notice(harpe_pipeline *optimizer) {
    harpe_conversation *talk = &optimizer->conversation;
    char body[32];
    harpe_reply reply;
    harpe_pipeline_frequency_state state = optimizer->state;
    bool is_registered = *optimizer->job_id && (state != HARPE_PFO_REGISTERING || talk->comes_back);
    if (!is_registered || state == HARPE_PFO_OFF ||
        talk->connection_error != HARPE_CONNECTION_ERROR_NONE)
        return;
    (void)snprintf(body, sizeof body, "{\"rank\":%d}", optimizer->options.rank);
    harpe_request request = {
        .path = "/end/", .segment = optimizer->job_id, .query = "", .body = body};
    talk->end_notice_until_ns =
        harpe_clock_ns() + (int64_t)(optimizer->timeouts.end_notice_s * 1e9);
    harpe_reply_to(talk->connection, &request, &reply);
    if (reply.outcome != HARPE_REPLY_ANSWERED) {
        harpe_pipeline_say(optimizer, HARPE_LOG_DEBUG,
                           "the server does not know that this training ends: %s", reply.reason);
    }
}

/* ---- The thread ------------------------------------------------------------------------------ */

void *harpe_pipeline_run(void *user) {
    harpe_pipeline *optimizer = user;
    harpe_conversation *talk = &optimizer->conversation;
    talk->pause_s = talk->refusal_pause_s = optimizer->timeouts.first_pause_s;
    talk->random = (unsigned)harpe_clock_ns() ^ ((unsigned)optimizer->options.rank * 2654435761U);
    while (harpe_pipeline_go_on(optimizer)) {
        switch (optimizer->state) { /* only this thread writes `state` */
        case HARPE_PFO_REGISTERING:
            if (*optimizer->job_id)
                register_rank(optimizer);
            else
                register_job(optimizer);
            break;
        case HARPE_PFO_WAITING: ask_for_schedule(optimizer); break;
        case HARPE_PFO_MEASURING: measure(optimizer); break;
        case HARPE_PFO_REPORTING: report(optimizer); break;
        case HARPE_PFO_OFF: rest(optimizer, PAUSE_AFTER_FAILURE_S); break;
        }
    }
    send_end_notice(optimizer);
    return NULL;
}
