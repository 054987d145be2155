/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of HTTP/1.1 (RFC 9112) as pure functions over bytes: the head of a request, chunked
 * bodies, percent encoding. Strict where laxness has been abused: no bare CR or LF, no folded
 * lines, no two lengths. Private to the HTTP server. */
#ifndef HARPE_SERVER_HTTP_HEAD_H
#define HARPE_SERVER_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct harpe_http_head {
    const char *method, *target; /* target: from the first '/' of the path on, or "*" */
    const char *fields;          /* name NUL value NUL ... ended by an empty name */
    uint64_t content_length;     /* 0 when there is none */
    bool is_chunked;
    bool keep_alive;
    bool is_http_1_0;
    bool expects_continue;
} harpe_http_head;

/* The length of the head at the start of `bytes` with its empty line, 0 while it is not complete.
 * The first `scanned` bytes were looked at by an earlier call. */
size_t harpe_http_head_length(const char *bytes, size_t length, size_t scanned);

/* Parses a complete head in place (`text` is rewritten and must live as long as `head`). Returns 0,
 * or the HTTP status to refuse it with and `*why`, a static text. */
int harpe_http_head_parse(char *text, size_t length, harpe_http_head *head, const char **why);

/* First value of a field, NULL when missing. */
const char *harpe_http_field(const char *fields, const char *name);

/* `length` bytes of `encoded` decoded into `decoded` (as large + 1) with a NUL. False for
 * encodings that are none and for an encoded NUL. */
bool harpe_http_decode(const char *encoded, size_t length, bool plus_is_space, char *decoded);

/* ---- Chunked bodies -------------------------------------------------------------------------- */

/* Zero-initialise. */
typedef struct harpe_http_chunks {
    int state;
    uint64_t left;      /* of the chunk's data */
    size_t line_length; /* of all size lines and trailers, which have a limit too */
    int digits;
} harpe_http_chunks;

typedef enum harpe_http_chunk_result {
    HARPE_HTTP_CHUNK_MORE,    /* all bytes are used up */
    HARPE_HTTP_CHUNK_DATA,    /* `*data_length` bytes of data are at `*data` */
    HARPE_HTTP_CHUNK_END,     /* the body is complete */
    HARPE_HTTP_CHUNK_INVALID, /* that is no chunked body */
} harpe_http_chunk_result;

/* Takes from `*bytes` on (and moves it, and `*length`) up to the next piece of data. */
harpe_http_chunk_result harpe_http_chunks_take(harpe_http_chunks *chunks, const char **bytes,
                                               size_t *length, const char **data,
                                               size_t *data_length);

#endif
