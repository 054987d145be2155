/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a Kineto trace. The names of categories and members are those of Kineto's writer,
 * libkineto/src/output_json.cpp in github.com/pytorch/kineto. Only events on the GPU count:
 * kernels, copies and memory sets. Members that this file does not know are ignored, because every
 * version of PyTorch writes others. */
#include "trace/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "base/number.h"

/* ---- Times that cannot be right -------------------------------------------------------------- */

/* Finds times that cannot be right. Some profilers let a kernel end after the next kernels of its
 * stream have started, or give it a start that is minutes away from all others. */

/* A kernel may start a little before the one before it has ended (programmatic dependent launch),
 * and times are rounded. Such an overlap is harmless. */
#define OVERLAP_SHARE 0.01
#define OVERLAP_S 20e-6

typedef struct checker {
    const json_t *list;
    harpe_trace *trace;
    harpe_trace_event **by_start; /* [event_count] */
    harpe_error *error;
} checker;

/* What names an event: its number, name and start in the file. */
typedef struct event_name {
    char text[160];
} event_name;

static event_name name_of(const checker *c, const harpe_trace_event *event) {
    const json_t *object = json_array_get(c->list, (size_t)event->id);
    const json_t *start = json_object_get(object, "ts");
    const char *name = json_string_value(json_object_get(object, "name"));
    char clean[64];
    event_name out;
    (void)snprintf(out.text, sizeof out.text, "traceEvents[%zu] (\"%s\", \"ts\": %s)",
                   (size_t)event->id, harpe_clean_text(clean, sizeof clean, name ? name : ""),
                   json_is_string(start) ? "a text" : HARPE_DIGITS(json_number_value(start), 16));
    return out;
}

static int compare_starts(const void *left, const void *right) {
    const harpe_trace_event *a = *(harpe_trace_event *const *)left;
    const harpe_trace_event *b = *(harpe_trace_event *const *)right;
    if (a->start_s != b->start_s) return a->start_s < b->start_s ? -1 : 1;
    if (a->time_s != b->time_s) return a->time_s < b->time_s ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static int compare_in_stream(const void *left, const void *right) {
    const harpe_trace_event *a = *(harpe_trace_event *const *)left;
    const harpe_trace_event *b = *(harpe_trace_event *const *)right;
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    return compare_starts(left, right);
}

/* ---- Overlap in a stream --------------------------------------------------------------------- */

static harpe_status cut_overlaps(const checker *c) {
    size_t cut_count = 0;
    const harpe_trace_event *longest = NULL;
    double longest_s = 0, longest_cut_s = 0;
    qsort(c->by_start, c->trace->event_count, sizeof *c->by_start, compare_in_stream);
    for (size_t i = 1; i < c->trace->event_count; i++) {
        harpe_trace_event *event = c->by_start[i - 1];
        const harpe_trace_event *next = c->by_start[i];
        double overlap_s = harpe_trace_end_s(event) - next->start_s;
        if (event->stream < 0 || event->stream != next->stream) continue;
        if (overlap_s <= fmax(OVERLAP_S, OVERLAP_SHARE * event->time_s)) continue;
        cut_count++;
        if (overlap_s > longest_cut_s) {
            longest = event;
            longest_s = event->time_s;
            longest_cut_s = overlap_s;
        }
        event->time_s = next->start_s - event->start_s;
    }
    if (!longest) return HARPE_OK;
    char more[64] = "";
    if (cut_count > 1) (void)snprintf(more, sizeof more, ", as are %zu more", cut_count - 1);
    return harpe_trace_note(c->trace, HARPE_TRACE_NOTE_OVERLAP, c->error,
                            "%s: %s takes %s s, but the next event of its stream starts after "
                            "%s s: it is cut there%s",
                            c->trace->file, name_of(c, longest).text, HARPE_DIGITS(longest_s, 6),
                            HARPE_DIGITS(longest->time_s, 6), more);
}

/* ---- Starts far from the others -------------------------------------------------------------- */

/* The longest time in which nothing runs on the GPU. */
typedef struct pause {
    size_t after; /* events that start before it */
    double time_s;
    double whole_s; /* of the trace */
} pause;

static pause find_pause(const checker *c) {
    pause longest = {0};
    double end_s = c->by_start[0]->start_s;
    for (size_t i = 0; i < c->trace->event_count; i++) {
        double pause_s = c->by_start[i]->start_s - end_s;
        if (pause_s > longest.time_s) longest = (pause){.after = i, .time_s = pause_s};
        end_s = fmax(end_s, harpe_trace_end_s(c->by_start[i]));
    }
    longest.whole_s = end_s - c->by_start[0]->start_s;
    return longest;
}

static harpe_status check_pause(const checker *c) {
    size_t count = c->trace->event_count;
    qsort(c->by_start, count, sizeof *c->by_start, compare_starts);
    pause longest = find_pause(c);
    if (2 * longest.time_s <= longest.whole_s) return HARPE_OK;
    bool is_early = longest.after <= count / 2; /* the fewer events are the doubtful ones */
    size_t few = is_early ? longest.after : count - longest.after;
    event_name name = name_of(c, c->by_start[is_early ? 0 : longest.after]);
    char more[64] = "";
    if (few > 1) (void)snprintf(more, sizeof more, " and %zu more", few - 1);
    if (longest.whole_s > HARPE_TRACE_TIME_MAX_S) {
        return harpe_fail(
            c->error, HARPE_INVALID_INPUT,
            "%s: %s%s: %s s %s all other events on the GPU, and a step cannot take so "
            "long: the recording is damaged, take these events out",
            c->trace->file, name.text, more, HARPE_DIGITS(longest.time_s, 6),
            is_early ? "before" : "after");
    }
    return harpe_trace_note(c->trace, HARPE_TRACE_NOTE_PAUSE, c->error,
                            "%s: nothing runs on the GPU in %s of %s s, %s %s%s: does the trace "
                            "show one step, and is this start right?",
                            c->trace->file, HARPE_DIGITS(longest.time_s, 6),
                            HARPE_DIGITS(longest.whole_s, 6), is_early ? "after" : "before",
                            name.text, more);
}

/* The events of a stream run one after another, so this function cuts each event at the start of
 * the next one on its stream, and adds a note. It adds another note about a pause that takes most
 * of the trace. It fails if the time between an event and the others is longer than any step.
 * `list` is the list of events in the file. O(n log n) */
static harpe_status check_times(const json_t *list, harpe_trace *trace, harpe_error *error) {
    checker c = {list, trace, harpe_calloc(trace->event_count, sizeof(harpe_trace_event *)), error};
    if (!c.by_start) return harpe_fail_memory(error);
    for (size_t i = 0; i < trace->event_count; i++)
        c.by_start[i] = &trace->events[i];
    harpe_status status = cut_overlaps(&c);
    if (status == HARPE_OK) status = check_pause(&c);
    free(c.by_start);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

#define STEP_PREFIX "ProfilerStep#"
#define MICROSECOND 1e-6

/* The part of a trace that is read. */
typedef struct window {
    int64_t step; /* -1: everything */
    double start_us, end_us;
} window;

typedef struct reader {
    const json_t *events;
    harpe_trace *trace;
    double device;  /* of all events so far; NaN: none yet */
    double zero_us; /* time of the first event in the file: so that differences are exact */
    size_t untimed_count, first_untimed;
    harpe_error *error;
} reader;

/* ---- Members --------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text && *text ? text : NULL;
}

/* Some versions write numbers as texts. Returns `absent` for anything else. */
static double number_of(const json_t *object, const char *key, double absent) {
    const json_t *value = json_object_get(object, key);
    double number = absent;
    if (json_is_string(value))
        (void)harpe_parse_double(json_string_value(value), json_string_length(value), &number);
    return json_is_number(value) ? json_number_value(value) : number;
}

static int64_t integer_of(const json_t *object, const char *key, int64_t absent) {
    double number = number_of(object, key, NAN);
    return fabs(number) < 9e15 ? (int64_t)number : absent;
}

/* PyTorch 1.8 to 1.11 write "Kernel", later versions "kernel". */
static bool is_one_of(const char *text, const char *const *names) {
    for (; *names; names++)
        if (strcasecmp(text, *names) == 0) return true;
    return false;
}

/* Returns true for an event with a duration, of one of the categories. */
static bool is_event(const json_t *event, const char *const *categories) {
    const char *phase = text_of(event, "ph"), *category = text_of(event, "cat");
    return phase && strcmp(phase, "X") == 0 && category && is_one_of(category, categories);
}

static harpe_status fail_at(const reader *r, size_t index, const char *what) {
    return harpe_fail(r->error, HARPE_INVALID_INPUT, "%s: traceEvents[%zu]: %s", r->trace->file,
                      index, what);
}

/* Reads when an event started and how long it took. */
static harpe_status read_times(const reader *r, const json_t *event, size_t index, double *start_us,
                               double *time_us) {
    *start_us = number_of(event, "ts", NAN);
    *time_us = number_of(event, "dur", NAN);
    if (isnan(*start_us)) return fail_at(r, index, "a GPU event without a time (\"ts\")");
    if (isnan(*time_us)) {
        return fail_at(r, index,
                       "a GPU event without a duration (\"dur\"): the recording was cut off; use a "
                       "complete trace");
    }
    if (*time_us < 0 || *time_us * MICROSECOND > HARPE_TRACE_TIME_MAX_S)
        return fail_at(r, index, "its duration (\"dur\") is not between 0 and 1e11 us");
    return HARPE_OK;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Finds the wanted step among the events of some categories. torch.profiler marks a step on the
 * CPU, and the kernels that the step has started on the GPU. */
static harpe_status find_step(const reader *r, const char *const *categories, int64_t wanted,
                              window *out) {
    size_t index;
    const json_t *event;
    json_array_foreach(r->events, index, event) {
        const char *name = text_of(event, "name");
        int64_t number;
        if (!name || strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) != 0) continue;
        name += strlen(STEP_PREFIX);
        if (!is_event(event, categories) || !harpe_parse_int(name, strlen(name), &number)) continue;
        if (number < 0 || number < out->step) continue;
        if (wanted != HARPE_TRACE_LAST_STEP && number != wanted) continue;
        double start_us, time_us;
        harpe_status status = read_times(r, event, index, &start_us, &time_us);
        if (status != HARPE_OK) return status;
        bool is_new = number != out->step;
        /* One step may be marked on several streams. */
        out->start_us = is_new ? start_us : fmin(out->start_us, start_us);
        out->end_us = is_new ? start_us + time_us : fmax(out->end_us, start_us + time_us);
        out->step = number;
    }
    return HARPE_OK;
}

static harpe_status find_window(const reader *r, int64_t wanted, window *out) {
    static const char *const on_gpu[] = {"gpu_user_annotation", NULL};
    static const char *const on_cpu[] = {"user_annotation", "cpu_op", "operator", NULL};
    *out = (window){.step = -1};
    harpe_status status = find_step(r, on_gpu, wanted, out);
    if (status == HARPE_OK && out->step < 0) status = find_step(r, on_cpu, wanted, out);
    if (status != HARPE_OK || out->step >= 0) return status;
    *out = (window){.step = -1, .start_us = -INFINITY, .end_us = INFINITY};
    if (wanted == HARPE_TRACE_LAST_STEP) return HARPE_OK;
    return harpe_fail(r->error, HARPE_NOT_FOUND,
                      "%s: there is no step %" PRId64 " (no event " STEP_PREFIX "%" PRId64
                      "): choose another with --step",
                      r->trace->file, wanted, wanted);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static harpe_status copy_text(const reader *r, const char *text, const char **out) {
    *out = text ? harpe_arena_strdup(&r->trace->arena, text, strlen(text)) : NULL;
    return text && !*out ? harpe_fail_memory(r->error) : HARPE_OK;
}

/* Reads what names a communication. torch.profiler writes the group and the sequence number at the
 * kernel; a kernel that sends and receives at once (coalesced) has no single partner. */
static harpe_status read_communication(const reader *r, const char *kernel, const json_t *arguments,
                                       harpe_trace_event *out) {
    const char *collective = text_of(arguments, "Collective name");
    const char *group = collective ? text_of(arguments, "Process Group Name") : NULL;
    bool is_send = collective && strcmp(collective, "send") == 0;
    bool is_receive = collective && strcmp(collective, "recv") == 0;
    out->kind = HARPE_TRACE_COLLECTIVE;
    if (is_send || is_receive) { /* sender and receiver count sequence numbers differently */
        out->kind = is_send ? HARPE_TRACE_SEND : HARPE_TRACE_RECEIVE;
        out->source = integer_of(arguments, "Src Rank", is_send ? r->trace->rank : -1);
        out->target = integer_of(arguments, "Dst Rank", is_receive ? r->trace->rank : -1);
        if (out->source < 0 || out->target < 0 || out->source == out->target) group = NULL;
    } else if (!collective) {
        group = "";
        out->matches_by_end = true;
    } else {
        out->sequence = integer_of(arguments, "Seq", -1);
        if (strstr(collective, "coalesced")) group = NULL;
    }
    harpe_status status = copy_text(r, group, &out->group);
    return status == HARPE_OK ? copy_text(r, collective ? collective : kernel, &out->name) : status;
}

static harpe_status check_device(reader *r, const json_t *event, const json_t *arguments,
                                 size_t index) {
    double device = number_of(arguments, "device", number_of(event, "pid", 0));
    if (!isnan(r->device) && device != r->device) {
        return fail_at(r, index,
                       "the trace has events of two GPUs: one trace for each GPU is needed");
    }
    r->device = device;
    return HARPE_OK;
}

static harpe_status read_event(reader *r, const json_t *event, size_t index, const window *part) {
    static const char *const copies[] = {"gpu_memcpy", "gpu_memset", "memcpy", "memset", NULL};
    double start_us, time_us;
    harpe_status status = read_times(r, event, index, &start_us, &time_us);
    if (status != HARPE_OK || start_us < part->start_us || start_us >= part->end_us) return status;
    if (start_us == 0 && time_us == 0) { /* Kineto could not relate the kernel to a time */
        if (r->untimed_count++ == 0) r->first_untimed = index;
        return HARPE_OK;
    }
    const json_t *arguments = json_object_get(event, "args");
    if (r->trace->event_count == 0) {
        r->zero_us = start_us;
        r->trace->zero_s = start_us * MICROSECOND;
    }
    harpe_trace_event out = {
        .kind = HARPE_TRACE_COMPUTE,
        .is_copy = is_event(event, copies),
        .stream = integer_of(arguments, "stream", integer_of(event, "tid", -1)),
        .start_s = (start_us - r->zero_us) * MICROSECOND,
        .time_s = time_us * MICROSECOND,
        .sequence = -1,
        .id = index,
    };
    const char *name = text_of(event, "name");
    bool is_named = name && harpe_kernel_names_communicate(r->trace->names, name, out.time_s);
    if (is_named || (!out.is_copy && text_of(arguments, "Collective name")))
        status = read_communication(r, name, arguments, &out);
    if (status == HARPE_OK) status = check_device(r, event, arguments, index);
    return status == HARPE_OK ? harpe_trace_add(r->trace, &out, r->error) : status;
}

/* Ends the reading of a trace of which some events were read. */
static harpe_status finish(const reader *r) {
    harpe_status status = check_times(r->events, r->trace, r->error);
    if (status != HARPE_OK || r->untimed_count == 0) return status;
    char more[64] = "";
    if (r->untimed_count > 1)
        (void)snprintf(more, sizeof more, ", as are %zu more", r->untimed_count - 1);
    return harpe_trace_note(r->trace, HARPE_TRACE_NOTE_UNTIMED, r->error,
                            "%s: traceEvents[%zu] has no times (\"ts\": 0, \"dur\": 0): it is left "
                            "out%s",
                            r->trace->file, r->first_untimed, more);
}

harpe_status harpe_trace_read_kineto(const json_t *root, int64_t step, harpe_trace *trace,
                                     harpe_error *error) {
    static const char *const on_gpu[] = {"kernel", "gpu_memcpy", "gpu_memset",
                                         "memcpy", "memset",     NULL};
    const json_t *events = json_is_array(root) ? root : json_object_get(root, "traceEvents");
    reader r = {.events = events, .trace = trace, .device = NAN, .error = error};
    if (!json_is_array(events)) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: not a Kineto trace: it has no list \"traceEvents\"", trace->file);
    }
    window part;
    trace->rank = integer_of(json_object_get(root, "distributedInfo"), "rank", trace->rank);
    harpe_status status = find_window(&r, step, &part);
    if (status != HARPE_OK) return status;
    trace->step = part.step;
    size_t index, on_gpu_count = 0;
    const json_t *event;
    json_array_foreach(events, index, event) {
        if (!is_event(event, on_gpu)) continue;
        on_gpu_count++;
        status = read_event(&r, event, index, &part);
        if (status != HARPE_OK) return status;
    }
    if (trace->event_count > 0) return finish(&r);
    if (r.untimed_count > 0)
        return fail_at(&r, r.first_untimed, "no event on the GPU has a time and a duration");
    if (on_gpu_count == 0) {
        return harpe_fail(error, HARPE_INVALID_INPUT,
                          "%s: none of its %zu events is on a GPU: record with "
                          "ProfilerActivity.CUDA",
                          trace->file, json_array_size(events));
    }
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: none of its %zu events on the GPU starts in step %" PRId64
                      ", which takes %g s: choose another with --step",
                      trace->file, on_gpu_count, part.step,
                      (part.end_us - part.start_us) * MICROSECOND);
}
