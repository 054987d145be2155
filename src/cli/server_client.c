/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the requests of `harpe jobs` and `harpe fleet` to the coordination server: chooses the
 * token, and explains answers other than 200 to the user. */
#include "cli/server_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/machine_token.h"
#include "base/token.h"
#include "cli/command.h"
#include "http/client/exchange.h"

#define CONNECT_LIMIT_S 5.0

struct harpe_server_client {
    harpe_connection *connection;
    const char *server; /* address of the server, without a slash at the end */
    char *token;        /* the token given by the user; NULL: none */
    bool wants_finished;
};

/* ---- Opening --------------------------------------------------------------------------------- */

static harpe_status read_token(const char *path, char **token, harpe_error *error) {
    return path ? harpe_token_read(path, "--token-file", token, error)
                : harpe_token_take(getenv("HARPE_TOKEN"), "HARPE_TOKEN", token, error);
}

static harpe_status open_client(harpe_server_client *client,
                                const harpe_server_client_options *options, harpe_error *error) {
    harpe_status status = harpe_server_url_check("--server", options->server, error);
    if (status == HARPE_OK) status = read_token(options->token_file, &client->token, error);
    if (status != HARPE_OK) return status;
    harpe_connection_options how = {.server_url = options->server,
                                    .token = client->token,
                                    .ca_file = options->ca_file,
                                    .url_name = "--server",
                                    .ca_name = "with --ca-file",
                                    .connect_limit_s = CONNECT_LIMIT_S,
                                    .go_on = harpe_command_goes_on};
    status = harpe_connection_new(&how, &client->connection, error);
    if (status == HARPE_OK) client->server = harpe_connection_server(client->connection);
    client->wants_finished = options->wants_finished;
    return status;
}

harpe_status harpe_server_client_open(const harpe_server_client_options *options,
                                      harpe_server_client **out, harpe_error *error) {
    harpe_server_client *client = harpe_calloc(1, sizeof *client);
    if (!client) return harpe_fail_memory(error);
    harpe_status status = open_client(client, options, error);
    if (status != HARPE_OK) {
        harpe_server_client_close(client);
        return status;
    }
    *out = client;
    return HARPE_OK;
}

void harpe_server_client_close(harpe_server_client *client) {
    if (!client) return;
    harpe_connection_free(client->connection);
    if (client->token) explicit_bzero(client->token, strlen(client->token));
    free(client->token);
    free(client);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static harpe_status tell_refusal(const harpe_server_client *client, const harpe_answer *answer,
                                 harpe_error *error) {
    long code = answer->http_status;
    char detail[704];
    bool has_detail = harpe_answer_detail(answer, detail, sizeof detail);
    if (code == 401)
        return harpe_fail(
            error, HARPE_PERMISSION_DENIED, "%.200s %s%s", client->server,
            answer->was_sent_token
                ? "does not accept the token; give the right one with --token-file FILE"
                : "requires a token; give it with --token-file FILE",
            client->token ? "" : harpe_token_hint());
    if (has_detail && code == 403)
        return harpe_fail(error, HARPE_PERMISSION_DENIED, "%.200s refused: %.700s", client->server,
                          detail);
    /* Web servers that are not harpe serve, and paths that harpe serve does not know, answer "Not
     * Found". */
    bool is_about_path = code == 404 && has_detail && strcmp(detail, "Not Found") == 0;
    if (has_detail && !is_about_path && (code == 404 || code == 410))
        return harpe_fail(error, HARPE_NOT_FOUND, "%.600s", detail);
    if (has_detail && code != 404)
        return harpe_fail(error, code >= 500 ? HARPE_UNAVAILABLE : HARPE_INVALID_INPUT,
                          "%.200s answered %ld: %.600s", client->server, code, detail);
    return harpe_fail(error, HARPE_INVALID_INPUT,
                      "%.200s answered %ld, not as harpe serve does: is the address right?",
                      client->server, code);
}

harpe_status harpe_server_client_request(harpe_server_client *client, const harpe_request *request,
                                         json_t **answer, harpe_error *error) {
    harpe_answer got;
    harpe_status status = harpe_connection_call(client->connection, request, &got, error);
    if (status != HARPE_OK) return status;
    json_t *value = got.http_status == 200 && got.length > 0
                        ? json_loadb(got.body, got.length, JSON_DECODE_ANY, NULL)
                        : NULL;
    if (!value) {
        status = tell_refusal(client, &got, error);
        error->vendor_code = (int)got.http_status;
        return status;
    }
    *answer = value;
    return HARPE_OK;
}

harpe_status harpe_server_client_call(harpe_server_client *client, const char *method,
                                      const char *job_id, json_t **answer, harpe_error *error) {
    harpe_request request = {.method = method,
                             .path = client->wants_finished ? "/finished/" : "/jobs/",
                             .segment = job_id};
    return harpe_server_client_request(client, &request, answer, error);
}

harpe_status harpe_server_client_list(harpe_server_client *client, const char *query,
                                      const char *after, size_t offset, size_t limit,
                                      json_t **answer, harpe_error *error) {
    harpe_text path = {0};
    char number[24];
    (void)snprintf(number, sizeof number, "%zu", offset);
    harpe_text_printf(&path, "%s?limit=%zu%s&%s=", client->wants_finished ? "/finished" : "/jobs",
                      limit, query ? query : "", after ? "after" : "offset");
    harpe_request request = {.path = path.data, .segment = after ? after : number};
    harpe_status status = path.failed
                              ? harpe_fail_memory(error)
                              : harpe_server_client_request(client, &request, answer, error);
    harpe_text_free(&path);
    return status;
}

const char *harpe_server_client_lister(const harpe_server_client *client) {
    return client->wants_finished ? "harpe jobs finished" : "harpe jobs";
}

harpe_status harpe_server_client_link(harpe_server_client *client, harpe_text *link,
                                      harpe_error *error) {
    char *of_machine = client->token ? NULL : harpe_token_of_machine(client->server);
    const char *token = client->token ? client->token : of_machine;
    harpe_text_printf(link, "%s/", client->server);
    if (token) {
        harpe_text_printf(link, "#token=");
        harpe_url_append(link, token);
    }
    free(of_machine);
    return link->failed ? harpe_fail_memory(error) : HARPE_OK;
}
