/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a trace file: unpacks gzip, finds out which format the bytes have, and calls its reader. */
#define ZLIB_CONST /* zlib.h: the input is constant */
#include "trace/trace.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/number.h"

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
