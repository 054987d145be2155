/* SPDX-License-Identifier: Apache-2.0 */
/* Answers calls: JSON bodies for success and for errors, and the words of a job's metadata that
 * say which clients may see and change it. */
#include "server/engine/engine_internal.h"

#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "pfo/models.h"
#include "rights/tokens.h"

/* ---- Replies --------------------------------------------------------------------------------- */

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

void harpe_add_unknown_rank(harpe_problems *problems, const char *place, int64_t rank,
                            const harpe_job *job) {
    char message[96];
    (void)snprintf(message, sizeof message, "rank %lld is not in a job of %d ranks",
                   (long long)rank, job->info.world_size);
    harpe_problems_add(problems, json_pack("[s,s]", place, "rank"), "assertion_error", message);
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

/* ---- Groups ---------------------------------------------------------------------------------- */

/* The group of a job is compared with the groups of a client's token. The engine does not know
 * tokens: a call has the groups of its client. */

bool harpe_metadata_group(const char *metadata, char **group) {
    size_t length;
    const char *value, *place = metadata ? metadata : "";
    *group = NULL;
    while ((value = harpe_metadata_next(&place, "fleet_group", &length))) {
        if (!harpe_group_name_is_sound(value, length)) continue;
        *group = strndup(value, length);
        return *group != NULL;
    }
    return true;
}

bool harpe_job_read_words(harpe_job *job) {
    for (int w = 0; w < HARPE_WORDS; w++) {
        const char *place = job->info.job_metadata ? job->info.job_metadata : "";
        size_t length = 0;
        const char *value = harpe_metadata_next(&place, harpe_word_names[w], &length);
        if (length == 0) continue;
        job->words[w] = strndup(value, harpe_cut_length(value, length < 64 ? length : 64));
        if (!job->words[w]) return false;
    }
    return true;
}

bool harpe_job_is_in_scope(const harpe_job *job, const char *scope) {
    return harpe_scope_covers(job->jobs->groups, scope, job->group);
}

void harpe_reply_out_of_scope(harpe_call *call, const harpe_job *job, const char *scope) {
    char words[256];
    harpe_reply_detail(call, 403,
                       "job %.200s is in %s%s, and the token is only for %s: use a token for the "
                       "job's group",
                       job->id, job->group ? "the group " : "no group",
                       job->group ? job->group : "", harpe_scope_words(scope, words, sizeof words));
}

void harpe_reply_wrong_group(harpe_call *call, const char *group, const char *scope) {
    char words[256];
    harpe_reply_detail(call, 403,
                       "the job is for %s%s, and the token is only for %s: name one of its groups "
                       "with fleet_group=NAME in the job's metadata",
                       group ? "the group " : "no group", group ? group : "",
                       harpe_scope_words(scope, words, sizeof words));
}
