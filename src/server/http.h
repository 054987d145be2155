/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 as the server sees it: whole requests in, answers out at any later time. What is behind
 * it (http_parts.h) does not show here. Knows nothing of jobs. Everything is called on the loop's
 * thread; no callback is made from inside harpe_http_answer.
 *
 * It limits the number of connections (when all are taken, it closes one whose held request gives
 * way, or a stream, or the one that has been idle or sending for the longest time; it closes no
 * other held request), the time to send a whole request, the size of header and body, the memory
 * for all bodies together, and the memory for answers that are not read. It does TLS, compares the
 * bearer token in constant time, and asks which local user a connection belongs to. It notices
 * when a client goes away while its request is held (EPOLLRDHUP). */
#ifndef HARPE_SERVER_HTTP_H
#define HARPE_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "server/loop.h"

typedef struct harpe_http harpe_http;
typedef struct harpe_http_request harpe_http_request;

typedef struct harpe_http_handler {
    /* The whole request is there. Answer it now, or keep the pointer and answer later with
     * harpe_http_answer: exactly once, unless `gone` was called. */
    void (*request)(void *user, harpe_http_request *request);
    /* The client of a request that was kept went away: the pointer is no longer valid after this
     * call. */
    void (*gone)(void *user, harpe_http_request *request);
    /* Body limit of a request known by method and path alone, in bytes; optional (NULL: the
     * server's). */
    size_t (*body_limit)(void *user, const char *method, const char *path);
    /* Does this request only read, without waiting for others? Then it is taken even if
     * max_connections requests are held. Optional (NULL: none does). */
    bool (*only_looks)(void *user, const char *method, const char *path);
    /* Does this path need the token? Optional (NULL: all do). */
    bool (*needs_token)(void *user, const char *method, const char *path);
    /* May users other than the server's ask for this path? Optional (NULL: no path). */
    bool (*is_for_others)(void *user, const char *method, const char *path);
    /* An answer was sent whole (`delivered`) or the connection broke before. Optional; only for
     * requests with data: `data` is what harpe_http_set_data last set. */
    void (*sent)(void *user, void *data, bool delivered);
    void *user;
} harpe_http_handler;

/* Zero-initialise, then set what matters. Limits that are 0 have defaults: header 16 KiB, body
 * 64 MiB, all bodies 16 of the largest and at least 1 GiB, unread answers 256 MiB, 65536
 * connections, a minute for a request, ten minutes between two. */
typedef struct harpe_http_options {
    const char *address; /* numeric IPv4 or IPv6; NULL: 127.0.0.1 */
    int port;            /* 0: any free one, see harpe_http_port */
    size_t max_header_bytes, max_body_bytes;
    size_t max_all_bodies_bytes; /* of requests that are not answered yet */
    /* Memory of all answers that their sockets have not taken whole. Beyond it, the connection
     * whose client has not read for the longest time is closed. A single answer may be larger. */
    size_t max_unread_bytes;
    int max_connections;
    /* This many more connections are accepted, so that clients can still read when max_connections
     * requests are held. If it is not 0, the newest four streams give way only when nothing else
     * can. */
    int reserved_connections;
    int64_t request_timeout_ms, keep_alive_timeout_ms;
    const char *token; /* NULL: none needed */
    /* Not NULL: only this process's user and root are served. Others get 403 with this line. The
     * address must be a loopback address. */
    const char *own_user_only;
    const char *tls_cert_pem, *tls_key_pem; /* texts; NULL: no TLS */
    harpe_log log;
} harpe_http_options;

/* Would a server be able to listen there now? For what must not be begun otherwise. */
harpe_status harpe_http_check_address(const char *address, int port, harpe_error *error);

/* Options' texts are copied. Fails with a line that names address and port when they are taken. */
harpe_status harpe_http_new(harpe_loop *loop, const harpe_http_options *options,
                            const harpe_http_handler *handler, harpe_http **out,
                            harpe_error *error);
int harpe_http_port(const harpe_http *http);
/* Stops accepting; open connections go on. */
void harpe_http_stop_accepting(harpe_http *http);
/* Closes everything; kept requests get `gone`. */
void harpe_http_free(harpe_http *http);

/* ---- A request (pointers stay valid until it is answered or gone) ------------------------------
 */
const char *harpe_http_method(const harpe_http_request *request); /* "GET", also for HEAD */
const char *harpe_http_path(const harpe_http_request *request);   /* raw, without query */
/* Segment `index` of the path, percent-decoded ('+' stays '+'), NULL past the last. An encoded '/'
 * stays inside its segment. Invalid encodings and NUL give NULL. The path "/" has no segments. */
const char *harpe_http_segment(harpe_http_request *request, int index);
int harpe_http_segment_count(harpe_http_request *request);
/* First value of a query parameter, decoded; NULL when missing. */
const char *harpe_http_query(const harpe_http_request *request, const char *name);
const char *harpe_http_header(const harpe_http_request *request, const char *name);
const char *harpe_http_body(const harpe_http_request *request, size_t *length);
/* Takes the body over (to be freed with free()), so that it can outlive the request. */
char *harpe_http_take_body(harpe_http_request *request, size_t *length);
/* For a request that is kept, or is about to be: if `gives_way`, its connection is closed first
 * when others need room. */
void harpe_http_set_gives_way(harpe_http_request *request, bool gives_way);
/* For the handler's own use. */
void harpe_http_set_data(harpe_http_request *request, void *data);
void *harpe_http_data(const harpe_http_request *request);
/* Has the client shown that it may use the server? False: its path is open to clients without the
 * token, or to other users. */
bool harpe_http_is_trusted(const harpe_http_request *request);
/* When the request was complete, harpe_clock_ns. */
int64_t harpe_http_arrived_ns(const harpe_http_request *request);

/* ---- Answers ----------------------------------------------------------------------------------
 */
typedef struct harpe_http_header_field {
    const char *name, *value;
} harpe_http_header_field;

/* Answers. `body` is copied unless `take_body` (then it is freed with free()). Further `headers`
 * (ended by a NULL name) may be NULL. Out of memory closes the connection. */
void harpe_http_answer(harpe_http_request *request, int status, const char *content_type,
                       char *body, size_t length, bool take_body,
                       const harpe_http_header_field *headers);

/* Of a HEAD request only the head is answered: with harpe_http_answer. */
bool harpe_http_wants_body(const harpe_http_request *request);
/* Answers 200 with a body that goes on until one of both ends it: the first call, with its
 * `content_type` and `headers`, begins it; `piece` is taken over as a body. The request stays kept:
 * `sent` is called when the piece is out, for the next one to be given, and `gone` when the client
 * went away, when it takes a piece too slowly, or when room for others is needed. */
void harpe_http_stream(harpe_http_request *request, const char *content_type, char *piece,
                       size_t length, const harpe_http_header_field *headers);
/* Call it before harpe_http_stream if the pieces are parts of one answer that has an end; the
 * first piece must not be empty. An HTTP/1.1 client gets them in chunks, can tell whether any is
 * missing, and keeps its connection. A client that has closed only its own side gets all of them.
 */
void harpe_http_set_whole(harpe_http_request *request);
/* After `sent`: ends the answer, as harpe_http_answer ends its request; no `sent`, no `gone`. */
void harpe_http_stream_end(harpe_http_request *request);
/* Call it instead of harpe_http_stream_end if the answer cannot be completed: it closes the
 * connection. `sent` is not called; `gone` is called later with the data that is set then. */
void harpe_http_stream_break(harpe_http_request *request);

/* Raises the process's limit of open files so that `connections` (0: the default number) and
 * `*reserved` more are possible. Returns how many connections are possible at once, without the
 * reserved ones. Sets `*reserved` to 0 if the limit is too low for any. Call it on any thread,
 * before harpe_http_new. */
int harpe_http_make_room(int connections, int *reserved);

typedef struct harpe_http_counts {
    uint64_t accepted, refused, evicted, requests, timeouts;
    int connections, held, streams;
    int connections_max;  /* possible at once, without the reserved ones */
    size_t body_memory;   /* bytes, of requests that are not answered yet */
    size_t unread_memory; /* bytes, of answers of which the socket did not take all */
} harpe_http_counts;
harpe_http_counts harpe_http_count(const harpe_http *http);

#endif
