/* SPDX-License-Identifier: Apache-2.0 */
/* Carries the requests of http/client/connection.h inside this process. A client and its server
 * have the two ends of a pair of Unix sockets, and speak HTTP/1.1. Messages take a time, and may be
 * late, lost, cut or doubled. Works in a world and beside it; a world's messages take virtual time.
 *
 * One transport exists at a time. While it exists, no connection uses libcurl. */
#ifndef HARPE_WORLD_TRANSPORT_H
#define HARPE_WORLD_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/status.h>

/* A request that a client sends. The texts are valid during the call. */
typedef struct harpe_message {
    const char *server; /* the name, see harpe_transport_serve */
    const char *method, *target;
    const char *body; /* NULL: none */
    size_t body_length;
    pid_t client; /* the process that asks (base/process.h) */
} harpe_message;

/* What becomes of a request and of its answer. Zeros: both arrive after the latency. */
typedef struct harpe_message_fate {
    int64_t request_late_ns, answer_late_ns; /* in addition to the latency */
    /* A lost message does not arrive, and neither side is told. The client waits until the end of
     * its patience. */
    bool loses_request, loses_answer;
    /* The connection ends after this many bytes of the request, or of the answer as the client
     * reads it. A message that is not longer than this arrives. */
    bool cuts_request, cuts_answer;
    size_t request_bytes, answer_bytes;
    /* The server gets the request a second time, on another connection, where nobody reads its
     * answer. */
    bool is_doubled;
    int64_t double_late_ns;
} harpe_message_fate;

typedef struct harpe_transport_options {
    int64_t latency_ns; /* of each message, in each direction */
    int64_t tick_ns;    /* between two calls of a client's `go_on`; 0: 0.1 s */
    /* Decides about a request, on the client's thread. It does not wait. NULL: all arrive. */
    harpe_message_fate (*fate)(void *user, const harpe_message *message);
    /* Sees each complete answer, on the client's thread. `body_hash` is the same for the same body.
     * It does not wait. NULL: nobody looks. */
    void (*answered)(void *user, const harpe_message *message, long http_status,
                     uint64_t body_hash);
    void *user;
} harpe_transport_options;

/* Starts the transport, with a thread of the calling process that delivers what clients no longer
 * wait for. No connection exists yet. */
harpe_status harpe_transport_begin(const harpe_transport_options *options, harpe_error *error);
/* Ends the transport and drops its late messages. All connections are freed already. */
void harpe_transport_end(void);

/* Names a server: the URL that clients use, without a slash at its end, or the path of its Unix
 * socket. For each connection, `accept` gets the server's end, a stream socket that does not block.
 * It is called on any thread, does not wait, and takes the socket over, or returns false: then the
 * client learns that nobody listens. `process` is the server's process in the world, which holds
 * the socket from now on; when it has ended, nobody listens. 0: this process, without a world.
 * Replaces a server with the same name. Returns false if memory runs out. */
bool harpe_transport_serve(const char *name, pid_t process, bool (*accept)(void *user, int socket),
                           void *user);
/* Nobody listens under this name any more. Open connections stay. */
void harpe_transport_unserve(const char *name);

#endif
