/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the computation of each rank into activities. A graph in which every communication is an
 * activity is exact, but its pieces of computation may be too short to change a clock for. So a
 * communication is kept only if no rank gets a short piece by it, or if the communication itself is
 * long. It is kept for all its ranks or for none: the ranks must agree where they wait for each
 * other. */
#include "trace/activities.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

typedef struct builder {
    const harpe_trace *traces;
    size_t trace_count;
    const harpe_communications *communications;
    size_t *const *order;
    double min_activity_s;
    harpe_activities *out;
    harpe_error *error;
} builder;

/* An index with the number by which it is sorted. */
typedef struct sorted {
    double key;
    size_t index;
} sorted;

static int compare_sorted(const void *left, const void *right) {
    const sorted *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* ---- Lanes ----------------------------------------------------------------------------------- */

/* Adds an event to the last block, or begins a new one. Events come in the order of their starts. A
 * kernel that starts as the one before it ends begins a new block, also if the times are rounded.
 */
static void add_to_lane(harpe_trace_lane *lane, const harpe_trace_event *event,
                        double *kernel_end_s) {
    double end_s = event->start_s + event->time_s;
    double last_s = lane->block_count > 0 ? lane->blocks[lane->block_count - 1].end_s : -INFINITY;
    if (event->start_s >= last_s - HARPE_TRACE_RESOLUTION_S) {
        double start_s = fmax(event->start_s, last_s);
        lane->blocks[lane->block_count++] = (harpe_trace_block){start_s, fmax(start_s, end_s), 0};
    }
    harpe_trace_block *block = &lane->blocks[lane->block_count - 1];
    block->end_s = fmax(block->end_s, end_s);
    if (event->is_copy) return;
    block->kernel_s += fmax(0, end_s - fmax(event->start_s, *kernel_end_s));
    *kernel_end_s = fmax(*kernel_end_s, end_s);
}

static harpe_status make_lane(const builder *b, size_t t) {
    const harpe_trace *trace = &b->traces[t];
    harpe_trace_lane *lane = &b->out->lanes[t];
    size_t count = 0;
    sorted *computing = harpe_calloc(trace->event_count, sizeof *computing);
    lane->blocks = harpe_calloc(trace->event_count, sizeof *lane->blocks);
    lane->block_of = harpe_calloc(trace->event_count, sizeof *lane->block_of);
    lane->is_cut = harpe_calloc(trace->event_count + 1, sizeof *lane->is_cut);
    lane->piece_of = harpe_calloc(trace->event_count, sizeof *lane->piece_of);
    if (!computing || !lane->blocks || !lane->block_of || !lane->is_cut || !lane->piece_of) {
        free(computing);
        return harpe_fail_memory(b->error);
    }
    lane->zero_s = trace->has_dependencies ? 0 : INFINITY;
    for (size_t i = 0; i < trace->event_count; i++) {
        const harpe_trace_event *event = &trace->events[i];
        lane->zero_s = fmin(lane->zero_s, event->start_s);
        if (event->kind == HARPE_TRACE_COMPUTE) computing[count++] = (sorted){event->start_s, i};
    }
    qsort(computing, count, sizeof *computing, compare_sorted);
    double kernel_end_s = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        add_to_lane(lane, &trace->events[computing[i].index], &kernel_end_s);
        lane->block_of[computing[i].index] = lane->block_count - 1;
    }
    lane->is_cut[0] = lane->is_cut[lane->block_count] = true;
    free(computing);
    return HARPE_OK;
}

/* ---- Places by time -------------------------------------------------------------------------- */

/* Returns the number of blocks that have ended by a time. */
static size_t blocks_before(const harpe_trace_lane *lane, double time_s) {
    size_t low = 0, high = lane->block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (lane->blocks[middle].end_s <= time_s + HARPE_TRACE_RESOLUTION_S)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the first block that starts at a time or later. */
static size_t first_block_after(const harpe_trace_lane *lane, double time_s) {
    size_t low = 0, high = lane->block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (lane->blocks[middle].start_s < time_s - HARPE_TRACE_RESOLUTION_S)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Without dependencies, everything that ended before the communication started counts as needed,
 * and everything that starts after its end as waiting for it. If the GPU computes while the
 * communication ends, it does not wait at this moment. */
static harpe_trace_place place_by_time(const harpe_trace_lane *lane,
                                       const harpe_trace_event *event) {
    double end_s = event->start_s + event->time_s;
    harpe_trace_place place = {.need = blocks_before(lane, event->start_s)};
    size_t next = first_block_after(lane, end_s);
    if (next < place.need) next = place.need;
    place.next = next < lane->block_count ? next : HARPE_TRACE_NONE;
    place.must_cut =
        place.next != HARPE_TRACE_NONE &&
        (next == 0 || lane->blocks[next - 1].end_s <= end_s + HARPE_TRACE_RESOLUTION_S);
    return place;
}

static void place_all_by_time(const builder *b) {
    for (size_t p = 0; p < b->communications->part_count; p++) {
        const harpe_communication_part *part = &b->communications->parts[p];
        b->out->places[p] =
            place_by_time(&b->out->lanes[part->trace], &b->traces[part->trace].events[part->event]);
    }
}

/* ---- Places by dependencies ------------------------------------------------------------------ */

/* For each event of a rank: how many blocks must have ended before it starts, and the first block
 * that waits for it. */
static void find_places(const builder *b, size_t t, size_t *need, size_t *next) {
    const harpe_trace *trace = &b->traces[t];
    const harpe_trace_lane *lane = &b->out->lanes[t];
    for (size_t i = 0; i < trace->event_count; i++) {
        size_t index = b->order[t][i];
        const harpe_trace_event *event = &trace->events[index];
        next[index] = HARPE_TRACE_NONE;
        for (size_t k = 0; k < event->wait_count; k++) {
            size_t other = event->waits[k];
            bool is_block = trace->events[other].kind == HARPE_TRACE_COMPUTE;
            size_t least = is_block ? lane->block_of[other] + 1 : need[other];
            if (need[index] < least) need[index] = least;
        }
    }
    for (size_t i = trace->event_count; i-- > 0;) {
        size_t index = b->order[t][i];
        const harpe_trace_event *event = &trace->events[index];
        bool is_block = event->kind == HARPE_TRACE_COMPUTE;
        size_t first = is_block ? lane->block_of[index] : next[index];
        for (size_t k = 0; k < event->wait_count; k++)
            if (next[event->waits[k]] > first) next[event->waits[k]] = first;
    }
}

static harpe_status place_all_by_dependencies(const builder *b) {
    harpe_status status = HARPE_OK;
    size_t **need = harpe_calloc(b->trace_count, sizeof *need);
    size_t **next = harpe_calloc(b->trace_count, sizeof *next);
    if (!need || !next) status = harpe_fail_memory(b->error);
    for (size_t t = 0; t < b->trace_count && status == HARPE_OK; t++) {
        need[t] = harpe_calloc(b->traces[t].event_count, sizeof **need);
        next[t] = harpe_calloc(b->traces[t].event_count, sizeof **next);
        if (need[t] && next[t])
            find_places(b, t, need[t], next[t]);
        else
            status = harpe_fail_memory(b->error);
    }
    for (size_t p = 0; p < b->communications->part_count && status == HARPE_OK; p++) {
        const harpe_communication_part *part = &b->communications->parts[p];
        size_t first = next[part->trace][part->event];
        b->out->places[p] =
            (harpe_trace_place){need[part->trace][part->event], first, first != HARPE_TRACE_NONE};
    }
    for (size_t t = 0; need && next && t < b->trace_count; t++) {
        free(need[t]);
        free(next[t]);
    }
    free(need);
    free(next);
    return status;
}

/* ---- Which communications to keep ------------------------------------------------------------ */

/* Returns true if an activity that ends before this block is long enough, or ends there already. */
static bool may_end_before(const harpe_trace_lane *lane, size_t block, double min_activity_s) {
    if (lane->is_cut[block]) return true;
    double end_s = lane->blocks[block - 1].end_s;
    for (size_t i = block; i-- > 0;) {
        if (end_s - lane->blocks[i].start_s >= min_activity_s) return true;
        if (lane->is_cut[i]) return false;
    }
    return false;
}

static void decide(const builder *b, size_t number) {
    const harpe_communication *item = &b->communications->items[number];
    bool is_kept = true;
    size_t end = item->first_part + item->part_count;
    for (size_t p = item->first_part; p < end && item->time_s < b->min_activity_s; p++) {
        const harpe_trace_lane *lane = &b->out->lanes[b->communications->parts[p].trace];
        is_kept = is_kept && may_end_before(lane, b->out->places[p].need, b->min_activity_s);
    }
    b->out->is_kept[number] = is_kept;
    for (size_t p = item->first_part; p < end && is_kept; p++) {
        harpe_trace_lane *lane = &b->out->lanes[b->communications->parts[p].trace];
        const harpe_trace_place *place = &b->out->places[p];
        lane->is_cut[place->need] = true;
        if (place->must_cut) lane->is_cut[place->next] = true;
    }
}

/* Decides in the order in which the last ranks come to the communications. The clocks of ranks on
 * different machines differ; only the choice depends on this order, not the graph's times. */
static harpe_status decide_all(const builder *b) {
    size_t count = b->communications->count;
    sorted *items = harpe_calloc(count, sizeof *items);
    if (!items) return harpe_fail_memory(b->error);
    for (size_t i = 0; i < count; i++) {
        const harpe_communication *item = &b->communications->items[i];
        items[i] = (sorted){-INFINITY, i};
        for (size_t p = item->first_part; p < item->first_part + item->part_count; p++) {
            const harpe_communication_part *part = &b->communications->parts[p];
            double start_s = b->traces[part->trace].events[part->event].start_s;
            items[i].key = fmax(items[i].key, start_s - b->out->lanes[part->trace].zero_s);
        }
    }
    qsort(items, count, sizeof *items, compare_sorted);
    for (size_t i = 0; i < count; i++)
        decide(b, items[i].index);
    free(items);
    return HARPE_OK;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static harpe_status make_pieces(const builder *b) {
    size_t capacity = 0;
    harpe_activities *out = b->out;
    for (size_t t = 0; t < b->trace_count; t++) {
        harpe_trace_lane *lane = &out->lanes[t];
        for (size_t i = 0; i < lane->block_count; i++) {
            const harpe_trace_block *block = &lane->blocks[i];
            if (lane->is_cut[i]) {
                if (!HARPE_ARRAY_RESERVE(out->pieces, capacity, out->piece_count + 1))
                    return harpe_fail_memory(b->error);
                out->pieces[out->piece_count++] =
                    (harpe_trace_piece){.trace = t, .first_block = i, .start_s = block->start_s};
            }
            harpe_trace_piece *piece = &out->pieces[out->piece_count - 1];
            piece->end_block = i + 1;
            piece->end_s = block->end_s;
            piece->kernel_s += block->kernel_s;
            piece->copy_s += fmax(0, block->end_s - block->start_s - block->kernel_s);
            lane->piece_of[i] = out->piece_count - 1;
        }
    }
    return HARPE_OK;
}

harpe_status harpe_activities_new(const harpe_trace *traces, size_t trace_count,
                                  const harpe_communications *communications, size_t *const *order,
                                  double min_activity_s, harpe_activities *out,
                                  harpe_error *error) {
    builder b = {traces, trace_count, communications, order, min_activity_s, out, error};
    *out = (harpe_activities){0};
    out->lanes = harpe_calloc(trace_count, sizeof *out->lanes);
    out->places = harpe_calloc(communications->part_count, sizeof *out->places);
    out->is_kept = harpe_calloc(communications->count, sizeof *out->is_kept);
    if (!out->lanes || !out->places || !out->is_kept) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t t = 0; t < trace_count && status == HARPE_OK; t++)
        status = make_lane(&b, t);
    if (status != HARPE_OK) return status;
    if (order)
        status = place_all_by_dependencies(&b);
    else
        place_all_by_time(&b);
    if (status == HARPE_OK) status = decide_all(&b);
    return status == HARPE_OK ? make_pieces(&b) : status;
}

void harpe_activities_free(harpe_activities *activities, size_t trace_count) {
    for (size_t t = 0; activities->lanes && t < trace_count; t++) {
        free(activities->lanes[t].blocks);
        free(activities->lanes[t].block_of);
        free(activities->lanes[t].is_cut);
        free(activities->lanes[t].piece_of);
    }
    free(activities->lanes);
    free(activities->places);
    free(activities->is_kept);
    free(activities->pieces);
    *activities = (harpe_activities){0};
}
