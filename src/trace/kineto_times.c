/* SPDX-License-Identifier: Apache-2.0 */
/* Finds times that cannot be right. Some profilers let a kernel end after the next kernels of its
 * stream have started, or give it a start that is minutes away from all others. */
#include "trace/kineto_times.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

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

static double end_of(const harpe_trace_event *event) { return event->start_s + event->time_s; }

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
        double overlap_s = end_of(event) - next->start_s;
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
        end_s = fmax(end_s, end_of(c->by_start[i]));
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

harpe_status harpe_kineto_check_times(const json_t *list, harpe_trace *trace, harpe_error *error) {
    checker c = {list, trace, harpe_calloc(trace->event_count, sizeof(harpe_trace_event *)), error};
    if (!c.by_start) return harpe_fail_memory(error);
    for (size_t i = 0; i < trace->event_count; i++)
        c.by_start[i] = &trace->events[i];
    harpe_status status = cut_overlaps(&c);
    if (status == HARPE_OK) status = check_pause(&c);
    free(c.by_start);
    return status;
}
