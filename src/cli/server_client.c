/* SPDX-License-Identifier: Apache-2.0 */
/* Sends requests to the coordination server: chooses the token, and explains answers other than 200
 * to the user. */
#include "base/token.h"
#include "cli/cli.h"

#define CONNECT_LIMIT_S 5.0

const harpe_flag harpe_server_client_flags[] = {
    {"server", 0, "URL", "The server (HARPE_SERVER, else " HARPE_DEFAULT_SERVER ")", 0,
     HARPE_INTO(harpe_server_client_options, server)},
    {"token-file", 0, "FILE", "File whose first line is the server's bearer token (HARPE_TOKEN)", 0,
     HARPE_INTO(harpe_server_client_options, token_file)},
    {"ca-file", 0, "FILE", "Trust these certificate authorities (PEM)", 0,
     HARPE_INTO(harpe_server_client_options, ca_file)},
    {0},
};

/* ---- Opening --------------------------------------------------------------------------------- */

const char *harpe_server_client_default(void) {
    const char *server = getenv("HARPE_SERVER");
    return server && *server ? server : HARPE_DEFAULT_SERVER;
}

harpe_status harpe_server_client_open(const harpe_server_client_options *options,
                                      harpe_server_client *out, harpe_error *error) {
    harpe_status status = harpe_server_url_check("--server", options->server, error);
    if (status == HARPE_OK)
        status = options->token_file
                     ? harpe_token_read(options->token_file, "--token-file", &out->token, error)
                     : harpe_token_take(getenv("HARPE_TOKEN"), "HARPE_TOKEN", &out->token, error);
    if (status != HARPE_OK) return status;
    harpe_connection_options how = {.server_url = options->server,
                                    .token = out->token,
                                    .ca_file = options->ca_file,
                                    .url_name = "--server",
                                    .ca_name = "with --ca-file",
                                    .connect_limit_s = CONNECT_LIMIT_S,
                                    .go_on = harpe_command_goes_on};
    status = harpe_connection_new(&how, &out->connection, error);
    if (status == HARPE_OK) out->server = harpe_connection_server(out->connection);
    return status;
}

void harpe_server_client_close(harpe_server_client *client) {
    harpe_connection_free(client->connection);
    if (client->token) explicit_bzero(client->token, strlen(client->token));
    free(client->token);
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
