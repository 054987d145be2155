/* SPDX-License-Identifier: Apache-2.0 */
/* Makes requests to a harpe server, and tells why one fails. The callers decide what a status means
 * to them, and when to ask again. */
#include "http/client/exchange.h"

#include <jansson.h>
#include <stdio.h>

#include "base/machine_token.h"

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

/* ---- Requests -------------------------------------------------------------------------------- */

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
