/* SPDX-License-Identifier: Apache-2.0 */
/* Carries requests with libcurl's multi interface, which another thread can wake, so a held request
 * does not delay the end of the optimizer. Redirects and proxies are not followed. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "http/client/connection.h"
#include "http/client/transport.h"

#define CONNECT_LIMIT_S 10.0
#define TICK_NS INT64_C(100000000)
#define KEEPALIVE_IDLE_S 30L
#define KEEPALIVE_INTERVAL_S 10L

_Static_assert(HARPE_TRANSFER_REASON_SIZE >= CURL_ERROR_SIZE, "libcurl writes its reason there");

typedef struct curl_link {
    harpe_connection *connection;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    char *reason;
} curl_link;

/* ---- Receiving ------------------------------------------------------------------------------- */

static size_t receive(char *bytes, size_t size, size_t count, void *user) {
    const curl_link *link = user;
    size_t length = size * count;
    return harpe_connection_take_body(link->connection, bytes, length) ? length : 0;
}

static size_t receive_header(char *bytes, size_t size, size_t count, void *user) {
    const curl_link *link = user;
    harpe_connection_take_line(link->connection, bytes, size * count);
    return size * count;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void prepare(curl_link *link, const harpe_connection_options *options) {
    CURL *easy = link->easy;
    double connect_s = options->connect_limit_s > 0 ? options->connect_limit_s : CONNECT_LIMIT_S;
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, link->reason);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(connect_s * 1e3));
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, link);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, receive_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, link);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* a name server that does not answer delays
                                                     * nothing */
#endif
    const char *ca_file = options->ca_file;
    if (ca_file) curl_easy_setopt(easy, CURLOPT_CAPATH, NULL); /* trust nobody else */
#if LIBCURL_VERSION_NUM >= 0x074600
    const curl_version_info_data *built = curl_version_info(CURLVERSION_NOW);
    if (!ca_file && !built->capath) ca_file = harpe_other_trust_store(built->cainfo);
#endif
    if (ca_file) curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file);
    if (options->unix_socket)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, options->unix_socket);
}

static void close_link(void *user) {
    curl_link *link = user;
    curl_easy_cleanup(link->easy);
    curl_multi_cleanup(link->multi);
    curl_slist_free_all(link->headers);
    free(link);
}

static void *open_link(harpe_connection *connection, const harpe_connection_options *options,
                       char *reason) {
    curl_link *link = harpe_calloc(1, sizeof *link);
    if (!link) return NULL;
    *link = (curl_link){.connection = connection,
                        .multi = curl_multi_init(),
                        .easy = curl_easy_init(),
                        .reason = reason};
    if (!link->multi || !link->easy) {
        close_link(link);
        return NULL;
    }
    prepare(link, options);
    return link;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static bool add_header(curl_link *link, const char *line) {
    struct curl_slist *longer = curl_slist_append(link->headers, line);
    if (longer) link->headers = longer;
    return longer != NULL;
}

/* If later requests use the same connection, a server can conclude from its end that this process
 * has ended. */
static bool make_headers(curl_link *link, const harpe_transfer *transfer) {
    harpe_text bearer = {0};
    bool has_body = transfer->body && *transfer->body;
    curl_slist_free_all(link->headers);
    link->headers = NULL;
    /* "Expect: 100-continue" is not sent, because it costs a second if a proxy does not know it. */
    bool ok = add_header(link, has_body ? "Content-Type: application/json" : "Content-Type:") &&
              add_header(link, "Expect:") &&
              (transfer->is_alone || add_header(link, "Harpe-Connection: kept"));
    if (ok && transfer->token) {
        harpe_text_printf(&bearer, "Authorization: Bearer %s", transfer->token);
        ok = !bearer.failed && add_header(link, bearer.data);
    }
    harpe_text_free(&bearer);
    curl_easy_setopt(link->easy, CURLOPT_HTTPHEADER, link->headers);
    return ok;
}

static bool set_url(const curl_link *link, const harpe_transfer *transfer) {
    harpe_text url = {0};
    harpe_text_printf(&url, "%s%s", transfer->server, transfer->target);
    bool ok = !url.failed && curl_easy_setopt(link->easy, CURLOPT_URL, url.data) == CURLE_OK;
    harpe_text_free(&url);
    return ok;
}

static bool begin(void *user, const harpe_transfer *transfer) {
    curl_link *link = user;
    CURL *easy = link->easy;
    long is_alone = transfer->is_alone;
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, is_alone);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, is_alone);
    bool ok = make_headers(link, transfer) && set_url(link, transfer);
    if (transfer->body) {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(transfer->body));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, transfer->body);
    } else {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, transfer->method);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(transfer->limit_ns / 1000000));
    return ok && curl_multi_add_handle(link->multi, easy) == CURLM_OK;
}

/* curl reports an untrusted certificate and a wrong name with the same code. With OpenSSL and
 * GnuTLS, the text for a wrong name contains "subject name". */
static harpe_transfer_result result_of(const curl_link *link, CURLcode code) {
    switch (code) {
    case CURLE_OK: return HARPE_TRANSFER_DONE;
    case CURLE_ABORTED_BY_CALLBACK: return HARPE_TRANSFER_INTERRUPTED;
    case CURLE_OUT_OF_MEMORY: return HARPE_TRANSFER_NO_MEMORY;
    case CURLE_URL_MALFORMAT: return HARPE_TRANSFER_BAD_URL;
    case CURLE_COULDNT_CONNECT: return HARPE_TRANSFER_NO_SERVER;
    case CURLE_SSL_CACERT_BADFILE: return HARPE_TRANSFER_BAD_AUTHORITIES;
    case CURLE_SSL_CONNECT_ERROR: return HARPE_TRANSFER_NO_TLS;
    case CURLE_PEER_FAILED_VERIFICATION:
        return strstr(link->reason, "subject name") ? HARPE_TRANSFER_WRONG_NAME
                                                    : HARPE_TRANSFER_NOT_TRUSTED;
    default: return HARPE_TRANSFER_BROKEN;
    }
}

static harpe_transfer_result step(void *user) {
    curl_link *link = user;
    int running = 0;
    if (curl_multi_perform(link->multi, &running) != CURLM_OK) return HARPE_TRANSFER_NO_MEMORY;
    int left = 0;
    const CURLMsg *message = curl_multi_info_read(link->multi, &left);
    if (!message || message->msg != CURLMSG_DONE) return HARPE_TRANSFER_RUNNING;
    CURLcode code = message->data.result;
    if (code != CURLE_OK && !*link->reason)
        (void)snprintf(link->reason, HARPE_TRANSFER_REASON_SIZE, "%s", curl_easy_strerror(code));
    return result_of(link, code);
}

static bool has_begun(void *user) {
    const curl_link *link = user;
    double begin_s = 0;
    (void)curl_easy_getinfo(link->easy, CURLINFO_STARTTRANSFER_TIME, &begin_s);
    return begin_s > 0;
}

static void wait_for_more(void *user, int64_t longest_ns) {
    curl_link *link = user;
    int64_t wait_ns = longest_ns < TICK_NS ? longest_ns : TICK_NS;
    (void)curl_multi_poll(link->multi, NULL, 0, (int)((wait_ns + 999999) / 1000000), NULL);
}

static long end(void *user) {
    curl_link *link = user;
    long http_status = 0;
    curl_easy_getinfo(link->easy, CURLINFO_RESPONSE_CODE, &http_status);
    /* This also closes the connection if the answer is incomplete. */
    (void)curl_multi_remove_handle(link->multi, link->easy);
    return http_status;
}

static void wake(void *user) {
    const curl_link *link = user;
    (void)curl_multi_wakeup(link->multi);
}

const harpe_transport harpe_transport_curl = {
    .tick_ns = TICK_NS,
    .open = open_link,
    .close = close_link,
    .begin = begin,
    .step = step,
    .has_begun = has_begun,
    .wait = wait_for_more,
    .end = end,
    .wake = wake,
};

/* ---- Libraries ------------------------------------------------------------------------------- */

void harpe_connections_begin(void) { (void)curl_global_init(CURL_GLOBAL_DEFAULT); }

void harpe_connections_end(void) { curl_global_cleanup(); }
