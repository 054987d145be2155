/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of HTTP: connections, requests to a harpe server, and the authorities to
 * trust. */
#ifndef HARPE_HTTP_CLIENT_CONNECTION_H
#define HARPE_HTTP_CLIENT_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/status.h>

#include "base/text.h"

/* An HTTP connection to one server. It stays open for further requests and makes one request at a
 * time. The server may hold a request for a long time, and the caller can end the request at any
 * moment. Harpe uses it to reach the coordination server and zeusd. This file knows nothing of
 * jobs. */

typedef struct harpe_connection harpe_connection;

typedef struct harpe_connection_options {
    const char *server_url;
    const char *unix_socket; /* path of the socket to use instead of TCP; NULL: TCP */
    /* NULL: the token of this machine's service, if the service listens at server_url
     * (base/token.h). */
    const char *token;
    bool has_no_token; /* true: no request has a token, not even that of the machine's service */
    const char
        *ca_file; /* NULL: those of harpe_named_trust_store, or else the system's authorities */
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

/* ---- Exchanges ------------------------------------------------------------------------------- */

/* Requests to a harpe server, with the reason in words if one fails. A harpe server gives the
 * reason as {"detail": "a line"}, or as a list of wrong fields. */

/* Writes the reason to `text`. Returns false if the answer does not have the form of a harpe
 * server's answers: a proxy or another program has answered. */
bool harpe_answer_detail(const harpe_answer *answer, char *text, size_t size);

typedef enum harpe_exchange_result {
    HARPE_EXCHANGE_ACCEPTED,    /* answered with 200 */
    HARPE_EXCHANGE_REFUSED,     /* answered by a harpe server with another HTTP status */
    HARPE_EXCHANGE_NONSENSE,    /* answered by something else */
    HARPE_EXCHANGE_UNANSWERED,  /* no complete answer */
    HARPE_EXCHANGE_INTERRUPTED, /* as HARPE_INTERRUPTED of harpe_connection_call */
} harpe_exchange_result;

enum { HARPE_REASON_SIZE = 640 };

/* Makes a request. `*answer` is set if there is one: ACCEPTED, REFUSED or NONSENSE. Writes the
 * reason to `reason` if the result is not ACCEPTED. */
harpe_exchange_result harpe_exchange(harpe_connection *connection, const harpe_request *request,
                                     harpe_answer *answer, char reason[HARPE_REASON_SIZE]);
/* Writes the reason for an answer that no harpe server gives. */
void harpe_tell_nonsense(long http_status, char reason[HARPE_REASON_SIZE]);

/* ---- Certificate authorities ----------------------------------------------------------------- */

/* The authorities with which all clients check servers if the caller names none. */

/* Returns the file of authorities that the user names in HARPE_CA_FILE or else in SSL_CERT_FILE,
 * and stores the name of this variable. HARPE_CA_FILE is for Harpe's servers. Returns NULL if there
 * is none. The text lasts as long as the environment stays unchanged. */
const char *harpe_named_trust_store(bool is_harpe_server, const char **variable);
/* Returns the file of authorities of another system, to use instead of `own`, the one for which
 * curl was built. Returns NULL if `own` is NULL or can be read, or if there is no other. */
const char *harpe_other_trust_store(const char *own);

#endif
