/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of `harpe jobs` to the coordination server, by libcurl. Whatever is at the address must
 * not hold up or fill the program: time and size have limits, redirects and proxies are not
 * followed. What an answer means is not known here. */
#include "cli/jobs_client.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/error.h"
#include "base/terminal_progress.h"
#include "base/text.h"
#include "base/token.h"

#define ANSWER_LIMIT_BYTES ((size_t)64 << 20)
#define CONNECT_LIMIT_MS 5000L
#define REQUEST_LIMIT_MS 30000L

struct harpe_jobs_client {
    CURL *curl;
    struct curl_slist *headers;
    char *server;            /* without a slash at its end */
    char *token;             /* that was given; NULL: none */
    bool sent_machine_token; /* with the last request */
    harpe_text body;
    bool is_too_long;
    char reason[CURL_ERROR_SIZE];
};

/* ---- Opening -------------------------------------------------------------------------------- */

static harpe_status read_server(harpe_jobs_client *client, const char *server, harpe_error *error) {
    bool is_http =
        strncasecmp(server, "http://", 7) == 0 || strncasecmp(server, "https://", 8) == 0;
    if (!is_http || strpbrk(server, "?# \t\r\n"))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--server: expected http://HOST:PORT, found '%.200s'", server);
    client->server = strdup(server);
    if (!client->server) return harpe_fail_memory(error);
    size_t length = strlen(client->server);
    while (client->server[length - 1] == '/') {
        client->server[--length] = '\0';
    }
    return HARPE_OK;
}

static bool set_token(harpe_jobs_client *client, const char *token) {
    harpe_text header = {0};
    struct curl_slist *headers = NULL;
    if (token) {
        harpe_text_printf(&header, "Authorization: Bearer %s", token);
        if (!header.failed) headers = curl_slist_append(NULL, header.data);
        harpe_text_free(&header);
    }
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
    curl_slist_free_all(client->headers);
    client->headers = headers;
    return headers || !token;
}

static harpe_status read_token(harpe_jobs_client *client, const char *path, harpe_error *error) {
    char *token = NULL;
    harpe_status status =
        path ? harpe_token_read(path, "--token-file", &token, error)
             : harpe_token_take(getenv("HARPE_TOKEN"), "HARPE_TOKEN", &token, error);
    if (!status && !set_token(client, token)) status = harpe_fail_memory(error);
    client->token = token;
    return status;
}

/* Without a token of its own, a client sends the one of the machine's service, but only to that
 * service. A connection that was made before may lead to another server. */
static harpe_status choose_token(harpe_jobs_client *client, harpe_error *error) {
    if (client->token) return HARPE_OK;
    char *token = harpe_token_of_machine(client->server);
    bool is_set = set_token(client, token);
    curl_easy_setopt(client->curl, CURLOPT_FRESH_CONNECT,
                     token && !client->sent_machine_token ? 1L : 0L);
    client->sent_machine_token = token != NULL;
    free(token);
    return is_set ? HARPE_OK : harpe_fail_memory(error);
}

static size_t receive(char *bytes, size_t size, size_t count, void *user) {
    harpe_jobs_client *client = user;
    size_t length = size * count;
    client->is_too_long = length > ANSWER_LIMIT_BYTES - client->body.length;
    if (client->is_too_long) return 0;
    harpe_text_append(&client->body, bytes, length);
    return client->body.failed ? 0 : length;
}

/* Lets a signal end a request that hangs. */
static int check_signal(void *user, curl_off_t to_receive, curl_off_t received, curl_off_t to_send,
                        curl_off_t sent) {
    (void)user, (void)to_receive, (void)received, (void)to_send, (void)sent;
    return harpe_terminal_progress_signal() != 0;
}

static harpe_status prepare(harpe_jobs_client *client, const char *ca_file, harpe_error *error) {
    CURL *curl = client->curl = curl_easy_init();
    if (!curl) return harpe_fail_memory(error);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->reason);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_LIMIT_MS);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, REQUEST_LIMIT_MS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, client);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, check_signal);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    if (ca_file) curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file);
    return HARPE_OK;
}

harpe_status harpe_jobs_client_open(const harpe_jobs_client_options *options,
                                    harpe_jobs_client **out, harpe_error *error) {
    harpe_jobs_client *client = harpe_calloc(1, sizeof *client);
    if (!client) return harpe_fail_memory(error);
    harpe_status status = read_server(client, options->server, error);
    if (!status) status = prepare(client, options->ca_file, error);
    if (!status) status = read_token(client, options->token_file, error);
    if (status) {
        harpe_jobs_client_close(client);
        return status;
    }
    *out = client;
    return HARPE_OK;
}

void harpe_jobs_client_close(harpe_jobs_client *client) {
    if (!client) return;
    curl_easy_cleanup(client->curl);
    curl_slist_free_all(client->headers);
    harpe_text_free(&client->body);
    free(client->server);
    if (client->token) explicit_bzero(client->token, strlen(client->token));
    free(client->token);
    free(client);
}

/* ---- Requests ------------------------------------------------------------------------------- */

static harpe_status tell_transfer(const harpe_jobs_client *client, CURLcode code,
                                  harpe_error *error) {
    const char *server = client->server;
    if (code == CURLE_OUT_OF_MEMORY || client->body.failed) return harpe_fail_memory(error);
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while waiting for %.200s", server);
    if (client->is_too_long)
        return harpe_fail(error, HARPE_LIMIT_EXCEEDED,
                          "%.200s answered with more than %zu MiB: is it a harpe server?", server,
                          ANSWER_LIMIT_BYTES >> 20);
    if (code == CURLE_URL_MALFORMAT)
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "--server: expected http://HOST:PORT, found '%.200s'", server);
    if (code == CURLE_COULDNT_CONNECT)
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "nobody answers at %.200s; is harpe serve running there?", server);
    const char *reason = *client->reason ? client->reason : curl_easy_strerror(code);
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        return harpe_fail(error, HARPE_PERMISSION_DENIED,
                          "%.200s is not trusted (%s); name its authority with --ca-file", server,
                          reason);
    if (code == CURLE_SSL_CONNECT_ERROR)
        return harpe_fail(error, HARPE_UNAVAILABLE,
                          "%.200s does not speak TLS as https:// needs (%s); is it http://?",
                          server, reason);
    return harpe_fail(error, HARPE_UNAVAILABLE, "%s; is harpe serve running at %.200s?", reason,
                      server);
}

static harpe_status tell_refusal(const harpe_jobs_client *client, long code, const char *job_id,
                                 const json_t *answer, harpe_error *error) {
    const char *detail = json_string_value(json_object_get(answer, "detail"));
    if (code == 401)
        return harpe_fail(error, HARPE_PERMISSION_DENIED, "%.200s %s%s", client->server,
                          client->token || client->sent_machine_token
                              ? "does not know the token; give its own with --token-file FILE"
                              : "wants a token; give it with --token-file FILE",
                          client->token ? "" : harpe_token_hint());
    if (detail && job_id && (code == 404 || code == 410))
        return harpe_fail(error, HARPE_NOT_FOUND, "%.600s", detail);
    if (detail && code != 404)
        return harpe_fail(error, code >= 500 ? HARPE_UNAVAILABLE : HARPE_INVALID_INPUT,
                          "%.200s answered %ld: %.600s", client->server, code, detail);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%.200s answered %ld, not as harpe serve does: is the address right?",
                      client->server, code);
}

static harpe_status set_url(harpe_jobs_client *client, const char *job_id, harpe_error *error) {
    harpe_text url = {0};
    if (job_id) {
        char *escaped = curl_easy_escape(client->curl, job_id, 0);
        harpe_text_printf(&url, "%s/jobs/%s", client->server, escaped ? escaped : "");
        url.failed |= !escaped;
        curl_free(escaped);
    } else {
        harpe_text_printf(&url, "%s/jobs?limit=100000", client->server);
    }
    bool is_set = !url.failed && curl_easy_setopt(client->curl, CURLOPT_URL, url.data) == CURLE_OK;
    harpe_text_free(&url);
    return is_set ? HARPE_OK : harpe_fail_memory(error);
}

harpe_status harpe_jobs_client_call(harpe_jobs_client *client, const char *method,
                                    const char *job_id, json_t **answer, harpe_error *error) {
    harpe_status status = set_url(client, job_id, error);
    if (!status) status = choose_token(client, error);
    if (status) return status;
    client->body.length = 0;
    client->is_too_long = false;
    client->reason[0] = '\0';
    curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
    CURLcode code = curl_easy_perform(client->curl);
    if (code != CURLE_OK) return tell_transfer(client, code, error);

    long http_status = 0;
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &http_status);
    json_t *value = client->body.length > 0
                        ? json_loadb(client->body.data, client->body.length, JSON_DECODE_ANY, NULL)
                        : NULL;
    if (http_status == 200 && value) {
        *answer = value;
        return HARPE_OK;
    }
    status = tell_refusal(client, http_status, job_id, value, error);
    json_decref(value);
    return status;
}

harpe_status harpe_jobs_client_link(harpe_jobs_client *client, harpe_text *link,
                                    harpe_error *error) {
    char *of_machine = client->token ? NULL : harpe_token_of_machine(client->server);
    const char *token = client->token ? client->token : of_machine;
    char *escaped = token ? curl_easy_escape(client->curl, token, 0) : NULL;
    bool is_whole = !token || escaped;
    harpe_text_printf(link, "%s/", client->server);
    if (escaped) harpe_text_printf(link, "#token=%s", escaped);
    curl_free(escaped);
    free(of_machine);
    return is_whole && !link->failed ? HARPE_OK : harpe_fail_memory(error);
}
