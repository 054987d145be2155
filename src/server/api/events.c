/* SPDX-License-Identifier: Apache-2.0 */
/* A stream asks for a change with a call that waits. It sends events, and comments that show that
 * the server is alive. It can ask and send at the same time: an event that comes while the stream
 * sends is sent afterwards. The first event of all jobs may be long, so it is made in pieces. The
 * stream asks for each piece a moment after the previous piece was sent, which leaves most of the
 * loop's time to other work. Changes that happen meanwhile are in the next event. */
#include "server/api/api_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/number.h"
#include "base/text.h"

enum {
    STREAMS_MAX = 50,
    TURN_AFTER_MS =
        20, /* pause between two streams that send the list of all jobs, which is long */
    TURN_LIMIT_MS = 1000,   /* a stream whose client reads slowly loses its turn after this time */
    PIECE_AFTER_MS = 2,     /* pause before a piece; making a piece takes less than a millisecond */
    ALIVE_EVERY_MS = 15000, /* proxies close a connection that is silent for long */
};

typedef struct stream {
    harpe_call call; /* the first member; asks for the next change */
    harpe_events *events;
    struct stream *previous, *next;
    harpe_http_request *request;
    harpe_text waiting; /* events that wait until the text before them was sent */
    bool is_asking, has_begun, is_sending;
    bool has_turn;       /* it may send the list of all jobs; the other streams wait */
    bool is_over;        /* the stream ends when everything was sent */
    bool is_in_event;    /* pieces of an event are still missing */
    int64_t version;     /* version of the event whose pieces are sent */
    harpe_timer *resume; /* asks for the next piece */
} stream;

struct harpe_events {
    harpe_lead *const *lead;
    harpe_loop *loop;
    harpe_timer *alive_timer;
    stream *first;
    int count;
    bool is_turn_taken;
    harpe_timer *turn_timer;
};

/* ---- Turns ----------------------------------------------------------------------------------- */

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
        events->is_turn_taken = false; /* If memory runs out, the next new stream gets the turn. */
}

/* ---- Answering ------------------------------------------------------------------------------- */

static void free_stream(stream *self) {
    harpe_events *events = self->events;
    end_turn(self);
    if (self->previous)
        self->previous->next = self->next;
    else
        events->first = self->next;
    if (self->next) self->next->previous = self->previous;
    events->count--;
    harpe_timer_cancel(self->resume);
    harpe_text_free(&self->waiting);
    harpe_call_clear(&self->call);
    free(self);
}

/* Ends a stream that has begun. Otherwise answers with an error. `breaks`: closes the connection in
 * the middle of an event. The client then discards the event and connects again. */
static void end(stream *self, bool breaks) {
    static char nothing[] = "{\"detail\":\"the server has no answer now: try again later\"}";
    harpe_http_set_data(self->request, NULL);
    if (self->has_begun)
        (breaks ? harpe_http_stream_break : harpe_http_stream_end)(self->request);
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

/* Sends a piece. Takes the text over. */
static void send_piece(stream *self, harpe_text *text) {
    /* A browser that shows a stream in a frame of another page would keep the stream open. */
    static const harpe_http_header_field headers[] = {
        {"cache-control", "no-store"},
        {"x-accel-buffering", "no"},
        {"content-security-policy", "frame-ancestors 'none'"},
        {NULL, NULL}};
    size_t length = text->length;
    self->has_begun = self->is_sending = true;
    harpe_http_stream(self->request, "text/event-stream", harpe_text_take(text), length, headers);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* Puts an event, or a piece of the event of all jobs, into the waiting text. */
static void put_piece(stream *self, const char *name, const harpe_call_answer *answer) {
    harpe_text *text = &self->waiting;
    if (!self->is_in_event) {
        harpe_text_printf(text, "event: %s\n", name);
        if (answer->round >= 0) harpe_text_printf(text, "id: %lld\n", (long long)answer->round);
        harpe_text_append(text, "data: ", strlen("data: "));
        self->version = answer->round;
    }
    harpe_text_append(text, answer->body, answer->length); /* JSON, in one line */
    self->is_in_event = self->call.rank >= 0;
    if (!self->is_in_event) harpe_text_append(text, "\n\n", 2);
    self->call.round = self->is_in_event ? -1 : self->version;
}

/* Sends an event or a piece, or keeps it for later. A stream that cannot continue sends the reason
 * and ends. Its client connects again. */
static void on_answer(harpe_call *call, const harpe_call_answer *answer) {
    stream *self = (stream *)call;
    bool is_good = answer->http_status == 200 && answer->body, is_later = self->is_in_event;
    self->is_asking = false;
    if (!is_good && !self->has_begun && answer->body) {
        refuse(self, answer);
        return;
    }
    if (answer->body && (is_good || !is_later))
        put_piece(self, is_good ? call->job_id ? "job" : "jobs" : "end", answer);
    free(answer->body);
    self->is_over = !is_good || self->waiting.failed;
    if (self->is_sending) return;
    if (self->waiting.data && !self->waiting.failed)
        send_piece(self, &self->waiting);
    else
        end(self, is_later);
}

static void ask(stream *self) {
    if (wants_all(self) && !self->is_in_event) {
        if (self->events->is_turn_taken) return;
        self->events->is_turn_taken = self->has_turn = true;
        harpe_timer_cancel(self->events->turn_timer);
        self->events->turn_timer = NULL;
        (void)harpe_loop_after(self->events->loop, TURN_LIMIT_MS, give_turn, self->events,
                               &self->events->turn_timer, NULL);
    }
    self->is_asking = true;
    if (*self->events->lead)
        harpe_lead_handle(*self->events->lead, &self->call);
    else
        end(self, self->is_in_event);
}

static void ask_for_piece(void *user) {
    stream *self = user;
    self->resume = NULL;
    ask(self);
}

void harpe_events_sent(void *data) {
    stream *self = data;
    self->is_sending = false;
    if (self->waiting.data && !self->waiting.failed) {
        send_piece(self, &self->waiting);
    } else if (self->is_over) {
        end(self, false);
    } else if (self->is_in_event) {
        if (harpe_loop_after(self->events->loop, PIECE_AFTER_MS, ask_for_piece, self, &self->resume,
                             NULL))
            end(self, true);
    } else {
        end_turn(self);
        if (!self->is_asking) ask(self);
    }
}

static void forget(stream *self) {
    if (self->is_asking && *self->events->lead) harpe_lead_forget(*self->events->lead, &self->call);
}

void harpe_events_gone(void *data) {
    stream *self = data;
    forget(self);
    free_stream(self);
}

bool harpe_events_owns(const void *data) {
    return ((const harpe_call *)data)->kind == HARPE_CALL_CHANGES;
}

/* ---- Signs of life --------------------------------------------------------------------------- */

static void send_life(stream *self) {
    harpe_text comment = {0};
    harpe_text_append(&comment, ":\n\n", 3);
    if (comment.failed || !harpe_http_wants_body(self->request)) harpe_text_free(&comment);
    send_piece(self, &comment);
}

static void show_life(void *user) {
    harpe_events *events = user;
    events->alive_timer = NULL;
    for (stream *self = events->first; self; self = self->next)
        if (!self->is_sending && self->has_begun && !self->is_in_event) send_life(self);
    if (events->first)
        (void)harpe_loop_after(events->loop, ALIVE_EVERY_MS, show_life, events,
                               &events->alive_timer, NULL);
}

/* ---- Streams --------------------------------------------------------------------------------- */

static stream *add_stream(harpe_events *events, harpe_http_request *request, const char *job_id,
                          const char *scope) {
    stream *self = harpe_calloc(1, sizeof *self);
    if (!self) return NULL;
    self->call = (harpe_call){.kind = HARPE_CALL_CHANGES,
                              .job_id = job_id ? strdup(job_id) : NULL,
                              .scope = scope ? strdup(scope) : NULL,
                              .rank = -1,
                              .round = -1,
                              .answer = on_answer};
    if ((job_id && !self->call.job_id) || (scope && !self->call.scope)) {
        harpe_call_clear(&self->call);
        free(self);
        return NULL;
    }
    self->events = events;
    self->request = request;
    self->next = events->first;
    if (self->next) self->next->previous = self;
    events->first = self;
    events->count++;
    return self;
}

void harpe_events_open(harpe_events *events, harpe_http_request *request, const char *job_id,
                       const char *scope) {
    static char many[] = "{\"detail\":\"too many streams are open: close one or try again later\"}";
    stream *self = events->count < STREAMS_MAX ? add_stream(events, request, job_id, scope) : NULL;
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
    /* A client that knows all changes may get no event for a long time. So a comment shows this
     * client that the stream works. */
    if (!wants_body || self->call.round >= 0) send_life(self);
    if (wants_body) ask(self);
}

void harpe_events_check(harpe_events *events,
                        bool (*may_go_on)(void *user, const harpe_http_request *request,
                                          const char *scope),
                        void *user) {
    for (stream *self = events->first, *next; self; self = next) {
        next = self->next;
        if (may_go_on(user, self->request, self->call.scope)) continue;
        forget(self);
        end(self, true);
    }
}

harpe_events *harpe_events_new(harpe_loop *loop, harpe_lead *const *lead) {
    harpe_events *events = harpe_calloc(1, sizeof *events);
    if (!events) return NULL;
    events->loop = loop;
    events->lead = lead;
    return events;
}

void harpe_events_free(harpe_events *events) {
    if (!events) return;
    harpe_timer_cancel(events->alive_timer);
    harpe_timer_cancel(events->turn_timer);
    free(events);
}
