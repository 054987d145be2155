/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP/1.1 server. It receives whole requests and lets the handler answer each of them at any
 * later time. http_internal.h declares what the files of the server share. This file knows nothing
 * of jobs. Call all functions on the loop's thread. harpe_http_answer calls no function of the
 * handler.
 *
 * The server limits the number of connections. When all are taken, it closes the connection of a
 * held request that gives way, or a stream, or the connection that has been idle, receiving or
 * sending for the longest time. It closes no connection of another held request. It also limits the
 * time to send a whole request, the size of head and body, the memory for all bodies together, and
 * the memory for answers that clients do not read. It supports TLS, compares the bearer token in
 * constant time, and finds the local user who owns a connection. It notices when a client
 * disconnects while its request is held (EPOLLRDHUP). */
#ifndef HARPE_HTTP_HTTP_H
#define HARPE_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/callback.h>
#include <harpe/status.h>

#include "http/loop.h"

typedef struct harpe_http harpe_http;
typedef struct harpe_http_request harpe_http_request;

typedef struct harpe_http_handler {
    /* Called when a request is complete. The handler answers it now, or keeps the pointer and
     * answers later with harpe_http_answer. It answers exactly once, unless `gone` was called. */
    void (*request)(void *user, harpe_http_request *request);
    /* Called when the client of a request that was kept has disconnected. The pointer is not valid
     * after this call. */
    void (*gone)(void *user, harpe_http_request *request);
    /* Returns the largest number of bytes that this request's body may have. At this time only the
     * head has been received. Optional (NULL: the server's limit). */
    size_t (*body_limit)(void *user, harpe_http_request *request);
    /* Returns true if this request only reads and does not wait for others. Such a request is
     * accepted even if max_connections requests are held. Optional (NULL: false for every request).
     */
    bool (*only_looks)(void *user, const char *method, const char *path);
    /* Returns true if this path needs the token. Optional (NULL: all paths do). */
    bool (*needs_token)(void *user, const char *method, const char *path);
    /* Returns true if this is a bearer token that the handler knows, besides `token` of the
     * options. Optional (NULL: no other token). If it is set, paths need a token. */
    bool (*knows_token)(void *user, const char *token);
    /* Returns true if users other than the server's may request this path. Optional (NULL: no
     * path). */
    bool (*is_for_others)(void *user, const char *method, const char *path);
    /* Called when the whole answer was sent (`delivered` is true), or when the connection broke
     * before this (false). Optional. Called only for requests with data. `data` is the last value
     * given to harpe_http_set_data. */
    void (*sent)(void *user, void *data, bool delivered);
    /* Called when a connection with a client (harpe_http_set_client) has ended. `by_client` is true
     * if the client, or the kernel after its death, has closed it. Optional. */
    void (*left)(void *user, void *client, bool by_client);
    void *user;
} harpe_http_handler;

/* Initialise it with zeros, then set the fields that you need. Limits that are 0 have defaults:
 * head 16 KiB, body 64 MiB, all bodies 16 times the largest body but at least 1 GiB, unread answers
 * 256 MiB, 65536 connections, a minute to receive a request, ten minutes between two requests. */
typedef struct harpe_http_options {
    const char *address; /* numeric IPv4 or IPv6; NULL: 127.0.0.1 */
    int port;            /* 0: any free port, see harpe_http_port */
    /* Path of a Unix socket on which the server listens instead of TCP; NULL: TCP. A socket file
     * that remains at this path is removed if connecting to it is refused. Another file, or a
     * socket on which a program listens, is an error. */
    const char *unix_socket;
    mode_t unix_mode; /* mode of the socket's file; 0: 0666 */
    bool is_enclosed; /* listens nowhere: all connections come from harpe_http_adopt */
    size_t max_header_bytes, max_body_bytes;
    size_t max_all_bodies_bytes; /* of requests that are not answered yet */
    /* Limit for the memory of all answers that are partly sent. When it is exceeded, the server
     * closes the connection whose client has not read for the longest time. A single answer may be
     * larger. */
    size_t max_unread_bytes;
    int max_connections;
    /* Most connections of one user on a Unix socket; does not hold for root. 0: no limit. */
    int max_connections_per_user;
    /* Connections that are accepted beyond max_connections, so that requests that only read are
     * answered while max_connections requests are held. If it is not 0, the newest four streams are
     * closed only when no other connection can be closed. */
    int reserved_connections;
    int64_t request_timeout_ms, keep_alive_timeout_ms;
    const char *token; /* NULL: no token is needed */
    /* If it is not NULL, only this process's user and root are served. Other users get 403 with
     * this line. The address must be a loopback address, or the server listens on a Unix socket. */
    const char *own_user_only;
    const char *tls_cert_pem, *tls_key_pem; /* texts; NULL: no TLS */
    /* Takes over and closes a Unix socket to which a client has sent descriptors. The client can
     * make their close wait for ever. NULL: the server closes it. */
    void (*drop)(void *user, int socket);
    void *drop_user;
    harpe_log log;
} harpe_http_options;

/* Checks that a server can listen on the address and port. Call it before work that must not start
 * if the server cannot listen. */
harpe_status harpe_http_check_address(const char *address, int port, harpe_error *error);

/* Makes a server. The texts of `options` are copied. If the address and port are in use, the error
 * message names them. */
harpe_status harpe_http_new(harpe_loop *loop, const harpe_http_options *options,
                            const harpe_http_handler *handler, harpe_http **out,
                            harpe_error *error);
int harpe_http_port(const harpe_http *http);
/* Replaces the token, certificate and key of the options, for later requests and later connections.
 * Open connections and kept requests stay. On failure nothing changes. Call it on the loop's
 * thread. */
harpe_status harpe_http_set_secrets(harpe_http *http, const char *token, const char *cert_pem,
                                    const char *key_pem, harpe_error *error);
/* Takes over a connected stream socket as a connection of this process's user. After
 * harpe_http_stop_accepting, or without room, it is closed. */
void harpe_http_adopt(harpe_http *http, int socket);
/* Stops accepting. Open connections stay open. */
void harpe_http_stop_accepting(harpe_http *http);
/* Closes all connections and frees the server. `gone` is called for requests that were kept. */
void harpe_http_free(harpe_http *http);

/* ---- A request (pointers stay valid until it is answered or gone) ---------------------------- */
const char *harpe_http_method(const harpe_http_request *request); /* "GET", also for HEAD */
const char *harpe_http_path(const harpe_http_request *request);   /* raw, without query */
/* Returns segment `index` of the path, percent-decoded ('+' stays '+'), or NULL past the last. An
 * encoded '/' stays inside its segment. Invalid encodings and NUL give NULL. The path "/" has no
 * segments. */
const char *harpe_http_segment(harpe_http_request *request, int index);
int harpe_http_segment_count(harpe_http_request *request);
/* Returns the first value of a query parameter, decoded, or NULL if it is missing. */
const char *harpe_http_query(const harpe_http_request *request, const char *name);
const char *harpe_http_header(const harpe_http_request *request, const char *name);
const char *harpe_http_body(const harpe_http_request *request, size_t *length);
/* Passes the body to the caller, who frees it with free(). The body may outlive the request. */
char *harpe_http_take_body(harpe_http_request *request, size_t *length);
/* Sets whether a request gives way while the handler keeps it. If `gives_way` is true, its
 * connection is closed first when other clients need a connection. */
void harpe_http_set_gives_way(harpe_http_request *request, bool gives_way);
/* Stores a pointer for the handler. */
void harpe_http_set_data(harpe_http_request *request, void *data);
void *harpe_http_data(const harpe_http_request *request);
/* Stores a pointer that stays with the connection of the request, until `left` is called. */
void harpe_http_set_client(harpe_http_request *request, void *client);
void *harpe_http_client(const harpe_http_request *request);
/* Returns true if the client has shown that it may use the server. Returns false if the client may
 * only request this path, because the path is open to clients without the token or to other users.
 */
bool harpe_http_is_trusted(const harpe_http_request *request);
/* Returns the bearer token that the request has, or NULL. */
const char *harpe_http_bearer(const harpe_http_request *request);
/* Returns true if the request has the `token` of the server's options. */
bool harpe_http_has_own_token(const harpe_http_request *request);
/* Room for a numeric address with a zone. */
enum { HARPE_HTTP_ADDRESS_SIZE = 64 };
/* Writes the numeric address of the client, or "" for a Unix socket. */
void harpe_http_client_address(const harpe_http_request *request,
                               char out[HARPE_HTTP_ADDRESS_SIZE]);
/* The process at the other end of a Unix connection. It is the process that connected; another
 * process may have got the connection from it later. */
typedef struct harpe_http_peer {
    pid_t process; /* 0: a process of another namespace of process numbers, which is not visible */
    uid_t uid;
    gid_t gid;
} harpe_http_peer;

/* Reads who connected. Returns false for a TCP connection. */
bool harpe_http_peer_of(const harpe_http_request *request, harpe_http_peer *out);
/* Returns a new pidfd of the process that connected, or -1 if that process cannot be found with
 * certainty. The caller closes it. Kernels before 6.5 know only the number of the process: if it
 * has ended and another process of the same user has its number, the result is that other process.
 */
int harpe_http_peer_pidfd(const harpe_http_request *request);
/* Returns the query as it was sent, without the '?', or NULL if the target has no '?'. */
const char *harpe_http_raw_query(const harpe_http_request *request);
/* Returns the time at which the request was complete, in ns of harpe_clock_ns. */
int64_t harpe_http_arrived_ns(const harpe_http_request *request);

/* ---- Answers --------------------------------------------------------------------------------- */
typedef struct harpe_http_header_field {
    const char *name, *value;
} harpe_http_header_field;

/* Answers the request. If `take_body` is true, the server takes `body` over and frees it with
 * free(). Otherwise it copies `body`. `headers` is an array of further fields that ends with a NULL
 * name; NULL: none. If memory runs out, the server closes the connection. */
void harpe_http_answer(harpe_http_request *request, int status, const char *content_type,
                       char *body, size_t length, bool take_body,
                       const harpe_http_header_field *headers);

/* Returns false for a HEAD request, whose answer has no body. Answer it with harpe_http_answer. */
bool harpe_http_wants_body(const harpe_http_request *request);
/* Answers 200 with a body that continues until the handler or the client ends it. The first call
 * begins the answer with `content_type` and `headers`. The server takes `piece` over and frees it
 * with free(). The request stays kept. `sent` is called when the piece was sent, so that the
 * handler can give the next piece. `gone` is called when the client disconnects, takes a piece too
 * slowly, or must give way to others. */
void harpe_http_stream(harpe_http_request *request, const char *content_type, char *piece,
                       size_t length, const harpe_http_header_field *headers);
/* Call it before harpe_http_stream if the pieces are parts of one answer that has an end. The first
 * piece must not be empty. An HTTP/1.1 client gets the pieces in chunks, can tell whether a piece
 * is missing, and keeps its connection. A client that has closed only its own side gets all pieces.
 */
void harpe_http_set_whole(harpe_http_request *request);
/* Ends the answer. Call it after `sent`. Neither `sent` nor `gone` is called afterwards. */
void harpe_http_stream_end(harpe_http_request *request);
/* Closes the connection. Call it instead of harpe_http_stream_end if the answer cannot be
 * completed. `sent` is not called. `gone` is called later with the data that is set at that time.
 */
void harpe_http_stream_break(harpe_http_request *request);

/* Raises the process's limit of open files so that `connections` (0: the default number) and
 * `*reserved` more are possible. Returns how many connections are possible at once, without the
 * reserved ones. Sets `*reserved` to 0 if the limit is too low for any. Call it on any thread,
 * before harpe_http_new. */
int harpe_http_make_room(int connections, int *reserved);

typedef struct harpe_http_counts {
    uint64_t accepted, refused, evicted, requests, timeouts;
    uint64_t failures; /* answers with a status of 500 or more */
    int connections, held, streams;
    int connections_max;  /* most connections at once, without the reserved connections */
    size_t body_memory;   /* bytes of the bodies of requests that are not answered yet */
    size_t unread_memory; /* bytes of answers that are partly sent */
} harpe_http_counts;
harpe_http_counts harpe_http_count(const harpe_http *http);

#endif
