/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as JSON for those who look: the list of all, and everything of one. Written straight as
 * text, for a job may have thousands of ranks and the loop is waiting. Changes nothing. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "server/job.h"

static void append(harpe_text *text, const char *bytes) {
    harpe_text_append(text, bytes, strlen(bytes));
}

static void append_int(harpe_text *text, const char *name, int64_t value) {
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%" PRId64, value);
    append(text, name);
    append(text, digits);
}

/* NULL becomes null, as does what is no UTF-8. */
static void append_string(harpe_text *text, const char *name, const char *value) {
    json_t *string = json_string(value);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    append(text, name);
    append(text, quoted ? quoted : "null");
    free(quoted);
    json_decref(string);
}

/* What the list says of a job, without the closing brace. */
static void append_summary(harpe_text *text, const harpe_job *job) {
    const harpe_job_info *info = &job->info;
    append_string(text, "{\"job_id\":", job->id);
    append_string(text, ",\"state\":", harpe_job_state_name(harpe_job_state_of(job)));
    append_int(text, ",\"world_size\":", info->world_size);
    append_int(text, ",\"pp_degree\":", info->pp_degree);
    append_int(text, ",\"dp_degree\":", info->dp_degree);
    append_int(text, ",\"tp_degree\":", info->tp_degree);
    append_string(text, ",\"job_metadata\":", info->job_metadata);
    append_int(text, ",\"ranks_registered\":", job->registered);
    append_int(text, ",\"ranks_waiting\":", job->asking);
    append_int(text, ",\"ranks_reported\":", job->reported);
    append_int(text, ",\"round\":", job->round);
    append_int(text, ",\"registered_at\":", job->registered_s);
    append_int(text, ",\"last_seen\":", job->seen_s);
}

static void append_rank(harpe_text *text, const harpe_job *job, int rank) {
    append_int(text, rank == 0 ? "{\"rank\":" : ",{\"rank\":", rank);
    append(text, ",\"state\":\"");
    append(text, harpe_rank_state_name(job, rank));
    append(text, "\"");
    if (job->ranks[rank].is_registered) {
        const harpe_rank_info *info = &job->rank_infos[rank];
        append_int(text, ",\"dp_rank\":", info->dp_rank);
        append_int(text, ",\"pp_rank\":", info->pp_rank);
        append_int(text, ",\"tp_rank\":", info->tp_rank);
    }
    append(text, "}");
}

void harpe_show_job(const harpe_job *job, harpe_call *call) {
    harpe_text text = {0};
    append_summary(&text, job);
    append_string(&text,
                  ",\"scheduler\":", harpe_scheduler_kind_name(job->jobs->options.scheduler));
    append(&text, job->is_finished ? ",\"scheduler_is_finished\":true"
                                   : ",\"scheduler_is_finished\":false");
    append_string(&text, ",\"failure\":", job->failure);
    append(&text, ",\"ranks\":[");
    for (int r = 0; r < job->info.world_size; r++) {
        append_rank(&text, job, r);
    }
    append(&text, "]}");
    if (text.failed) {
        harpe_text_free(&text);
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_reply(call, 200, text.data, text.length, -1);
}

/* ---- Rows --------------------------------------------------------------------------------- */

/* Ranks in this state, "0-3,7"; the first of them, where there are many gaps. */
static void append_ranks(harpe_text *text, const harpe_job *job, const char *state) {
    enum { RANGES_MAX = 64 };
    int count = job->ranks ? job->info.world_size : 0;
    int ranges = 0;
    for (int first = 0; first < count && ranges <= RANGES_MAX; first++) {
        if (strcmp(harpe_rank_state_name(job, first), state) != 0) continue;
        int last = first;
        while (last + 1 < count && strcmp(harpe_rank_state_name(job, last + 1), state) == 0)
            last++;
        if (ranges == RANGES_MAX)
            append(text, ",...");
        else
            append_int(text, ranges > 0 ? "," : "", first);
        if (last > first && ranges < RANGES_MAX) append_int(text, "-", last);
        ranges++;
        first = last;
    }
}

static void append_row(harpe_text *text, const harpe_job *job) {
    static const char *const states[] = {"unknown", "registered", "asking", "served", "reported"};
    append_summary(text, job);
    append_string(text, ",\"scheduler\":", harpe_scheduler_kind_name(job->jobs->options.scheduler));
    append_string(text, ",\"failure\":", job->failure);
    append(text, ",\"rank_states\":{");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        append(text, i > 0 ? ",\"" : "\"");
        append(text, states[i]);
        append(text, "\":\"");
        append_ranks(text, job, states[i]);
        append(text, "\"");
    }
    append(text, "}}");
}

static char *finish(harpe_text *text) {
    if (!text->failed) return text->data;
    harpe_text_free(text);
    return NULL;
}

char *harpe_job_row(const harpe_job *job) {
    harpe_text text = {0};
    append_row(&text, job);
    return finish(&text);
}

char *harpe_jobs_rows(const harpe_jobs *jobs, int64_t since) {
    harpe_text text = {0};
    bool is_whole = since < jobs->evicted_version || since < 0;
    append(&text, is_whole ? "{\"whole\":true,\"jobs\":[" : "{\"whole\":false,\"jobs\":[");
    bool is_first = true;
    for (const harpe_job *job = jobs->table.newest; job; job = job->older) {
        if (!job->is_stored || (!is_whole && job->version <= since)) continue;
        if (!is_first) append(&text, ",");
        is_first = false;
        append_row(&text, job);
    }
    append(&text, "]}");
    return finish(&text);
}

char *harpe_jobs_list(const harpe_jobs *jobs, size_t offset, size_t limit) {
    harpe_text text = {0};
    append(&text, "{\"jobs\":[");
    size_t shown = 0;
    for (const harpe_job *job = jobs->table.newest; job && shown < limit; job = job->older) {
        if (!job->is_stored) continue;
        if (offset > 0) {
            offset--;
            continue;
        }
        if (shown++ > 0) append(&text, ",");
        append_summary(&text, job);
        append(&text, "}");
    }
    append_int(&text, "],\"count\":", (int64_t)jobs->counts.jobs);
    append(&text, "}");
    return finish(&text);
}
