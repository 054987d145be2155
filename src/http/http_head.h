/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of HTTP/1.1 (RFC 9112) as pure functions over bytes: the head of a request, chunked
 * bodies, percent encoding. It is strict where attackers have used tolerant parsers: it refuses a
 * bare CR or LF, a folded line, and a second length. Private to the HTTP server. */
#ifndef HARPE_HTTP_HTTP_HEAD_H
#define HARPE_HTTP_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct harpe_http_head {
    const char *method, *target; /* target: from the first '/' of the path, or "*" */
    const char *fields;          /* name NUL value NUL ... ended by an empty name */
    uint64_t content_length;     /* 0 if there is none */
    bool is_chunked;
    bool keep_alive;
    bool is_http_1_0;
    bool expects_continue;
} harpe_http_head;

/* Returns the length of the head at the start of `bytes`, including its empty line. Returns 0 if
 * the head is not complete. An earlier call has searched the first `scanned` bytes. */
size_t harpe_http_head_length(const char *bytes, size_t length, size_t scanned);

/* Parses a complete head in place. `text` is rewritten and must live as long as `head`. Returns 0,
 * or the HTTP status with which the request is refused. `*why` is then the reason, a static text.
 */
int harpe_http_head_parse(char *text, size_t length, harpe_http_head *head, const char **why);

/* Returns the first value of a field, or NULL if it is missing. */
const char *harpe_http_field(const char *fields, const char *name);

/* Decodes `length` bytes of `encoded` into `decoded`, which has room for `length` + 1 bytes, and
 * adds a NUL. Returns false for an invalid encoding and for an encoded NUL. */
bool harpe_http_decode(const char *encoded, size_t length, bool plus_is_space, char *decoded);

/* ---- Chunked bodies -------------------------------------------------------------------------- */

/* Zero-initialise. */
typedef struct harpe_http_chunks {
    int state;
    uint64_t left;      /* bytes of the chunk's data that are still to come */
    size_t line_length; /* bytes of all size lines and trailers, which are limited too */
    int digits;
} harpe_http_chunks;

typedef enum harpe_http_chunk_result {
    HARPE_HTTP_CHUNK_MORE,    /* all bytes are used up */
    HARPE_HTTP_CHUNK_DATA,    /* `*data_length` bytes of data are at `*data` */
    HARPE_HTTP_CHUNK_END,     /* the body is complete */
    HARPE_HTTP_CHUNK_INVALID, /* the bytes are not a chunked body */
} harpe_http_chunk_result;

/* Reads from `*bytes` up to the next piece of data, and moves `*bytes` and `*length`. */
harpe_http_chunk_result harpe_http_chunks_take(harpe_http_chunks *chunks, const char **bytes,
                                               size_t *length, const char **data,
                                               size_t *data_length);

#endif
