/* SPDX-License-Identifier: Apache-2.0 */
/* Matches the communications of several ranks. A trace does not name the events of other ranks, so
 * the match uses what both sides know: the group, the ranks, and the position in their order. */
#include "trace/communications.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* The sides of a communication end nearly at the same time, compared with the shorter side. Sides
 * of which the traces name no group match only then, and so only on machines with equal clocks. */
#define END_SHARE 0.2

/* What both sides of a communication know. */
typedef struct entry {
    const harpe_trace_event *event;
    size_t trace, index;
    double end_s;      /* on the clock of the machine */
    size_t occurrence; /* how many events of this rank have the same key, and come before */
} entry;

#define COMPARE(a, b) ((a) > (b)) - ((a) < (b))

/* Compares two texts, of which NULL is the smallest. */
static int compare_texts(const char *a, const char *b) {
    if (!a || !b) return COMPARE(a != NULL, b != NULL);
    return strcmp(a, b);
}

/* Compares what the events say about their communication. */
static int compare_keys(const entry *a, const entry *b) {
    const harpe_trace_event *left = a->event, *right = b->event;
    bool left_is_collective = left->kind == HARPE_TRACE_COLLECTIVE;
    bool right_is_collective = right->kind == HARPE_TRACE_COLLECTIVE;
    int order = COMPARE(left_is_collective, right_is_collective);
    if (order == 0) order = compare_texts(left->group, right->group);
    if (order != 0 || !left->group) return order;
    if (left_is_collective) {
        order = compare_texts(left->name, right->name);
    } else {
        order = COMPARE(left->source, right->source);
        if (order == 0) order = COMPARE(left->target, right->target);
        if (order == 0) order = COMPARE(left->tag, right->tag);
    }
    return order != 0 ? order : COMPARE(left->sequence, right->sequence);
}

/* Orders by key, then by side, then in the order of the rank. */
static int compare_in_rank(const void *left, const void *right) {
    const entry *a = left, *b = right;
    int order = compare_keys(a, b);
    if (order == 0) order = COMPARE(a->trace, b->trace);
    if (order == 0) order = COMPARE(a->event->kind, b->event->kind);
    if (order == 0) order = COMPARE(a->event->start_s, b->event->start_s);
    return order != 0 ? order : COMPARE(a->index, b->index);
}

/* Brings the sides of one communication together. */
static int compare_across(const void *left, const void *right) {
    const entry *a = left, *b = right;
    int order = compare_keys(a, b);
    if (order == 0) order = COMPARE(a->occurrence, b->occurrence);
    if (order == 0 && a->event->matches_by_end) order = COMPARE(a->end_s, b->end_s);
    if (order == 0) order = COMPARE(a->trace, b->trace);
    return order != 0 ? order : COMPARE(a->index, b->index);
}

/* Counts the occurrences. Every event without a group is alone. */
static void count_occurrences(entry *entries, size_t count) {
    qsort(entries, count, sizeof *entries, compare_in_rank);
    for (size_t i = 1; i < count; i++) {
        const entry *before = &entries[i - 1];
        bool is_next =
            compare_keys(before, &entries[i]) == 0 &&
            (!entries[i].event->group ||
             (before->trace == entries[i].trace && before->event->kind == entries[i].event->kind));
        if (is_next) entries[i].occurrence = before->occurrence + 1;
    }
}

/* `before` and `after` have the same key and occurrence, and `after` does not end earlier. */
static bool is_too_late(const entry *before, const entry *after) {
    double shorter_s = fmin(before->event->time_s, after->event->time_s);
    return after->event->matches_by_end && after->end_s - before->end_s > END_SHARE * shorter_s;
}

static void fill(const entry *entries, size_t count, harpe_communications *out) {
    for (size_t i = 0; i < count; i++) {
        bool is_new = i == 0 || compare_keys(&entries[i - 1], &entries[i]) != 0 ||
                      entries[i - 1].occurrence != entries[i].occurrence ||
                      is_too_late(&entries[i - 1], &entries[i]);
        if (is_new)
            out->items[out->count++] = (harpe_communication){.first_part = i, .time_s = INFINITY};
        harpe_communication *item = &out->items[out->count - 1];
        item->part_count++;
        item->time_s = fmin(item->time_s, entries[i].event->time_s);
        out->parts[i] = (harpe_communication_part){entries[i].trace, entries[i].index};
        out->of_event[entries[i].trace][entries[i].index] = out->count - 1;
    }
    out->part_count = count;
}

static harpe_status allocate(const harpe_trace *traces, size_t trace_count, size_t count,
                             harpe_communications *out, harpe_error *error) {
    out->items = harpe_calloc(count, sizeof *out->items);
    out->parts = harpe_calloc(count, sizeof *out->parts);
    out->of_event = harpe_calloc(trace_count, sizeof *out->of_event);
    if (!out->items || !out->parts || !out->of_event) return harpe_fail_memory(error);
    for (size_t t = 0; t < trace_count; t++) {
        out->of_event[t] = harpe_calloc(traces[t].event_count, sizeof **out->of_event);
        if (!out->of_event[t]) return harpe_fail_memory(error);
        for (size_t i = 0; i < traces[t].event_count; i++)
            out->of_event[t][i] = HARPE_TRACE_NONE;
    }
    return HARPE_OK;
}

harpe_status harpe_communications_match(const harpe_trace *traces, size_t trace_count,
                                        harpe_communications *out, harpe_error *error) {
    size_t count = 0, capacity = 0;
    entry *entries = NULL;
    harpe_status status = HARPE_OK;
    *out = (harpe_communications){0};
    for (size_t t = 0; t < trace_count && status == HARPE_OK; t++) {
        for (size_t i = 0; i < traces[t].event_count; i++) {
            const harpe_trace_event *event = &traces[t].events[i];
            if (!harpe_trace_is_communication(event)) continue;
            if (!HARPE_ARRAY_RESERVE(entries, capacity, count + 1)) {
                status = harpe_fail_memory(error);
                break;
            }
            double end_s = traces[t].zero_s + event->start_s + event->time_s;
            entries[count++] = (entry){.event = event, .trace = t, .index = i, .end_s = end_s};
        }
    }
    if (status == HARPE_OK) status = allocate(traces, trace_count, count, out, error);
    if (status == HARPE_OK && count > 0) {
        count_occurrences(entries, count);
        qsort(entries, count, sizeof *entries, compare_across);
        fill(entries, count, out);
    }
    free(entries);
    if (status != HARPE_OK) harpe_communications_free(out, trace_count);
    return status;
}

void harpe_communications_free(harpe_communications *communications, size_t trace_count) {
    for (size_t t = 0; communications->of_event && t < trace_count; t++)
        free(communications->of_event[t]);
    free(communications->of_event);
    free(communications->items);
    free(communications->parts);
    *communications = (harpe_communications){0};
}
