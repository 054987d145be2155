/* SPDX-License-Identifier: Apache-2.0 */
/* One kept-alive HTTP connection to the server, for the optimizer's own thread: one request at a
 * time, which may be held by the server for a long time and can be ended from here at any moment.
 * Knows nothing of jobs. */
#ifndef HARPE_CLIENT_CONNECTION_H
#define HARPE_CLIENT_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

typedef struct harpe_connection harpe_connection;

typedef struct harpe_connection_options {
    const char *server_url;
    const char *token;   /* NULL: none */
    const char *ca_file; /* NULL: the system's */
    double held_s;       /* a held request that is not answered by then is given up */
    /* Called several times a second while a request is under way; false ends it. */
    bool (*go_on)(void *user);
    void *user;
} harpe_connection_options;

typedef struct harpe_answer {
    long http_status;
    const char *body; /* NUL-terminated beyond `length`; valid until the next call */
    size_t length;
    int64_t round; /* the header Harpe-Round; -1: it has none */
} harpe_answer;

/* "http://HOST:PORT" or https; HARPE_INVALID_ARGUMENT says what is expected. */
harpe_status harpe_server_url_check(const char *url, harpe_error *error);

/* Texts are copied. */
harpe_status harpe_connection_new(const harpe_connection_options *options, harpe_connection **out,
                                  harpe_error *error);
void harpe_connection_free(harpe_connection *connection);

typedef struct harpe_request {
    const char *path; /* "/schedule/", then `segment`, which is escaped here, then `query` */
    const char *segment, *query; /* "": none */
    const char *body;            /* NULL: GET; otherwise POST of this JSON */
    bool is_held;                /* it may take `held_s` until the answer begins */
} harpe_request;

/* HARPE_OK for every whole answer, whatever its status says. HARPE_INTERRUPTED: `go_on` said so, or
 * it was held for so long that it is better asked again: the server may hang, or a proxy may have
 * forgotten it, and neither shows. Anything else is the network's or the server's fault. */
harpe_status harpe_connection_call(harpe_connection *connection, const harpe_request *request,
                                   harpe_answer *answer, harpe_error *error);
/* Has `go_on` asked at once. Any thread. */
void harpe_connection_wake(harpe_connection *connection);

#endif
