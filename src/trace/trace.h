/* SPDX-License-Identifier: Apache-2.0 */
/* What all trace formats have in common: the work of one rank on its GPU in one iteration. The
 * readers (kineto.c, chakra.c) fill it in; communications.c and activities.c continue with it. */
#ifndef HARPE_TRACE_TRACE_H
#define HARPE_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/arena.h"

#define HARPE_TRACE_EVENTS_MAX ((size_t)8 << 20)
#define HARPE_TRACE_TIME_MAX_S 1e5

typedef enum harpe_trace_kind {
    HARPE_TRACE_COMPUTE, /* a kernel, or a copy: the GPU computes */
    HARPE_TRACE_SEND,
    HARPE_TRACE_RECEIVE,
    HARPE_TRACE_COLLECTIVE,
    HARPE_TRACE_OTHER, /* takes its time beside the GPU: a node of the CPU, a load from memory */
} harpe_trace_kind;

typedef struct harpe_trace_event {
    harpe_trace_kind kind;
    bool is_copy;     /* of a compute event: a clock does not change its time */
    const char *name; /* of a communication; NULL: none */
    double start_s;   /* on this rank's clock */
    double time_s;
    /* Of a communication: what names the same communication in the traces of other ranks. A
     * communication without a group has no partner in another trace. */
    const char *group;
    int64_t source, target, tag; /* of a send or receive; ranks */
    int64_t sequence;            /* -1: unknown */
    /* Of a trace with dependencies: its number in the file, and the numbers of others. After
     * harpe_trace_resolve, `waits` are indices of events. The first `parent_count` waits are
     * control dependencies (the calls that made this one). harpe_trace_resolve drops each of them
     * that is not in the file, and all of them if nodes would wait in a cycle. */
    uint64_t id;
    size_t wait_count, parent_count;
    uint64_t *waits;
} harpe_trace_event;

/* Initialise with zeros. Everything is in the arena, except the array of events. */
typedef struct harpe_trace {
    harpe_arena arena;
    const char *file;
    int64_t rank;          /* -1: the trace does not say */
    bool has_dependencies; /* otherwise the starts of the events are known */
    bool has_no_parents;   /* parents were dropped, because with them nodes wait in a cycle */
    int64_t step;          /* number of the step that was read; -1: the whole trace */
    size_t event_count, event_capacity;
    harpe_trace_event *events;
} harpe_trace;

/* Appends an event. Fails if there are too many. */
harpe_status harpe_trace_add(harpe_trace *trace, const harpe_trace_event *event,
                             harpe_error *error);
/* Replaces the numbers of a trace with dependencies by indices. Fails if two events have the same
 * number, or one waits for a number that no event has. */
harpe_status harpe_trace_resolve(harpe_trace *trace, harpe_error *error);
bool harpe_trace_is_communication(const harpe_trace_event *event);
void harpe_trace_free(harpe_trace *trace);

#endif
