/* SPDX-License-Identifier: Apache-2.0 */
/* The work of one rank on its GPU in one iteration, in the form that all trace formats share. The
 * readers (kineto.c, chakra.c) make it; communications.c and activities.c use it. */
#ifndef HARPE_TRACE_TRACE_H
#define HARPE_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/array.h"
#include "trace/kernel_names.h"

#define HARPE_TRACE_EVENTS_MAX ((size_t)8 << 20)
#define HARPE_TRACE_TIME_MAX_S 1e5

typedef enum harpe_trace_kind {
    HARPE_TRACE_COMPUTE, /* a kernel, or a copy: the GPU computes */
    HARPE_TRACE_SEND,
    HARPE_TRACE_RECEIVE,
    HARPE_TRACE_COLLECTIVE,
    HARPE_TRACE_OTHER, /* takes time but does not use the GPU: work of the CPU, a load from memory
                        */
} harpe_trace_kind;

typedef struct harpe_trace_event {
    harpe_trace_kind kind;
    bool is_copy;     /* a compute event whose time does not depend on the clock */
    const char *name; /* of a communication; NULL: none */
    int64_t stream;   /* of the GPU; -1: unknown */
    double start_s;   /* on this rank's clock */
    double time_s;
    /* Only in a communication: these members find the same communication in the traces of other
     * ranks. A communication without a group has no partner in another trace. */
    const char *group;
    bool matches_by_end;         /* the trace names no group: only events that end together match */
    int64_t source, target, tag; /* of a send or receive; ranks */
    int64_t sequence;            /* -1: unknown */
    uint64_t id;                 /* the event's number in the file */
    /* Only in a trace with dependencies: `waits` are the numbers of the events that must end before
     * this one. harpe_trace_resolve replaces the numbers by indices of events. The first
     * `parent_count` waits are parents: the calls that made this one. harpe_trace_resolve drops a
     * parent that is not in the file. If events would wait in a cycle, it drops the parents of all
     * events. */
    size_t wait_count, parent_count;
    uint64_t *waits;
} harpe_trace_event;

/* What was odd in a trace. */
typedef enum harpe_trace_note_kind {
    HARPE_TRACE_NOTE_UNTIMED, /* events without times were left out */
    HARPE_TRACE_NOTE_OVERLAP, /* events of one stream overlapped */
    HARPE_TRACE_NOTE_PAUSE,   /* a pause is most of the trace */
    HARPE_TRACE_NOTE_EARLY,   /* communications wait for no computation */
    HARPE_TRACE_NOTE_COUNT,
} harpe_trace_note_kind;

/* Initialise with zeros. Everything is in the arena, except the array of events. */
typedef struct harpe_trace {
    harpe_arena arena;
    const char *file;
    harpe_kernel_names *names; /* of all traces */
    int64_t rank;              /* -1: the trace does not say */
    bool has_dependencies;     /* if not, the starts of the events are known */
    double zero_s;             /* then the time of the machine at which `start_s` is 0 */
    bool has_no_parents;       /* all parents were dropped, because events would wait in a cycle */
    const char *notes[HARPE_TRACE_NOTE_COUNT]; /* one line that names the file; NULL: none */
    int64_t step; /* number of the step that was read; -1: the whole trace */
    size_t event_count, event_capacity;
    harpe_trace_event *events;
} harpe_trace;

/* Appends an event. Fails if there are too many. */
harpe_status harpe_trace_add(harpe_trace *trace, const harpe_trace_event *event,
                             harpe_error *error);
/* Sets a note. */
harpe_status harpe_trace_note(harpe_trace *trace, harpe_trace_note_kind kind, harpe_error *error,
                              const char *format, ...) HARPE_PRINTF(4, 5);
/* Replaces the numbers of a trace with dependencies by indices. Fails if two events have the same
 * number, or one waits for a number that no event has. */
harpe_status harpe_trace_resolve(harpe_trace *trace, harpe_error *error);
bool harpe_trace_is_communication(const harpe_trace_event *event);
void harpe_trace_free(harpe_trace *trace);

#endif
