/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the group of a job from its metadata, and compares it with the groups of a client's token.
 * The engine does not know tokens: a call has the groups of its client. */
#include "server/engine/job_group.h"

#include <string.h>

#include "rights/scope.h"
#include "server/engine/replies.h"

bool harpe_metadata_group(const char *metadata, char **group) {
    static const char separators[] = " \t\r\n,;+", name[] = "fleet_group=";
    *group = NULL;
    for (const char *word = metadata ? metadata : ""; *word; word += strcspn(word, separators)) {
        word += strspn(word, separators);
        if (strncmp(word, name, sizeof name - 1) != 0) continue;
        const char *value = word + sizeof name - 1;
        size_t length = strcspn(value, separators);
        if (!harpe_group_name_is_sound(value, length)) continue;
        *group = strndup(value, length);
        return *group != NULL;
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
