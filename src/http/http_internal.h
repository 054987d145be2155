/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the HTTP server share. A connection is in exactly one state and
 * in the list of this state. Each list is in the order in which the connections entered the state,
 * so deadlines and eviction need no work for each request.
 *
 *   handshaking -> idle -> receiving -> working -> sending -> idle ...
 *      (TLS)      (first byte) (whole request) (answer)  |\-> lingering -> closed
 *                                                        \-> streaming -> sending (next piece) */
#ifndef HARPE_HTTP_HTTP_INTERNAL_H
#define HARPE_HTTP_HTTP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <harpe/status.h>

#include "base/socket_owner.h"
#include "base/unix_socket.h"
#include "http/http.h"

/* ---- TLS ------------------------------------------------------------------------------------- */

/* TLS over a connected, non-blocking socket. The process must ignore SIGPIPE. */

typedef struct harpe_http_tls harpe_http_tls;
typedef struct harpe_http_tls_session harpe_http_tls_session;

/* Makes a TLS context from a certificate chain and a key, both PEM texts. */
harpe_status harpe_http_tls_new(const char *cert_pem, const char *key_pem, harpe_http_tls **out,
                                harpe_error *error);
/* Frees a context. Sessions that were made with the context stay valid. */
void harpe_http_tls_free(harpe_http_tls *tls);

/* Makes a session on `fd`, which stays the caller's. Returns NULL if memory runs out. */
harpe_http_tls_session *harpe_http_tls_session_new(harpe_http_tls *tls, int fd);
void harpe_http_tls_session_free(harpe_http_tls_session *session);

/* `handshake` returns 0 when the handshake is complete, or -1 with errno. `receive` and `send` work
 * like recv and send: they return the number of bytes, 0 if the peer has ended the connection, or
 * -1 with errno. errno may be EAGAIN. After EAGAIN, `send` must be repeated with the same bytes. */
int harpe_http_tls_handshake(harpe_http_tls_session *session);
ssize_t harpe_http_tls_receive(harpe_http_tls_session *session, void *buffer, size_t size);
ssize_t harpe_http_tls_send(harpe_http_tls_session *session, const void *bytes, size_t length);
/* Tells the peer that no more data follows. */
void harpe_http_tls_end(harpe_http_tls_session *session);

/* ---- The grammar of HTTP/1.1 (RFC 9112) ------------------------------------------------------ */

/* Pure functions over bytes: the head of a request, chunked bodies, percent encoding. The grammar
 * is strict where attackers have used tolerant parsers: it refuses a bare CR or LF, a folded line,
 * and a second length. */

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

enum {
    HARPE_HTTP_READ_SIZE = 65536,
    HARPE_HTTP_BACKLOG = 65535, /* the kernel lowers it to its own limit */
};

typedef enum harpe_http_state {
    HARPE_HTTP_HANDSHAKING,
    HARPE_HTTP_IDLE,
    HARPE_HTTP_RECEIVING,
    HARPE_HTTP_WORKING, /* the handler has kept the request */
    HARPE_HTTP_WAITING, /* the handler has kept the request, which gives way to others */
    HARPE_HTTP_SENDING,
    HARPE_HTTP_STREAMING, /* the answer continues, and all its pieces so far were sent */
    HARPE_HTTP_LINGERING, /* refused; the connection stays open until the client could read the
                             reason */
    HARPE_HTTP_STATE_COUNT,
    HARPE_HTTP_CLOSED, /* in no list; waits to be freed */
} harpe_http_state;

typedef struct harpe_http_connection harpe_http_connection;

struct harpe_http_connection {
    harpe_http *http;
    harpe_watch *watch;
    harpe_http_tls_session *tls;            /* NULL: plain */
    harpe_http_connection *previous, *next; /* of its state's list */
    harpe_http_connection *next_queued;
    int64_t since_ns; /* in this state */
    int fd;
    harpe_http_state state;
    bool is_queued;     /* waits in a queue; proceeds before the loop waits again */
    bool is_newcomer;   /* none of its requests has been answered */
    bool is_proceeding; /* harpe_http_proceed is running for it */
    bool is_readable;   /* bytes may have come since a read found none */
    bool peer_closed;   /* the peer sends no more */
    bool is_broken;
    bool lacks_bytes;         /* `in` is an incomplete head */
    bool keep_alive, lingers; /* keep_alive, lingers: they decide what happens after the answer */
    bool is_of_other;         /* of a user who may not use the server */
    bool is_stream;           /* the answer is a stream; its request is kept meanwhile */
    bool is_whole;            /* an answer in pieces that has an end */
    bool is_chunked;          /* the answer is sent in chunks */
    bool is_counted;          /* in http->users */
    uid_t uid;                /* its user, if it is counted */
    bool gives_way;           /* its request gives way while it is kept */
    bool is_unread;           /* it is in http->unread */

    char *in; /* bytes that were received and not yet used; NULL: none */
    size_t in_length, in_capacity;
    size_t scanned; /* bytes of a head that were searched for its end */
    void *client;   /* for the handler's `left`; NULL: none */
    harpe_http_request *request;

    char *out, *out_body; /* `out`: head (and a copied body); `out_body`: a body taken over */
    size_t out_length, out_body_length, out_sent;
    harpe_http_connection *longer_unread, *shorter_unread; /* neighbours in http->unread */
    size_t unread_memory;                                  /* its share of http->unread_memory */
    void *sent_data;                                       /* data for the handler's `sent` */
};

struct harpe_http_request {
    harpe_http_connection *connection;
    harpe_http_head head;
    char *query;        /* raw, after the '?'; NULL: none */
    bool wants_no_body; /* HEAD */
    bool is_trusted;    /* it has a token, or none is needed */
    bool has_own_token; /* it has the token of the options */
    char *body;
    size_t body_length, body_capacity, body_limit;
    size_t body_memory; /* its share of http->body_memory, until it is answered */
    harpe_http_chunks chunks;
    void *data;
    int64_t arrived_ns;
    char *decoded; /* memory for one decoded part, as large as the target */
    char text[];   /* the head */
};

typedef struct harpe_http_list {
    harpe_http_connection *oldest, *newest;
    int count;
} harpe_http_list;

/* The open connections of one user. */
typedef struct harpe_http_user {
    uid_t uid;
    int connections;
} harpe_http_user;

/* Connections that proceed before the loop waits again, first in, first out. */
typedef struct harpe_http_queue {
    harpe_http_connection *first, *last;
} harpe_http_queue;

struct harpe_http {
    harpe_loop *loop;
    harpe_before_wait before_wait;
    harpe_http_options options;
    harpe_http_handler handler;
    char *address, *token, *own_user_only;
    harpe_socket_owners owners; /* if own_user_only */
    int others;                 /* open connections of other users */
    int64_t others_told_ns;     /* time of the last log line about other users; 0: none yet */
    harpe_http_tls *tls;
    int listen_fd, port;
    harpe_unix_listener unix_listener; /* without a path: TCP */
    harpe_http_user *users;            /* of a Unix socket, if max_connections_per_user */
    size_t user_count, user_capacity;
    bool has_callers; /* connections may wait to be accepted */
    bool has_stopped; /* harpe_http_stop_accepting was called */
    harpe_watch *listen_watch;
    harpe_timer *accept_again, *tick;
    int64_t paused_ns; /* last time that accepting paused; 0: not lately */
    harpe_http_list states[HARPE_HTTP_STATE_COUNT];
    harpe_http_queue queue;     /* small requests and answers; each turn serves all of it */
    harpe_http_queue newcomers; /* first requests; each turn serves a part of it */
    harpe_http_queue bulk;      /* large requests and answers; each turn serves a part of it */
    int64_t newcomers_rest_until_ns, bulk_rests_until_ns;
    int64_t last_small_ns; /* when a client that is no newcomer last sent a small request */
    harpe_http_counts counts;
    size_t body_memory; /* of all requests' bodies */
    /* Connections whose answers are partly sent, in the order of their last progress. */
    harpe_http_connection *longest_unread, *shortest_unread;
    size_t unread_memory; /* bytes of their answers */
    int64_t date_s;
    char date[40];
    char read_buffer[HARPE_HTTP_READ_SIZE]; /* used by the connection that is being read */
};

/* ---- http_connections.c ---------------------------------------------------------------------- */
/* Moves the connection to the end of the state's list. */
void harpe_http_enter(harpe_http_connection *connection, harpe_http_state state);
/* Puts the connection into the queue for what it does next. */
void harpe_http_enqueue(harpe_http_connection *connection);
/* Accepts connections and serves the queues of a harpe_http for one turn of the loop. */
void harpe_http_run_queues(void *user);
/* Returns the number of ns for which the loop may wait for events; -1: no limit. */
int64_t harpe_http_queues_wait_ns(void *user);
/* Frees the queued connections. All connections must be closed. */
void harpe_http_empty_queues(harpe_http *http);
/* Takes over a connected socket. Returns false if it was closed. */
bool harpe_http_connection_open(harpe_http *http, int fd, bool is_of_other);
/* Calls the handler's `gone` or `sent` and frees the connection: at once, or later if it is in a
 * queue. */
void harpe_http_connection_close(harpe_http_connection *connection);
/* Closes a held request that gives way, a stream, or the connection that has been idle, receiving
 * or sending for the longest time. Returns false if there is none. */
bool harpe_http_evict(harpe_http *http);
/* Closes a held request that gives way. Returns false if there is none. */
bool harpe_http_evict_waiting(harpe_http *http);

/* ---- http_listener.c ------------------------------------------------------------------------- */
/* Accepts a few of the connections that wait. */
void harpe_http_accept_some(harpe_http *http);

/* ---- http_listener.c: Unix sockets ----------------------------------------------------------- */
/* Returns true if the server listens on a Unix socket, and false if it listens on TCP. */
bool harpe_http_is_unix(const harpe_http *http);
/* Looks at the next bytes of a Unix socket without receiving them. Returns their number, as recv()
 * does. `*has_files` becomes true if they have descriptors, which no request needs. */
ssize_t harpe_http_look(int fd, bool *has_files);
/* Closes an accepted socket, or lets the option `drop` close it. */
void harpe_http_close_socket(const harpe_http *http, int fd);
/* Count a connection for its user, and end this. */
void harpe_http_user_joins(harpe_http_connection *connection);
void harpe_http_user_leaves(harpe_http_connection *connection);

/* ---- http_exchange.c: unread answers --------------------------------------------------------- */
/* Forgets the connection. Call it when the whole answer was sent, or when the connection ends. */
void harpe_http_unread_forget(harpe_http_connection *connection);

/* ---- http_exchange.c ------------------------------------------------------------------------- */
/* Reads, calls the handler and writes. Stops when it would have to wait, when the next step moves
 * bulk, or after a number of steps. May close the connection. */
void harpe_http_proceed(harpe_http_connection *connection);
/* Returns true if the connection's next step moves bulk. Bulk is a chunked body, a body that one
 * read does not hold, data after a refused request, or a large answer. */
bool harpe_http_moves_bulk(const harpe_http_connection *connection);

/* ---- http_exchange.c: answers ---------------------------------------------------------------- */
/* Answers with an error of the server's own. The connection is closed after the answer. */
void harpe_http_refuse(harpe_http_connection *connection, int status, const char *detail);

/* ---- http_connections.c: requests ------------------------------------------------------------ */
/* Makes a request from a complete head. Returns 0, or the status with which the request is refused.
 */
int harpe_http_request_new(harpe_http_connection *connection, const char *head, size_t length,
                           harpe_http_request **out, const char **why);
void harpe_http_request_free(harpe_http_request *request);
void harpe_http_request_drop_body(harpe_http_request *request);
/* Appends bytes to the body. Returns false if memory runs out. */
bool harpe_http_request_append(harpe_http_request *request, const char *bytes, size_t length);
/* Makes room for `length` more bytes of the body. Returns the place where the caller writes them,
 * or NULL if memory runs out. */
char *harpe_http_request_room(harpe_http_request *request, size_t length);
/* Makes the `length` bytes that the caller wrote to this place a part of the body. */
void harpe_http_request_grow(harpe_http_request *request, size_t length);

#endif
