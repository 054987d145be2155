/* SPDX-License-Identifier: Apache-2.0 */
#include "world/http_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LINE_LIMIT = 102400 };

void harpe_http_answer_begin(harpe_http_answer_reader *reader, harpe_connection *connection,
                             bool has_no_body) {
    harpe_text line = reader->line;
    line.length = 0;
    line.failed = false;
    *reader = (harpe_http_answer_reader){
        .connection = connection, .has_no_body = has_no_body, .line = line};
}

void harpe_http_answer_free(harpe_http_answer_reader *reader) { harpe_text_free(&reader->line); }

static harpe_transfer_result fail(char *reason, const char *text) {
    (void)snprintf(reason, HARPE_TRANSFER_REASON_SIZE, "%s", text);
    return HARPE_TRANSFER_BROKEN;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static bool read_status(harpe_http_answer_reader *reader, const char *line) {
    char *end;
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ')
        return false;
    reader->http_status = strtol(line + 9, &end, 10);
    reader->closes = line[7] == '0';
    reader->is_chunked = reader->has_length = false;
    return end == line + 12 && reader->http_status >= 100;
}

static const char *value_of(const char *line, const char *name) {
    size_t length = strlen(name);
    if (strncasecmp(line, name, length) != 0 || line[length] != ':') return NULL;
    return line + length + 1 + strspn(line + length + 1, " \t");
}

static void read_field(harpe_http_answer_reader *reader, const char *line) {
    const char *length = value_of(line, "Content-Length");
    const char *coding = value_of(line, "Transfer-Encoding");
    const char *after = value_of(line, "Connection");
    if (length) {
        reader->has_length = true;
        reader->left = strtoull(length, NULL, 10);
    }
    if (coding && strncasecmp(coding, "chunked", 7) == 0) reader->is_chunked = true;
    if (after && strncasecmp(after, "close", 5) == 0) reader->closes = true;
}

/* Returns the part after the head. */
static harpe_http_answer_part after_head(const harpe_http_answer_reader *reader) {
    long status = reader->http_status;
    if (status < 200) return HARPE_ANSWER_STATUS; /* the answer itself follows */
    if (reader->has_no_body || status == 204 || status == 304) return HARPE_ANSWER_COMPLETE;
    if (reader->is_chunked) return HARPE_ANSWER_CHUNK_SIZE;
    if (!reader->has_length) return HARPE_ANSWER_BODY_TO_END;
    return reader->left > 0 ? HARPE_ANSWER_BODY : HARPE_ANSWER_COMPLETE;
}

/* Returns false if the line cannot be a part of an answer. */
static bool read_line(harpe_http_answer_reader *reader, const char *line) {
    char *end;
    bool is_empty = line[strspn(line, "\r\n")] == '\0';
    switch (reader->part) {
    case HARPE_ANSWER_STATUS:
        if (!read_status(reader, line)) return false;
        reader->part = HARPE_ANSWER_HEAD;
        return true;
    case HARPE_ANSWER_HEAD:
        if (is_empty)
            reader->part = after_head(reader);
        else
            read_field(reader, line);
        return true;
    case HARPE_ANSWER_CHUNK_SIZE:
        reader->left = strtoull(line, &end, 16);
        reader->part = reader->left > 0 ? HARPE_ANSWER_CHUNK : HARPE_ANSWER_TRAILER;
        return end != line;
    case HARPE_ANSWER_CHUNK_END: reader->part = HARPE_ANSWER_CHUNK_SIZE; return is_empty;
    default:
        if (is_empty) reader->part = HARPE_ANSWER_COMPLETE;
        return true;
    }
}

/* Takes the bytes of one line. Returns their number; 0: a failure. */
static size_t take_line(harpe_http_answer_reader *reader, const char *bytes, size_t length,
                        char *reason) {
    const char *newline = memchr(bytes, '\n', length);
    size_t taken = newline ? (size_t)(newline - bytes) + 1 : length;
    bool is_status = reader->part == HARPE_ANSWER_STATUS;
    bool is_head = is_status || reader->part == HARPE_ANSWER_HEAD;
    harpe_text_append(&reader->line, bytes, taken);
    if (reader->line.failed || reader->line.length > LINE_LIMIT)
        return (void)fail(reason, "Out of memory"), 0;
    if (!newline) return taken;
    if (is_head)
        harpe_connection_take_line(reader->connection, reader->line.data, reader->line.length);
    bool is_right = read_line(reader, reader->line.data);
    reader->line.length = 0;
    if (is_right) return taken;
    (void)fail(reason, is_status ? "Received HTTP/0.9 when not allowed"
                                 : "Illegal or missing hexadecimal sequence");
    return 0;
}

/* ---- Bodies ---------------------------------------------------------------------------------- */

/* Takes bytes of the body. Returns their number; 0: a failure. */
static size_t take_body(harpe_http_answer_reader *reader, const char *bytes, size_t length,
                        char *reason) {
    bool is_counted = reader->part != HARPE_ANSWER_BODY_TO_END;
    size_t taken = is_counted && reader->left < length ? (size_t)reader->left : length;
    if (!harpe_connection_take_body(reader->connection, bytes, taken))
        return (void)fail(reason, "Failed writing received data to disk/application"), 0;
    for (size_t i = 0; i < taken; i++)
        reader->body_hash = (reader->body_hash ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
    if (!is_counted) return taken;
    reader->left -= taken;
    if (reader->left == 0)
        reader->part =
            reader->part == HARPE_ANSWER_CHUNK ? HARPE_ANSWER_CHUNK_END : HARPE_ANSWER_COMPLETE;
    return taken;
}

harpe_transfer_result harpe_http_answer_take(harpe_http_answer_reader *reader, const char *bytes,
                                             size_t length, char *reason) {
    while (length > 0 && reader->part != HARPE_ANSWER_COMPLETE) {
        bool is_body = reader->part == HARPE_ANSWER_BODY || reader->part == HARPE_ANSWER_CHUNK ||
                       reader->part == HARPE_ANSWER_BODY_TO_END;
        size_t taken = is_body ? take_body(reader, bytes, length, reason)
                               : take_line(reader, bytes, length, reason);
        if (taken == 0) return HARPE_TRANSFER_BROKEN;
        bytes += taken;
        length -= taken;
    }
    reader->has_rest = length > 0;
    return reader->part == HARPE_ANSWER_COMPLETE ? HARPE_TRANSFER_DONE : HARPE_TRANSFER_RUNNING;
}

bool harpe_http_answer_ends(const harpe_http_answer_reader *reader, char *reason) {
    switch (reader->part) {
    case HARPE_ANSWER_COMPLETE:
    case HARPE_ANSWER_BODY_TO_END: return true;
    case HARPE_ANSWER_STATUS:
    case HARPE_ANSWER_HEAD: (void)fail(reason, "Empty reply from server"); return false;
    case HARPE_ANSWER_BODY:
        (void)snprintf(reason, HARPE_TRANSFER_REASON_SIZE,
                       "transfer closed with %llu bytes remaining to read",
                       (unsigned long long)reader->left);
        return false;
    default:
        (void)fail(reason, "transfer closed with outstanding read data remaining");
        return false;
    }
}

bool harpe_http_answer_keeps(const harpe_http_answer_reader *reader) {
    return reader->part == HARPE_ANSWER_COMPLETE && !reader->closes && !reader->has_rest;
}
