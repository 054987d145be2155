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
#include "pfo/documents.h"
#include "pfo/fields.h"
#include "pfo/json_look.h"

/* ---- Bodies ---------------------------------------------------------------------------------- */

enum { REQUEST_BODY_BYTES = 4096 };

typedef struct request_body {
    harpe_scheduler_job_request kind;
    double value;
} request_body;

typedef struct request_field {
    const char *name;
    harpe_scheduler_job_request kind;
    double minimum; /* the minimum itself is allowed, except 0 if `must_be_positive` */
    bool must_be_positive;
} request_field;

static const request_field slowdown_field = {"slowdown", HARPE_JOB_REQUEST_SLOWDOWN, 1, false};
static const request_field iteration_time_field = {"iteration_time",
                                                   HARPE_JOB_REQUEST_ITERATION_TIME, 0, true};
static const request_field watts_field = {"watts", HARPE_JOB_REQUEST_POWER_CAP, 0, false};
static const request_field time_field = {"time", HARPE_JOB_REQUEST_PLAN_TIME, 0, false};

static void read_field(harpe_fields *fields, size_t object, const harpe_place *place,
                       const request_field *field, request_body *out) {
    harpe_place member = harpe_place_member(place, field->name, strlen(field->name));
    size_t node = harpe_json_member(fields->json, object, field->name);
    if (node == 0) {
        harpe_fields_problem(fields, &member, "value_error.missing", "field required");
        return;
    }
    double value;
    if (!harpe_value_double(fields, node, &member, &value)) return;
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
    *out = (request_body){field->kind, value};
}

static void read_straggler(harpe_fields *fields, size_t object, const harpe_place *place,
                           void *out) {
    bool has_time = harpe_json_member(fields->json, object, "iteration_time") != 0;
    if (has_time && harpe_json_member(fields->json, object, "slowdown") != 0) {
        harpe_fields_problem(fields, place, "value_error",
                             "give slowdown or iteration_time, not both");
        return;
    }
    read_field(fields, object, place, has_time ? &iteration_time_field : &slowdown_field, out);
}

static void read_power_cap(harpe_fields *fields, size_t object, const harpe_place *place,
                           void *out) {
    read_field(fields, object, place, &watts_field, out);
}

static void read_plan(harpe_fields *fields, size_t object, const harpe_place *place, void *out) {
    read_field(fields, object, place, &time_field, out);
}

static bool decode_request(const harpe_call *call, request_body *out, harpe_problems *problems) {
    harpe_model_read *read = call->kind == HARPE_CALL_STRAGGLER   ? read_straggler
                             : call->kind == HARPE_CALL_POWER_CAP ? read_power_cap
                                                                  : read_plan;
    if (call->length > REQUEST_BODY_BYTES) {
        harpe_problems_add(problems, json_pack("[s]", "body"), "value_error",
                           "a job request is a small object");
        return false;
    }
    return harpe_body_decode(call->body, call->length, read, out, problems);
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

typedef struct request_turn {
    harpe_turn turn;
    char text[96]; /* of the change */
    harpe_stored_job_request request;
    bool wants_next; /* the scheduler is asked for new schedules in the same turn */
    bool is_taken;   /* the scheduler has accepted the request; written by the worker */
    harpe_turn_outcome outcome;
} request_turn;

static void free_request_turn(harpe_operation *operation) {
    harpe_turn_outcome_clear(&((request_turn *)operation)->outcome);
}

/* Answers the call of the turn. With status 200 the answer is `json`, or null if `json` is NULL.
 * Otherwise it is the error `detail`. Takes over `json`. */
static void answer(harpe_turn *turn, int http_status, char *json, const char *detail) {
    harpe_call *call = harpe_operation_take_call(&turn->operation);
    if (http_status != 200)
        harpe_reply_detail(call, http_status, "%s", detail);
    else if (!json)
        harpe_reply_null(call, -1);
    else
        harpe_reply(call, 200, json, strlen(json), -1);
    if (http_status != 200) free(json);
}

static void make_request(void *user) {
    request_turn *self = user;
    harpe_turn *turn = &self->turn;
    harpe_scheduler *scheduler = turn->operation.job->scheduler;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_error *error = &turn->error;
    turn->status =
        harpe_scheduler_handle_request(scheduler, self->request.kind, self->request.value, error);
    if (turn->status != HARPE_OK) return;
    self->is_taken = true;
    if (self->wants_next) turn->status = harpe_scheduler_next(scheduler, &schedules, error);
    if (turn->status == HARPE_OK)
        turn->status = harpe_turn_conclude(turn, &self->outcome, scheduler, schedules);
}

static void request_is_made(void *user) {
    request_turn *self = user;
    harpe_turn *turn = &self->turn;
    harpe_job *job = turn->operation.job;
    job->users--;
    if (job->is_evicted) {
        harpe_reply_evicted(harpe_operation_take_call(&turn->operation), job->id);
        harpe_turn_end(turn);
        return;
    }
    if (turn->status == HARPE_NOT_SUPPORTED) job->refuses_job_requests = true;
    int http_status = turn->status == HARPE_OK ? 200 : harpe_http_status_of(turn->status);
    answer(turn, http_status, NULL, turn->error.message);
    if (self->is_taken) note_cap(job, &self->request);
    if (turn->status != HARPE_OK && self->is_taken) {
        harpe_turn_fail_job(turn);
        return;
    }
    if (self->is_taken) harpe_apply_turn(turn, &self->outcome);
    harpe_turn_end(turn);
}

static void request_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_turn *turn = user;
    if (status != HARPE_OK || turn->operation.job->jobs->is_stopping) {
        answer(turn, 503, NULL,
               status != HARPE_OK ? error->message : "the server is stopping: try again");
        harpe_turn_end(turn);
        return;
    }
    harpe_turn_run(turn, make_request, request_is_made);
}

/* The stored text is "VALUE within" if the job request came while its round ran. It is "VALUE
 * before" if the request came before the round was handed out. */
static void store_request(request_turn *self) {
    harpe_turn *turn = &self->turn;
    harpe_text text = {0};
    harpe_text_number(&text, self->request.value);
    (void)snprintf(self->text, sizeof self->text, "%s %s", text.data ? text.data : "",
                   self->request.is_within_round ? "within" : "before");
    bool has_failed = text.failed;
    harpe_text_free(&text);
    if (has_failed) {
        answer(turn, 503, NULL, "the server is out of memory: try again later");
        harpe_turn_end(turn);
        return;
    }
    turn->operation.change = (harpe_change){.round = self->request.round,
                                            .number = self->request.kind,
                                            .text = self->text,
                                            .length = strlen(self->text)};
    harpe_operation_store(&turn->operation, HARPE_CHANGE_JOB_REQUEST, request_is_stored);
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

typedef struct frontier_turn {
    harpe_turn turn;
    bool is_pipeline; /* true: reads a pipeline; false: reads the frontier */
    int64_t number;   /* of the pipeline */
    char *json;       /* written by the worker */
} frontier_turn;

static void free_frontier_turn(harpe_operation *operation) {
    free(((frontier_turn *)operation)->json);
}

static void read_frontier(void *user) {
    frontier_turn *self = user;
    harpe_turn *turn = &self->turn;
    const harpe_scheduler *scheduler = turn->operation.job->scheduler;
    turn->status =
        self->is_pipeline
            ? harpe_scheduler_pipeline(scheduler, self->number, &self->json, &turn->error)
            : harpe_scheduler_frontier(scheduler, &self->json, &turn->error);
}

static void frontier_is_read(void *user) {
    frontier_turn *self = user;
    harpe_turn *turn = &self->turn;
    char *json = self->json;
    turn->operation.job->users--;
    self->json = NULL;
    int http_status = turn->status == HARPE_OK ? 200 : harpe_http_status_of(turn->status);
    answer(turn, http_status, json, turn->error.message);
    harpe_turn_end(turn);
}

/* ---- The next in the queue ------------------------------------------------------------------- */

bool harpe_call_only_reads(const harpe_call *call) {
    return call->kind == HARPE_CALL_FRONTIER || call->kind == HARPE_CALL_PIPELINE;
}

static void begin_frontier(harpe_job *job, harpe_call *call) {
    bool is_pipeline = call->kind == HARPE_CALL_PIPELINE;
    int64_t number = call->round;
    frontier_turn *self = harpe_turn_new(job, call, sizeof *self, free_frontier_turn);
    if (!self) return;
    self->turn.only_reads = true;
    self->is_pipeline = is_pipeline;
    self->number = number;
    harpe_turn_run(&self->turn, read_frontier, frontier_is_read);
}

static void begin_job_request(harpe_job *job, harpe_call *call) {
    request_body body = {0};
    harpe_problems problems = {0};
    /* The body was valid when the call was queued. */
    bool is_valid = decode_request(call, &body, &problems);
    harpe_problems_free(&problems);
    if (!is_valid) {
        harpe_reply_out_of_memory(call);
        return;
    }
    request_turn *self = harpe_turn_new(job, call, sizeof *self, free_request_turn);
    if (!self) return;
    bool is_over = self->turn.is_over;
    self->request =
        (harpe_stored_job_request){body.kind, body.value, job->round + is_over, !is_over};
    self->wants_next = is_over || job->is_finished;
    store_request(self);
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
