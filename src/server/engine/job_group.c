/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the words of a job's metadata: its group, its user and where it runs. This file also
 * compares the group with the groups of a client's token. The engine does not know tokens: a call
 * has the groups of its client. */
#include "server/engine/job_group.h"

#include <string.h>

#include "base/text.h"
#include "rights/tokens.h"
#include "server/engine/replies.h"

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
