/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches a series of prices. The operator's program fetches it, not the server. If the server
 * fetched the URLs of its clients, a client could make it send requests to machines that only the
 * server can reach. */
#include "cli/fleet/fleet_feed.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "cli/command.h"
#include "http/client/connection.h"

enum {
    SHOWN_BYTES = 300,
    FEED_BYTES = 4 << 20, /* longest answer; the harpe server accepts 10,000 prices */
};

/* A URL in parts. */
typedef struct feed {
    char *server;           /* "https://HOST:PORT"; owned */
    const char *path;       /* "/prices.csv?key=1" */
    char name[SHOWN_BYTES]; /* the URL up to its '?', for messages */
} feed;

static bool is_url(const char *source) {
    return strncasecmp(source, "http://", 7) == 0 || strncasecmp(source, "https://", 8) == 0;
}

static void name_url(const char *url, char name[SHOWN_BYTES]) {
    char *copy = strndup(url, strcspn(url, "?#"));
    (void)harpe_clean_text(name, SHOWN_BYTES, copy ? copy : "the prices");
    free(copy);
}

/* Splits a URL after its host and port. */
static harpe_status split_url(const char *url, feed *out, harpe_error *error) {
    const char *host = strstr(url, "://") + 3;
    size_t length = (size_t)(host - url) + strcspn(host, "/?#");
    name_url(url, out->name);
    if (memchr(host, '@', length - (size_t)(host - url)))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "a URL of prices cannot have a user name or password before the host");
    if (strpbrk(url, "# \t\r\n") || url[length] == '?')
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "%s: expected http://HOST:PORT/PATH without spaces and #", out->name);
    out->path = url[length] ? url + length : "/";
    out->server = strndup(url, length);
    return out->server ? HARPE_OK : harpe_fail_memory(error);
}

static harpe_status tell_failure(const feed *from, const harpe_connection *connection,
                                 harpe_status status, harpe_error *error) {
    if (harpe_connection_has_wrong_name(connection))
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "%s: the certificate of the server is for another name (%s); use the "
                          "name in the certificate as the address",
                          from->name, harpe_connection_reason(connection));
    if (status == HARPE_PERMISSION_DENIED)
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "%s: the server is not trusted (%s); name its authority with "
                          "--feed-ca-file",
                          from->name, harpe_connection_reason(connection));
    if (status == HARPE_LIMIT_EXCEEDED)
        return harpe_fail(error, status, "%s: is larger than %zu MiB", from->name,
                          (size_t)FEED_BYTES >> 20);
    if (status != HARPE_UNAVAILABLE) return status;
    return harpe_fail(error, status, "%s: cannot be fetched: %s", from->name,
                      harpe_connection_reason(connection));
}

/* Returns the advice that a message gives after the HTTP status of an answer. */
static const char *hint(long code) {
    if (code >= 300 && code < 400)
        return ", a redirect, which is not followed: give the address that it leads to";
    if (code == 401 || code == 403)
        return ": it wants to know who asks; fetch the prices with another program, and give the "
               "file";
    return code == 404 ? ": is the address right?" : "";
}

static harpe_status check_answer(const feed *from, const harpe_answer *answer, harpe_error *error) {
    long code = answer->http_status;
    if (code == 200) return HARPE_OK;
    harpe_status status = harpe_fail(error, HARPE_UNAVAILABLE, "%s: the server answered %ld%s",
                                     from->name, code, hint(code));
    error->vendor_code = (int)code;
    return status;
}

static harpe_status fetch(const feed *from, const char *ca_file, harpe_price_series *out,
                          harpe_error *error) {
    const harpe_connection_options options = {.server_url = from->server,
                                              .has_no_token = true,
                                              .ca_file = ca_file,
                                              .url_name = "FILE or URL",
                                              .ca_name = "with --feed-ca-file",
                                              .answer_limit_bytes = FEED_BYTES,
                                              .go_on = harpe_command_goes_on};
    const harpe_request request = {.path = from->path};
    harpe_connection *connection;
    harpe_answer answer;
    harpe_status status = harpe_connection_new(&options, &connection, error);
    if (status != HARPE_OK) return status;
    status = harpe_connection_call(connection, &request, &answer, error);
    if (status != HARPE_OK)
        status = tell_failure(from, connection, status, error);
    else
        status = check_answer(from, &answer, error);
    if (status == HARPE_OK)
        status = harpe_price_series_read(answer.body, answer.length, from->name, out, error);
    harpe_connection_free(connection);
    return status;
}

static harpe_status read_url(const char *url, const char *ca_file, harpe_price_series *out,
                             harpe_error *error) {
    feed from = {.server = NULL};
    harpe_status status = split_url(url, &from, error);
    if (status == HARPE_OK) status = fetch(&from, ca_file, out, error);
    free(from.server);
    return status;
}

static harpe_status read_file(const char *path, harpe_price_series *out, harpe_error *error) {
    char *text = NULL;
    size_t length = 0;
    harpe_status status = harpe_file_read(path, HARPE_PRICE_SERIES_BYTES, &text, &length, error);
    if (status == HARPE_OK) status = harpe_price_series_read(text, length, path, out, error);
    free(text);
    return status;
}

harpe_status harpe_fleet_feed_read(const char *source, const char *ca_file, harpe_price_series *out,
                                   harpe_error *error) {
    harpe_status status =
        is_url(source) ? read_url(source, ca_file, out, error) : read_file(source, out, error);
    /* Callers take HARPE_PERMISSION_DENIED for the answer of a harpe server. */
    if (status != HARPE_PERMISSION_DENIED) return status;
    error->status = HARPE_UNAVAILABLE;
    return HARPE_UNAVAILABLE;
}
