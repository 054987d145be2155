/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace file: unpacks gzip, finds out which format the bytes have, and calls its reader.
 * Also keeps the events of one rank that the readers add. */
#define ZLIB_CONST /* zlib.h: the input is constant */
#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/number.h"
#include "trace/trace.h"

/* ---- Events ---------------------------------------------------------------------------------- */

/* The events of one rank's trace: adding them, looking up the events for which they wait, and the
 * order within GPU streams. */

typedef struct id_entry {
    uint64_t id;
    uint64_t index;
} id_entry;

bool harpe_trace_is_communication(const harpe_trace_event *event) {
    return event->kind == HARPE_TRACE_SEND || event->kind == HARPE_TRACE_RECEIVE ||
           event->kind == HARPE_TRACE_COLLECTIVE;
}

harpe_status harpe_trace_add(harpe_trace *trace, const harpe_trace_event *event,
                             harpe_error *error) {
    if (trace->event_count >= HARPE_TRACE_EVENTS_MAX) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%s: more than %zu events: record fewer steps", trace->file,
                          HARPE_TRACE_EVENTS_MAX);
    }
    if (!HARPE_ARRAY_RESERVE(trace->events, trace->event_capacity, trace->event_count + 1))
        return harpe_fail_memory(error);
    trace->events[trace->event_count++] = *event;
    return HARPE_OK;
}

harpe_status harpe_trace_note(harpe_trace *trace, harpe_trace_note_kind kind, harpe_error *error,
                              const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    trace->notes[kind] = harpe_arena_strdup(&trace->arena, line, strlen(line));
    return trace->notes[kind] ? HARPE_OK : harpe_fail_memory(error);
}

static int compare_ids(const void *left, const void *right) {
    const id_entry *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

static harpe_status resolve_event(harpe_trace *trace, harpe_trace_event *event,
                                  const id_entry *entries, harpe_error *error) {
    size_t kept = 0, parents = 0;
    for (size_t k = 0; k < event->wait_count; k++) {
        const id_entry wanted = {.id = event->waits[k]};
        const id_entry *found =
            bsearch(&wanted, entries, trace->event_count, sizeof *entries, compare_ids);
        /* Chakra's converter leaves out nodes that only call others, such as the thread. */
        if (!found && k < event->parent_count) continue;
        if (!found) {
            return harpe_fail(error, HARPE_INVALID_INPUT,
                              "%s: node %" PRIu64 " waits for node %" PRIu64
                              ", which is not in the file: is the file complete?",
                              trace->file, event->id, wanted.id);
        }
        event->waits[kept++] = found->index;
        if (k < event->parent_count) parents = kept;
    }
    event->wait_count = kept;
    event->parent_count = parents;
    return HARPE_OK;
}

/* ---- Parents in cycles ----------------------------------------------------------------------- */

static bool has_parents(const harpe_trace *trace) {
    size_t i = 0;
    while (i < trace->event_count && trace->events[i].parent_count == 0)
        i++;
    return i < trace->event_count;
}

/* Returns true if events wait in a cycle. An event is taken when all events that wait for it are
 * taken. So the events of a cycle, and the events for which they wait, are never taken. `waiting`
 * has a zero for each event, and `taken` has room for each event. */
static bool has_cycle(const harpe_trace *trace, size_t *waiting, size_t *taken) {
    size_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++)
        for (size_t k = 0; k < trace->events[i].wait_count; k++)
            waiting[trace->events[i].waits[k]]++;
    for (size_t i = 0; i < trace->event_count; i++)
        if (waiting[i] == 0) taken[count++] = i;
    for (size_t i = 0; i < count; i++) {
        const harpe_trace_event *event = &trace->events[taken[i]];
        for (size_t k = 0; k < event->wait_count; k++)
            if (--waiting[event->waits[k]] == 0) taken[count++] = event->waits[k];
    }
    return count < trace->event_count;
}

/* Chakra's converter may let a call wait for what it calls. Then the parents mean only who called,
 * and the other dependencies are the order, as Chakra's own feeder takes them. */
static harpe_status drop_parents_in_cycles(harpe_trace *trace, harpe_error *error) {
    if (!has_parents(trace)) return HARPE_OK;
    size_t *waiting = harpe_calloc(trace->event_count, sizeof *waiting);
    size_t *taken = harpe_calloc(trace->event_count, sizeof *taken);
    bool has_memory = waiting && taken;
    trace->has_no_parents = has_memory && has_cycle(trace, waiting, taken);
    free(waiting);
    free(taken);
    for (size_t i = 0; i < trace->event_count && trace->has_no_parents; i++) {
        harpe_trace_event *event = &trace->events[i];
        event->waits += event->parent_count;
        event->wait_count -= event->parent_count;
        event->parent_count = 0;
    }
    return has_memory ? HARPE_OK : harpe_fail_memory(error);
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* Orders the events of streams. In a trace of Chakra's converter, a kernel waits only for the call
 * that launched it. The kernels of a stream run one after another, which the trace does not say. It
 * has only the attribute "stream". */

typedef struct ranked {
    int64_t stream;
    double start_s;
    size_t place, index;
} ranked;

typedef struct sorter {
    harpe_trace *trace;
    ranked *list;      /* [event_count] */
    size_t *order;     /* [event_count]: events after all for which they wait */
    size_t *stack;     /* [event_count] */
    size_t *next_wait; /* [event_count]: 0: not visited; else 1 + the wait to look at next */
    harpe_error *error;
} sorter;

static int compare_ranked(const void *left, const void *right) {
    const ranked *a = left, *b = right;
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    if (a->start_s != b->start_s) return a->start_s < b->start_s ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* ---- The order of all events ----------------------------------------------------------------- */

/* Appends an event to the order, after all events for which it waits. If events wait in a cycle,
 * their order has no meaning, and the replay refuses them. Returns the new count. */
static size_t visit(const sorter *s, size_t root, size_t count) {
    size_t depth = 0;
    if (s->next_wait[root] > 0) return count;
    s->next_wait[root] = 1;
    s->stack[depth++] = root;
    while (depth > 0) {
        size_t index = s->stack[depth - 1];
        const harpe_trace_event *event = &s->trace->events[index];
        size_t k = s->next_wait[index]++ - 1;
        if (k == event->wait_count) {
            s->order[count++] = index;
            depth--;
        } else if (s->next_wait[event->waits[k]] == 0) {
            s->next_wait[event->waits[k]] = 1;
            s->stack[depth++] = event->waits[k];
        }
    }
    return count;
}

static void order_all(const sorter *s) {
    size_t count = s->trace->event_count, ordered = 0;
    for (size_t i = 0; i < count; i++)
        s->list[i] = (ranked){0, s->trace->events[i].start_s, i, i};
    qsort(s->list, count, sizeof *s->list, compare_ranked);
    for (size_t i = 0; i < count; i++)
        ordered = visit(s, s->list[i].index, ordered);
}

/* ---- Waits in a stream ----------------------------------------------------------------------- */

static harpe_status add_wait(const sorter *s, size_t index, size_t other) {
    harpe_trace_event *event = &s->trace->events[index];
    for (size_t k = 0; k < event->wait_count; k++)
        if (event->waits[k] == other) return HARPE_OK;
    size_t count = event->wait_count;
    uint64_t *waits = harpe_arena_alloc(&s->trace->arena, count + 1, sizeof *waits);
    if (!waits) return harpe_fail_memory(s->error);
    if (count > 0) memcpy(waits, event->waits, count * sizeof *waits);
    waits[count] = other;
    event->waits = waits;
    event->wait_count = count + 1;
    return HARPE_OK;
}

/* NCCL can run a send and a receive in one kernel. If the receive waited for the send, two ranks
 * that exchange data would wait for each other for ever. So a send waits for the send before it,
 * and a receive waits for the receive before it. */
static harpe_status chain_streams(const sorter *s) {
    size_t count = s->trace->event_count;
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < count; i++) {
        const harpe_trace_event *event = &s->trace->events[s->order[i]];
        s->list[i] = (ranked){event->stream, 0, i, s->order[i]};
    }
    qsort(s->list, count, sizeof *s->list, compare_ranked);
    size_t last_send = SIZE_MAX, last_receive = SIZE_MAX; /* SIZE_MAX: none */
    for (size_t i = 0; i < count && status == HARPE_OK; i++) {
        size_t index = s->list[i].index;
        harpe_trace_kind kind = s->trace->events[index].kind;
        if (s->list[i].stream < 0) continue;
        if (i == 0 || s->list[i].stream != s->list[i - 1].stream)
            last_send = last_receive = SIZE_MAX;
        bool waits_for_send = last_send != SIZE_MAX && kind != HARPE_TRACE_RECEIVE;
        bool waits_for_receive = last_receive != SIZE_MAX && kind != HARPE_TRACE_SEND;
        if (waits_for_send) status = add_wait(s, index, last_send);
        if (waits_for_receive && status == HARPE_OK) status = add_wait(s, index, last_receive);
        if (kind != HARPE_TRACE_RECEIVE) last_send = index;
        if (kind != HARPE_TRACE_SEND) last_receive = index;
    }
    return status;
}

/* ---- Communications that wait for nothing ---------------------------------------------------- */

/* Notes communications that wait for no computation, although one comes before them. */
static harpe_status note_early(const sorter *s) {
    size_t early_count = 0;
    const harpe_trace_event *first = NULL;
    bool has_computed = false;
    size_t *is_after = s->next_wait; /* 1: waits for a computation */
    memset(is_after, 0, s->trace->event_count * sizeof *is_after);
    for (size_t i = 0; i < s->trace->event_count; i++) {
        size_t index = s->order[i];
        const harpe_trace_event *event = &s->trace->events[index];
        for (size_t k = 0; k < event->wait_count; k++) {
            size_t other = event->waits[k];
            bool is_computation = s->trace->events[other].kind == HARPE_TRACE_COMPUTE;
            if (is_computation || is_after[other]) is_after[index] = 1;
        }
        has_computed = has_computed || event->kind == HARPE_TRACE_COMPUTE;
        if (!has_computed || !harpe_trace_is_communication(event) || is_after[index]) continue;
        if (early_count++ == 0) first = event;
    }
    if (!first) return HARPE_OK;
    char more[32] = "";
    if (early_count > 1) (void)snprintf(more, sizeof more, " and %zu more", early_count - 1);
    return harpe_trace_note(s->trace, HARPE_TRACE_NOTE_EARLY, s->error,
                            "%s: node %" PRIu64 ", a communication,%s wait%s for no GPU node, "
                            "although one comes before: the graph may be shorter than the "
                            "iteration%s",
                            s->trace->file, first->id, more, early_count > 1 ? "" : "s",
                            first->stream < 0 ? " (there is no attribute \"stream\")" : "");
}

/* Makes each event of a stream wait for the event before it. The event before it is the one that
 * starts earlier; if both start at the same time, the one that comes earlier in the file. The
 * dependencies of the trace go before this order. Adds a note about communications that still wait
 * for no computation. `start_s` is the recorded start. O(n log n) */
static harpe_status order_streams(harpe_trace *trace, harpe_error *error) {
    size_t count = trace->event_count;
    sorter s = {.trace = trace, .error = error};
    harpe_arena scratch = {0};
    s.list = harpe_arena_alloc(&scratch, count, sizeof *s.list);
    s.order = harpe_arena_alloc(&scratch, count, sizeof *s.order);
    s.stack = harpe_arena_alloc(&scratch, count, sizeof *s.stack);
    s.next_wait = harpe_arena_alloc(&scratch, count, sizeof *s.next_wait);
    harpe_status status = scratch.has_failed ? harpe_fail_memory(error) : HARPE_OK;
    if (status == HARPE_OK) {
        order_all(&s);
        status = chain_streams(&s);
    }
    if (status == HARPE_OK) status = note_early(&s);
    harpe_arena_free(&scratch);
    return status;
}

/* ---- Ids ------------------------------------------------------------------------------------- */

harpe_status harpe_trace_resolve(harpe_trace *trace, harpe_error *error) {
    id_entry *entries = harpe_calloc(trace->event_count, sizeof *entries);
    if (!entries) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < trace->event_count; i++)
        entries[i] = (id_entry){trace->events[i].id, i};
    qsort(entries, trace->event_count, sizeof *entries, compare_ids);
    for (size_t i = 1; i < trace->event_count && status == HARPE_OK; i++) {
        if (entries[i].id != entries[i - 1].id) continue;
        status = harpe_fail(error, HARPE_INVALID_INPUT,
                            "%s: two nodes have the id %" PRIu64
                            ": each node of a rank needs an id of its own",
                            trace->file, entries[i].id);
    }
    for (size_t i = 0; i < trace->event_count && status == HARPE_OK; i++)
        status = resolve_event(trace, &trace->events[i], entries, error);
    free(entries);
    if (status == HARPE_OK) status = drop_parents_in_cycles(trace, error);
    return status == HARPE_OK ? order_streams(trace, error) : status;
}

void harpe_trace_free(harpe_trace *trace) {
    free(trace->events);
    harpe_arena_free(&trace->arena);
    *trace = (harpe_trace){0};
}

/* ---- Files ----------------------------------------------------------------------------------- */

#define FILE_LIMIT_BYTES ((size_t)512 << 20)
#define FIRST_UNPACKED_BYTES ((size_t)1 << 16)
#define RANKS_MAX 1000000
#define GZIP_WINDOW (16 + MAX_WBITS) /* zlib's number for gzip with the largest window */

/* ---- gzip ------------------------------------------------------------------------------------ */

/* Unpacks all parts of a gzip file. Returns false when out of memory; otherwise `*result` says how
 * it ended. */
static bool inflate_all(z_stream *stream, char **bytes, size_t *capacity, int *result) {
    *result = Z_OK;
    while (*result == Z_OK && stream->total_out <= FILE_LIMIT_BYTES) {
        size_t used = (size_t)((char *)stream->next_out - *bytes);
        if (*capacity - used < FIRST_UNPACKED_BYTES) {
            if (!HARPE_ARRAY_RESERVE(*bytes, *capacity, used + FIRST_UNPACKED_BYTES)) return false;
            stream->next_out = (unsigned char *)*bytes + used;
        }
        stream->avail_out = (unsigned)FIRST_UNPACKED_BYTES;
        *result = inflate(stream, Z_NO_FLUSH);
        bool has_more = *result == Z_STREAM_END && stream->avail_in > 0;
        if (has_more) {
            unsigned long so_far = stream->total_out; /* the limit is for all parts together */
            *result = inflateReset(stream);
            stream->total_out = so_far;
        }
    }
    return true;
}

static harpe_status unpack(const char *path, char **bytes, size_t *length, harpe_error *error) {
    char *unpacked = NULL;
    size_t capacity = 0;
    int result = Z_OK;
    z_stream stream = {.next_in = (const unsigned char *)*bytes, .avail_in = (unsigned)*length};
    if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    if (!HARPE_ARRAY_RESERVE(unpacked, capacity, 2 * FIRST_UNPACKED_BYTES)) {
        status = harpe_fail_memory(error);
        goto done;
    }
    stream.next_out = (unsigned char *)unpacked;
    if (!inflate_all(&stream, &unpacked, &capacity, &result)) {
        status = harpe_fail_memory(error);
    } else if (stream.total_out > FILE_LIMIT_BYTES) {
        status = harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                            "%s: more than %zu MiB when it is unpacked: record fewer steps", path,
                            FILE_LIMIT_BYTES >> 20);
    } else if (result != Z_STREAM_END) {
        status =
            harpe_fail(error, HARPE_INVALID_INPUT,
                       "%s: it cannot be unpacked: the gzip file is damaged or not complete", path);
    }
done:
    if (status == HARPE_OK) {
        free(*bytes);
        *length = (size_t)((char *)stream.next_out - unpacked);
        *bytes = unpacked;
    } else {
        free(unpacked);
    }
    (void)inflateEnd(&stream);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static size_t skip_space(const char *bytes, size_t length, size_t at) {
    while (at < length && (bytes[at] == ' ' || (bytes[at] >= '\t' && bytes[at] <= '\r')))
        at++;
    return at;
}

/* Returns true if the bytes begin a JSON text. A Chakra trace whose first message has 123 bytes
 * begins with '{', too, but no quotation mark follows. */
static bool is_json(const char *bytes, size_t length) {
    size_t at = skip_space(bytes, length, 0);
    if (at == length || bytes[at] == '[') return true;
    size_t next = skip_space(bytes, length, at + 1);
    return bytes[at] == '{' && (next == length || bytes[next] == '"' || bytes[next] == '}');
}

/* Reads one JSON text. A Kineto trace may contain a number beyond 64 bits, such as an address,
 * which Harpe does not need. */
static json_t *load_json(const char *bytes, size_t length, json_error_t *reason) {
    size_t flags = JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL;
    json_t *value = json_loadb(bytes, length, flags, reason);
    if (value || json_error_code(reason) != json_error_numeric_overflow) return value;
    return json_loadb(bytes, length, flags | JSON_DECODE_INT_AS_REAL, reason);
}

/* Reads the JSON texts of a file into a list. */
static harpe_status load_all(const char *bytes, size_t length, const char *name, json_t **out,
                             harpe_error *error) {
    json_t *list = json_array();
    if (!list) return harpe_fail_memory(error);
    size_t at = skip_space(bytes, length, 0);
    do {
        json_error_t reason;
        json_t *value = load_json(bytes + at, length - at, &reason);
        if (!value) {
            char clean[JSON_ERROR_TEXT_LENGTH];
            json_decref(list);
            /* With one text in the file, the line is that of the file. */
            return harpe_fail(error, HARPE_INVALID_INPUT, "%s:%d:%d: not JSON, or not complete: %s",
                              name, reason.line, reason.column,
                              harpe_clean_text(clean, sizeof clean, reason.text));
        }
        at = skip_space(bytes, length, at + (size_t)reason.position);
        if (json_array_append_new(list, value) != 0) {
            json_decref(list);
            return harpe_fail_memory(error);
        }
    } while (at < length);
    *out = list;
    return HARPE_OK;
}

/* ---- Formats --------------------------------------------------------------------------------- */

static bool is_kineto(const json_t *objects) {
    const json_t *first = json_array_get(objects, 0);
    return json_is_array(first) || json_object_get(first, "traceEvents");
}

/* Reads the number that begins at `digits`. A larger number than any rank, such as a date, is none.
 */
static bool read_rank(const char *digits, int64_t *rank) {
    size_t length = strspn(digits, "0123456789");
    return harpe_parse_int(digits, length, rank) && *rank < RANKS_MAX;
}

/* Returns true if the word "rank" at `word` counts something else than the ranks of the job. */
static bool is_qualified(const char *name, const char *word) {
    static const char *const qualifiers[] = {"local", "node", "pp", "tp", "dp", "ep", "cp"};
    while (word > name && strchr("_-. ", word[-1]))
        word--;
    const char *start = word;
    while (start > name && isalpha((unsigned char)start[-1]))
        start--;
    for (size_t i = 0; i < sizeof qualifiers / sizeof qualifiers[0]; i++) {
        bool is_same = strncasecmp(start, qualifiers[i], (size_t)(word - start)) == 0;
        if (is_same && strlen(qualifiers[i]) == (size_t)(word - start)) return true;
    }
    return false;
}

/* Returns the rank in a file's name, without its directory: the number after the word "rank", or
 * else the last number. */
static int64_t rank_in_name(const char *path, int64_t absent) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int64_t rank;
    for (const char *word = strcasestr(name, "rank"); word; word = strcasestr(word + 1, "rank")) {
        const char *digits = word + strlen("rank");
        if (read_rank(digits + strspn(digits, "_-.= "), &rank) && !is_qualified(name, word))
            return rank;
    }
    const char *last = name + strlen(name);
    while (last > name && !isdigit((unsigned char)last[-1]))
        last--;
    while (last > name && isdigit((unsigned char)last[-1]))
        last--;
    return read_rank(last, &rank) ? rank : absent;
}

static harpe_status check_format(const harpe_trace_request *request, harpe_trace_format found,
                                 const char *name, harpe_error *error) {
    if (request->format == HARPE_TRACE_ANY || request->format == found) return HARPE_OK;
    bool wants_kineto = request->format == HARPE_TRACE_KINETO;
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%s: not a %s trace, but it may be a %s trace: "
                      "leave out --format",
                      name, wants_kineto ? "Kineto" : "Chakra", wants_kineto ? "Chakra" : "Kineto");
}

static harpe_status parse_json(const char *bytes, size_t length, const harpe_trace_request *request,
                               harpe_trace *trace, harpe_error *error) {
    json_t *objects = NULL;
    harpe_status status = load_all(bytes, length, trace->file, &objects, error);
    if (status != HARPE_OK) return status;
    bool found_kineto = is_kineto(objects);
    status = check_format(request, found_kineto ? HARPE_TRACE_KINETO : HARPE_TRACE_CHAKRA,
                          trace->file, error);
    if (status == HARPE_OK && found_kineto)
        status = harpe_trace_read_kineto(json_array_get(objects, 0), request->step, trace, error);
    else if (status == HARPE_OK)
        status = harpe_trace_read_chakra_json(objects, trace, error);
    json_decref(objects);
    return status;
}

harpe_status harpe_trace_file_parse(const char *bytes, size_t length, const char *name,
                                    int64_t position, const harpe_trace_request *request,
                                    harpe_trace *out, harpe_error *error) {
    *out =
        (harpe_trace){.file = name, .names = request->names, .rank = rank_in_name(name, position)};
    if (is_json(bytes, length)) return parse_json(bytes, length, request, out, error);
    harpe_status status = check_format(request, HARPE_TRACE_CHAKRA, name, error);
    return status == HARPE_OK ? harpe_trace_read_chakra(bytes, length, out, error) : status;
}

harpe_status harpe_trace_file_read(const char *path, int64_t position,
                                   const harpe_trace_request *request, harpe_trace *out,
                                   harpe_error *error) {
    char *bytes = NULL;
    size_t length = 0;
    *out = (harpe_trace){0};
    harpe_status status = harpe_file_read(path, FILE_LIMIT_BYTES, &bytes, &length, error);
    if (status != HARPE_OK) return status;
    if (length >= 2 && (unsigned char)bytes[0] == 0x1f && (unsigned char)bytes[1] == 0x8b)
        status = unpack(path, &bytes, &length, error);
    if (status == HARPE_OK)
        status = harpe_trace_file_parse(bytes, length, path, position, request, out, error);
    free(bytes);
    return status;
}
