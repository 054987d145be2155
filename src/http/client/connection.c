/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of HTTP: the authorities to trust, what a request asks and what comes back, and
 * connections. */
#include "http/client/connection.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "base/token.h"
#include "http/client/transport.h"

/* ---- Certificate authorities ----------------------------------------------------------------- */

/* libcurl reads no environment variable with the authorities, so this code does. curl is built for
 * the place where one system keeps its authorities. A library that a wheel brings also runs on
 * other systems, so this code looks for their places where curl's does not exist. It never
 * replaces a file that exists. */

static const char *const places[] = {
    "/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch */
    "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, RHEL */
    "/etc/ssl/ca-bundle.pem",             /* SUSE */
    "/etc/ssl/cert.pem",                  /* Alpine */
};

const char *harpe_named_trust_store(bool is_harpe_server, const char **variable) {
    static const char *const variables[] = {"HARPE_CA_FILE", "SSL_CERT_FILE"};
    for (size_t i = is_harpe_server ? 0 : 1; i < sizeof variables / sizeof *variables; i++) {
        const char *named = secure_getenv(variables[i]);
        if (!named || !*named) continue;
        *variable = variables[i];
        return named;
    }
    return NULL;
}

const char *harpe_other_trust_store(const char *own) {
    if (!own || access(own, R_OK) == 0) return NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], R_OK) == 0) return places[i];
    return NULL;
}

/* ---- Requests and answers -------------------------------------------------------------------- */

/* Makes requests to a harpe server, and tells why one fails. The callers decide what a status
 * means to them, and when to ask again. */

/* ---- Reasons --------------------------------------------------------------------------------- */

/* Describes an invalid field of a list: "body.pp_degree: field required". */
static void describe_bad_field(const json_t *problem, char *text, size_t size) {
    size_t length = 0;
    size_t index;
    const json_t *part;
    text[0] = '\0';
    json_array_foreach(json_object_get(problem, "loc"), index, part) {
        int more = json_is_string(part) ? snprintf(text + length, size - length, "%s%s",
                                                   index ? "." : "", json_string_value(part))
                                        : snprintf(text + length, size - length, "[%lld]",
                                                   (long long)json_integer_value(part));
        length += more > 0 ? (size_t)more : 0;
        if (length >= size) return;
    }
    const char *message = json_string_value(json_object_get(problem, "msg"));
    (void)snprintf(text + length, size - length, ": %s", message ? message : "");
}

bool harpe_answer_detail(const harpe_answer *answer, char *text, size_t size) {
    json_t *body = json_loadb(answer->body, answer->length, 0, NULL);
    const json_t *detail = json_object_get(body, "detail");
    bool is_found = json_is_string(detail) || json_array_size(detail) > 0;
    if (json_is_string(detail))
        (void)snprintf(text, size, "%s", json_string_value(detail));
    else if (is_found)
        describe_bad_field(json_array_get(detail, 0), text, size);
    json_decref(body);
    return is_found;
}

/* ---- Answers --------------------------------------------------------------------------------- */

void harpe_tell_nonsense(long http_status, char reason[HARPE_REASON_SIZE]) {
    (void)snprintf(reason, HARPE_REASON_SIZE,
                   "answered %ld, not as harpe serve does: is server_url right?", http_status);
}

harpe_exchange_result harpe_exchange(harpe_connection *connection, const harpe_request *request,
                                     harpe_answer *answer, char reason[HARPE_REASON_SIZE]) {
    harpe_error error;
    char detail[400];
    harpe_status status = harpe_connection_call(connection, request, answer, &error);
    if (status != HARPE_OK) {
        (void)snprintf(reason, HARPE_REASON_SIZE, "%.600s", error.message);
        return status == HARPE_INTERRUPTED ? HARPE_EXCHANGE_INTERRUPTED : HARPE_EXCHANGE_UNANSWERED;
    }
    if (answer->http_status == 200) return HARPE_EXCHANGE_ACCEPTED;
    if (!harpe_answer_detail(answer, detail, sizeof detail)) {
        harpe_tell_nonsense(answer->http_status, reason);
        return HARPE_EXCHANGE_NONSENSE;
    }
    bool needs_token = answer->http_status == 401;
    (void)snprintf(reason, HARPE_REASON_SIZE, "the server answered %ld: %s%s%s",
                   answer->http_status, detail,
                   needs_token ? " (give a token, for example in HARPE_TOKEN)" : "",
                   needs_token && !answer->was_sent_token ? harpe_token_hint() : "");
    return HARPE_EXCHANGE_REFUSED;
}

/* ---- Connections ----------------------------------------------------------------------------- */

/* Makes requests on a transport (transport.h). A faulty server cannot fill the memory. Once an
 * answer has begun, the time until its end is limited. This file does not interpret answers. */

#define ANSWER_LIMIT_BYTES ((size_t)64 << 20)
#define ANSWER_LIMIT_S 30.0

struct harpe_connection {
    const harpe_transport *transport;
    void *link;
    char *server; /* without a slash at its end */
    char *token;  /* the token given by the caller; NULL: none */
    const char *url_name, *ca_name;
    bool has_ca_file;            /* false: the system's authorities are used */
    const char *ca_variable;     /* names the file; NULL: the option ca_file does */
    bool takes_no_machine_token; /* true for a Unix socket, a foreign server and a simulated world
                                  */
    bool asked_without_one; /* a request had no token, so the transport may keep connections made
                               without a token */
    bool (*go_on)(void *user);
    void *user;
    harpe_text target; /* of the last request */
    harpe_text body;
    size_t limit_bytes;
    bool cuts_answers, is_too_long;
    int64_t held_ns, answer_limit_ns; /* time limits of a held request and of an answer */
    bool is_held;                     /* true until the answer begins */
    int64_t limit_from_ns, limit_ns;  /* if limit_ns is below 0, the transport enforces the limit */
    int64_t round;
    harpe_transfer_result result; /* of the last call */
    char reason[HARPE_TRANSFER_REASON_SIZE];
};

const harpe_transport *harpe_transport_in_use;

/* ---- Receiving ------------------------------------------------------------------------------- */

bool harpe_connection_take_body(harpe_connection *connection, const char *bytes, size_t length) {
    size_t room = connection->limit_bytes - connection->body.length;
    connection->is_too_long = length > room && !connection->cuts_answers;
    if (connection->is_too_long) return false;
    harpe_text_append(&connection->body, bytes, length < room ? length : room);
    return !connection->body.failed;
}

void harpe_connection_take_line(harpe_connection *connection, const char *line, size_t length) {
    static const char name[] = "harpe-round:";
    if (length <= sizeof name || strncasecmp(line, name, sizeof name - 1) != 0) return;
    const char *value = line + sizeof name - 1;
    const char *end = line + length;
    while (value < end && *value == ' ')
        value++;
    while (end > value && strchr(" \r\n", end[-1]))
        end--;
    int64_t round;
    if (harpe_parse_int(value, (size_t)(end - value), &round)) connection->round = round;
}

/* ---- Opening --------------------------------------------------------------------------------- */

harpe_status harpe_server_url_check(const char *name, const char *url, harpe_error *error) {
    bool is_http =
        url && (strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0);
    if (is_http && !strpbrk(url, "?# \t\r\n") && !strchr("/", strchr(url, ':')[3])) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "%s: expected http://HOST:PORT, found '%.200s'", name, url ? url : "");
}

static bool copy_server(harpe_connection *connection, const char *url) {
    connection->server = strdup(url);
    if (!connection->server) return false;
    size_t length = strlen(connection->server);
    while (length > 0 && connection->server[length - 1] == '/')
        connection->server[--length] = '\0';
    return true;
}

static void take_options(harpe_connection *connection, harpe_connection_options *options) {
    double answer_s = options->answer_limit_s > 0 ? options->answer_limit_s : ANSWER_LIMIT_S;
    bool has_curl = !harpe_transport_in_use;
    connection->transport = has_curl ? &harpe_transport_curl : harpe_transport_in_use;
    connection->url_name = options->url_name ? options->url_name : "server_url";
    connection->ca_name = options->ca_name ? options->ca_name : "in ca_file";
    if (!options->ca_file)
        options->ca_file =
            harpe_named_trust_store(!options->has_no_token, &connection->ca_variable);
    connection->has_ca_file = options->ca_file != NULL;
    connection->takes_no_machine_token = options->unix_socket || options->has_no_token || !has_curl;
    connection->go_on = options->go_on;
    connection->user = options->user;
    connection->held_ns = (int64_t)(options->held_s * 1e9);
    connection->answer_limit_ns = (int64_t)(answer_s * 1e9);
    connection->limit_bytes =
        options->answer_limit_bytes > 0 ? options->answer_limit_bytes : ANSWER_LIMIT_BYTES;
    connection->cuts_answers = options->cuts_answers;
}

harpe_status harpe_connection_new(const harpe_connection_options *options, harpe_connection **out,
                                  harpe_error *error) {
    harpe_connection_options own = *options;
    harpe_connection *connection = harpe_calloc(1, sizeof *connection);
    if (!connection) return harpe_fail_memory(error);
    take_options(connection, &own);
    harpe_status status = harpe_server_url_check(connection->url_name, own.server_url, error);
    if (status != HARPE_OK) {
        free(connection);
        return status;
    }
    connection->token = own.token ? strdup(own.token) : NULL;
    connection->link = connection->transport->open(connection, &own, connection->reason);
    if (!connection->link || (own.token && !connection->token) ||
        !copy_server(connection, own.server_url)) {
        harpe_connection_free(connection);
        return harpe_fail_memory(error);
    }
    *out = connection;
    return HARPE_OK;
}

void harpe_connection_free(harpe_connection *connection) {
    if (!connection) return;
    if (connection->link) connection->transport->close(connection->link);
    harpe_text_free(&connection->target);
    harpe_text_free(&connection->body);
    free(connection->server);
    if (connection->token) explicit_bzero(connection->token, strlen(connection->token));
    free(connection->token);
    free(connection);
}

const char *harpe_connection_server(const harpe_connection *connection) {
    return connection->server;
}

void harpe_connection_wake(harpe_connection *connection) {
    connection->transport->wake(connection->link);
}

/* ---- Requests -------------------------------------------------------------------------------- */

void harpe_url_append(harpe_text *text, const char *bytes) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    while (*bytes) {
        size_t length = strspn(bytes, plain);
        harpe_text_append(text, bytes, length);
        bytes += length;
        if (*bytes) harpe_text_printf(text, "%%%02X", (unsigned char)*bytes++);
    }
}

static bool set_target(harpe_connection *connection, const harpe_request *request) {
    harpe_text *target = &connection->target;
    target->length = 0;
    target->failed = false;
    harpe_text_append(target, request->path, strlen(request->path));
    if (request->segment) harpe_url_append(target, request->segment);
    if (request->query) harpe_text_append(target, request->query, strlen(request->query));
    return !target->failed;
}

/* Finds the token of a request. A client without a token of its own sends the token of the
 * machine's service, but only to that service; `*given` is then the caller's, to free. A connection
 * made for a request without a token may lead to another server, and the transport keeps several
 * connections. So after such a request, each request with the token uses a new connection. */
static void choose_token(harpe_connection *connection, harpe_transfer *transfer, char **given) {
    transfer->token = connection->token;
    if (connection->token || connection->takes_no_machine_token) return;
    transfer->token = *given = harpe_token_of_machine(connection->server);
    transfer->is_alone = *given && connection->asked_without_one;
    connection->asked_without_one |= !*given;
}

/* Begins a request. The limit of a held request starts when its answer begins, which only this file
 * knows. */
static bool begin(harpe_connection *connection, const harpe_request *request,
                  harpe_transfer *transfer) {
    connection->body.length = 0;
    connection->body.failed = false;
    connection->is_too_long = false;
    connection->round = -1;
    connection->reason[0] = '\0';
    connection->is_held = request->is_held;
    connection->limit_from_ns = harpe_clock_ns();
    connection->limit_ns = request->is_held ? connection->held_ns : -1;
    if (!set_target(connection, request)) return false;
    transfer->server = connection->server;
    transfer->target = connection->target.data ? connection->target.data : "";
    transfer->method = request->method;
    transfer->body = request->body;
    transfer->limit_ns = request->is_held ? 0 : connection->answer_limit_ns;
    return connection->transport->begin(connection->link, transfer);
}

/* Starts the limit of an answer with its first byte. A server can send the first line slowly. */
static void note_begin(harpe_connection *connection) {
    if (!connection->is_held || !connection->transport->has_begun(connection->link)) return;
    connection->is_held = false;
    connection->limit_from_ns = harpe_clock_ns();
    connection->limit_ns = connection->answer_limit_ns;
}

static bool is_over_time(const harpe_connection *connection) {
    return connection->limit_ns >= 0 &&
           harpe_clock_ns() - connection->limit_from_ns > connection->limit_ns;
}

/* Returns how long to wait for the transport before `go_on` or a limit of time needs a look. */
static int64_t longest_wait_ns(const harpe_connection *connection) {
    int64_t longest_ns = connection->go_on ? connection->transport->tick_ns : INT64_MAX;
    if (connection->limit_ns < 0) return longest_ns;
    int64_t left_ns = connection->limit_from_ns + connection->limit_ns - harpe_clock_ns() + 1;
    return left_ns < longest_ns ? left_ns : longest_ns;
}

static harpe_transfer_result interrupted(harpe_connection *connection) {
    (void)strcpy(connection->reason, "the request was interrupted");
    return HARPE_TRANSFER_INTERRUPTED;
}

/* Runs the request until it succeeds or fails. */
static harpe_transfer_result run(harpe_connection *connection) {
    const harpe_transport *transport = connection->transport;
    for (;;) {
        harpe_transfer_result result = transport->step(connection->link);
        if (result != HARPE_TRANSFER_RUNNING) return result;
        if (connection->go_on && !connection->go_on(connection->user))
            return interrupted(connection);
        note_begin(connection);
        if (is_over_time(connection)) {
            if (connection->is_held) return interrupted(connection);
            (void)snprintf(connection->reason, sizeof connection->reason,
                           "the answer is not complete after %g s",
                           (double)connection->answer_limit_ns * 1e-9);
            return HARPE_TRANSFER_BROKEN;
        }
        transport->wait(connection->link, longest_wait_ns(connection));
    }
}

const char *harpe_connection_reason(const harpe_connection *connection) {
    return connection->reason;
}

bool harpe_connection_has_wrong_name(const harpe_connection *connection) {
    return connection->result == HARPE_TRANSFER_WRONG_NAME;
}

static harpe_status tell_transfer(const harpe_connection *connection, harpe_error *error) {
    const char *server = connection->server;
    const char *reason = connection->reason;
    switch (connection->result) {
    case HARPE_TRANSFER_INTERRUPTED:
        return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while waiting for %.200s", server);
    case HARPE_TRANSFER_NO_MEMORY: return harpe_fail_memory(error);
    case HARPE_TRANSFER_BAD_URL:
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: expected http://HOST:PORT, found '%.200s'", connection->url_name,
                          server);
    case HARPE_TRANSFER_NO_SERVER:
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "no server answers at %.200s; is harpe serve running there?", server);
    case HARPE_TRANSFER_BAD_AUTHORITIES:
        if (!connection->has_ca_file)
            return harpe_fail(error, HARPE_PERMISSION_DENIED,
                              "%.200s is not trusted, because this system has no certificate "
                              "authorities (%s); name its authority %s or in HARPE_CA_FILE",
                              server, reason, connection->ca_name);
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the certificate authorities cannot be read: %s; they are given %s%s",
                          reason, connection->ca_variable ? "in " : "",
                          connection->ca_variable ? connection->ca_variable : connection->ca_name);
    case HARPE_TRANSFER_WRONG_NAME:
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "the certificate of %.200s is for another name (%s); use the name "
                          "in the certificate as the address",
                          server, reason);
    case HARPE_TRANSFER_NOT_TRUSTED:
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "%.200s is not trusted (%s); name its authority %s or in HARPE_CA_FILE",
                          server, reason, connection->ca_name);
    case HARPE_TRANSFER_NO_TLS:
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "%.200s does not speak TLS as https:// needs (%s); is it http://?",
                          server, reason);
    default:
        /* A server that expects TLS closes the connection, or answers something else than HTTP. */
        if (strncmp(server, "http://", 7) == 0)
            return harpe_fail(error, HARPE_UNAVAILABLE,
                              "%s; is harpe serve running at %.200s, and not with https://?",
                              reason, server);
        return harpe_fail(error, HARPE_UNAVAILABLE, "%s; is harpe serve running at %.200s?", reason,
                          server);
    }
}

static harpe_status tell_failure(const harpe_connection *connection, harpe_error *error) {
    if (connection->body.failed) return harpe_fail_memory(error);
    if (!connection->is_too_long) return tell_transfer(connection, error);
    return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                      "%.200s answered with more than %zu MiB: is it a harpe server?",
                      connection->server, connection->limit_bytes >> 20);
}

harpe_status harpe_connection_call(harpe_connection *connection, const harpe_request *request,
                                   harpe_answer *answer, harpe_error *error) {
    harpe_transfer transfer = {0};
    char *machine_token = NULL;
    long http_status = 0;
    connection->result = HARPE_TRANSFER_NO_MEMORY;
    choose_token(connection, &transfer, &machine_token);
    if (begin(connection, request, &transfer)) {
        connection->result = run(connection);
        http_status = connection->transport->end(connection->link);
    }
    bool was_sent_token = transfer.token != NULL;
    free(machine_token);
    if (connection->result != HARPE_TRANSFER_DONE) return tell_failure(connection, error);
    *answer = (harpe_answer){.http_status = http_status,
                             .body = connection->body.length > 0 ? connection->body.data : "",
                             .length = connection->body.length,
                             .round = connection->round,
                             .was_sent_token = was_sent_token};
    return HARPE_OK;
}
