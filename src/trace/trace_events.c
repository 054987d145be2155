/* SPDX-License-Identifier: Apache-2.0 */
/* The events of one rank's trace: adding them, looking up the events for which they wait, and the
 * order within GPU streams. */
#include "trace/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

typedef struct id_entry {
    uint64_t id;
    uint64_t index;
} id_entry;

bool harpe_trace_is_communication(const harpe_trace_event *event) {
    return event->kind == HARPE_TRACE_SEND || event->kind == HARPE_TRACE_RECEIVE ||
           event->kind == HARPE_TRACE_COLLECTIVE;
}

harpe_status harpe_trace_add(harpe_trace *trace, const harpe_trace_event *event,
                             harpe_error *error) {
    if (trace->event_count >= HARPE_TRACE_EVENTS_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%s: more than %zu events: record fewer steps", trace->file,
                          HARPE_TRACE_EVENTS_MAX);
    }
    if (!HARPE_ARRAY_RESERVE(trace->events, trace->event_capacity, trace->event_count + 1))
        return harpe_fail_memory(error);
    trace->events[trace->event_count++] = *event;
    return HARPE_OK;
}

harpe_status harpe_trace_note(harpe_trace *trace, harpe_trace_note_kind kind, harpe_error *error,
                              const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    trace->notes[kind] = harpe_arena_strdup(&trace->arena, line, strlen(line));
    return trace->notes[kind] ? HARPE_OK : harpe_fail_memory(error);
}

static int compare_ids(const void *left, const void *right) {
    const id_entry *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

static harpe_status resolve_event(harpe_trace *trace, harpe_trace_event *event,
                                  const id_entry *entries, harpe_error *error) {
    size_t kept = 0, parents = 0;
    for (size_t k = 0; k < event->wait_count; k++) {
        const id_entry wanted = {.id = event->waits[k]};
        const id_entry *found =
            bsearch(&wanted, entries, trace->event_count, sizeof *entries, compare_ids);
        /* Chakra's converter leaves out nodes that only call others, such as the thread. */
        if (!found && k < event->parent_count) continue;
        if (!found) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: node %" PRIu64 " waits for node %" PRIu64
                              ", which is not in the file: is the file complete?",
                              trace->file, event->id, wanted.id);
        }
        event->waits[kept++] = found->index;
        if (k < event->parent_count) parents = kept;
    }
    event->wait_count = kept;
    event->parent_count = parents;
    return HARPE_OK;
}

/* ---- Parents in cycles ----------------------------------------------------------------------- */

static bool has_parents(const harpe_trace *trace) {
    size_t i = 0;
    while (i < trace->event_count && trace->events[i].parent_count == 0)
        i++;
    return i < trace->event_count;
}

/* Returns true if events wait in a cycle. An event is taken when all events that wait for it are
 * taken. So the events of a cycle, and the events for which they wait, are never taken. `waiting`
 * has a zero for each event, and `taken` has room for each event. */
static bool has_cycle(const harpe_trace *trace, size_t *waiting, size_t *taken) {
    size_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++)
        for (size_t k = 0; k < trace->events[i].wait_count; k++)
            waiting[trace->events[i].waits[k]]++;
    for (size_t i = 0; i < trace->event_count; i++)
        if (waiting[i] == 0) taken[count++] = i;
    for (size_t i = 0; i < count; i++) {
        const harpe_trace_event *event = &trace->events[taken[i]];
        for (size_t k = 0; k < event->wait_count; k++)
            if (--waiting[event->waits[k]] == 0) taken[count++] = event->waits[k];
    }
    return count < trace->event_count;
}

/* Chakra's converter may let a call wait for what it calls. Then the parents mean only who called,
 * and the other dependencies are the order, as Chakra's own feeder takes them. */
static harpe_status drop_parents_in_cycles(harpe_trace *trace, harpe_error *error) {
    if (!has_parents(trace)) return HARPE_OK;
    size_t *waiting = harpe_calloc(trace->event_count, sizeof *waiting);
    size_t *taken = harpe_calloc(trace->event_count, sizeof *taken);
    bool has_memory = waiting && taken;
    trace->has_no_parents = has_memory && has_cycle(trace, waiting, taken);
    free(waiting);
    free(taken);
    for (size_t i = 0; i < trace->event_count && trace->has_no_parents; i++) {
        harpe_trace_event *event = &trace->events[i];
        event->waits += event->parent_count;
        event->wait_count -= event->parent_count;
        event->parent_count = 0;
    }
    return has_memory ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* Orders the events of streams. In a trace of Chakra's converter, a kernel waits only for the call
 * that launched it. The kernels of a stream run one after another, which the trace does not say. It
 * has only the attribute "stream". */

typedef struct ranked {
    int64_t stream;
    double start_s;
    size_t place, index;
} ranked;

typedef struct sorter {
    harpe_trace *trace;
    ranked *list;      /* [event_count] */
    size_t *order;     /* [event_count]: events after all for which they wait */
    size_t *stack;     /* [event_count] */
    size_t *next_wait; /* [event_count]: 0: not visited; else 1 + the wait to look at next */
    harpe_error *error;
} sorter;

static int compare_ranked(const void *left, const void *right) {
    const ranked *a = left, *b = right;
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    if (a->start_s != b->start_s) return a->start_s < b->start_s ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* ---- The order of all events ----------------------------------------------------------------- */

/* Appends an event to the order, after all events for which it waits. If events wait in a cycle,
 * their order has no meaning, and the replay refuses them. Returns the new count. */
static size_t visit(const sorter *s, size_t root, size_t count) {
    size_t depth = 0;
    if (s->next_wait[root] > 0) return count;
    s->next_wait[root] = 1;
    s->stack[depth++] = root;
    while (depth > 0) {
        size_t index = s->stack[depth - 1];
        const harpe_trace_event *event = &s->trace->events[index];
        size_t k = s->next_wait[index]++ - 1;
        if (k == event->wait_count) {
            s->order[count++] = index;
            depth--;
        } else if (s->next_wait[event->waits[k]] == 0) {
            s->next_wait[event->waits[k]] = 1;
            s->stack[depth++] = event->waits[k];
        }
    }
    return count;
}

static void order_all(const sorter *s) {
    size_t count = s->trace->event_count, ordered = 0;
    for (size_t i = 0; i < count; i++)
        s->list[i] = (ranked){0, s->trace->events[i].start_s, i, i};
    qsort(s->list, count, sizeof *s->list, compare_ranked);
    for (size_t i = 0; i < count; i++)
        ordered = visit(s, s->list[i].index, ordered);
}

/* ---- Waits in a stream ----------------------------------------------------------------------- */

static harpe_status add_wait(const sorter *s, size_t index, size_t other) {
    harpe_trace_event *event = &s->trace->events[index];
    for (size_t k = 0; k < event->wait_count; k++)
        if (event->waits[k] == other) return HARPE_OK;
    size_t count = event->wait_count;
    uint64_t *waits = harpe_arena_alloc(&s->trace->arena, count + 1, sizeof *waits);
    if (!waits) return harpe_fail_memory(s->error);
    if (count > 0) memcpy(waits, event->waits, count * sizeof *waits);
    waits[count] = other;
    event->waits = waits;
    event->wait_count = count + 1;
    return HARPE_OK;
}

/* NCCL can run a send and a receive in one kernel. If the receive waited for the send, two ranks
 * that exchange data would wait for each other for ever. So a send waits for the send before it,
 * and a receive waits for the receive before it. */
static harpe_status chain_streams(const sorter *s) {
    size_t count = s->trace->event_count;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < count; i++) {
        const harpe_trace_event *event = &s->trace->events[s->order[i]];
        s->list[i] = (ranked){event->stream, 0, i, s->order[i]};
    }
    qsort(s->list, count, sizeof *s->list, compare_ranked);
    size_t last_send = SIZE_MAX, last_receive = SIZE_MAX; /* SIZE_MAX: none */
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        size_t index = s->list[i].index;
        harpe_trace_kind kind = s->trace->events[index].kind;
        if (s->list[i].stream < 0) continue;
        if (i == 0 || s->list[i].stream != s->list[i - 1].stream)
            last_send = last_receive = SIZE_MAX;
        bool waits_for_send = last_send != SIZE_MAX && kind != HARPE_TRACE_RECEIVE;
        bool waits_for_receive = last_receive != SIZE_MAX && kind != HARPE_TRACE_SEND;
        if (waits_for_send) status = add_wait(s, index, last_send);
        if (waits_for_receive && status == HARPE_OK) status = add_wait(s, index, last_receive);
        if (kind != HARPE_TRACE_RECEIVE) last_send = index;
        if (kind != HARPE_TRACE_SEND) last_receive = index;
    }
    return status;
}

/* ---- Communications that wait for nothing ---------------------------------------------------- */

/* Notes communications that wait for no computation, although one comes before them. */
static harpe_status note_early(const sorter *s) {
    size_t early_count = 0;
    const harpe_trace_event *first = NULL;
    bool has_computed = false;
    size_t *is_after = s->next_wait; /* 1: waits for a computation */
    memset(is_after, 0, s->trace->event_count * sizeof *is_after);
    for (size_t i = 0; i < s->trace->event_count; i++) {
        size_t index = s->order[i];
        const harpe_trace_event *event = &s->trace->events[index];
        for (size_t k = 0; k < event->wait_count; k++) {
            size_t other = event->waits[k];
            bool is_computation = s->trace->events[other].kind == HARPE_TRACE_COMPUTE;
            if (is_computation || is_after[other]) is_after[index] = 1;
        }
        has_computed = has_computed || event->kind == HARPE_TRACE_COMPUTE;
        if (!has_computed || !harpe_trace_is_communication(event) || is_after[index]) continue;
        if (early_count++ == 0) first = event;
    }
    if (!first) return HARPE_OK;
    char more[32] = "";
    if (early_count > 1) (void)snprintf(more, sizeof more, " and %zu more", early_count - 1);
    return harpe_trace_note(s->trace, HARPE_TRACE_NOTE_EARLY, s->error,
                            "%s: node %" PRIu64 ", a communication,%s wait%s for no GPU node, "
                            "although one comes before: the graph may be shorter than the "
                            "iteration%s",
                            s->trace->file, first->id, more, early_count > 1 ? "" : "s",
                            first->stream < 0 ? " (there is no attribute \"stream\")" : "");
}

/* Makes each event of a stream wait for the event before it. The event before it is the one that
 * starts earlier; if both start at the same time, the one that comes earlier in the file. The
 * dependencies of the trace go before this order. Adds a note about communications that still wait
 * for no computation. `start_s` is the recorded start. O(n log n) */
static harpe_status order_streams(harpe_trace *trace, harpe_error *error) {
    size_t count = trace->event_count;
    sorter s = {.trace = trace, .error = error};
    harpe_arena scratch = {0};
    s.list = harpe_arena_alloc(&scratch, count, sizeof *s.list);
    s.order = harpe_arena_alloc(&scratch, count, sizeof *s.order);
    s.stack = harpe_arena_alloc(&scratch, count, sizeof *s.stack);
    s.next_wait = harpe_arena_alloc(&scratch, count, sizeof *s.next_wait);
    harpe_status status = HARPE_OK;
    if (s.list && s.order && s.stack && s.next_wait) {
        order_all(&s);
        status = chain_streams(&s);
        if (status == HARPE_OK) status = note_early(&s);
    } else {
        status = harpe_fail_memory(error);
    }
    harpe_arena_free(&scratch);
    return status;
}

/* ---- Ids ------------------------------------------------------------------------------------- */

harpe_status harpe_trace_resolve(harpe_trace *trace, harpe_error *error) {
    id_entry *entries = harpe_calloc(trace->event_count, sizeof *entries);
    if (!entries) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < trace->event_count; i++)
        entries[i] = (id_entry){trace->events[i].id, i};
    qsort(entries, trace->event_count, sizeof *entries, compare_ids);
    for (size_t i = 1; i < trace->event_count && status == HARPE_OK; i++) {
        if (entries[i].id != entries[i - 1].id) continue;
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: two nodes have the id %" PRIu64
                            ": each node of a rank needs an id of its own",
                            trace->file, entries[i].id);
    }
    for (size_t i = 0; i < trace->event_count && status == HARPE_OK; i++)
        status = resolve_event(trace, &trace->events[i], entries, error);
    free(entries);
    if (status == HARPE_OK) status = drop_parents_in_cycles(trace, error);
    return status == HARPE_OK ? order_streams(trace, error) : status;
}

void harpe_trace_free(harpe_trace *trace) {
    free(trace->events);
    harpe_arena_free(&trace->arena);
    *trace = (harpe_trace){0};
}
