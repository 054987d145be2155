/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the HTTP grammar with bytes that a client could send on one connection: a head, then a
 * chunked body. The grammar reads the bytes once as a whole, and once in pieces whose sizes come
 * from the input. Both results must be equal. Every text is in a block of its exact size, so that
 * ASan detects a read of the first byte beyond it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_internal.h"

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

/* Returns the size of the next piece: 1 to 16 bytes, but at most `length`. Such small pieces can
 * end at any place of the input. */
static size_t piece_of(const char *bytes, size_t length) {
    size_t piece = 1 + (unsigned char)bytes[0] % 16;
    return piece < length ? piece : length;
}

/* ---- Percent encoding ------------------------------------------------------------------------ */

/* Encodes every character of a decoded text and decodes the result again. Both decoded texts must
 * be equal. */
static void check_decode(const char *encoded, size_t length, bool plus_is_space) {
    static const char digits[] = "0123456789ABCDEF";
    char *text = copy_of(encoded, length);
    char *decoded = malloc(length + 1);
    require(decoded != NULL);
    if (harpe_http_decode(text, length, plus_is_space, decoded)) {
        size_t decoded_length = strnlen(decoded, length + 1);
        require(decoded_length <= length);
        char *whole = malloc(3 * decoded_length + 1), *again = malloc(3 * decoded_length + 1);
        require(whole && again);
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

/* Checks that the end of the head is found in the same place if the bytes arrive in pieces. */
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
        require(!strpbrk(name, " \t\r\n:") && !strpbrk(value, "\r\n"));
        require(harpe_http_field(fields, name) != NULL);
        name = value + strlen(value) + 1;
        require(is_inside(name, block, length));
    }
}

/* Returns true if the head is valid. Sets `*is_chunked` if a chunked body follows. */
static bool check_head(const char *bytes, size_t length, bool *is_chunked) {
    char *text = copy_of(bytes, length);
    harpe_http_head head = {.method = "untouched"};
    const char *why = NULL;
    int status = harpe_http_head_parse(text, length, &head, &why);
    if (status != 0) {
        require(status >= 400 && status <= 599 && why);
        require(strcmp(head.method, "untouched") == 0);
    } else {
        require(is_inside(head.method, text, length) && is_inside(head.target, text, length));
        require(head.method[0] != '\0' && !strpbrk(head.method, " \t"));
        require(head.target[0] == '/' || strcmp(head.target, "*") == 0);
        require(!head.is_chunked || (head.content_length == 0 && !head.is_http_1_0));
        check_fields(head.fields, text, length);
        *is_chunked = head.is_chunked;
    }
    free(text);
    return status == 0;
}

/* Checks the segments and parameters of a request as a handler reads them. */
static void check_request(const char *bytes, size_t length) {
    harpe_http_request *request = NULL;
    const char *why;
    char *head = copy_of(bytes, length);
    require(harpe_http_request_new(NULL, head, length, &request, &why) == 0);
    free(head);
    int count = harpe_http_segment_count(request);
    require(!harpe_http_segment(request, count));
    require(!harpe_http_segment(request, -1));
    for (int i = 0; i < count; i++) {
        const char *segment = harpe_http_segment(request, i);
        require(!segment || strlen(segment) <= strlen(harpe_http_path(request)));
    }
    const char *value = harpe_http_query(request, "rank");
    require(!value || strlen(value) <= strlen(request->query));
    const char *path = harpe_http_path(request);
    check_decode(path, strlen(path), false);
    if (request->query) check_decode(request->query, strlen(request->query), true);
    harpe_http_request_free(request);
}

/* ---- Chunked bodies -------------------------------------------------------------------------- */

typedef struct body {
    char *data;
    size_t length, used;
    harpe_http_chunk_result result;
} body;

/* Returns all data of the chunked body `bytes`, which arrives in one piece or in many. */
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
