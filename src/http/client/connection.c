/* SPDX-License-Identifier: Apache-2.0 */
/* Makes requests with libcurl's multi interface, which another thread can wake, so a held request
 * does not delay the end of the optimizer. A faulty server cannot fill the memory. Once an answer
 * has begun, the time until its end is limited. Redirects and proxies are not followed. This file
 * does not interpret answers. */
#include "http/client/connection.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/machine_token.h"
#include "base/number.h"
#include "base/text.h"
#include "http/client/trust_store.h"

#define ANSWER_LIMIT_BYTES ((size_t)64 << 20)
#define CONNECT_LIMIT_S 10.0
#define ANSWER_LIMIT_S 30.0
#define TICK_MS 100
#define KEEPALIVE_IDLE_S 30L
#define KEEPALIVE_INTERVAL_S 10L

struct harpe_connection {
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    char *server; /* without a slash at its end */
    char *token;  /* the token given by the caller; NULL: none */
    const char *url_name, *ca_name;
    bool has_ca_file;            /* false: the system's authorities are used */
    const char *ca_variable;     /* names the file; NULL: the option ca_file does */
    bool takes_no_machine_token; /* true for a Unix socket and a foreign server */
    bool asked_without_one; /* a request had no token, so curl may keep connections made without a
                               token */
    bool sent_token;        /* this request had a token */
    bool (*go_on)(void *user);
    void *user;
    harpe_text body;
    size_t limit_bytes;
    bool cuts_answers, is_too_long;
    int64_t held_ns, answer_limit_ns; /* time limits of a held request and of an answer */
    bool is_held;                     /* true until the answer begins */
    int64_t limit_from_ns, limit_ns;  /* if limit_ns is below 0, curl enforces the limit */
    int64_t round;
    CURLcode code; /* of the last call */
    char reason[CURL_ERROR_SIZE];
};

/* ---- Receiving ------------------------------------------------------------------------------- */

static size_t receive(char *bytes, size_t size, size_t count, void *user) {
    harpe_connection *connection = user;
    size_t length = size * count;
    size_t room = connection->limit_bytes - connection->body.length;
    connection->is_too_long = length > room && !connection->cuts_answers;
    if (connection->is_too_long) return 0;
    harpe_text_append(&connection->body, bytes, length < room ? length : room);
    return connection->body.failed ? 0 : length;
}

static size_t receive_header(char *bytes, size_t size, size_t count, void *user) {
    static const char name[] = "harpe-round:";
    harpe_connection *connection = user;
    size_t length = size * count;
    if (length > sizeof name && strncasecmp(bytes, name, sizeof name - 1) == 0) {
        const char *value = bytes + sizeof name - 1;
        const char *end = bytes + length;
        while (value < end && *value == ' ')
            value++;
        while (end > value && strchr(" \r\n", end[-1]))
            end--;
        int64_t round;
        if (harpe_parse_int(value, (size_t)(end - value), &round)) connection->round = round;
    }
    return length;
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

static bool add_header(harpe_connection *connection, const char *line) {
    struct curl_slist *longer = curl_slist_append(connection->headers, line);
    if (longer) connection->headers = longer;
    return longer != NULL;
}

/* `stays` is true if later requests use the same connection. A server can then conclude from the
 * end of the connection that this process has ended. */
static bool make_headers(harpe_connection *connection, const char *token, bool has_body,
                         bool stays) {
    harpe_text bearer = {0};
    curl_slist_free_all(connection->headers);
    connection->headers = NULL;
    /* "Expect: 100-continue" is not sent, because it costs a second if a proxy does not know it. */
    bool ok =
        add_header(connection, has_body ? "Content-Type: application/json" : "Content-Type:") &&
        add_header(connection, "Expect:") &&
        (!stays || add_header(connection, "Harpe-Connection: kept"));
    if (ok && token) {
        harpe_text_printf(&bearer, "Authorization: Bearer %s", token);
        ok = !bearer.failed && add_header(connection, bearer.data);
    }
    harpe_text_free(&bearer);
    connection->sent_token = token != NULL;
    curl_easy_setopt(connection->easy, CURLOPT_HTTPHEADER, connection->headers);
    return ok;
}

static void prepare(harpe_connection *connection, const harpe_connection_options *options) {
    CURL *easy = connection->easy;
    double connect_s = options->connect_limit_s > 0 ? options->connect_limit_s : CONNECT_LIMIT_S;
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection->reason);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(connect_s * 1e3));
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, connection);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, receive_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, connection);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* a name server that does not answer delays
                                                     * nothing */
#endif
    const char *ca_file = options->ca_file;
    if (!ca_file)
        ca_file = harpe_named_trust_store(!options->has_no_token, &connection->ca_variable);
    connection->has_ca_file = ca_file != NULL;
    if (ca_file) curl_easy_setopt(easy, CURLOPT_CAPATH, NULL); /* trust nobody else */
#if LIBCURL_VERSION_NUM >= 0x074600
    const curl_version_info_data *built = curl_version_info(CURLVERSION_NOW);
    if (!ca_file && !built->capath) ca_file = harpe_other_trust_store(built->cainfo);
#endif
    if (ca_file) curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file);
    if (options->unix_socket)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, options->unix_socket);
}

static void take_options(harpe_connection *connection, const harpe_connection_options *options) {
    double answer_s = options->answer_limit_s > 0 ? options->answer_limit_s : ANSWER_LIMIT_S;
    connection->url_name = options->url_name ? options->url_name : "server_url";
    connection->ca_name = options->ca_name ? options->ca_name : "in ca_file";
    connection->takes_no_machine_token = options->unix_socket || options->has_no_token;
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
    harpe_connection *connection = harpe_calloc(1, sizeof *connection);
    if (!connection) return harpe_fail_memory(error);
    take_options(connection, options);
    harpe_status status = harpe_server_url_check(connection->url_name, options->server_url, error);
    if (status != HARPE_OK) {
        free(connection);
        return status;
    }
    connection->multi = curl_multi_init();
    connection->easy = curl_easy_init();
    connection->token = options->token ? strdup(options->token) : NULL;
    if (!connection->multi || !connection->easy || (options->token && !connection->token) ||
        !copy_server(connection, options->server_url)) {
        harpe_connection_free(connection);
        return harpe_fail_memory(error);
    }
    prepare(connection, options);
    *out = connection;
    return HARPE_OK;
}

void harpe_connection_free(harpe_connection *connection) {
    if (!connection) return;
    curl_easy_cleanup(connection->easy);
    curl_multi_cleanup(connection->multi);
    curl_slist_free_all(connection->headers);
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
    (void)curl_multi_wakeup(connection->multi);
}

/* Chooses the headers. A client without a token of its own sends the token of the machine's
 * service, but only to that service. A connection made for a request without a token may lead to
 * another server, and curl keeps several connections. So after such a request, each request with
 * the token uses a new connection. */
static bool choose_headers(harpe_connection *connection, bool has_body) {
    if (connection->token || connection->takes_no_machine_token)
        return make_headers(connection, connection->token, has_body, true);
    char *token = harpe_token_of_machine(connection->server);
    long is_alone = token && connection->asked_without_one;
    curl_easy_setopt(connection->easy, CURLOPT_FRESH_CONNECT, is_alone);
    curl_easy_setopt(connection->easy, CURLOPT_FORBID_REUSE, is_alone);
    connection->asked_without_one |= !token;
    bool ok = make_headers(connection, token, has_body, !is_alone);
    free(token);
    return ok;
}

/* ---- Requests -------------------------------------------------------------------------------- */

void harpe_url_append(harpe_text *text, const char *bytes) {
    char *escaped = *bytes ? curl_easy_escape(NULL, bytes, 0) : NULL;
    if (escaped) harpe_text_append(text, escaped, strlen(escaped));
    if (*bytes && !escaped) text->failed = true;
    curl_free(escaped);
}

static bool set_url(const harpe_connection *connection, const harpe_request *request) {
    harpe_text url = {0};
    harpe_text_printf(&url, "%s%s", connection->server, request->path);
    if (request->segment) harpe_url_append(&url, request->segment);
    if (request->query) harpe_text_append(&url, request->query, strlen(request->query));
    bool ok = !url.failed && curl_easy_setopt(connection->easy, CURLOPT_URL, url.data) == CURLE_OK;
    harpe_text_free(&url);
    return ok;
}

/* Sets the time limits. The limit of a held request starts when its answer begins. curl has no such
 * limit. */
static void set_limits(harpe_connection *connection, bool is_held) {
    int64_t limit_ms = is_held ? 0 : connection->answer_limit_ns / 1000000;
    curl_easy_setopt(connection->easy, CURLOPT_TIMEOUT_MS, (long)limit_ms);
    connection->is_held = is_held;
    connection->limit_from_ns = harpe_clock_ns();
    connection->limit_ns = is_held ? connection->held_ns : -1;
}

static bool begin(harpe_connection *connection, const harpe_request *request) {
    CURL *easy = connection->easy;
    bool has_body = request->body && *request->body;
    bool ok = choose_headers(connection, has_body) && set_url(connection, request);
    if (request->body) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(request->body));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
    } else {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    connection->body.length = 0;
    connection->body.failed = false;
    connection->is_too_long = false;
    connection->round = -1;
    connection->reason[0] = '\0';
    set_limits(connection, request->is_held);
    return ok && curl_multi_add_handle(connection->multi, easy) == CURLM_OK;
}

/* Starts the limit of an answer with its first byte. A server can send the first line slowly. */
static void note_begin(harpe_connection *connection) {
    double begin_s = 0;
    if (!connection->is_held) return;
    (void)curl_easy_getinfo(connection->easy, CURLINFO_STARTTRANSFER_TIME, &begin_s);
    if (begin_s <= 0) return;
    connection->is_held = false;
    connection->limit_from_ns = harpe_clock_ns();
    connection->limit_ns = connection->answer_limit_ns;
}

static bool is_over_time(const harpe_connection *connection) {
    return connection->limit_ns >= 0 &&
           harpe_clock_ns() - connection->limit_from_ns > connection->limit_ns;
}

/* Runs the request until it succeeds or fails. */
static CURLcode transfer(harpe_connection *connection) {
    for (;;) {
        int running = 0;
        if (curl_multi_perform(connection->multi, &running) != CURLM_OK) return CURLE_OUT_OF_MEMORY;
        int left = 0;
        const CURLMsg *message = curl_multi_info_read(connection->multi, &left);
        if (message && message->msg == CURLMSG_DONE) return message->data.result;
        if (connection->go_on && !connection->go_on(connection->user))
            return CURLE_ABORTED_BY_CALLBACK;
        note_begin(connection);
        if (is_over_time(connection)) {
            if (connection->is_held) return CURLE_ABORTED_BY_CALLBACK;
            (void)snprintf(connection->reason, sizeof connection->reason,
                           "the answer is not complete after %g s",
                           (double)connection->answer_limit_ns * 1e-9);
            return CURLE_OPERATION_TIMEDOUT;
        }
        (void)curl_multi_poll(connection->multi, NULL, 0, TICK_MS, NULL);
    }
}

const char *harpe_connection_reason(const harpe_connection *connection) {
    return *connection->reason ? connection->reason : curl_easy_strerror(connection->code);
}

/* curl reports an untrusted certificate and a wrong name with the same code. With OpenSSL and
 * GnuTLS, the text for a wrong name contains "subject name". */
bool harpe_connection_has_wrong_name(const harpe_connection *connection) {
    return connection->code == CURLE_PEER_FAILED_VERIFICATION &&
           strstr(harpe_connection_reason(connection), "subject name");
}

static harpe_status tell_transfer(const harpe_connection *connection, harpe_error *error) {
    const char *server = connection->server;
    const char *reason = harpe_connection_reason(connection);
    switch (connection->code) {
    case CURLE_ABORTED_BY_CALLBACK:
        return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while waiting for %.200s", server);
    case CURLE_OUT_OF_MEMORY: return harpe_fail_memory(error);
    case CURLE_URL_MALFORMAT:
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: expected http://HOST:PORT, found '%.200s'", connection->url_name,
                          server);
    case CURLE_COULDNT_CONNECT:
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "no server answers at %.200s; is harpe serve running there?", server);
    case CURLE_SSL_CACERT_BADFILE:
        if (!connection->has_ca_file)
            return harpe_fail(error, HARPE_PERMISSION_DENIED,
                              "%.200s is not trusted, because this system has no certificate "
                              "authorities (%s); name its authority %s or in HARPE_CA_FILE",
                              server, reason, connection->ca_name);
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "the certificate authorities cannot be read: %s; they are given %s%s",
                          reason, connection->ca_variable ? "in " : "",
                          connection->ca_variable ? connection->ca_variable : connection->ca_name);
    case CURLE_PEER_FAILED_VERIFICATION:
        if (harpe_connection_has_wrong_name(connection))
            return harpe_fail(error, HARPE_PERMISSION_DENIED,
                              "the certificate of %.200s is for another name (%s); use the name "
                              "in the certificate as the address",
                              server, reason);
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "%.200s is not trusted (%s); name its authority %s or in HARPE_CA_FILE",
                          server, reason, connection->ca_name);
    case CURLE_SSL_CONNECT_ERROR:
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
    connection->code = CURLE_OUT_OF_MEMORY;
    if (!begin(connection, request)) return harpe_fail_memory(error);
    connection->code = transfer(connection);
    long http_status = 0;
    curl_easy_getinfo(connection->easy, CURLINFO_RESPONSE_CODE, &http_status);
    /* This also closes the connection if the answer is incomplete. */
    (void)curl_multi_remove_handle(connection->multi, connection->easy);
    if (connection->code != CURLE_OK) return tell_failure(connection, error);
    *answer = (harpe_answer){.http_status = http_status,
                             .body = connection->body.length > 0 ? connection->body.data : "",
                             .length = connection->body.length,
                             .round = connection->round,
                             .was_sent_token = connection->sent_token};
    return HARPE_OK;
}

/* ---- Libraries ------------------------------------------------------------------------------- */

void harpe_connections_begin(void) { (void)curl_global_init(CURL_GLOBAL_DEFAULT); }

void harpe_connections_end(void) { curl_global_cleanup(); }
