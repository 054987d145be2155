/* SPDX-License-Identifier: Apache-2.0 */
/* Replays traces with dependencies: an event-driven simulation of all ranks together. The heap
 * contains what ends next. */
#include "trace/replay.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

#define HAS_ENDED SIZE_MAX

/* The end of an event, or of a whole communication (`event` is HARPE_TRACE_NONE). */
typedef struct occasion {
    double time_s;
    uint64_t number; /* of two at the same time, the one that was added first */
    size_t trace, event;
    size_t communication;
} occasion;

/* The state of one rank. */
typedef struct rank_state {
    size_t *waiting;     /* [events]: events for which each still waits; or HAS_ENDED */
    size_t *first_after; /* [events + 1]: into after */
    size_t *after;       /* the events that wait for each */
    size_t *queue;       /* events that are ready for the GPU, in order */
    size_t queue_head, queue_tail;
    bool is_computing;
    size_t ended; /* events; also the length of the order */
} rank_state;

typedef struct replay {
    harpe_trace *traces;
    size_t trace_count;
    const harpe_communications *communications;
    size_t *const *order;
    rank_state *ranks;
    size_t *missing; /* [communications]: ranks that have not come yet */
    occasion *heap;
    size_t heap_count, heap_capacity;
    uint64_t next_number;
} replay;

/* ---- The heap -------------------------------------------------------------------------------- */

static bool is_earlier(const occasion *a, const occasion *b) {
    return a->time_s < b->time_s || (a->time_s == b->time_s && a->number < b->number);
}

static void swap(occasion *a, occasion *b) {
    occasion kept = *a;
    *a = *b;
    *b = kept;
}

/* The heap has room for one occasion of every event. */
static void push(replay *r, occasion added) {
    size_t i = r->heap_count++;
    added.number = r->next_number++;
    r->heap[i] = added;
    for (; i > 0 && is_earlier(&r->heap[i], &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&r->heap[i], &r->heap[(i - 1) / 2]);
}

static occasion pop(replay *r) {
    occasion first = r->heap[0];
    r->heap[0] = r->heap[--r->heap_count];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < r->heap_count; child++)
            if (is_earlier(&r->heap[child], &r->heap[least])) least = child;
        if (least == i) return first;
        swap(&r->heap[i], &r->heap[least]);
        i = least;
    }
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void start(replay *r, size_t trace, size_t index, double now_s) {
    harpe_trace_event *event = &r->traces[trace].events[index];
    event->start_s = now_s;
    push(r, (occasion){.time_s = now_s + event->time_s, .trace = trace, .event = index});
}

/* Lets the GPU of a rank compute the next event that is ready. */
static void compute_next(replay *r, size_t trace, double now_s) {
    rank_state *rank = &r->ranks[trace];
    rank->is_computing = rank->queue_head < rank->queue_tail;
    if (rank->is_computing) start(r, trace, rank->queue[rank->queue_head++], now_s);
}

/* A rank comes to a communication. */
static void arrive(replay *r, size_t trace, size_t index, double now_s) {
    size_t number = r->communications->of_event[trace][index];
    r->traces[trace].events[index].start_s = now_s;
    if (--r->missing[number] > 0) return;
    push(r, (occasion){.time_s = now_s + r->communications->items[number].time_s,
                       .event = HARPE_TRACE_NONE,
                       .communication = number});
}

static void become_ready(replay *r, size_t trace, size_t index, double now_s) {
    const harpe_trace_event *event = &r->traces[trace].events[index];
    rank_state *rank = &r->ranks[trace];
    if (harpe_trace_is_communication(event)) {
        arrive(r, trace, index, now_s);
    } else if (event->kind == HARPE_TRACE_COMPUTE) {
        rank->queue[rank->queue_tail++] = index;
        if (!rank->is_computing) compute_next(r, trace, now_s);
    } else {
        start(r, trace, index, now_s);
    }
}

static void end_event(replay *r, size_t trace, size_t index, double now_s) {
    rank_state *rank = &r->ranks[trace];
    r->order[trace][rank->ended++] = index;
    rank->waiting[index] = HAS_ENDED;
    for (size_t k = rank->first_after[index]; k < rank->first_after[index + 1]; k++)
        if (--rank->waiting[rank->after[k]] == 0) become_ready(r, trace, rank->after[k], now_s);
    if (r->traces[trace].events[index].kind == HARPE_TRACE_COMPUTE) compute_next(r, trace, now_s);
}

static void end_communication(replay *r, size_t number, double now_s) {
    const harpe_communication *item = &r->communications->items[number];
    for (size_t p = item->first_part; p < item->first_part + item->part_count; p++) {
        const harpe_communication_part *part = &r->communications->parts[p];
        /* What a part takes includes its wait for the other ranks. */
        harpe_trace_event *event = &r->traces[part->trace].events[part->event];
        event->time_s = now_s - event->start_s;
        end_event(r, part->trace, part->event, now_s);
    }
}

/* ---- Preparation ----------------------------------------------------------------------------- */

static harpe_status prepare_rank(const harpe_trace *trace, rank_state *rank, harpe_error *error) {
    size_t count = trace->event_count, waits = 0;
    for (size_t i = 0; i < count; i++)
        waits += trace->events[i].wait_count;
    rank->waiting = harpe_calloc(count, sizeof *rank->waiting);
    rank->first_after = harpe_calloc(count + 2, sizeof *rank->first_after);
    rank->after = harpe_calloc(waits, sizeof *rank->after);
    rank->queue = harpe_calloc(count, sizeof *rank->queue);
    if (!rank->waiting || !rank->first_after || !rank->after || !rank->queue)
        return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        rank->waiting[i] = trace->events[i].wait_count;
        for (size_t k = 0; k < trace->events[i].wait_count; k++)
            rank->first_after[trace->events[i].waits[k] + 2]++;
    }
    for (size_t i = 2; i < count + 2; i++)
        rank->first_after[i] += rank->first_after[i - 1];
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < trace->events[i].wait_count; k++)
            rank->after[rank->first_after[trace->events[i].waits[k] + 1]++] = i;
    return HARPE_OK;
}

static harpe_status prepare(replay *r, harpe_error *error) {
    size_t events = 0;
    r->ranks = harpe_calloc(r->trace_count, sizeof *r->ranks);
    r->missing = harpe_calloc(r->communications->count, sizeof *r->missing);
    if (!r->ranks || !r->missing) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t t = 0; t < r->trace_count && status == HARPE_OK; t++) {
        events += r->traces[t].event_count;
        status = prepare_rank(&r->traces[t], &r->ranks[t], error);
    }
    for (size_t i = 0; i < r->communications->count; i++)
        r->missing[i] = r->communications->items[i].part_count;
    r->heap = harpe_calloc(events, sizeof *r->heap);
    if (status == HARPE_OK && !r->heap) status = harpe_fail_memory(error);
    return status;
}

static void release(replay *r) {
    for (size_t t = 0; r->ranks && t < r->trace_count; t++) {
        free(r->ranks[t].waiting);
        free(r->ranks[t].first_after);
        free(r->ranks[t].after);
        free(r->ranks[t].queue);
    }
    free(r->ranks);
    free(r->missing);
    free(r->heap);
}

/* Names an event that has not ended. */
static harpe_status check_ended(const replay *r, harpe_error *error) {
    for (size_t t = 0; t < r->trace_count; t++) {
        const harpe_trace *trace = &r->traces[t];
        for (size_t i = 0; i < trace->event_count; i++) {
            if (r->ranks[t].waiting[i] == HAS_ENDED) continue;
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: node %" PRIu64
                              " can never start: nodes wait for each other in a "
                              "cycle, in this rank or across ranks",
                              trace->file, trace->events[i].id);
        }
    }
    return HARPE_OK;
}

harpe_status harpe_trace_replay(harpe_trace *traces, size_t trace_count,
                                const harpe_communications *communications, size_t *const *order,
                                harpe_error *error) {
    replay r = {.traces = traces,
                .trace_count = trace_count,
                .communications = communications,
                .order = order};
    harpe_status status = prepare(&r, error);
    for (size_t t = 0; t < trace_count && status == HARPE_OK; t++)
        for (size_t i = 0; i < traces[t].event_count; i++)
            if (traces[t].events[i].wait_count == 0) become_ready(&r, t, i, 0);
    while (status == HARPE_OK && r.heap_count > 0) {
        occasion next = pop(&r);
        if (next.event == HARPE_TRACE_NONE)
            end_communication(&r, next.communication, next.time_s);
        else
            end_event(&r, next.trace, next.event, next.time_s);
    }
    if (status == HARPE_OK) status = check_ended(&r, error);
    release(&r);
    return status;
}
