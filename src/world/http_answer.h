/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the answer to a request of HTTP/1.1 as it comes, piece by piece. */
#ifndef HARPE_WORLD_HTTP_ANSWER_H
#define HARPE_WORLD_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "http/client/connection.h"
#include "http/client/transport.h"

typedef enum harpe_http_answer_part {
    HARPE_ANSWER_STATUS,
    HARPE_ANSWER_HEAD,
    HARPE_ANSWER_BODY,        /* `left` bytes are missing */
    HARPE_ANSWER_BODY_TO_END, /* until the connection ends */
    HARPE_ANSWER_CHUNK_SIZE,
    HARPE_ANSWER_CHUNK, /* `left` bytes are missing */
    HARPE_ANSWER_CHUNK_END,
    HARPE_ANSWER_TRAILER,
    HARPE_ANSWER_COMPLETE,
} harpe_http_answer_part;

/* Initialise it with zeros once. */
typedef struct harpe_http_answer_reader {
    harpe_connection *connection;
    bool has_no_body; /* the request was HEAD */
    harpe_http_answer_part part;
    harpe_text line; /* the begin of the next line */
    long http_status;
    bool is_chunked, has_length, closes, has_rest;
    uint64_t left;
    uint64_t body_hash; /* FNV-1a */
} harpe_http_answer_reader;

void harpe_http_answer_begin(harpe_http_answer_reader *reader, harpe_connection *connection,
                             bool has_no_body);
/* Takes the next bytes, and gives head and body to the connection. Returns
 * HARPE_TRANSFER_RUNNING, HARPE_TRANSFER_DONE, or a failure with its reason
 * (HARPE_TRANSFER_REASON_SIZE bytes). */
harpe_transfer_result harpe_http_answer_take(harpe_http_answer_reader *reader, const char *bytes,
                                             size_t length, char *reason);
/* Call it when the connection has ended. Returns true if the answer is complete. Otherwise returns
 * false, and writes to `reason` what is missing. */
bool harpe_http_answer_ends(const harpe_http_answer_reader *reader, char *reason);
/* Returns true if the connection can carry another request after this answer. */
bool harpe_http_answer_keeps(const harpe_http_answer_reader *reader);
void harpe_http_answer_free(harpe_http_answer_reader *reader);

#endif
