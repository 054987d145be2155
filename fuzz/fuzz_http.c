/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the HTTP grammar with what a client could send on one connection: a head, then a chunked
 * body. The bytes are taken whole and again in pieces whose sizes are the input's own; both ways
 * must understand the same. Every text is in a block of its exact size, so that ASan sees the
 * first byte read beyond it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static char *copy_of(const char *bytes, size_t length) {
    char *copy = malloc(length > 0 ? length : 1);
    require(copy != NULL);
    if (length > 0) memcpy(copy, bytes, length);
    return copy;
}

/* 1 to 16 bytes, few enough to cut anywhere, and never more than there are. */
static size_t piece_of(const char *bytes, size_t length) {
    size_t piece = 1 + (unsigned char)bytes[0] % 16;
    return piece < length ? piece : length;
}

/* ---- Percent encoding ------------------------------------------------------------------------ */

/* What was decoded, encoded in full and decoded again, is what it was. */
static void check_decode(const char *encoded, size_t length, bool plus_is_space) {
    static const char digits[] = "0123456789ABCDEF";
    char *text = copy_of(encoded, length);
    char *decoded = malloc(length + 1);
    require(decoded != NULL);
    if (harpe_http_decode(text, length, plus_is_space, decoded)) {
        size_t decoded_length = strnlen(decoded, length + 1);
        require(decoded_length <= length);
        char *whole = malloc(3 * decoded_length + 1), *again = malloc(3 * decoded_length + 1);
        require(whole != NULL && again != NULL);
        for (size_t i = 0; i < decoded_length; i++) {
            unsigned char c = (unsigned char)decoded[i];
            whole[3 * i] = '%';
            whole[3 * i + 1] = digits[c >> 4];
            whole[3 * i + 2] = digits[c & 15];
        }
        require(harpe_http_decode(whole, 3 * decoded_length, plus_is_space, again));
        require(strcmp(again, decoded) == 0);
        free(whole);
        free(again);
    }
    free(decoded);
    free(text);
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* The head's end is found in the same place, however its bytes come. */
static size_t check_head_length(const char *bytes, size_t length) {
    size_t expected = harpe_http_head_length(bytes, length, 0);
    size_t found = 0, scanned = 0;
    for (size_t known = 0; known < length && found == 0;) {
        known += piece_of(bytes + known, length - known);
        found = harpe_http_head_length(bytes, known, scanned);
        require(found <= known);
        scanned = known;
    }
    require(found == expected);
    return expected;
}

static bool is_inside(const char *text, const char *block, size_t length) {
    return text >= block && text < block + length;
}

static void check_fields(const char *fields, const char *block, size_t length) {
    for (const char *name = fields; *name != '\0';) {
        const char *value = name + strlen(name) + 1;
        require(is_inside(value, block, length));
        require(strpbrk(name, " \t\r\n:") == NULL && strpbrk(value, "\r\n") == NULL);
        require(harpe_http_field(fields, name) != NULL);
        name = value + strlen(value) + 1;
        require(is_inside(name, block, length));
    }
}

/* Returns whether the head was understood, and whether a chunked body follows. */
static bool check_head(const char *bytes, size_t length, bool *is_chunked) {
    char *text = copy_of(bytes, length);
    harpe_http_head head = {.method = "untouched"};
    const char *why = NULL;
    int status = harpe_http_head_parse(text, length, &head, &why);
    if (status != 0) {
        require(status >= 400 && status <= 599 && why != NULL);
        require(strcmp(head.method, "untouched") == 0);
    } else {
        require(is_inside(head.method, text, length) && is_inside(head.target, text, length));
        require(head.method[0] != '\0' && strpbrk(head.method, " \t") == NULL);
        require(head.target[0] == '/' || strcmp(head.target, "*") == 0);
        require(!head.is_chunked || (head.content_length == 0 && !head.is_http_1_0));
        check_fields(head.fields, text, length);
        *is_chunked = head.is_chunked;
    }
    free(text);
    return status == 0;
}

/* The request as a handler sees it: its segments and parameters. */
static void check_request(const char *bytes, size_t length) {
    harpe_http_request *request = NULL;
    const char *why;
    char *head = copy_of(bytes, length);
    require(harpe_http_request_new(NULL, head, length, &request, &why) == 0);
    free(head);
    int count = harpe_http_segment_count(request);
    require(harpe_http_segment(request, count) == NULL);
    require(harpe_http_segment(request, -1) == NULL);
    for (int i = 0; i < count; i++) {
        const char *segment = harpe_http_segment(request, i);
        require(segment == NULL || strlen(segment) <= strlen(harpe_http_path(request)));
    }
    const char *value = harpe_http_query(request, "rank");
    require(value == NULL || strlen(value) <= strlen(request->query));
    const char *path = harpe_http_path(request);
    check_decode(path, strlen(path), false);
    if (request->query != NULL) check_decode(request->query, strlen(request->query), true);
    harpe_http_request_free(request);
}

/* ---- Chunked bodies -------------------------------------------------------------------------- */

typedef struct body {
    char *data;
    size_t length, used;
    harpe_http_chunk_result result;
} body;

/* All data of `bytes`, which come in one piece or in many. */
static body read_chunks(const char *bytes, size_t length, bool in_pieces) {
    body whole = {.data = copy_of("", 0), .result = HARPE_HTTP_CHUNK_MORE};
    harpe_http_chunks chunks = {0};
    while (whole.result == HARPE_HTTP_CHUNK_MORE && whole.used < length) {
        size_t left = length - whole.used;
        size_t piece = in_pieces ? piece_of(bytes + whole.used, left) : left;
        char *block = copy_of(bytes + whole.used, piece);
        const char *at = block, *data;
        size_t block_left = piece, data_length;
        do {
            whole.result = harpe_http_chunks_take(&chunks, &at, &block_left, &data, &data_length);
            require(at + block_left == block + piece);
            if (whole.result != HARPE_HTTP_CHUNK_DATA) continue;
            require(data_length > 0 && data >= block && data + data_length <= at);
            whole.data = realloc(whole.data, whole.length + data_length);
            require(whole.data != NULL);
            memcpy(whole.data + whole.length, data, data_length);
            whole.length += data_length;
        } while (whole.result == HARPE_HTTP_CHUNK_DATA);
        require(whole.result != HARPE_HTTP_CHUNK_MORE || block_left == 0);
        whole.used += piece - block_left;
        free(block);
    }
    return whole;
}

static void check_chunks(const char *bytes, size_t length) {
    body whole = read_chunks(bytes, length, false);
    body pieces = read_chunks(bytes, length, true);
    require(whole.result == pieces.result && whole.used == pieces.used);
    require(whole.length == pieces.length && whole.length <= length);
    require(memcmp(whole.data, pieces.data, whole.length) == 0);
    free(whole.data);
    free(pieces.data);
}

/* ---- One input ------------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    bool is_chunked = false;
    size_t head_length = check_head_length(bytes, size);
    if (head_length == 0) {
        check_decode(bytes, size, true);
        check_chunks(bytes, size); /* inputs without a head are bodies */
        return 0;
    }
    if (!check_head(bytes, head_length, &is_chunked)) return 0;
    check_request(bytes, head_length);
    if (is_chunked) check_chunks(bytes + head_length, size - head_length);
    return 0;
}
