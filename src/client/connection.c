/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the server by libcurl's multi interface, which can be woken: a held request must not
 * keep the optimizer from ending. Whatever is at the address cannot fill memory or, once it has
 * begun to answer, take for ever. What an answer means is not known here. */
#include "client/connection.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "base/token.h"

#define ANSWER_LIMIT_BYTES ((size_t)64 << 20)
#define CONNECT_LIMIT_MS 10000L
/* From an answer's first byte on; where the request is not held, from its start. */
#define ANSWER_LIMIT_NS (30 * INT64_C(1000000000))
#define TICK_MS 100
#define KEEPALIVE_IDLE_S 30L
#define KEEPALIVE_INTERVAL_S 10L

struct harpe_connection {
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    char *server;            /* without a slash at its end */
    bool has_token;          /* a token was given */
    bool sent_machine_token; /* with the last request */
    bool (*go_on)(void *user);
    void *user;
    harpe_text body;
    bool is_too_long;
    int64_t held_ns; /* at most */
    bool is_held;    /* until the answer begins */
    int64_t limit_from_ns;
    int64_t round;
    char reason[CURL_ERROR_SIZE];
};

/* ---- What comes ------------------------------------------------------------------------------ */

static size_t receive(char *bytes, size_t size, size_t count, void *user) {
    harpe_connection *connection = user;
    size_t length = size * count;
    connection->is_too_long = length > ANSWER_LIMIT_BYTES - connection->body.length;
    if (connection->is_too_long) return 0;
    harpe_text_append(&connection->body, bytes, length);
    return connection->body.failed ? 0 : length;
}

static size_t receive_header(char *bytes, size_t size, size_t count, void *user) {
    static const char name[] = "harpe-round:";
    harpe_connection *connection = user;
    size_t length = size * count;
    if (connection->is_held) connection->limit_from_ns = harpe_clock_ns();
    connection->is_held = false;
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

harpe_status harpe_server_url_check(const char *url, harpe_error *error) {
    bool is_http =
        url && (strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0);
    if (is_http && !strpbrk(url, "?# \t\r\n") && !strchr("/", strchr(url, ':')[3])) return HARPE_OK;
    return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                      "server_url: expected http://HOST:PORT, found '%.200s'", url ? url : "");
}

static bool copy_server(harpe_connection *connection, const char *url) {
    connection->server = strdup(url);
    if (!connection->server) return false;
    size_t length = strlen(connection->server);
    while (length > 0 && connection->server[length - 1] == '/') {
        connection->server[--length] = '\0';
    }
    return true;
}

static bool add_header(harpe_connection *connection, const char *line) {
    struct curl_slist *longer = curl_slist_append(connection->headers, line);
    if (longer) connection->headers = longer;
    return longer != NULL;
}

static bool make_headers(harpe_connection *connection, const char *token) {
    harpe_text bearer = {0};
    /* No "Expect: 100-continue": it would cost a second where a proxy does not know it. */
    bool ok = add_header(connection, "Content-Type: application/json") &&
              add_header(connection, "Expect:");
    if (ok && token) {
        harpe_text_printf(&bearer, "Authorization: Bearer %s", token);
        ok = !bearer.failed && add_header(connection, bearer.data);
    }
    harpe_text_free(&bearer);
    return ok;
}

static void prepare(harpe_connection *connection, const char *ca_file) {
    CURL *easy = connection->easy;
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection->reason);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_LIMIT_MS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, connection->headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, connection);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, receive_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, connection);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* a name server that hangs holds up nothing */
#endif
    if (ca_file) curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file);
}

harpe_status harpe_connection_new(const harpe_connection_options *options, harpe_connection **out,
                                  harpe_error *error) {
    harpe_status status = harpe_server_url_check(options->server_url, error);
    if (status) return status;
    harpe_connection *connection = harpe_calloc(1, sizeof *connection);
    if (!connection) return harpe_fail_memory(error);
    connection->go_on = options->go_on;
    connection->user = options->user;
    connection->has_token = options->token != NULL;
    connection->held_ns = (int64_t)(options->held_s * 1e9);
    connection->multi = curl_multi_init();
    connection->easy = curl_easy_init();
    if (!connection->multi || !connection->easy || !copy_server(connection, options->server_url) ||
        !make_headers(connection, options->token)) {
        harpe_connection_free(connection);
        return harpe_fail_memory(error);
    }
    prepare(connection, options->ca_file);
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
    free(connection);
}

void harpe_connection_wake(harpe_connection *connection) {
    (void)curl_multi_wakeup(connection->multi);
}

/* Without a token of its own, a client sends the one of the machine's service, but only to that
 * service. A connection that was made before may lead to another server. */
static bool choose_token(harpe_connection *connection) {
    if (connection->has_token) return true;
    char *token = harpe_token_of_machine(connection->server);
    if (!token && !connection->sent_machine_token) return true;
    curl_slist_free_all(connection->headers);
    connection->headers = NULL;
    bool ok = make_headers(connection, token);
    curl_easy_setopt(connection->easy, CURLOPT_HTTPHEADER, connection->headers);
    curl_easy_setopt(connection->easy, CURLOPT_FRESH_CONNECT,
                     token && !connection->sent_machine_token ? 1L : 0L);
    connection->sent_machine_token = token != NULL;
    free(token);
    return ok;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static bool begin(harpe_connection *connection, const harpe_request *request) {
    CURL *easy = connection->easy;
    harpe_text url = {0};
    char *segment = curl_easy_escape(easy, request->segment, 0);
    harpe_text_printf(&url, "%s%s%s%s", connection->server, request->path, segment ? segment : "",
                      request->query);
    bool ok = choose_token(connection) && segment && !url.failed &&
              curl_easy_setopt(easy, CURLOPT_URL, url.data) == CURLE_OK;
    curl_free(segment);
    harpe_text_free(&url);
    if (request->body) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(request->body));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
    } else {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    }
    connection->body.length = 0;
    connection->is_too_long = false;
    connection->round = -1;
    connection->reason[0] = '\0';
    connection->is_held = request->is_held;
    connection->limit_from_ns = harpe_clock_ns();
    return ok && curl_multi_add_handle(connection->multi, easy) == CURLM_OK;
}

static bool is_over_time(const harpe_connection *connection) {
    int64_t limit_ns = connection->is_held ? connection->held_ns : ANSWER_LIMIT_NS;
    return harpe_clock_ns() - connection->limit_from_ns > limit_ns;
}

/* Until the request is done, one way or another. */
static CURLcode transfer(harpe_connection *connection) {
    for (;;) {
        int running = 0;
        if (curl_multi_perform(connection->multi, &running) != CURLM_OK) return CURLE_OUT_OF_MEMORY;
        int left = 0;
        const CURLMsg *message = curl_multi_info_read(connection->multi, &left);
        if (message && message->msg == CURLMSG_DONE) return message->data.result;
        if (!connection->go_on(connection->user)) return CURLE_ABORTED_BY_CALLBACK;
        if (is_over_time(connection)) {
            return connection->is_held ? CURLE_ABORTED_BY_CALLBACK : CURLE_OPERATION_TIMEDOUT;
        }
        (void)curl_multi_poll(connection->multi, NULL, 0, TICK_MS, NULL);
    }
}

static harpe_status tell_transfer(const harpe_connection *connection, CURLcode code,
                                  harpe_error *error) {
    const char *server = connection->server;
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while waiting for %.200s", server);
    }
    if (connection->is_too_long) {
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%.200s answered with more than %zu MiB: is it a harpe server?", server,
                          ANSWER_LIMIT_BYTES >> 20);
    }
    if (code == CURLE_OUT_OF_MEMORY || connection->body.failed) return harpe_fail_memory(error);
    const char *reason = *connection->reason ? connection->reason : curl_easy_strerror(code);
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "%.200s is not trusted (%s); name its authority in ca_file", server,
                          reason);
    }
    if (code == CURLE_SSL_CONNECT_ERROR) {
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "%.200s does not speak TLS as https:// needs (%s); is it http://?",
                          server, reason);
    }
    return harpe_fail(error, HARPE_UNAVAILABLE, "%s; is harpe serve running at %.200s?", reason,
                      server);
}

harpe_status harpe_connection_call(harpe_connection *connection, const harpe_request *request,
                                   harpe_answer *answer, harpe_error *error) {
    if (!begin(connection, request)) return harpe_fail_memory(error);
    CURLcode code = transfer(connection);
    long http_status = 0;
    curl_easy_getinfo(connection->easy, CURLINFO_RESPONSE_CODE, &http_status);
    /* Also closes the connection where the answer has not come whole. */
    (void)curl_multi_remove_handle(connection->multi, connection->easy);
    if (code != CURLE_OK) return tell_transfer(connection, code, error);
    *answer = (harpe_answer){.http_status = http_status,
                             .body = connection->body.length > 0 ? connection->body.data : "",
                             .length = connection->body.length,
                             .round = connection->round};
    return HARPE_OK;
}
