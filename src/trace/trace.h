/* SPDX-License-Identifier: Apache-2.0 */
/* From traces to graphs: the work of one rank on its GPU in one iteration, in the form that all
 * trace formats share, its readers, and what is made of the traces of all ranks. trace_file.c and
 * trace_graph.c have the functions that programs call. */
#ifndef HARPE_TRACE_TRACE_H
#define HARPE_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include <harpe/graph.h>
#include <harpe/status.h>

#include "base/array.h"
#include "base/text.h"

/* ---- kernel_names.c: which kernels communicate ----------------------------------------------- */

typedef struct harpe_kernel_names harpe_kernel_names;

/* Makes names: those of known libraries, and those that match one of the patterns, which are POSIX
 * extended regular expressions. The patterns must stay valid. Fails if a pattern is wrong. Free
 * `*out` with harpe_kernel_names_free. */
harpe_status harpe_kernel_names_new(const char *const *patterns, size_t pattern_count,
                                    harpe_kernel_names **out, harpe_error *error);
/* Returns true if an event of this name communicates, and counts its time. */
bool harpe_kernel_names_communicate(harpe_kernel_names *names, const char *name, double time_s);
/* Append a sentence without a full stop, or nothing: about the longest kernels that did not count
 * as communication but look like it, and about the first pattern that no name matched. */
void harpe_kernel_names_note_similar(const harpe_kernel_names *names, harpe_text *text);
void harpe_kernel_names_note_unmatched(const harpe_kernel_names *names, harpe_text *text);
void harpe_kernel_names_free(harpe_kernel_names *names);

/* ---- trace_file.c: one trace ----------------------------------------------------------------- */

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
/* Replaces the numbers of a trace with dependencies by indices, and makes each event of a stream
 * wait for the event before it. Fails if two events have the same number, or one waits for a number
 * that no event has. */
harpe_status harpe_trace_resolve(harpe_trace *trace, harpe_error *error);
static inline double harpe_trace_end_s(const harpe_trace_event *event) {
    return event->start_s + event->time_s;
}
bool harpe_trace_is_communication(const harpe_trace_event *event);
void harpe_trace_free(harpe_trace *trace);

/* ---- chakra.c -------------------------------------------------------------------------------- */

typedef enum harpe_wire_type {
    HARPE_WIRE_VARINT = 0,
    HARPE_WIRE_FIXED64 = 1,
    HARPE_WIRE_BYTES = 2,
    HARPE_WIRE_FIXED32 = 5,
} harpe_wire_type;

/* The rest of a message. */
typedef struct harpe_wire {
    const uint8_t *next, *end;
} harpe_wire;

typedef struct harpe_wire_field {
    uint32_t number;
    harpe_wire_type type;
    uint64_t value;   /* of a number */
    harpe_wire bytes; /* of a text or a message */
} harpe_wire_field;

/* Read the next number, piece of bytes with its length before it, or field. They return false at
 * the end of the message and for anything that is not valid; then `wire->next` is unchanged. */
bool harpe_wire_varint(harpe_wire *wire, uint64_t *value);
bool harpe_wire_field_next(harpe_wire *wire, harpe_wire_field *field);

/* Reads a stream of messages, each with its length before it: a GlobalMetadata, then Nodes. Adds
 * the nodes to the trace, whose `file` and `rank` are set. */
harpe_status harpe_trace_read_chakra(const void *bytes, size_t length, harpe_trace *trace,
                                     harpe_error *error);

/* Adds the nodes to the trace, whose `file` and `rank` are set. `objects` is the list of the JSON
 * objects in the file: a GlobalMetadata and Nodes, as chakra_jsonizer writes them, or one object
 * with a list "workload_graph". */
harpe_status harpe_trace_read_chakra_json(const json_t *objects, harpe_trace *trace,
                                          harpe_error *error);

/* ---- kineto.c -------------------------------------------------------------------------------- */

#define HARPE_TRACE_LAST_STEP (-1)

/* Adds the GPU's events of one step to the trace, whose `file` and `rank` are set. The rank that
 * the trace names replaces `rank`. `step` is the number after "ProfilerStep#", or
 * HARPE_TRACE_LAST_STEP. A trace without steps is read as a whole. */
harpe_status harpe_trace_read_kineto(const json_t *root, int64_t step, harpe_trace *trace,
                                     harpe_error *error);

/* ---- trace_file.c ---------------------------------------------------------------------------- */

typedef enum harpe_trace_format {
    HARPE_TRACE_ANY,
    HARPE_TRACE_CHAKRA,
    HARPE_TRACE_KINETO,
} harpe_trace_format;

typedef struct harpe_trace_request {
    harpe_trace_format format; /* HARPE_TRACE_ANY: whatever the file contains */
    int64_t step;              /* of a Kineto trace */
    harpe_kernel_names *names; /* which kernels communicate; must stay valid */
} harpe_trace_request;

/* Reads a file of at most 512 MiB, also after it is unpacked (gzip). If the trace does not say
 * which rank it belongs to, this is the number after "rank" in the file's name, or else the last
 * number there, or else `position`. `path` must stay valid. Free `out` with harpe_trace_free, also
 * after a failure. */
harpe_status harpe_trace_file_read(const char *path, int64_t position,
                                   const harpe_trace_request *request, harpe_trace *out,
                                   harpe_error *error);
/* Does the same with bytes in memory that are not packed. `name` replaces the path. */
harpe_status harpe_trace_file_parse(const char *bytes, size_t length, const char *name,
                                    int64_t position, const harpe_trace_request *request,
                                    harpe_trace *out, harpe_error *error);

/* ---- activities.c ---------------------------------------------------------------------------- */

#define HARPE_TRACE_NONE SIZE_MAX

/* One rank's side of a communication. */
typedef struct harpe_communication_part {
    size_t trace, event; /* indices */
} harpe_communication_part;

typedef struct harpe_communication {
    size_t first_part, part_count;
    /* The shortest of its events. The event of a rank that comes early also contains the wait for
     * the others; that of the last rank does not. */
    double time_s;
} harpe_communication;

/* The communications of all traces, by their first part. */
typedef struct harpe_communications {
    size_t count, part_count;
    harpe_communication *items;
    harpe_communication_part *parts;
    size_t **of_event; /* [traces][events]: the communication, or HARPE_TRACE_NONE */
} harpe_communications;

/* Two events belong together if group, kind, ranks and tag are equal, and the sequence number is
 * equal or both are the n-th of their rank. If the traces name no group, they must also end
 * together. The order in a rank is that of the starts, or, with dependencies, that of the file.
 * Its arrays are in the arena. `out` is zeroed. O(n log n) */
harpe_status harpe_communications_match(const harpe_trace *traces, size_t trace_count,
                                        harpe_arena *arena, harpe_communications *out,
                                        harpe_error *error);

/* Sets `start_s` of all events: each starts as soon as everything for which it waits has ended. A
 * GPU computes one event at a time, in the order in which they become ready. A communication starts
 * when all its ranks have come to it; `start_s` of a part is when its own rank came. `order[t]`
 * receives the indices of the events of trace t in the order of their ends: an event comes after
 * all for which it waits. Fails if an event can never start. O(n log n) */
harpe_status harpe_trace_replay(harpe_trace *traces, size_t trace_count,
                                const harpe_communications *communications, size_t *const *order,
                                harpe_error *error);

/* Two moments of one rank that are closer count as the same: older versions of Kineto write whole
 * microseconds. */
#define HARPE_TRACE_RESOLUTION_S 1e-6

/* A time in which the GPU computes without a pause, on any of its streams. */
typedef struct harpe_trace_block {
    double start_s, end_s;
    double kernel_s; /* the part with a kernel; otherwise, only copies run */
} harpe_trace_block;

/* Blocks of one rank that become one activity. */
typedef struct harpe_trace_piece {
    size_t trace;
    size_t first_block, end_block; /* of the rank's lane */
    double start_s, end_s;
    double kernel_s, copy_s; /* in the rest of the time, the GPU waits */
} harpe_trace_piece;

/* The computation of one rank, in order. */
typedef struct harpe_trace_lane {
    size_t block_count;
    harpe_trace_block *blocks;
    bool *is_cut;     /* [block_count + 1]: an activity begins at this block */
    size_t *block_of; /* [events]: of a compute event */
    size_t *piece_of; /* [block_count] */
    double zero_s;    /* start of the rank's first event */
} harpe_trace_lane;

/* Where a communication stands in the lane of one of its ranks. */
typedef struct harpe_trace_place {
    size_t need;   /* it waits for all blocks before this one */
    size_t next;   /* this block and the later ones wait for it; HARPE_TRACE_NONE: none does */
    bool must_cut; /* otherwise the first activity that begins at `next` or later waits */
} harpe_trace_place;

typedef struct harpe_activities {
    harpe_trace_lane *lanes;   /* [traces] */
    harpe_trace_place *places; /* [parts of the communications] */
    bool *is_kept;             /* [communications]: becomes an activity of its own */
    size_t piece_count;
    harpe_trace_piece *pieces; /* rank by rank, in order */
} harpe_activities;

/* `order` is that of harpe_trace_replay for traces with dependencies, and NULL for traces with
 * known starts. The arrays are in the arena. `out` is zeroed. */
harpe_status harpe_activities_new(const harpe_trace *traces, size_t trace_count,
                                  const harpe_communications *communications, size_t *const *order,
                                  double min_activity_s, harpe_arena *arena, harpe_activities *out,
                                  harpe_error *error);

/* ---- trace_graph.c --------------------------------------------------------------------------- */

typedef struct harpe_trace_graph_options {
    const char *gpu_model;   /* one of harpe_synth_gpu_models(); NULL: all times are fixed */
    double compute_share;    /* 0 .. 1: the part of a kernel's time that scales with the clock */
    double min_activity_s;   /* an activity that is shorter keeps the highest clock */
    double blocking_power_w; /* of each GPU; negative: that of the model, or 0 */
} harpe_trace_graph_options;

/* What became of the traces. */
typedef struct harpe_trace_graph_counts {
    size_t computing;      /* activities that compute */
    size_t with_options;   /* of these, the ones with several options */
    size_t communications; /* activities that communicate */
    size_t without_others; /* of these, the ones of which only one rank was found */
    size_t inside;         /* communications that are a part of an activity that computes */
    double inside_s;       /* their time on the rank where it is longest */
    double longest_s;      /* from the first to the last event of a rank, on the longest one */
} harpe_trace_graph_counts;

/* Makes a graph: a resource for each rank, and activities as above. With the
 * highest clocks, an iteration of the graph takes as long as in the traces. Fails if two traces
 * have the same rank or different formats, if an event can never start, or if the traces contradict
 * each other. Traces with dependencies must be resolved; their times change. */
harpe_status harpe_trace_graph_new(harpe_trace *traces, size_t trace_count,
                                   const harpe_trace_graph_options *options, harpe_graph **out,
                                   harpe_trace_graph_counts *counts, harpe_error *error);

#endif
