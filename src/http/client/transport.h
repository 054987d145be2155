/* SPDX-License-Identifier: Apache-2.0 */
/* What carries the requests of connection.h and their answers: libcurl, or the messages of a
 * simulated world. connection.c decides what is sent, how long a request may take, and what a
 * failure means. */
#ifndef HARPE_HTTP_CLIENT_TRANSPORT_H
#define HARPE_HTTP_CLIENT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct harpe_connection;
struct harpe_connection_options;

enum { HARPE_TRANSFER_REASON_SIZE = 256 };

typedef enum harpe_transfer_result {
    HARPE_TRANSFER_RUNNING,
    HARPE_TRANSFER_DONE, /* the answer is complete */
    HARPE_TRANSFER_INTERRUPTED,
    HARPE_TRANSFER_NO_MEMORY,
    HARPE_TRANSFER_BAD_URL,
    HARPE_TRANSFER_NO_SERVER, /* nobody listens */
    HARPE_TRANSFER_BAD_AUTHORITIES,
    HARPE_TRANSFER_NOT_TRUSTED,
    HARPE_TRANSFER_WRONG_NAME, /* the certificate is for another name */
    HARPE_TRANSFER_NO_TLS,
    HARPE_TRANSFER_BROKEN, /* any other failure */
} harpe_transfer_result;

/* A request. Its texts stay valid until `end`. */
typedef struct harpe_transfer {
    const char *server; /* the URL, without a slash at its end */
    const char *target; /* path and query */
    const char *method; /* NULL: GET, or POST if there is a body */
    const char *body;   /* NULL: none; "": POST without a body; otherwise JSON */
    const char *token;  /* NULL: none */
    bool is_alone;      /* uses a new connection, which no other request uses */
    /* If the answer is not complete after this time, the transport ends the transfer as broken. 0:
     * no limit; connection.c watches the time. */
    int64_t limit_ns;
} harpe_transfer;

/* All functions except `wake` are called on the thread of the connection. */
typedef struct harpe_transport {
    /* Calls of `go_on` come at most this far apart. */
    int64_t tick_ns;
    /* Makes what carries the requests of one connection, and connects to nobody yet. The texts of
     * `options` are copied. `reason` has HARPE_TRANSFER_REASON_SIZE bytes and outlives the link.
     * Returns NULL if memory runs out. */
    void *(*open)(struct harpe_connection *connection,
                  const struct harpe_connection_options *options, char *reason);
    void (*close)(void *link);
    /* Begins a transfer. Returns false if memory runs out; then `end` does not follow. */
    bool (*begin)(void *link, const harpe_transfer *transfer);
    /* Does what can be done without waiting. After a failure, the reason says why. */
    harpe_transfer_result (*step)(void *link);
    /* Returns true after the first byte of the answer has come. */
    bool (*has_begun)(void *link);
    /* Waits until a step can do more, until `wake`, or for this time. */
    void (*wait)(void *link, int64_t longest_ns);
    /* Ends the transfer, complete or not. Returns the HTTP status; 0: none came. */
    long (*end)(void *link);
    void (*wake)(void *link); /* any thread */
} harpe_transport;

/* NULL: libcurl. A simulated world sets it before there are connections. With a transport, requests
 * do not have the token of the machine's service. */
extern const harpe_transport *harpe_transport_in_use;

extern const harpe_transport harpe_transport_curl;

/* ---- What a transport calls ------------------------------------------------------------------ */

/* Takes bytes of the answer's body. Returns false if the transfer must fail. */
bool harpe_connection_take_body(struct harpe_connection *connection, const char *bytes,
                                size_t length);
/* Takes a line of the answer's head. */
void harpe_connection_take_line(struct harpe_connection *connection, const char *line,
                                size_t length);

/* ---- libcurl --------------------------------------------------------------------------------- */

/* harpe_connections_begin initialises the libraries, and harpe_connections_end releases them. Both
 * are optional. Call harpe_connections_begin once, before the program has threads. */
void harpe_connections_begin(void);
void harpe_connections_end(void);

#endif
