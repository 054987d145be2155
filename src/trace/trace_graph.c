/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a graph of the pieces and communications of a job. A trace has one time for each activity,
 * at one clock, and no energy. The other times and the energies come from the laws of
 * plan/synth.h. */
#include "trace/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"
#include "plan/synth.h"

/* ---- Waits ----------------------------------------------------------------------------------- */

/* Finds the waits of pieces and communications. A piece waits for the piece before it, and for the
 * communications whose result it needs. A communication waits, on each of its ranks, for a piece
 * and for earlier communications. */

/* An activity that must end before another one. */
typedef struct trace_wait {
    size_t activity; /* a piece, or the number of pieces plus a communication */
    double lag_s;
} trace_wait;

/* The waits of all pieces and kept communications. */
typedef struct trace_waits {
    size_t *first; /* [pieces + communications + 1]: into items */
    size_t count, capacity;
    trace_wait *items;
    double *release_s; /* [pieces + communications]: of those that wait for nothing on a rank */
} trace_waits;

/* The kept communications of one rank, in the order of their ends. */
typedef struct ending {
    double end_s;
    size_t part;
} ending;

typedef struct finder {
    harpe_arena arena; /* of what is needed until the waits are found */
    const harpe_trace *traces;
    const harpe_communications *communications;
    const harpe_activities *activities;
    trace_waits *out;
    size_t *last_waiter; /* [activities]: the last one, plus 1, that waits for it */
    size_t *last_item;   /* [activities]: the wait of this last one */
    size_t waiter;       /* whose waits are found now */
    /* The latest end among the waits that were found since `begin_waits`, and its wait. */
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

/* ---- Adding waits ---------------------------------------------------------------------------- */

/* Begins the waits of an activity on one of its ranks. */
static void begin_waits(finder *f) {
    f->latest_s = -INFINITY;
    f->latest = HARPE_TRACE_NONE;
}

static harpe_status add_wait(finder *f, size_t activity, double end_s) {
    if (f->last_waiter[activity] != f->waiter + 1) { /* another rank may have added it */
        if (!HARPE_ARRAY_RESERVE(f->out->items, f->out->capacity, f->out->count + 1))
            return harpe_fail_memory(f->error);
        f->last_waiter[activity] = f->waiter + 1;
        f->last_item[activity] = f->out->count;
        f->out->items[f->out->count++] = (trace_wait){.activity = activity};
    }
    if (end_s < f->latest_s) return HARPE_OK;
    f->latest_s = end_s;
    f->latest = f->last_item[activity];
    return HARPE_OK;
}

static harpe_status add_communication(finder *f, size_t part) {
    const harpe_communication_part *p = &f->communications->parts[part];
    size_t number = f->communications->of_event[p->trace][p->event];
    return add_wait(f, f->activities->piece_count + number, harpe_trace_end_s(event_of(f, part)));
}

/* Ends the waits of an activity that starts at this time on the rank. */
static void finish_waits(finder *f, size_t trace, double start_s) {
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
                harpe_status status = add_wait(f, f->activities->piece_count + number,
                                               harpe_trace_end_s(&trace->events[other]));
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
    begin_waits(f);
    if (need > 0) {
        const harpe_trace_piece *piece = &f->activities->pieces[lane->piece_of[need - 1]];
        piece_start_s = piece->start_s;
        status = add_wait(f, lane->piece_of[need - 1], piece->end_s);
    }
    if (status != HARPE_OK) return status;
    status = f->traces[trace].has_dependencies ? add_earlier_by_dependencies(f, part)
                                               : add_earlier_by_time(f, part, piece_start_s);
    if (status == HARPE_OK) finish_waits(f, trace, event_of(f, part)->start_s);
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
static harpe_status list_parts(finder *f, size_t **first, size_t **list) {
    size_t pieces = f->activities->piece_count, parts = f->communications->part_count;
    *first = harpe_arena_alloc(&f->arena, pieces + 2, sizeof **first);
    *list = harpe_arena_alloc(&f->arena, parts, sizeof **list);
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
        begin_waits(f);
        if (piece->first_block > 0) status = add_wait(f, i - 1, f->activities->pieces[i - 1].end_s);
        for (size_t k = first[i]; k < first[i + 1] && status == HARPE_OK; k++)
            status = add_communication(f, list[k]);
        finish_waits(f, piece->trace, piece->start_s);
    }
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
    f->endings = harpe_arena_alloc(&f->arena, trace_count, sizeof *f->endings);
    f->ending_count = harpe_arena_alloc(&f->arena, trace_count, sizeof *f->ending_count);
    if (!f->endings || !f->ending_count) return harpe_fail_memory(f->error);
    for (size_t t = 0; t < trace_count; t++) {
        f->endings[t] = harpe_arena_alloc(&f->arena, f->traces[t].event_count, sizeof **f->endings);
        if (!f->endings[t]) return harpe_fail_memory(f->error);
    }
    for (size_t p = 0; p < f->communications->part_count; p++) {
        const harpe_communication_part *part = &f->communications->parts[p];
        if (!f->activities->is_kept[f->communications->of_event[part->trace][part->event]])
            continue;
        f->endings[part->trace][f->ending_count[part->trace]++] =
            (ending){.end_s = harpe_trace_end_s(event_of(f, p)), .part = p};
    }
    for (size_t t = 0; t < trace_count; t++)
        qsort(f->endings[t], f->ending_count[t], sizeof **f->endings, compare_endings);
    return HARPE_OK;
}

/* The lag of the last activity for which another one waits is the time that passed after it in the
 * trace. What happens in this time, on the CPU for example, is not known; it is assumed to take the
 * same time always. */
static harpe_status find_waits(const harpe_trace *traces, size_t trace_count,
                               const harpe_communications *communications,
                               const harpe_activities *activities, harpe_arena *arena,
                               trace_waits *out, harpe_error *error) {
    finder f = {.traces = traces,
                .communications = communications,
                .activities = activities,
                .out = out,
                .error = error};
    size_t count = activities->piece_count + communications->count, most = 0;
    for (size_t t = 0; t < trace_count; t++)
        most = traces[t].event_count > most ? traces[t].event_count : most;
    out->first = harpe_arena_alloc(arena, count + 1, sizeof *out->first);
    out->release_s = harpe_arena_alloc(arena, count, sizeof *out->release_s);
    f.last_waiter = harpe_arena_alloc(&f.arena, count, sizeof *f.last_waiter);
    f.last_item = harpe_arena_alloc(&f.arena, count, sizeof *f.last_item);
    f.seen = harpe_arena_alloc(&f.arena, most, sizeof *f.seen);
    f.stack = harpe_arena_alloc(&f.arena, most, sizeof *f.stack);
    bool has_failed = arena->has_failed || f.arena.has_failed;
    harpe_status status = has_failed ? harpe_fail_memory(error) : list_endings(&f, trace_count);
    if (status == HARPE_OK) status = find_all(&f);
    harpe_arena_free(&f.arena);
    return status;
}

/* ---- The graph ------------------------------------------------------------------------------- */

#define CLOCKS_MAX 256
#define SHORTEST_OPTION_S 1e-9 /* of harpe_graph_option */

typedef struct maker {
    harpe_trace *traces;
    size_t trace_count;
    const harpe_trace_graph_options *options;
    size_t **order; /* of traces with dependencies */
    harpe_communications communications;
    harpe_activities activities;
    trace_waits waits;
    int clock_count;
    harpe_synth_clock clocks[CLOCKS_MAX]; /* the highest first */
    double blocking_power_w;
    harpe_arena arena; /* all arrays, but for waits.items */
    char **resource_names;
    harpe_graph_resource *resources;
    size_t count;                   /* of activities */
    size_t *number_of;              /* [pieces + communications]: of the activity */
    harpe_graph_activity *activity; /* [pieces + communications] */
    harpe_trace_graph_counts counts;
    harpe_error *error;
} maker;

/* ---- Checks ---------------------------------------------------------------------------------- */

static harpe_status check_traces(const maker *m) {
    for (size_t t = 0; t < m->trace_count; t++) {
        const harpe_trace *trace = &m->traces[t];
        if (trace->has_dependencies != m->traces[0].has_dependencies) {
            return harpe_fail(m->error, HARPE_INVALID_INPUT,
                              "%s: another format than %s: import traces of one format together",
                              trace->file, m->traces[0].file);
        }
        for (size_t other = 0; other < t; other++) {
            if (m->traces[other].rank != trace->rank) continue;
            return harpe_fail(m->error, HARPE_INVALID_INPUT,
                              "%s: a trace of rank %" PRId64 ", as is %s: give one trace for each "
                              "rank, with the rank in the file's name (rank3)",
                              trace->file, trace->rank, m->traces[other].file);
        }
    }
    return HARPE_OK;
}

static void read_model(maker *m) {
    const char *model = m->options->gpu_model;
    m->blocking_power_w = fmax(0, m->options->blocking_power_w);
    if (!model) return;
    if (m->options->blocking_power_w < 0) m->blocking_power_w = harpe_synth_blocking_power_w(model);
    while (m->clock_count < CLOCKS_MAX &&
           harpe_synth_clock_at(model, m->clock_count, &m->clocks[m->clock_count]))
        m->clock_count++;
}

/* ---- Names ----------------------------------------------------------------------------------- */

static char *format_name(maker *m, const char *format, ...) HARPE_PRINTF(2, 3);

static char *format_name(maker *m, const char *format, ...) {
    char name[HARPE_GRAPH_NAME_MAX + 1];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : harpe_arena_strdup(&m->arena, name, strlen(name));
}

/* Names a communication: "12.send.0-1", "13.allreduce". */
static char *name_communication(maker *m, size_t number) {
    const harpe_communication *item = &m->communications.items[number];
    const harpe_communication_part *part = &m->communications.parts[item->first_part];
    const harpe_trace_event *event = &m->traces[part->trace].events[part->event];
    char clean[64];
    harpe_clean_text(clean, sizeof clean, event->name ? event->name : "communication");
    clean[strcspn(clean, "(")] = '\0'; /* a kernel's arguments */
    if (event->kind == HARPE_TRACE_COLLECTIVE || !event->group)
        return format_name(m, "%zu.%s", number, clean);
    return format_name(m, "%zu.send.%" PRId64 "-%" PRId64, number, event->source, event->target);
}

static harpe_status name_ranks(maker *m) {
    for (size_t t = 0; t < m->trace_count; t++) {
        m->resource_names[t] = format_name(m, "rank%" PRId64, m->traces[t].rank);
        if (!m->resource_names[t]) return harpe_fail_memory(m->error);
        m->resources[t] = (harpe_graph_resource){m->resource_names[t], m->blocking_power_w};
    }
    return HARPE_OK;
}

/* The planner computes in picoseconds. Activities with equal times then have equal options, too. */
static double round_time(double time_s) { return floor(time_s * 1e12 + 0.5) / 1e12; }

static double round_energy(double energy_j) { return floor(energy_j * 1e6 + 0.5) / 1e6; }

/* ---- Activities ------------------------------------------------------------------------------ */

/* Computes what a piece takes and needs at one clock. While the GPU waits inside of the piece, it
 * draws its blocking power. */
static harpe_graph_option option_at(const maker *m, const harpe_trace_piece *piece,
                                    const harpe_synth_clock *clock) {
    double idle_s = fmax(0, piece->end_s - piece->start_s - piece->kernel_s - piece->copy_s);
    double busy_s = piece->copy_s + piece->kernel_s * harpe_synth_stretch(m->options->compute_share,
                                                                          clock->share_of_highest);
    return (harpe_graph_option){
        .time_s = round_time(busy_s + idle_s),
        .energy_j = round_energy(busy_s * clock->power_w + idle_s * m->blocking_power_w),
        .frequency_mhz = clock->frequency_mhz,
    };
}

static harpe_status fill_work(maker *m, const harpe_trace_piece *piece, harpe_graph_activity *out) {
    double time_s = round_time(piece->end_s - piece->start_s);
    out->time_s = time_s;
    out->energy_j = -1;
    if (m->clock_count == 0 || time_s < SHORTEST_OPTION_S) return HARPE_OK;
    out->option_count = time_s >= m->options->min_activity_s ? (size_t)m->clock_count : 1;
    harpe_graph_option *options = harpe_arena_alloc(&m->arena, out->option_count, sizeof *options);
    if (!options) return harpe_fail_memory(m->error);
    for (size_t k = 0; k < out->option_count; k++)
        options[k] = option_at(m, piece, &m->clocks[k]);
    out->options = options;
    m->counts.with_options += out->option_count > 1;
    return HARPE_OK;
}

static harpe_status fill_pieces(maker *m) {
    const harpe_activities *activities = &m->activities;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < activities->piece_count && status == HARPE_OK; i++) {
        const harpe_trace_piece *piece = &activities->pieces[i];
        size_t first = activities->lanes[piece->trace].piece_of[0];
        m->number_of[i] = m->count;
        harpe_graph_activity *out = &m->activity[m->count++];
        out->resource = m->resource_names[piece->trace];
        out->name = format_name(m, "rank%" PRId64 ".%zu", m->traces[piece->trace].rank, i - first);
        status = out->name ? fill_work(m, piece, out) : harpe_fail_memory(m->error);
    }
    m->counts.computing = activities->piece_count;
    return status;
}

/* Adds the longest time of a communication that is a part of activities. */
static void count_inside(maker *m, const harpe_communication *item) {
    double longest_s = 0;
    for (size_t p = item->first_part; p < item->first_part + item->part_count; p++) {
        const harpe_communication_part *part = &m->communications.parts[p];
        longest_s = fmax(longest_s, m->traces[part->trace].events[part->event].time_s);
    }
    m->counts.inside++;
    m->counts.inside_s += longest_s;
}

static harpe_status fill_communications(maker *m) {
    for (size_t c = 0; c < m->communications.count; c++) {
        const harpe_communication *item = &m->communications.items[c];
        if (!m->activities.is_kept[c]) {
            count_inside(m, item);
            continue;
        }
        m->number_of[m->activities.piece_count + c] = m->count;
        harpe_graph_activity *out = &m->activity[m->count++];
        out->name = name_communication(m, c);
        out->time_s = round_time(item->time_s);
        out->energy_j = -1;
        if (!out->name) return harpe_fail_memory(m->error);
        m->counts.communications++;
        m->counts.without_others += item->part_count == 1;
    }
    return HARPE_OK;
}

static harpe_status fill_waits(maker *m) {
    size_t total = m->activities.piece_count + m->communications.count;
    const trace_waits *waits = &m->waits;
    for (size_t i = 0; i < total; i++) {
        if (i >= m->activities.piece_count && !m->activities.is_kept[i - m->activities.piece_count])
            continue;
        harpe_graph_activity *out = &m->activity[m->number_of[i]];
        size_t first = waits->first[i], count = waits->first[i + 1] - first;
        harpe_graph_wait *list = harpe_arena_alloc(&m->arena, count, sizeof *list);
        if (!list) return harpe_fail_memory(m->error);
        for (size_t k = 0; k < count; k++) {
            const trace_wait *wait = &waits->items[first + k];
            list[k].name = m->activity[m->number_of[wait->activity]].name;
            list[k].lag_s = round_time(wait->lag_s);
        }
        out->waits = list;
        out->wait_count = count;
        out->release_s = round_time(waits->release_s[i]);
    }
    return HARPE_OK;
}

/* ---- The end of a trace ---------------------------------------------------------------------- */

/* The activity of a rank that ends last in its trace. */
typedef struct last_activity {
    size_t number; /* HARPE_TRACE_NONE: the rank has none */
    double end_s;  /* on the rank's clock */
} last_activity;

static void take_later(last_activity *last, size_t number, double end_s) {
    if (last->number != HARPE_TRACE_NONE && end_s <= last->end_s) return;
    *last = (last_activity){number, end_s};
}

static void find_last(const maker *m, last_activity *last) {
    const harpe_activities *activities = &m->activities;
    for (size_t t = 0; t < m->trace_count; t++)
        last[t].number = HARPE_TRACE_NONE;
    for (size_t i = 0; i < activities->piece_count; i++)
        take_later(&last[activities->pieces[i].trace], m->number_of[i],
                   activities->pieces[i].end_s);
    for (size_t c = 0; c < m->communications.count; c++) {
        const harpe_communication *item = &m->communications.items[c];
        if (!activities->is_kept[c]) continue;
        for (size_t p = item->first_part; p < item->first_part + item->part_count; p++) {
            const harpe_communication_part *part = &m->communications.parts[p];
            const harpe_trace_event *event = &m->traces[part->trace].events[part->event];
            take_later(&last[part->trace], m->number_of[activities->piece_count + c],
                       harpe_trace_end_s(event));
        }
    }
}

/* Returns the end of the last event of a rank, on its clock. */
static double end_of_trace(const harpe_trace *trace) {
    double end_s = -INFINITY;
    for (size_t i = 0; i < trace->event_count; i++)
        end_s = fmax(end_s, harpe_trace_end_s(&trace->events[i]));
    return end_s;
}

/* Adds an activity for what a rank does after its last one: a communication that is a part of an
 * activity but lasts longer, or work of the CPU. */
static harpe_status fill_ends(maker *m) {
    last_activity *last = harpe_arena_alloc(&m->arena, m->trace_count, sizeof *last);
    if (!last) return harpe_fail_memory(m->error);
    find_last(m, last);
    for (size_t t = 0; t < m->trace_count; t++) {
        double rest_s = end_of_trace(&m->traces[t]) - last[t].end_s;
        if (last[t].number == HARPE_TRACE_NONE || rest_s <= HARPE_TRACE_RESOLUTION_S) continue;
        harpe_graph_activity *out = &m->activity[m->count++];
        harpe_graph_wait *wait = harpe_arena_alloc(&m->arena, 1, sizeof *wait);
        out->name = format_name(m, "rank%" PRId64 ".end", m->traces[t].rank);
        if (!wait || !out->name) return harpe_fail_memory(m->error);
        wait->name = m->activity[last[t].number].name;
        out->waits = wait;
        out->wait_count = 1;
        out->time_s = round_time(rest_s);
        out->energy_j = -1;
    }
    return HARPE_OK;
}

/* ---- All together ---------------------------------------------------------------------------- */

/* Finds the starts of the events of traces with dependencies. */
static harpe_status replay_all(maker *m) {
    m->order = harpe_arena_alloc(&m->arena, m->trace_count, sizeof *m->order);
    if (!m->order) return harpe_fail_memory(m->error);
    for (size_t t = 0; t < m->trace_count; t++) {
        m->order[t] = harpe_arena_alloc(&m->arena, m->traces[t].event_count, sizeof **m->order);
        if (!m->order[t]) return harpe_fail_memory(m->error);
    }
    return harpe_trace_replay(m->traces, m->trace_count, &m->communications, m->order, m->error);
}

static void measure_longest(maker *m) {
    for (size_t t = 0; t < m->trace_count; t++) {
        double end_s = end_of_trace(&m->traces[t]);
        m->counts.longest_s = fmax(m->counts.longest_s, end_s - m->activities.lanes[t].zero_s);
    }
}

static harpe_status prepare(maker *m) {
    harpe_status status = check_traces(m);
    if (status == HARPE_OK)
        status = harpe_communications_match(m->traces, m->trace_count, &m->arena,
                                            &m->communications, m->error);
    if (status == HARPE_OK && m->traces[0].has_dependencies) status = replay_all(m);
    if (status == HARPE_OK)
        status =
            harpe_activities_new(m->traces, m->trace_count, &m->communications, m->order,
                                 m->options->min_activity_s, &m->arena, &m->activities, m->error);
    if (status == HARPE_OK)
        status = find_waits(m->traces, m->trace_count, &m->communications, &m->activities,
                            &m->arena, &m->waits, m->error);
    return status;
}

static harpe_status make(maker *m, harpe_graph **out) {
    size_t most = m->activities.piece_count + m->communications.count + m->trace_count;
    m->resource_names = harpe_arena_alloc(&m->arena, m->trace_count, sizeof *m->resource_names);
    m->resources = harpe_arena_alloc(&m->arena, m->trace_count, sizeof *m->resources);
    m->number_of = harpe_arena_alloc(&m->arena, most, sizeof *m->number_of);
    m->activity = harpe_arena_alloc(&m->arena, most, sizeof *m->activity);
    if (m->arena.has_failed) return harpe_fail_memory(m->error);
    read_model(m);
    harpe_status status = name_ranks(m);
    if (status == HARPE_OK) status = fill_pieces(m);
    if (status == HARPE_OK) status = fill_communications(m);
    if (status == HARPE_OK) status = fill_waits(m);
    if (status == HARPE_OK) status = fill_ends(m);
    if (status != HARPE_OK) return status;
    measure_longest(m);
    harpe_error reason;
    status = harpe_graph_new(m->resources, m->trace_count, m->activity, m->count, out, &reason);
    if (status == HARPE_OK) return HARPE_OK;
    return harpe_fail(
        m->error, status, "%s%s: no graph can be made: %s (do all traces show the same step?)",
        m->traces[0].file, m->trace_count > 1 ? " and the other traces" : "", reason.message);
}

harpe_status harpe_trace_graph_new(harpe_trace *traces, size_t trace_count,
                                   const harpe_trace_graph_options *options, harpe_graph **out,
                                   harpe_trace_graph_counts *counts, harpe_error *error) {
    maker m = {.traces = traces, .trace_count = trace_count, .options = options, .error = error};
    harpe_status status = prepare(&m);
    if (status == HARPE_OK) status = make(&m, out);
    if (status == HARPE_OK) *counts = m.counts;
    free(m.waits.items);
    harpe_arena_free(&m.arena);
    return status;
}
