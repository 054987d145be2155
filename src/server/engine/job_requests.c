/* SPDX-License-Identifier: Apache-2.0 */
/* Job requests (a straggler, a power cap, a plan) and requests for the frontier. They reach the
 * scheduler independently of its rounds. Each of them waits until its turn can begin. A job request
 * is stored before the scheduler receives it, and the scheduler receives it again after a
 * restart. */
#include "server/engine/engine_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "pfo/fields.h"
#include "pfo/json_tree.h"

/* ---- Bodies ---------------------------------------------------------------------------------- */

enum { REQUEST_BODY_BYTES = 4096 };

typedef struct request_field {
    const char *name;
    harpe_scheduler_job_request kind;
    double minimum; /* the minimum itself is allowed, except 0 if `must_be_positive` */
    bool must_be_positive;
} request_field;

typedef struct request_body {
    harpe_call_kind call;
    harpe_scheduler_job_request kind;
    double value;
} request_body;

static const request_field slowdown_field = {"slowdown", HARPE_JOB_REQUEST_SLOWDOWN, 1, false};
static const request_field iteration_time_field = {"iteration_time",
                                                   HARPE_JOB_REQUEST_ITERATION_TIME, 0, true};
static const request_field watts_field = {"watts", HARPE_JOB_REQUEST_POWER_CAP, 0, false};
static const request_field time_field = {"time", HARPE_JOB_REQUEST_PLAN_TIME, 0, false};

static void read_field(harpe_fields *fields, size_t object, const harpe_place *place,
                       const request_field *field, request_body *out) {
    harpe_place member = harpe_place_member(place, field->name, strlen(field->name));
    size_t node = harpe_fields_find(fields, object, &member, true);
    double value;
    if (node == 0 || !harpe_value_double(fields, node, &member, &value)) return;
    if (!(value >= field->minimum) || value > 1e12) {
        harpe_fields_problem_context(
            fields, &member,
            value > 1e12 ? "value_error.number.not_le" : "value_error.number.not_ge",
            value > 1e12         ? "ensure this value is less than or equal to 1e12"
            : field->minimum > 0 ? "ensure this value is greater than or equal to 1"
                                 : "ensure this value is greater than or equal to 0",
            json_pack("{s:f}", "limit_value", value > 1e12 ? 1e12 : field->minimum));
        return;
    }
    if (field->must_be_positive && value <= 0) {
        harpe_fields_problem_context(fields, &member, "value_error.number.not_gt",
                                     "ensure this value is greater than 0",
                                     json_pack("{s:i}", "limit_value", 0));
        return;
    }
    out->kind = field->kind;
    out->value = value;
}

static void read_request(harpe_fields *fields, size_t object, const harpe_place *place, void *out) {
    harpe_call_kind call = ((const request_body *)out)->call;
    if (call != HARPE_CALL_STRAGGLER) {
        read_field(fields, object, place, call == HARPE_CALL_PLAN ? &time_field : &watts_field,
                   out);
        return;
    }
    bool has_time = harpe_json_member(fields->json, object, "iteration_time") != 0;
    if (has_time && harpe_json_member(fields->json, object, "slowdown") != 0) {
        harpe_fields_problem(fields, place, "value_error",
                             "give slowdown or iteration_time, not both");
        return;
    }
    read_field(fields, object, place, has_time ? &iteration_time_field : &slowdown_field, out);
}

static bool decode_request(const harpe_call *call, request_body *out, harpe_problems *problems) {
    if (call->length > REQUEST_BODY_BYTES) {
        harpe_problems_add(problems, json_pack("[s]", "body"), "value_error",
                           "a job request is a small object");
        return false;
    }
    *out = (request_body){.call = call->kind};
    return harpe_body_decode(call->body, call->length, read_request, out, problems);
}

/* The engine shows the cap that the scheduler was given last. */
static void note_cap(harpe_job *job, const harpe_stored_job_request *request) {
    if (request->kind == HARPE_JOB_REQUEST_POWER_CAP) job->power_cap_w = request->value;
}

/* ---- Waiting for a turn ---------------------------------------------------------------------- */

/* Answers the call and returns true if the job has no scheduler and will not get a scheduler. */
static bool has_no_scheduler(const harpe_job *job, harpe_call *call) {
    if (job->failure) {
        harpe_reply_detail(call, 500, "%s", job->failure);
    } else if (job->registered < job->info.world_size) {
        harpe_reply_detail(call, 409, "%d of %d ranks are registered: there is no plan yet",
                           job->registered, job->info.world_size);
    } else if (job->is_ready && !job->scheduler) {
        harpe_reply_detail(call, 409,
                           "the scheduler of this job has finished, and was not started again "
                           "after a restart of the server; its last schedules stay");
    } else {
        return false;
    }
    return true;
}

static void enqueue(harpe_job *job, harpe_call *call) {
    harpe_calls_append(&job->queue, call);
    call->held_by = job;
    harpe_job_wake(job);
}

void harpe_take_job_request(harpe_job *job, harpe_call *call) {
    harpe_problems problems = {0};
    request_body body;
    bool is_valid = decode_request(call, &body, &problems);
    if (!is_valid) harpe_reply_problems(call, &problems);
    harpe_problems_free(&problems);
    if (!is_valid || has_no_scheduler(job, call)) return;
    enqueue(job, call);
}

void harpe_take_frontier_request(harpe_job *job, harpe_call *call) {
    if (!has_no_scheduler(job, call)) enqueue(job, call);
}

/* ---- Passing a request to the scheduler ------------------------------------------------------ */

/* Answers the call of the turn. If the turn's work succeeded, the answer is the turn's `json`, or
 * null if this is NULL. */
static void answer(harpe_turn *turn) {
    harpe_operation *operation = &turn->operation;
    harpe_call *call = harpe_operation_take_call(operation);
    char *json = turn->json;
    if (operation->status != HARPE_OK) {
        harpe_reply_detail(call, harpe_http_status_of(operation->status), "%s",
                           operation->error->message);
        return;
    }
    turn->json = NULL;
    if (json)
        harpe_reply(call, 200, json, strlen(json), -1);
    else
        harpe_reply_null(call, -1);
}

static void make_request(harpe_operation *operation) {
    harpe_turn *turn = operation->job->turn;
    harpe_scheduler *scheduler = operation->job->scheduler;
    const harpe_frequency_schedule *schedules = NULL;
    operation->status = harpe_scheduler_handle_request(scheduler, turn->request.kind,
                                                       turn->request.value, &turn->error);
    if (operation->status != HARPE_OK) return;
    turn->is_taken = true;
    if (turn->wants_next)
        operation->status = harpe_scheduler_next(scheduler, &schedules, &turn->error);
    if (operation->status == HARPE_OK)
        operation->status = harpe_turn_conclude(turn, scheduler, schedules);
}

static void request_is_made(harpe_operation *operation) {
    harpe_job *job = operation->job;
    harpe_turn *turn = job->turn;
    if (operation->status == HARPE_NOT_SUPPORTED) job->refuses_job_requests = true;
    answer(turn);
    if (turn->is_taken) note_cap(job, &turn->request);
    if (operation->status != HARPE_OK && turn->is_taken) {
        harpe_turn_fail_job(turn);
        return;
    }
    if (turn->is_taken) harpe_apply_turn(turn);
    harpe_turn_end(turn);
}

static void request_is_stored(harpe_operation *operation) {
    harpe_turn *turn = operation->job->turn;
    if (operation->status == HARPE_OK && !operation->jobs->is_stopping) {
        operation->error = &turn->error;
        harpe_turn_run(turn, make_request, request_is_made);
        return;
    }
    harpe_reply_detail(harpe_operation_take_call(operation), 503, "%s",
                       operation->status != HARPE_OK ? operation->error->message
                                                     : "the server is stopping: try again");
    harpe_turn_end(turn);
}

/* The stored text is "VALUE within" if the job request came while its round ran. It is "VALUE
 * before" if the request came before the round was handed out. */
static void store_request(harpe_turn *turn) {
    harpe_operation *operation = &turn->operation;
    harpe_text text = {0};
    harpe_text_number(&text, turn->request.value);
    harpe_text_printf(&text, " %s", turn->request.is_within_round ? "within" : "before");
    turn->text = text.data;
    if (text.failed) {
        harpe_reply_out_of_memory(harpe_operation_take_call(operation));
        harpe_turn_end(turn);
        return;
    }
    operation->change = (harpe_change){.round = turn->request.round,
                                       .number = turn->request.kind,
                                       .text = text.data,
                                       .length = text.length};
    harpe_operation_store(operation, HARPE_CHANGE_JOB_REQUEST, request_is_stored);
}

harpe_status harpe_job_read_request(harpe_job *job, const harpe_change *record,
                                    harpe_error *error) {
    const char *space = memchr(record->text, ' ', record->length);
    harpe_stored_job_request request = {.kind = (harpe_scheduler_job_request)record->number,
                                        .round = record->round};
    if (!space ||
        !harpe_parse_double(record->text, (size_t)(space - record->text), &request.value)) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: a stored job request cannot be read",
                          job->id);
    }
    request.is_within_round = space + 1 < record->text + record->length && space[1] == 'w';
    if (!HARPE_ARRAY_RESERVE(job->requests, job->request_capacity, job->request_count + 1))
        return harpe_fail_memory(error);
    job->requests[job->request_count++] = request;
    note_cap(job, &request);
    return HARPE_OK;
}

/* ---- The frontier ---------------------------------------------------------------------------- */

static void read_frontier(harpe_operation *operation) {
    harpe_turn *turn = operation->job->turn;
    const harpe_scheduler *scheduler = operation->job->scheduler;
    operation->status =
        turn->is_pipeline
            ? harpe_scheduler_pipeline(scheduler, operation->round, &turn->json, &turn->error)
            : harpe_scheduler_frontier(scheduler, &turn->json, &turn->error);
}

static void frontier_is_read(harpe_operation *operation) {
    harpe_turn *turn = operation->job->turn;
    answer(turn);
    harpe_turn_end(turn);
}

/* ---- The next in the queue ------------------------------------------------------------------- */

bool harpe_call_only_reads(const harpe_call *call) {
    return call->kind == HARPE_CALL_FRONTIER || call->kind == HARPE_CALL_PIPELINE;
}

static void begin_frontier(harpe_job *job, harpe_call *call) {
    bool is_pipeline = call->kind == HARPE_CALL_PIPELINE;
    harpe_turn *turn = harpe_turn_new(job, call);
    if (!turn) return;
    turn->only_reads = true;
    turn->is_pipeline = is_pipeline;
    harpe_turn_run(turn, read_frontier, frontier_is_read);
}

static void begin_job_request(harpe_job *job, harpe_call *call) {
    request_body body;
    harpe_problems problems = {0};
    /* The body was valid when the call was queued. */
    bool is_valid = decode_request(call, &body, &problems);
    harpe_problems_free(&problems);
    if (!is_valid) {
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_turn *turn = harpe_turn_new(job, call);
    if (!turn) return;
    turn->request = (harpe_stored_job_request){body.kind, body.value, job->round + turn->is_over,
                                               !turn->is_over};
    turn->wants_next = turn->is_over || job->is_finished;
    store_request(turn);
}

void harpe_begin_queued(harpe_job *job) {
    harpe_call *call = harpe_calls_take_first(&job->queue);
    call->held_by = NULL;
    if (has_no_scheduler(job, call)) {
        harpe_job_wake(job);
        return;
    }
    if (job->refuses_job_requests && !harpe_call_only_reads(call)) {
        harpe_reply_detail(call, 409, "%s serves one plan and accepts no job requests",
                           harpe_scheduler_kind_name(job->jobs->options.scheduler));
        harpe_job_wake(job);
        return;
    }
    if (harpe_call_only_reads(call))
        begin_frontier(job, call);
    else
        begin_job_request(job, call);
}
