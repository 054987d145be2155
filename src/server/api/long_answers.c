/* SPDX-License-Identifier: Apache-2.0 */
/* A long answer asks the engine for a piece, sends it, and asks for the next piece. The loop waits
 * while the engine makes a piece. In each window of time, all long answers together may use only a
 * share of the loop's time. When the share is used up, further answers wait in a queue for the next
 * window. */
#include "server/api/api_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"

enum { WINDOW_MS = 20 };
static const int64_t window_ns = WINDOW_MS * INT64_C(1000000);
static const int64_t share_ns = 5000000; /* time for long answers in each window */

static const char JSON_TYPE[] = "application/json";

typedef struct long_answer {
    harpe_call call; /* the first member; asks for the next piece */
    harpe_long_answers *all;
    const harpe_route *route;
    harpe_http_request *request;
    bool is_asking;
    bool has_begun; /* a piece has been sent */
    bool is_over;   /* the last piece has been made */
} long_answer;

struct harpe_long_answers {
    harpe_loop *loop;
    harpe_lead *const *lead;
    harpe_latencies *latencies;
    harpe_call_list waiting; /* for the next window */
    harpe_timer *timer;
    int64_t window_began_ns, spent_ns;
};

static void serve_waiting(void *user);

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Starts the timer that ends the window. Returns false if memory runs out. */
static bool watch_window(harpe_long_answers *all) {
    return all->timer || harpe_loop_after(all->loop, WINDOW_MS, serve_waiting, all, &all->timer,
                                          NULL) == HARPE_OK;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void free_answer(long_answer *self) {
    if (self->call.list == &self->all->waiting) harpe_calls_remove(&self->call);
    harpe_call_clear(&self->call);
    free(self);
}

void harpe_answer_out_of_memory(harpe_http_request *request) {
    static char detail[] = "{\"detail\":\"the server is out of memory: try again later\"}";
    harpe_http_answer(request, 503, JSON_TYPE, detail, strlen(detail), false, NULL);
}

/* Answers with one body, which is taken over; NULL: out of memory. */
static void answer_once(long_answer *self, int status, char *body, size_t length) {
    harpe_http_set_data(self->request, NULL);
    if (body)
        harpe_http_answer(self->request, status, JSON_TYPE, body, length, true, NULL);
    else
        harpe_answer_out_of_memory(self->request);
    free_answer(self);
}

/* Breaks off an answer that cannot be completed. The client notices that a part is missing. */
static void break_off(long_answer *self) {
    harpe_http_set_data(self->request, NULL);
    harpe_http_stream_break(self->request);
    free_answer(self);
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static void on_answer(harpe_call *call, const harpe_call_answer *answer) {
    long_answer *self = (long_answer *)call;
    self->is_asking = false;
    if (!self->has_begun)
        harpe_latencies_add(self->all->latencies, self->route,
                            harpe_clock_ns() - harpe_http_arrived_ns(self->request));
    bool is_good = answer->http_status == 200 && answer->body;
    if (!self->has_begun && (!is_good || answer->round < 0)) {
        answer_once(self, answer->http_status, answer->body, answer->length);
        return;
    }
    if (!is_good) {
        free(answer->body);
        break_off(self);
        return;
    }
    self->has_begun = true;
    self->is_over = answer->round < 0 || !harpe_http_wants_body(self->request);
    if (call->kind == HARPE_CALL_SHOW) call->rank = answer->round;
    harpe_http_stream(self->request, JSON_TYPE, answer->body, answer->length, NULL);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* Asks for the next piece. `self` may be freed afterwards. */
static void ask_now(long_answer *self) {
    harpe_long_answers *all = self->all;
    int64_t before_ns = harpe_clock_ns();
    self->is_asking = true;
    if (*all->lead) {
        harpe_lead_handle(*all->lead, &self->call);
    } else {
        harpe_call_answer none = {.http_status = 503, .round = -1};
        on_answer(&self->call, &none);
    }
    all->spent_ns += harpe_clock_ns() - before_ns;
}

static void begin_window(harpe_long_answers *all, int64_t now_ns) {
    all->window_began_ns = now_ns;
    all->spent_ns = 0;
}

static void serve_waiting(void *user) {
    harpe_long_answers *all = user;
    all->timer = NULL;
    begin_window(all, harpe_clock_ns());
    while (all->waiting.first && (all->spent_ns < share_ns || !watch_window(all)))
        ask_now((long_answer *)harpe_calls_take_first(&all->waiting));
}

static void ask(long_answer *self) {
    harpe_long_answers *all = self->all;
    int64_t now_ns = harpe_clock_ns();
    bool is_first = !all->waiting.first;
    if (is_first && now_ns - all->window_began_ns >= window_ns) begin_window(all, now_ns);
    if ((!is_first || all->spent_ns >= share_ns) && watch_window(all))
        harpe_calls_append(&all->waiting, &self->call);
    else
        ask_now(self);
}

/* ---- Answers --------------------------------------------------------------------------------- */

void harpe_long_answers_begin(harpe_long_answers *answers, harpe_http_request *request,
                              const harpe_route *route, const char *scope, harpe_call *call) {
    long_answer *self = harpe_calloc(1, sizeof *self);
    call->scope = scope ? strdup(scope) : NULL;
    if (!self || (scope && !call->scope)) {
        free(self);
        harpe_call_clear(call);
        harpe_answer_out_of_memory(request);
        return;
    }
    *self = (long_answer){.call = *call, .all = answers, .route = route, .request = request};
    self->call.answer = on_answer;
    harpe_http_set_data(request, self);
    harpe_http_set_whole(request);
    ask(self);
}

bool harpe_long_answers_own(const void *data) {
    harpe_call_kind kind = ((const harpe_call *)data)->kind;
    return kind == HARPE_CALL_LIST || kind == HARPE_CALL_SHOW;
}

void harpe_long_answers_sent(void *data) {
    long_answer *self = data;
    if (!self->is_over) {
        ask(self);
        return;
    }
    harpe_http_set_data(self->request, NULL);
    harpe_http_stream_end(self->request);
    free_answer(self);
}

void harpe_long_answers_gone(void *data) {
    long_answer *self = data;
    if (self->is_asking && *self->all->lead) harpe_lead_forget(*self->all->lead, &self->call);
    free_answer(self);
}

harpe_long_answers *harpe_long_answers_new(harpe_loop *loop, harpe_lead *const *lead,
                                           harpe_latencies *latencies) {
    harpe_long_answers *answers = harpe_calloc(1, sizeof *answers);
    if (!answers) return NULL;
    answers->loop = loop;
    answers->lead = lead;
    answers->latencies = latencies;
    return answers;
}

void harpe_long_answers_free(harpe_long_answers *answers) {
    if (!answers) return;
    harpe_timer_cancel(answers->timer);
    free(answers);
}
