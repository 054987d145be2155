/* SPDX-License-Identifier: Apache-2.0 */
/* A stream is asking (its call waits for a change), sending (an event, or a sign of life), or both;
 * an event that comes while something is being sent waits for it. */
#include "server/events.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

enum {
    STREAMS_MAX = 50,
    TURN_AFTER_MS = 20,     /* lists of all jobs are long: one at a time, with pauses for others */
    TURN_LIMIT_MS = 1000,   /* a slower reader does not delay the others any longer */
    ALIVE_EVERY_MS = 15000, /* proxies close what is silent for long */
};

typedef struct stream {
    harpe_call call; /* first; asks for the next change */
    harpe_events *events;
    struct stream *previous, *next;
    harpe_http_request *request;
    harpe_text waiting; /* an event that waits for the piece before it to be out */
    bool is_asking, has_begun, is_sending;
    bool has_turn; /* to be told of all jobs; without one it waits */
    bool is_over;  /* to be ended once all is out */
} stream;

struct harpe_events {
    harpe_peers *peers; /* NULL: left */
    harpe_loop *loop;
    harpe_timer *alive_timer;
    stream *first;
    int count;
    bool is_turn_taken;
    harpe_timer *turn_timer;
};

/* ---- Turns -------------------------------------------------------------------------------- */

static void ask(stream *self);

static bool wants_all(const stream *self) { return !self->call.job_id && self->call.round < 0; }

static void give_turn(void *user) {
    harpe_events *events = user;
    events->turn_timer = NULL;
    events->is_turn_taken = false;
    for (stream *slow = events->first; slow; slow = slow->next)
        slow->has_turn = false;
    for (stream *next = events->first; next; next = next->next) {
        if (next->is_asking || next->has_begun || !wants_all(next)) continue;
        ask(next);
        return;
    }
}

static void end_turn(stream *self) {
    harpe_events *events = self->events;
    if (!self->has_turn) return;
    self->has_turn = false;
    harpe_timer_cancel(events->turn_timer);
    events->turn_timer = NULL;
    if (harpe_loop_after(events->loop, TURN_AFTER_MS, give_turn, events, &events->turn_timer, NULL))
        events->is_turn_taken = false; /* out of memory: whoever comes next has one */
}

/* ---- Answering ---------------------------------------------------------------------------- */

static void free_stream(stream *self) {
    harpe_events *events = self->events;
    end_turn(self);
    if (self->previous)
        self->previous->next = self->next;
    else
        events->first = self->next;
    if (self->next) self->next->previous = self->previous;
    events->count--;
    harpe_text_free(&self->waiting);
    free(self->call.job_id);
    free(self);
}

/* Instead of a stream, or as its end. */
static void end(stream *self) {
    static char nothing[] = "{\"detail\":\"the server cannot tell now: try again later\"}";
    harpe_http_set_data(self->request, NULL);
    if (self->has_begun)
        harpe_http_stream_end(self->request);
    else
        harpe_http_answer(self->request, 503, "application/json", nothing, strlen(nothing), false,
                          NULL);
    free_stream(self);
}

static void refuse(stream *self, const harpe_call_answer *answer) {
    harpe_http_set_data(self->request, NULL);
    harpe_http_answer(self->request, answer->http_status, "application/json", answer->body,
                      answer->length, true, NULL);
    free_stream(self);
}

/* Takes the text over. */
static void send_piece(stream *self, harpe_text *text) {
    static const harpe_http_header_field headers[] = {
        {"cache-control", "no-store"}, {"x-accel-buffering", "no"}, {NULL, NULL}};
    char *piece = text->data;
    size_t length = text->length;
    *text = (harpe_text){0};
    self->has_begun = self->is_sending = true;
    harpe_http_stream(self->request, "text/event-stream", piece, length, headers);
}

/* ---- Asking ------------------------------------------------------------------------------- */

static void put_event(harpe_text *text, const char *name, const harpe_call_answer *answer) {
    harpe_text_printf(text, "event: %s\n", name);
    if (answer->round >= 0) harpe_text_printf(text, "id: %lld\n", (long long)answer->round);
    harpe_text_append(text, "data: ", strlen("data: "));
    harpe_text_append(text, answer->body, answer->length); /* JSON, in one line */
    harpe_text_append(text, "\n\n", 2);
}

/* A stream that cannot go on ends with the reason; whoever still looks comes again. */
static void on_answer(harpe_call *call, const harpe_call_answer *answer) {
    stream *self = (stream *)call;
    bool is_good = answer->http_status == 200 && answer->body;
    self->is_asking = false;
    if (!is_good && !self->has_begun && answer->body) {
        refuse(self, answer);
        return;
    }
    if (answer->body)
        put_event(&self->waiting, is_good ? call->job_id ? "job" : "jobs" : "end", answer);
    free(answer->body);
    call->round = answer->round;
    self->is_over = !is_good || self->waiting.failed;
    if (self->is_sending) return;
    if (self->waiting.data && !self->waiting.failed)
        send_piece(self, &self->waiting);
    else
        end(self);
}

static void ask(stream *self) {
    if (wants_all(self)) {
        if (self->events->is_turn_taken) return;
        self->events->is_turn_taken = self->has_turn = true;
        harpe_timer_cancel(self->events->turn_timer);
        self->events->turn_timer = NULL;
        (void)harpe_loop_after(self->events->loop, TURN_LIMIT_MS, give_turn, self->events,
                               &self->events->turn_timer, NULL);
    }
    self->is_asking = true;
    if (self->events->peers)
        harpe_peers_handle(self->events->peers, &self->call);
    else
        end(self);
}

void harpe_events_sent(void *data) {
    stream *self = data;
    self->is_sending = false;
    end_turn(self);
    if (self->waiting.data && !self->waiting.failed)
        send_piece(self, &self->waiting);
    else if (self->is_over)
        end(self);
    else if (!self->is_asking)
        ask(self);
}

void harpe_events_gone(void *data) {
    stream *self = data;
    if (self->is_asking && self->events->peers)
        harpe_peers_forget(self->events->peers, &self->call);
    free_stream(self);
}

bool harpe_events_owns(const void *data) {
    return ((const harpe_call *)data)->kind == HARPE_CALL_CHANGES;
}

/* ---- Signs of life ------------------------------------------------------------------------ */

static void send_life(stream *self) {
    harpe_text comment = {0};
    harpe_text_append(&comment, ":\n\n", 3);
    if (comment.failed || !harpe_http_wants_body(self->request)) harpe_text_free(&comment);
    send_piece(self, &comment);
}

static void show_life(void *user) {
    harpe_events *events = user;
    events->alive_timer = NULL;
    for (stream *self = events->first; self; self = self->next) {
        if (!self->is_sending && self->has_begun) send_life(self);
    }
    if (events->first)
        (void)harpe_loop_after(events->loop, ALIVE_EVERY_MS, show_life, events,
                               &events->alive_timer, NULL);
}

/* ---- Streams ------------------------------------------------------------------------------ */

static stream *add_stream(harpe_events *events, harpe_http_request *request, const char *job_id) {
    stream *self = harpe_calloc(1, sizeof *self);
    char *id = job_id ? strdup(job_id) : NULL;
    if (!self || (job_id && !id)) {
        free(self);
        free(id);
        return NULL;
    }
    self->call = (harpe_call){
        .kind = HARPE_CALL_CHANGES, .job_id = id, .rank = -1, .round = -1, .answer = on_answer};
    self->events = events;
    self->request = request;
    self->next = events->first;
    if (self->next) self->next->previous = self;
    events->first = self;
    events->count++;
    return self;
}

void harpe_events_open(harpe_events *events, harpe_http_request *request, const char *job_id) {
    static char many[] = "{\"detail\":\"too many look on already: close one or try again later\"}";
    stream *self = events->count < STREAMS_MAX ? add_stream(events, request, job_id) : NULL;
    if (!self) {
        harpe_http_answer(request, 503, "application/json", many, strlen(many), false, NULL);
        return;
    }
    const char *last = harpe_http_header(request, "last-event-id");
    if (last) (void)harpe_parse_int(last, strlen(last), &self->call.round);
    harpe_http_set_data(request, self);
    if (!events->alive_timer)
        (void)harpe_loop_after(events->loop, ALIVE_EVERY_MS, show_life, events,
                               &events->alive_timer, NULL);
    bool wants_body = harpe_http_wants_body(request);
    self->is_over = !wants_body;
    /* Who knows all may hear nothing for long, but shall know that it listens. */
    if (!wants_body || self->call.round >= 0) send_life(self);
    if (wants_body) ask(self);
}

harpe_events *harpe_events_new(harpe_loop *loop, harpe_peers *peers) {
    harpe_events *events = harpe_calloc(1, sizeof *events);
    if (!events) return NULL;
    events->loop = loop;
    events->peers = peers;
    return events;
}

void harpe_events_leave_peers(harpe_events *events) { events->peers = NULL; }

void harpe_events_free(harpe_events *events) {
    if (!events) return;
    harpe_timer_cancel(events->alive_timer);
    harpe_timer_cancel(events->turn_timer);
    free(events);
}
