/* SPDX-License-Identifier: Apache-2.0 */
/* From the traces of all ranks to activities: which events are one communication, when the events
 * of traces with dependencies run, and which events become one activity. */
#include "trace/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

/* ---- Communications of several ranks --------------------------------------------------------- */

/* Matches the communications of several ranks. A trace does not name the events of other ranks, so
 * the match uses what both sides know: the group, the ranks, and the position in their order. */

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
                             harpe_arena *arena, harpe_communications *out, harpe_error *error) {
    out->items = harpe_arena_alloc(arena, count, sizeof *out->items);
    out->parts = harpe_arena_alloc(arena, count, sizeof *out->parts);
    out->of_event = harpe_arena_alloc(arena, trace_count, sizeof *out->of_event);
    if (arena->has_failed) return harpe_fail_memory(error);
    for (size_t t = 0; t < trace_count; t++) {
        out->of_event[t] = harpe_arena_alloc(arena, traces[t].event_count, sizeof **out->of_event);
        if (!out->of_event[t]) return harpe_fail_memory(error);
        for (size_t i = 0; i < traces[t].event_count; i++)
            out->of_event[t][i] = HARPE_TRACE_NONE;
    }
    return HARPE_OK;
}

/* Lists the sides of all communications. `entries` NULL: only counts them. */
static size_t list_entries(const harpe_trace *traces, size_t trace_count, entry *entries) {
    size_t count = 0;
    for (size_t t = 0; t < trace_count; t++) {
        for (size_t i = 0; i < traces[t].event_count; i++) {
            const harpe_trace_event *event = &traces[t].events[i];
            if (!harpe_trace_is_communication(event)) continue;
            double end_s = traces[t].zero_s + harpe_trace_end_s(event);
            if (entries)
                entries[count] = (entry){.event = event, .trace = t, .index = i, .end_s = end_s};
            count++;
        }
    }
    return count;
}

harpe_status harpe_communications_match(const harpe_trace *traces, size_t trace_count,
                                        harpe_arena *arena, harpe_communications *out,
                                        harpe_error *error) {
    size_t count = list_entries(traces, trace_count, NULL);
    entry *entries = harpe_calloc(count, sizeof *entries);
    harpe_status status = entries ? allocate(traces, trace_count, count, arena, out, error)
                                  : harpe_fail_memory(error);
    if (status == HARPE_OK && count > 0) {
        (void)list_entries(traces, trace_count, entries);
        count_occurrences(entries, count);
        qsort(entries, count, sizeof *entries, compare_across);
        fill(entries, count, out);
    }
    free(entries);
    return status;
}

/* ---- Replay ---------------------------------------------------------------------------------- */

/* Replays traces with dependencies: an event-driven simulation of all ranks together. The heap
 * contains what ends next. */

#define HAS_ENDED SIZE_MAX

/* The end of an event, or of a whole communication (`event` is HARPE_TRACE_NONE). */
typedef struct occasion {
    double time_s;
    uint64_t number; /* of two at the same time, the one that was added first */
    size_t trace, event;
    size_t communication;
} occasion;

/* The state of one rank. */
typedef struct rank_state {
    size_t *waiting;     /* [events]: events for which each still waits; or HAS_ENDED */
    size_t *first_after; /* [events + 1]: into after */
    size_t *after;       /* the events that wait for each */
    size_t *queue;       /* events that are ready for the GPU, in order */
    size_t queue_head, queue_tail;
    bool is_computing;
    size_t ended; /* events; also the length of the order */
} rank_state;

typedef struct replayer {
    harpe_arena arena;
    harpe_trace *traces;
    size_t trace_count;
    const harpe_communications *communications;
    size_t *const *order;
    rank_state *ranks;
    size_t *missing; /* [communications]: ranks that have not come yet */
    occasion *heap;
    size_t heap_count;
    uint64_t next_number;
} replayer;

/* ---- The heap -------------------------------------------------------------------------------- */

static bool is_earlier(const occasion *a, const occasion *b) {
    return a->time_s < b->time_s || (a->time_s == b->time_s && a->number < b->number);
}

static void swap(occasion *a, occasion *b) {
    occasion kept = *a;
    *a = *b;
    *b = kept;
}

/* The heap has room for one occasion of every event. */
static void push(replayer *r, occasion added) {
    size_t i = r->heap_count++;
    added.number = r->next_number++;
    r->heap[i] = added;
    for (; i > 0 && is_earlier(&r->heap[i], &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&r->heap[i], &r->heap[(i - 1) / 2]);
}

static occasion pop(replayer *r) {
    occasion first = r->heap[0];
    r->heap[0] = r->heap[--r->heap_count];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < r->heap_count; child++)
            if (is_earlier(&r->heap[child], &r->heap[least])) least = child;
        if (least == i) return first;
        swap(&r->heap[i], &r->heap[least]);
        i = least;
    }
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void start_event(replayer *r, size_t trace, size_t index, double now_s) {
    harpe_trace_event *event = &r->traces[trace].events[index];
    event->start_s = now_s;
    push(r, (occasion){.time_s = now_s + event->time_s, .trace = trace, .event = index});
}

/* Lets the GPU of a rank compute the next event that is ready. */
static void compute_next(replayer *r, size_t trace, double now_s) {
    rank_state *rank = &r->ranks[trace];
    rank->is_computing = rank->queue_head < rank->queue_tail;
    if (rank->is_computing) start_event(r, trace, rank->queue[rank->queue_head++], now_s);
}

/* A rank comes to a communication. */
static void arrive(replayer *r, size_t trace, size_t index, double now_s) {
    size_t number = r->communications->of_event[trace][index];
    r->traces[trace].events[index].start_s = now_s;
    if (--r->missing[number] > 0) return;
    push(r, (occasion){.time_s = now_s + r->communications->items[number].time_s,
                       .event = HARPE_TRACE_NONE,
                       .communication = number});
}

static void become_ready(replayer *r, size_t trace, size_t index, double now_s) {
    const harpe_trace_event *event = &r->traces[trace].events[index];
    rank_state *rank = &r->ranks[trace];
    if (harpe_trace_is_communication(event)) {
        arrive(r, trace, index, now_s);
    } else if (event->kind == HARPE_TRACE_COMPUTE) {
        rank->queue[rank->queue_tail++] = index;
        if (!rank->is_computing) compute_next(r, trace, now_s);
    } else {
        start_event(r, trace, index, now_s);
    }
}

static void end_event(replayer *r, size_t trace, size_t index, double now_s) {
    rank_state *rank = &r->ranks[trace];
    r->order[trace][rank->ended++] = index;
    rank->waiting[index] = HAS_ENDED;
    for (size_t k = rank->first_after[index]; k < rank->first_after[index + 1]; k++)
        if (--rank->waiting[rank->after[k]] == 0) become_ready(r, trace, rank->after[k], now_s);
    if (r->traces[trace].events[index].kind == HARPE_TRACE_COMPUTE) compute_next(r, trace, now_s);
}

static void end_communication(replayer *r, size_t number, double now_s) {
    const harpe_communication *item = &r->communications->items[number];
    for (size_t p = item->first_part; p < item->first_part + item->part_count; p++) {
        const harpe_communication_part *part = &r->communications->parts[p];
        /* What a part takes includes its wait for the other ranks. */
        harpe_trace_event *event = &r->traces[part->trace].events[part->event];
        event->time_s = now_s - event->start_s;
        end_event(r, part->trace, part->event, now_s);
    }
}

/* ---- Preparation ----------------------------------------------------------------------------- */

static harpe_status prepare_rank(const harpe_trace *trace, harpe_arena *arena, rank_state *rank,
                                 harpe_error *error) {
    size_t count = trace->event_count, waits = 0;
    for (size_t i = 0; i < count; i++)
        waits += trace->events[i].wait_count;
    rank->waiting = harpe_arena_alloc(arena, count, sizeof *rank->waiting);
    rank->first_after = harpe_arena_alloc(arena, count + 2, sizeof *rank->first_after);
    rank->after = harpe_arena_alloc(arena, waits, sizeof *rank->after);
    rank->queue = harpe_arena_alloc(arena, count, sizeof *rank->queue);
    if (arena->has_failed) return harpe_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        rank->waiting[i] = trace->events[i].wait_count;
        for (size_t k = 0; k < trace->events[i].wait_count; k++)
            rank->first_after[trace->events[i].waits[k] + 2]++;
    }
    for (size_t i = 2; i < count + 2; i++)
        rank->first_after[i] += rank->first_after[i - 1];
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < trace->events[i].wait_count; k++)
            rank->after[rank->first_after[trace->events[i].waits[k] + 1]++] = i;
    return HARPE_OK;
}

static harpe_status prepare_ranks(replayer *r, harpe_error *error) {
    size_t events = 0;
    r->ranks = harpe_arena_alloc(&r->arena, r->trace_count, sizeof *r->ranks);
    r->missing = harpe_arena_alloc(&r->arena, r->communications->count, sizeof *r->missing);
    if (!r->ranks || !r->missing) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t t = 0; t < r->trace_count && status == HARPE_OK; t++) {
        events += r->traces[t].event_count;
        status = prepare_rank(&r->traces[t], &r->arena, &r->ranks[t], error);
    }
    for (size_t i = 0; i < r->communications->count; i++)
        r->missing[i] = r->communications->items[i].part_count;
    r->heap = harpe_arena_alloc(&r->arena, events, sizeof *r->heap);
    if (status == HARPE_OK && !r->heap) status = harpe_fail_memory(error);
    return status;
}

/* Names an event that has not ended. */
static harpe_status check_ended(const replayer *r, harpe_error *error) {
    for (size_t t = 0; t < r->trace_count; t++) {
        const harpe_trace *trace = &r->traces[t];
        for (size_t i = 0; i < trace->event_count; i++) {
            if (r->ranks[t].waiting[i] == HAS_ENDED) continue;
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: node %" PRIu64
                              " can never start: nodes wait for each other in a "
                              "cycle, in this rank or across ranks",
                              trace->file, trace->events[i].id);
        }
    }
    return HARPE_OK;
}

harpe_status harpe_trace_replay(harpe_trace *traces, size_t trace_count,
                                const harpe_communications *communications, size_t *const *order,
                                harpe_error *error) {
    replayer r = {.traces = traces,
                  .trace_count = trace_count,
                  .communications = communications,
                  .order = order};
    harpe_status status = prepare_ranks(&r, error);
    for (size_t t = 0; t < trace_count && status == HARPE_OK; t++)
        for (size_t i = 0; i < traces[t].event_count; i++)
            if (traces[t].events[i].wait_count == 0) become_ready(&r, t, i, 0);
    while (status == HARPE_OK && r.heap_count > 0) {
        occasion next = pop(&r);
        if (next.event == HARPE_TRACE_NONE)
            end_communication(&r, next.communication, next.time_s);
        else
            end_event(&r, next.trace, next.event, next.time_s);
    }
    if (status == HARPE_OK) status = check_ended(&r, error);
    harpe_arena_free(&r.arena);
    return status;
}

/* ---- Activities ------------------------------------------------------------------------------ */

/* Divides the computation of each rank into activities. A graph in which every communication is an
 * activity is exact, but its pieces of computation may be too short to change a clock for. So a
 * communication is kept only if no rank gets a short piece by it, or if the communication itself is
 * long. It is kept for all its ranks or for none: the ranks must agree where they wait for each
 * other. */

typedef struct builder {
    const harpe_trace *traces;
    size_t trace_count;
    const harpe_communications *communications;
    size_t *const *order;
    double min_activity_s;
    harpe_arena *arena;
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
    double end_s = harpe_trace_end_s(event);
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
    lane->blocks = harpe_arena_alloc(b->arena, trace->event_count, sizeof *lane->blocks);
    lane->block_of = harpe_arena_alloc(b->arena, trace->event_count, sizeof *lane->block_of);
    lane->is_cut = harpe_arena_alloc(b->arena, trace->event_count + 1, sizeof *lane->is_cut);
    lane->piece_of = harpe_arena_alloc(b->arena, trace->event_count, sizeof *lane->piece_of);
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

/* Returns the number of blocks that end by a time (`must_end`), or else that start before it. */
static size_t blocks_before(const harpe_trace_lane *lane, double time_s, bool must_end) {
    size_t low = 0, high = lane->block_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const harpe_trace_block *block = &lane->blocks[middle];
        if (must_end ? block->end_s <= time_s + HARPE_TRACE_RESOLUTION_S
                     : block->start_s < time_s - HARPE_TRACE_RESOLUTION_S)
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
    double end_s = harpe_trace_end_s(event);
    harpe_trace_place place = {.need = blocks_before(lane, event->start_s, true)};
    size_t next = blocks_before(lane, end_s, false);
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
    harpe_arena scratch = {0};
    harpe_status status = HARPE_OK;
    size_t **need = harpe_arena_alloc(&scratch, b->trace_count, sizeof *need);
    size_t **next = harpe_arena_alloc(&scratch, b->trace_count, sizeof *next);
    if (!need || !next) status = harpe_fail_memory(b->error);
    for (size_t t = 0; t < b->trace_count && status == HARPE_OK; t++) {
        need[t] = harpe_arena_alloc(&scratch, b->traces[t].event_count, sizeof **need);
        next[t] = harpe_arena_alloc(&scratch, b->traces[t].event_count, sizeof **next);
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
    harpe_arena_free(&scratch);
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
    size_t most = 0;
    harpe_activities *out = b->out;
    for (size_t t = 0; t < b->trace_count; t++)
        for (size_t i = 0; i < out->lanes[t].block_count; i++)
            most += out->lanes[t].is_cut[i];
    out->pieces = harpe_arena_alloc(b->arena, most, sizeof *out->pieces);
    if (!out->pieces) return harpe_fail_memory(b->error);
    for (size_t t = 0; t < b->trace_count; t++) {
        harpe_trace_lane *lane = &out->lanes[t];
        for (size_t i = 0; i < lane->block_count; i++) {
            const harpe_trace_block *block = &lane->blocks[i];
            if (lane->is_cut[i])
                out->pieces[out->piece_count++] =
                    (harpe_trace_piece){.trace = t, .first_block = i, .start_s = block->start_s};
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
                                  double min_activity_s, harpe_arena *arena, harpe_activities *out,
                                  harpe_error *error) {
    builder b = {traces, trace_count, communications, order, min_activity_s, arena, out, error};
    out->lanes = harpe_arena_alloc(arena, trace_count, sizeof *out->lanes);
    out->places = harpe_arena_alloc(arena, communications->part_count, sizeof *out->places);
    out->is_kept = harpe_arena_alloc(arena, communications->count, sizeof *out->is_kept);
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
