/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the HTTP server share. A connection is in exactly one state, and in that
 * state's list, oldest first: this is how deadlines and eviction cost nothing per request.
 *
 *   handshaking -> idle -> receiving -> working -> sending -> idle ...
 *      (TLS)      (first byte) (whole request) (answer)  |\-> lingering -> closed
 *                                                        \-> streaming -> sending (next piece) */
#ifndef HARPE_SERVER_HTTP_PARTS_H
#define HARPE_SERVER_HTTP_PARTS_H

#include "base/socket_owner.h"
#include "server/http.h"
#include "server/http_head.h"
#include "server/http_tls.h"

enum { HARPE_HTTP_READ_SIZE = 65536 };

typedef enum harpe_http_state {
    HARPE_HTTP_HANDSHAKING,
    HARPE_HTTP_IDLE,
    HARPE_HTTP_RECEIVING,
    HARPE_HTTP_WORKING, /* the handler has kept the request */
    HARPE_HTTP_WAITING, /* the same, and it gives way to others */
    HARPE_HTTP_SENDING,
    HARPE_HTTP_STREAMING, /* all of an answer that goes on has been sent so far */
    HARPE_HTTP_LINGERING, /* refused: lets the client read why before the connection is reset */
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
    bool is_queued;     /* to proceed before the next wait */
    bool is_proceeding; /* needs no queueing */
    bool is_readable;   /* since the last time that a read found nothing */
    bool peer_closed;   /* sends no more */
    bool is_broken;
    bool lacks_bytes;         /* `in` is the start of a head */
    bool keep_alive, lingers; /* after the answer */
    bool is_of_other;         /* of a user who may not use the server */
    bool is_stream;           /* the answer goes on: its request is kept while it is sent */
    bool is_whole;            /* an answer in pieces that has an end */
    bool is_chunked;          /* its pieces say where they end */
    bool gives_way;           /* while its request is kept */
    bool is_unread;           /* it is in http->unread */

    char *in; /* received and not used up; NULL: nothing */
    size_t in_length, in_capacity;
    size_t scanned; /* of a head, without finding its end */
    harpe_http_request *request;

    char *out, *out_body; /* head (and a copied body), a body taken over */
    size_t out_length, out_body_length, out_sent;
    harpe_http_connection *longer_unread, *shorter_unread; /* neighbours in http->unread */
    size_t unread_memory;                                  /* its part of http->unread_memory */
    void *sent_data;                                       /* for the handler's `sent` */
};

struct harpe_http_request {
    harpe_http_connection *connection;
    harpe_http_head head;
    char *query;        /* raw, after the '?'; NULL: none */
    bool wants_no_body; /* HEAD */
    bool is_trusted;    /* it has the token, or none is needed */
    char *body;
    size_t body_length, body_capacity, body_limit;
    size_t body_memory; /* of it in http->body_memory, until it is answered */
    harpe_http_chunks chunks;
    void *data;
    int64_t arrived_ns;
    char *decoded; /* as large as the target: a part is decoded at its own place */
    char text[];   /* the head */
};

typedef struct harpe_http_list {
    harpe_http_connection *oldest, *newest;
    int count;
} harpe_http_list;

struct harpe_http {
    harpe_loop *loop;
    harpe_http_options options;
    harpe_http_handler handler;
    char *address, *token, *own_user_only;
    harpe_socket_owners owners; /* if own_user_only */
    int others;                 /* open connections of other users */
    int64_t others_told_ns;     /* by a log line, last; 0: never */
    harpe_http_tls *tls;
    int listen_fd, port;
    harpe_watch *listen_watch;
    harpe_timer *accept_again, *tick;
    int64_t paused_ns; /* accepting, last; 0: not lately */
    harpe_http_list states[HARPE_HTTP_STATE_COUNT];
    harpe_http_connection *first_queued, *last_queued;
    harpe_http_counts counts;
    size_t body_memory; /* of all requests' bodies */
    /* Connections whose sockets did not take all of an answer, by the time of the last progress. */
    harpe_http_connection *longest_unread, *shortest_unread;
    size_t unread_memory; /* of their answers */
    int64_t date_s;
    char date[40];
    char read_buffer[HARPE_HTTP_READ_SIZE]; /* of whoever is reading just now */
};

/* ---- http_connections.c --------------------------------------------------------------------- */
/* Moves it to the end of the state's list. */
void harpe_http_enter(harpe_http_connection *connection, harpe_http_state state);
/* Has it proceed before the next wait. */
void harpe_http_queue(harpe_http_connection *connection);
int64_t harpe_http_run_queue(void *user); /* a harpe_http */
/* Takes over a connected socket. False: it was closed. */
bool harpe_http_connection_open(harpe_http *http, int fd, bool is_of_other);
/* Tells the handler (`gone`, `sent`) and frees it, now or when its turn in the queue comes. */
void harpe_http_connection_close(harpe_http_connection *connection);
/* Closes a held request that gives way, a stream, or the one that has been idle, receiving or
 * sending longest; false: there is none. */
bool harpe_http_evict(harpe_http *http);
/* As harpe_http_evict, but closes only a held request that gives way. */
bool harpe_http_evict_waiting(harpe_http *http);

/* ---- http_unread.c -------------------------------------------------------------------------- */
/* Notes that the socket takes no more of the answer now; `has_progressed`: it took some since the
 * last time. May close other connections to get memory. False: this connection must be closed. */
bool harpe_http_unread_note(harpe_http_connection *connection, bool has_progressed);
/* Call it when the whole answer was sent, or its connection ends. */
void harpe_http_unread_forget(harpe_http_connection *connection);

/* ---- http_exchange.c ------------------------------------------------------------------------ */
/* Reads, hands over, writes: as far as it goes without waiting. May close the connection. */
void harpe_http_proceed(harpe_http_connection *connection);

/* ---- http_answer.c -------------------------------------------------------------------------- */
/* Answers with an error of the server's own; then the connection is closed. */
void harpe_http_refuse(harpe_http_connection *connection, int status, const char *detail);

/* ---- http_request.c ------------------------------------------------------------------------- */
/* From a complete head. Returns 0 or the status to refuse it with. */
int harpe_http_request_new(harpe_http_connection *connection, const char *head, size_t length,
                           harpe_http_request **out, const char **why);
void harpe_http_request_free(harpe_http_request *request);
void harpe_http_request_drop_body(harpe_http_request *request);
/* False: out of memory. */
bool harpe_http_request_append(harpe_http_request *request, const char *bytes, size_t length);

#endif
