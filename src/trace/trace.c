/* SPDX-License-Identifier: Apache-2.0 */
/* The events of one rank's trace: adding them, and looking up the events for which they wait. */
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
    return status == HARPE_OK ? drop_parents_in_cycles(trace, error) : status;
}

void harpe_trace_free(harpe_trace *trace) {
    free(trace->events);
    harpe_arena_free(&trace->arena);
    *trace = (harpe_trace){0};
}
