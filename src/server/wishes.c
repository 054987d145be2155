/* SPDX-License-Identifier: Apache-2.0 */
/* Wishes (a straggler, a power cap, a plan) and the frontier: what reaches a scheduler from outside
 * of its rounds. Each waits for its turn with the scheduler; a wish is stored before it is told,
 * and told again after a restart. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"
#include "pfo/fields.h"
#include "server/job.h"

/* ---- Bodies ------------------------------------------------------------------------------- */

enum { WISH_BODY_BYTES = 4096 };

typedef struct wish_body {
    harpe_scheduler_wish wish;
    double value;
} wish_body;

typedef struct wish_field {
    const char *name;
    harpe_scheduler_wish wish;
    double minimum; /* inclusive, or exclusive where it is 0 and `must_be_positive` */
    bool must_be_positive;
} wish_field;

static const wish_field slowdown_field = {"slowdown", HARPE_WISH_SLOWDOWN, 1, false};
static const wish_field iteration_time_field = {"iteration_time", HARPE_WISH_ITERATION_TIME, 0,
                                                true};
static const wish_field watts_field = {"watts", HARPE_WISH_POWER_CAP, 0, false};
static const wish_field time_field = {"time", HARPE_WISH_PLAN_TIME, 0, false};

static void read_field(harpe_fields *fields, size_t object, const harpe_place *place,
                       const wish_field *field, wish_body *out) {
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
    *out = (wish_body){field->wish, value};
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

static bool decode_wish(const harpe_call *call, wish_body *out, harpe_problems *problems) {
    harpe_model_read *read = call->kind == HARPE_CALL_STRAGGLER   ? read_straggler
                             : call->kind == HARPE_CALL_POWER_CAP ? read_power_cap
                                                                  : read_plan;
    if (call->length > WISH_BODY_BYTES) {
        harpe_problems_add(problems, json_pack("[s]", "body"), "value_error",
                           "a wish is a small object");
        return false;
    }
    return harpe_body_decode(call->body, call->length, read, out, problems);
}

/* ---- Waiting for a turn ------------------------------------------------------------------- */

/* Answers where there is no scheduler to talk to, nor will be. */
static bool has_no_scheduler(const harpe_job *job, harpe_call *call) {
    if (job->failure) {
        harpe_reply_detail(call, 500, "%s", job->failure);
    } else if (job->registered < job->info.world_size) {
        harpe_reply_detail(call, 409, "%d of %d ranks are registered: there is no plan yet",
                           job->registered, job->info.world_size);
    } else if (job->is_ready && !job->scheduler) {
        harpe_reply_detail(call, 409,
                           "the scheduler of this job has finished and is gone since a restart of "
                           "the server; its last schedules go on");
    } else {
        return false;
    }
    return true;
}

static void enqueue(harpe_job *job, harpe_call *call) {
    harpe_calls_append(&job->queue, call);
    call->held_by = job;
    harpe_job_advance(job);
}

void harpe_take_wish(harpe_job *job, harpe_call *call) {
    harpe_problems problems = {0};
    wish_body body;
    bool is_valid = decode_wish(call, &body, &problems);
    if (!is_valid) harpe_reply_problems(call, &problems);
    harpe_problems_free(&problems);
    if (!is_valid || has_no_scheduler(job, call)) return;
    enqueue(job, call);
}

void harpe_take_frontier_call(harpe_job *job, harpe_call *call) {
    if (!has_no_scheduler(job, call)) enqueue(job, call);
}

/* ---- Telling the scheduler ---------------------------------------------------------------- */

/* Ends a turn with a call and then answers that. */
static void end_with(harpe_turn *turn, int http_status, const char *detail) {
    harpe_operation *carrier = turn->carrier;
    harpe_call *call = harpe_operation_release(carrier);
    if (http_status != 200)
        harpe_reply_detail(call, http_status, "%s", detail);
    else if (!turn->json)
        harpe_reply_null(call, -1);
    else
        harpe_reply(call, 200, turn->json, strlen(turn->json), -1);
    if (http_status == 200) turn->json = NULL;
    harpe_operation_end(carrier);
}

static void tell_wish(void *user) {
    harpe_turn *turn = user;
    harpe_scheduler *scheduler = turn->job->scheduler;
    const harpe_frequency_schedule *schedules = NULL;
    harpe_error *error = &turn->error;
    turn->status = harpe_scheduler_wish_for(scheduler, turn->wish.wish, turn->wish.value, error);
    if (turn->status) return;
    turn->is_told = true;
    if (turn->wants_next) turn->status = harpe_scheduler_next(scheduler, &schedules, error);
    if (!turn->status) turn->status = harpe_turn_conclude(turn, scheduler, schedules);
}

static void wish_is_told(void *user) {
    harpe_turn *turn = user;
    harpe_job *job = turn->job;
    job->users--;
    if (job->is_evicted) {
        harpe_reply_evicted(harpe_operation_release(turn->carrier), job->id);
        harpe_operation_end(turn->carrier);
        harpe_turn_end(turn);
        return;
    }
    if (turn->status == HARPE_NOT_SUPPORTED) job->knows_no_wishes = true;
    int http_status = turn->status == HARPE_OK ? 200 : harpe_http_status_of(turn->status);
    end_with(turn, http_status, turn->error.message);
    if (turn->status && turn->is_told) {
        harpe_turn_fail_job(turn, &turn->error);
        return;
    }
    if (turn->is_told) harpe_turn_take_lesson(turn);
    harpe_turn_end(turn);
}

static void wish_is_stored(void *user, harpe_status status, const harpe_error *error) {
    harpe_turn *turn = user;
    if (status || turn->jobs->is_stopping) {
        end_with(turn, 503, status ? error->message : "the server is stopping: try again");
        harpe_turn_end(turn);
        return;
    }
    harpe_turn_run(turn, tell_wish, wish_is_told);
}

/* Stored as "VALUE within" or "VALUE before": a wish that came while its round ran, or before it
 * was handed out. */
static void store_wish(harpe_turn *turn) {
    harpe_text text = {0};
    harpe_text_number(&text, turn->wish.value);
    (void)snprintf(turn->text, sizeof turn->text, "%s %s", text.data ? text.data : "",
                   turn->wish.is_within_round ? "within" : "before");
    bool has_failed = text.failed;
    harpe_text_free(&text);
    if (has_failed) {
        end_with(turn, 503, "the server is out of memory: try again later");
        harpe_turn_end(turn);
        return;
    }
    turn->change = (harpe_change){.kind = HARPE_CHANGE_WISH,
                                  .job_id = turn->job->id,
                                  .round = turn->wish.round,
                                  .number = turn->wish.wish,
                                  .text = turn->text,
                                  .length = strlen(turn->text),
                                  .done = wish_is_stored,
                                  .user = turn};
    harpe_store_submit(turn->jobs->options.store, &turn->change);
}

harpe_status harpe_job_read_wish(harpe_job *job, const harpe_change *record, harpe_error *error) {
    const char *space = memchr(record->text, ' ', record->length);
    harpe_stored_wish wish = {.wish = (harpe_scheduler_wish)record->number, .round = record->round};
    if (!space || !harpe_parse_double(record->text, (size_t)(space - record->text), &wish.value)) {
        return harpe_fail(error, HARPE_INVALID_INPUT, "%s: a stored wish cannot be read", job->id);
    }
    wish.is_within_round = space + 1 < record->text + record->length && space[1] == 'w';
    if (!HARPE_ARRAY_RESERVE(job->wishes, job->wish_capacity, job->wish_count + 1)) {
        return harpe_fail_memory(error);
    }
    job->wishes[job->wish_count++] = wish;
    return HARPE_OK;
}

/* ---- The frontier ------------------------------------------------------------------------- */

static void read_frontier(void *user) {
    harpe_turn *turn = user;
    const harpe_scheduler *scheduler = turn->job->scheduler;
    turn->status =
        turn->is_pipeline
            ? harpe_scheduler_pipeline(scheduler, turn->carrier->round, &turn->json, &turn->error)
            : harpe_scheduler_frontier(scheduler, &turn->json, &turn->error);
}

static void frontier_is_read(void *user) {
    harpe_turn *turn = user;
    turn->job->users--;
    int http_status = turn->status == HARPE_OK ? 200 : harpe_http_status_of(turn->status);
    end_with(turn, http_status, turn->error.message);
    harpe_turn_end(turn);
}

/* ---- The next in the queue ---------------------------------------------------------------- */

bool harpe_call_only_looks(const harpe_call *call) {
    return call->kind == HARPE_CALL_FRONTIER || call->kind == HARPE_CALL_PIPELINE;
}

static void begin_turn(harpe_job *job, harpe_turn *turn, harpe_call *call) {
    wish_body body = {0};
    harpe_problems problems = {0};
    if (harpe_call_only_looks(call)) {
        turn->is_pipeline = call->kind == HARPE_CALL_PIPELINE;
        turn->carrier = harpe_operation_new(job->jobs, job, call);
        if (turn->carrier)
            harpe_turn_run(turn, read_frontier, frontier_is_read);
        else
            harpe_turn_end(turn);
        return;
    }
    /* It was valid when it was queued. */
    bool is_valid = decode_wish(call, &body, &problems);
    harpe_problems_free(&problems);
    turn->carrier = is_valid ? harpe_operation_new(job->jobs, job, call) : NULL;
    if (!is_valid) harpe_reply_out_of_memory(call);
    if (!turn->carrier) {
        harpe_turn_end(turn);
        return;
    }
    turn->wish =
        (harpe_stored_wish){body.wish, body.value, job->round + turn->is_over, !turn->is_over};
    turn->wants_next = turn->is_over || job->is_finished;
    store_wish(turn);
}

void harpe_begin_queued(harpe_job *job) {
    harpe_call *call = harpe_calls_take_first(&job->queue);
    call->held_by = NULL;
    if (has_no_scheduler(job, call)) {
        harpe_job_advance(job);
        return;
    }
    if (job->knows_no_wishes && !harpe_call_only_looks(call)) {
        harpe_reply_detail(call, 409, "%s serves one plan and takes no wishes",
                           harpe_scheduler_kind_name(job->jobs->options.scheduler));
        harpe_job_advance(job);
        return;
    }
    harpe_turn_kind kind = harpe_call_only_looks(call) ? HARPE_TURN_FRONTIER : HARPE_TURN_WISH;
    harpe_turn *turn = harpe_turn_new(job, kind);
    if (turn)
        begin_turn(job, turn, call);
    else
        harpe_reply_out_of_memory(call);
}
