/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP connection to one server. It stays open for further requests and makes one request at a
 * time. The server may hold a request for a long time, and the caller can end the request at any
 * moment. Harpe uses it to reach the coordination server and zeusd. This file knows nothing of
 * jobs. */
#ifndef HARPE_HTTP_CLIENT_CONNECTION_H
#define HARPE_HTTP_CLIENT_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/text.h"

typedef struct harpe_connection harpe_connection;

typedef struct harpe_connection_options {
    const char *server_url;
    const char *unix_socket; /* path of the socket to use instead of TCP; NULL: TCP */
    /* NULL: the token of this machine's service, if the service listens at server_url
     * (base/token.h). */
    const char *token;
    bool has_no_token;   /* true: no request has a token, not even that of the machine's service */
    const char *ca_file; /* NULL: those of trust_store.h, or else the system's authorities */
    /* The user's names for these options, used in messages; NULL: "server_url" and "in ca_file". */
    const char *url_name, *ca_name;
    double connect_limit_s; /* 0: 10 s */
    /* Limit for the whole request. For a held request the time starts with the first byte of the
     * answer. 0: 30 s. */
    double answer_limit_s;
    double held_s;             /* a held request without an answer ends after this time */
    size_t answer_limit_bytes; /* of the body; 0: 64 MiB */
    bool cuts_answers;         /* true: cut a longer body; false: a longer body is a failure */
    /* Called several times a second during a request. If it returns false, the request ends. May
     * be NULL. */
    bool (*go_on)(void *user);
    void *user;
} harpe_connection_options;

typedef struct harpe_answer {
    long http_status;
    const char *body; /* a NUL follows the `length` bytes; valid until the next call */
    size_t length;
    int64_t round;       /* value of the header Harpe-Round; -1: no such header */
    bool was_sent_token; /* the request had a token */
} harpe_answer;

/* Checks that `url` has the form "http://HOST:PORT" or "https://HOST:PORT". Fails with
 * HARPE_INVALID_ARGUMENT and a message with the expected form. `name` is the user's name for the
 * URL. */
harpe_status harpe_server_url_check(const char *name, const char *url, harpe_error *error);

/* Makes a connection. The texts of `options` are copied. */
harpe_status harpe_connection_new(const harpe_connection_options *options, harpe_connection **out,
                                  harpe_error *error);
void harpe_connection_free(harpe_connection *connection); /* NULL is allowed */

/* Returns the server's URL without slashes at its end. Valid until the connection is freed. */
const char *harpe_connection_server(const harpe_connection *connection);

typedef struct harpe_request {
    const char *path; /* "/schedule/", then `segment`, which this function escapes, then `query` */
    const char *segment, *query; /* "" or NULL: none */
    const char *body;   /* NULL: GET; "": POST without a body; otherwise POST of this JSON */
    const char *method; /* method to use instead; NULL: GET or POST */
    bool is_held;       /* the answer may take `held_s` to begin */
} harpe_request;

/* Makes a request. Returns HARPE_OK for every complete answer with any HTTP status. Returns
 * HARPE_INTERRUPTED if `go_on` returned false, or if the request was held for so long that the
 * caller should send it again: the server may hang, or a proxy may have forgotten the request, and
 * the client can notice neither. Any other status is a fault of the network or the server. */
harpe_status harpe_connection_call(harpe_connection *connection, const harpe_request *request,
                                   harpe_answer *answer, harpe_error *error);
/* Makes a running request call `go_on` at once. May be called on any thread. */
void harpe_connection_wake(harpe_connection *connection);

/* Returns why the last call failed, without the part of the error that names the server. Valid
 * until the next call. */
const char *harpe_connection_reason(const harpe_connection *connection);
/* Returns true if the last call failed because the server's certificate is for another name. */
bool harpe_connection_has_wrong_name(const harpe_connection *connection);

/* Appends `bytes` to `text` in URL encoding. */
void harpe_url_append(harpe_text *text, const char *bytes);

#endif
