/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the waits of pieces and communications. A piece waits for the piece before it, and for the
 * communications whose result it needs. A communication waits, on each of its ranks, for a piece
 * and for earlier communications. */
#include "trace/trace_waits.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

/* The kept communications of one rank, in the order of their ends. */
typedef struct ending {
    double end_s;
    size_t part;
} ending;

typedef struct finder {
    const harpe_trace *traces;
    const harpe_communications *communications;
    const harpe_activities *activities;
    harpe_trace_waits *out;
    size_t *last_waiter; /* [activities]: the last one, plus 1, that waits for it */
    size_t *last_item;   /* [activities]: the wait of this last one */
    size_t waiter;       /* whose waits are found now */
    /* The latest end among the waits that were found since `begin`, and its wait. */
    double latest_s;
    size_t latest;
    ending **endings; /* [traces] */
    size_t *ending_count;
    size_t *seen, *stack; /* [events of the largest trace]: for walks along dependencies */
    harpe_error *error;
} finder;

static const harpe_trace_event *event_of(const finder *f, size_t part) {
    const harpe_communication_part *p = &f->communications->parts[part];
    return &f->traces[p->trace].events[p->event];
}

static double end_of(const harpe_trace_event *event) { return event->start_s + event->time_s; }

/* ---- Adding waits ---------------------------------------------------------------------------- */

/* Begins the waits of an activity on one of its ranks. */
static void begin(finder *f) {
    f->latest_s = -INFINITY;
    f->latest = HARPE_TRACE_NONE;
}

static harpe_status add(finder *f, size_t activity, double end_s) {
    if (f->last_waiter[activity] != f->waiter + 1) { /* another rank may have added it */
        if (!HARPE_ARRAY_RESERVE(f->out->items, f->out->capacity, f->out->count + 1))
            return harpe_fail_memory(f->error);
        f->last_waiter[activity] = f->waiter + 1;
        f->last_item[activity] = f->out->count;
        f->out->items[f->out->count++] = (harpe_trace_wait){.activity = activity};
    }
    if (end_s < f->latest_s) return HARPE_OK;
    f->latest_s = end_s;
    f->latest = f->last_item[activity];
    return HARPE_OK;
}

static harpe_status add_communication(finder *f, size_t part) {
    const harpe_communication_part *p = &f->communications->parts[part];
    size_t number = f->communications->of_event[p->trace][p->event];
    return add(f, f->activities->piece_count + number, end_of(event_of(f, part)));
}

/* Ends the waits of an activity that starts at this time on the rank. */
static void finish(finder *f, size_t trace, double start_s) {
    double after_s =
        f->latest == HARPE_TRACE_NONE ? f->activities->lanes[trace].zero_s : f->latest_s;
    double *longest_s = f->latest == HARPE_TRACE_NONE ? &f->out->release_s[f->waiter]
                                                      : &f->out->items[f->latest].lag_s;
    *longest_s = fmax(*longest_s, start_s - after_s);
}

/* ---- Communications -------------------------------------------------------------------------- */

/* Without dependencies: adds the communications that had ended when this one started. Those that
 * had ended before another one of them, or the last piece, started are left out. */
static harpe_status add_earlier_by_time(finder *f, size_t part, double piece_start_s) {
    size_t trace = f->communications->parts[part].trace;
    double start_s = event_of(f, part)->start_s;
    const ending *list = f->endings[trace];
    size_t low = 0, high = f->ending_count[trace];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list[middle].end_s <= start_s + HARPE_TRACE_RESOLUTION_S)
            low = middle + 1;
        else
            high = middle;
    }
    double latest_start_s = piece_start_s;
    for (size_t i = low; i-- > 0 && list[i].end_s >= latest_start_s;) {
        const harpe_trace_event *event = event_of(f, list[i].part);
        /* This one is in the list, too. A shorter one than the resolution needs an exact order. */
        double tolerance_s = fmin(HARPE_TRACE_RESOLUTION_S, event->time_s / 2);
        bool is_together = event->start_s == start_s && list[i].part >= part;
        if (is_together || event->start_s > start_s || list[i].end_s > start_s + tolerance_s)
            continue;
        latest_start_s = fmax(latest_start_s, event->start_s);
        harpe_status status = add_communication(f, list[i].part);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

/* With dependencies: adds the communications to which a path leads that passes only through nodes
 * outside of the GPU and communications that are not kept. */
static harpe_status add_earlier_by_dependencies(finder *f, size_t part) {
    const harpe_communication_part *p = &f->communications->parts[part];
    const harpe_trace *trace = &f->traces[p->trace];
    size_t depth = 0, mark = part + 1;
    f->stack[depth++] = p->event;
    f->seen[p->event] = mark;
    while (depth > 0) {
        const harpe_trace_event *event = &trace->events[f->stack[--depth]];
        for (size_t k = 0; k < event->wait_count; k++) {
            size_t other = event->waits[k];
            size_t number = f->communications->of_event[p->trace][other];
            if (f->seen[other] == mark || trace->events[other].kind == HARPE_TRACE_COMPUTE)
                continue;
            f->seen[other] = mark;
            if (number != HARPE_TRACE_NONE && f->activities->is_kept[number]) {
                harpe_status status =
                    add(f, f->activities->piece_count + number, end_of(&trace->events[other]));
                if (status != HARPE_OK) return status;
            } else {
                f->stack[depth++] = other;
            }
        }
    }
    return HARPE_OK;
}

static harpe_status find_part(finder *f, size_t part) {
    size_t trace = f->communications->parts[part].trace;
    const harpe_trace_lane *lane = &f->activities->lanes[trace];
    size_t need = f->activities->places[part].need;
    double piece_start_s = -INFINITY;
    harpe_status status = HARPE_OK;
    begin(f);
    if (need > 0) {
        const harpe_trace_piece *piece = &f->activities->pieces[lane->piece_of[need - 1]];
        piece_start_s = piece->start_s;
        status = add(f, lane->piece_of[need - 1], piece->end_s);
    }
    if (status != HARPE_OK) return status;
    status = f->traces[trace].has_dependencies ? add_earlier_by_dependencies(f, part)
                                               : add_earlier_by_time(f, part, piece_start_s);
    if (status == HARPE_OK) finish(f, trace, event_of(f, part)->start_s);
    return status;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* Returns the piece that waits for a part of a kept communication, or HARPE_TRACE_NONE. */
static size_t piece_after(const finder *f, size_t part) {
    size_t trace = f->communications->parts[part].trace, next = f->activities->places[part].next;
    const harpe_trace_lane *lane = &f->activities->lanes[trace];
    while (next != HARPE_TRACE_NONE && next < lane->block_count && !lane->is_cut[next])
        next = f->activities->pieces[lane->piece_of[next]].end_block;
    return next < lane->block_count ? lane->piece_of[next] : HARPE_TRACE_NONE;
}

/* Lists the parts for which each piece waits: first[piece] is the begin in the list. */
static harpe_status list_parts(const finder *f, size_t **first, size_t **list) {
    size_t pieces = f->activities->piece_count, parts = f->communications->part_count;
    *first = harpe_calloc(pieces + 2, sizeof **first);
    *list = harpe_calloc(parts, sizeof **list);
    if (!*first || !*list) return harpe_fail_memory(f->error);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t p = 0; p < parts; p++) {
            const harpe_communication_part *part = &f->communications->parts[p];
            size_t number = f->communications->of_event[part->trace][part->event];
            size_t piece = f->activities->is_kept[number] ? piece_after(f, p) : HARPE_TRACE_NONE;
            if (piece == HARPE_TRACE_NONE) continue;
            if (pass == 0)
                (*first)[piece + 2]++;
            else
                (*list)[(*first)[piece + 1]++] = p;
        }
        for (size_t i = 2; i < pieces + 2 && pass == 0; i++)
            (*first)[i] += (*first)[i - 1];
    }
    return HARPE_OK;
}

static harpe_status find_all(finder *f) {
    size_t pieces = f->activities->piece_count, *first = NULL, *list = NULL;
    harpe_status status = list_parts(f, &first, &list);
    for (size_t i = 0; i < pieces && status == HARPE_OK; i++) {
        const harpe_trace_piece *piece = &f->activities->pieces[i];
        f->waiter = i;
        f->out->first[i] = f->out->count;
        begin(f);
        if (piece->first_block > 0) status = add(f, i - 1, f->activities->pieces[i - 1].end_s);
        for (size_t k = first[i]; k < first[i + 1] && status == HARPE_OK; k++)
            status = add_communication(f, list[k]);
        finish(f, piece->trace, piece->start_s);
    }
    free(first);
    free(list);
    for (size_t c = 0; c < f->communications->count && status == HARPE_OK; c++) {
        const harpe_communication *item = &f->communications->items[c];
        f->waiter = pieces + c;
        f->out->first[f->waiter] = f->out->count;
        size_t end = f->activities->is_kept[c] ? item->first_part + item->part_count : 0;
        for (size_t p = item->first_part; p < end && status == HARPE_OK; p++)
            status = find_part(f, p);
    }
    f->out->first[pieces + f->communications->count] = f->out->count;
    return status;
}

/* ---- Preparation ----------------------------------------------------------------------------- */

static int compare_endings(const void *left, const void *right) {
    const ending *a = left, *b = right;
    if (a->end_s != b->end_s) return a->end_s < b->end_s ? -1 : 1;
    return (a->part > b->part) - (a->part < b->part);
}

static harpe_status list_endings(finder *f, size_t trace_count) {
    f->endings = harpe_calloc(trace_count, sizeof *f->endings);
    f->ending_count = harpe_calloc(trace_count, sizeof *f->ending_count);
    if (!f->endings || !f->ending_count) return harpe_fail_memory(f->error);
    for (size_t t = 0; t < trace_count; t++) {
        f->endings[t] = harpe_calloc(f->traces[t].event_count, sizeof **f->endings);
        if (!f->endings[t]) return harpe_fail_memory(f->error);
    }
    for (size_t p = 0; p < f->communications->part_count; p++) {
        const harpe_communication_part *part = &f->communications->parts[p];
        if (!f->activities->is_kept[f->communications->of_event[part->trace][part->event]])
            continue;
        f->endings[part->trace][f->ending_count[part->trace]++] =
            (ending){.end_s = end_of(event_of(f, p)), .part = p};
    }
    for (size_t t = 0; t < trace_count; t++)
        qsort(f->endings[t], f->ending_count[t], sizeof **f->endings, compare_endings);
    return HARPE_OK;
}

harpe_status harpe_trace_waits_find(const harpe_trace *traces, size_t trace_count,
                                    const harpe_communications *communications,
                                    const harpe_activities *activities, harpe_trace_waits *out,
                                    harpe_error *error) {
    finder f = {.traces = traces,
                .communications = communications,
                .activities = activities,
                .out = out,
                .error = error};
    size_t count = activities->piece_count + communications->count, most = 0;
    for (size_t t = 0; t < trace_count; t++)
        most = traces[t].event_count > most ? traces[t].event_count : most;
    *out = (harpe_trace_waits){0};
    out->first = harpe_calloc(count + 1, sizeof *out->first);
    out->release_s = harpe_calloc(count, sizeof *out->release_s);
    f.last_waiter = harpe_calloc(count, sizeof *f.last_waiter);
    f.last_item = harpe_calloc(count, sizeof *f.last_item);
    f.seen = harpe_calloc(most, sizeof *f.seen);
    f.stack = harpe_calloc(most, sizeof *f.stack);
    bool has_memory =
        out->first && out->release_s && f.last_waiter && f.last_item && f.seen && f.stack;
    harpe_status status = has_memory ? list_endings(&f, trace_count) : harpe_fail_memory(error);
    if (status == HARPE_OK) status = find_all(&f);
    for (size_t t = 0; f.endings && t < trace_count; t++)
        free(f.endings[t]);
    free(f.endings);
    free(f.ending_count);
    free(f.last_waiter);
    free(f.last_item);
    free(f.seen);
    free(f.stack);
    return status;
}

void harpe_trace_waits_free(harpe_trace_waits *waits) {
    free(waits->first);
    free(waits->items);
    free(waits->release_s);
    *waits = (harpe_trace_waits){0};
}
