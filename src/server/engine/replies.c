/* SPDX-License-Identifier: Apache-2.0 */
/* Answers calls: JSON bodies for success and for errors. */
#include "server/engine/replies.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

void harpe_reply(harpe_call *call, int http_status, char *body, size_t length, int64_t round) {
    if (!call) {
        free(body);
        return;
    }
    call->held_by = NULL;
    call->operation = NULL;
    call->next = NULL;
    harpe_call_answer answer = {http_status, body, body ? length : 0, round};
    call->answer(call, &answer);
}

void harpe_reply_null(harpe_call *call, int64_t round) {
    if (!call) return;
    harpe_reply(call, 200, strdup("null"), strlen("null"), round);
}

/* Makes a JSON string of `message`. The message may contain names from requests, so bytes that are
 * not UTF-8 become '?'. */
static json_t *json_text(char *message) {
    json_t *text = json_string(message);
    if (text) return text;
    harpe_clean_in_place(message);
    return json_string(message);
}

void harpe_reply_detail(harpe_call *call, int http_status, const char *format, ...) {
    if (!call) return;
    char message[HARPE_ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0) message[0] = '\0';
    if (length >= (int)sizeof message)
        message[harpe_cut_length(message, sizeof message - 2)] = '\0';
    json_t *object = json_pack("{s:o}", "detail", json_text(message));
    char *body = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    harpe_reply(call, http_status, body, body ? strlen(body) : 0, -1);
}

void harpe_reply_problems(harpe_call *call, const harpe_problems *problems) {
    if (!call) return;
    char *body = problems->out_of_memory ? NULL : harpe_problems_format(problems);
    if (!body) {
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_reply(call, 422, body, strlen(body), -1);
}

void harpe_reply_out_of_memory(harpe_call *call) {
    harpe_reply_detail(call, 503, "the server is out of memory: try again later");
}

void harpe_reply_stopping(harpe_call *call) {
    harpe_reply_detail(call, 503, "the server is stopping: try again");
}

void harpe_reply_evicted(harpe_call *call, const char *job_id) {
    harpe_reply_detail(call, 410, "job %.512s was evicted: register it again", job_id);
}

void harpe_reply_not_stored(harpe_call *call, const harpe_error *error) {
    harpe_reply_detail(call, 503, "this could not be stored, try again: %s", error->message);
}

int harpe_http_status_of(harpe_status status) {
    switch (status) {
    case HARPE_INVALID_ARGUMENT:
    case HARPE_INVALID_INPUT: return 422;
    case HARPE_NOT_SUPPORTED:
    case HARPE_INFEASIBLE:
    case HARPE_NOT_FOUND: return 409;
    case HARPE_OUT_OF_MEMORY: return 503;
    default: return 500;
    }
}
