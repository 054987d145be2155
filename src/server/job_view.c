/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as JSON for those who look: the list of all, and everything of one. Written straight as
 * text, for a job may have thousands of ranks and the loop is waiting. Changes nothing. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "server/job.h"

static void append(harpe_text *text, const char *bytes) {
    harpe_text_append(text, bytes, strlen(bytes));
}

/* Without snprintf, which took most of the time: a job of 32,768 ranks has 130,000 numbers. */
static void append_int(harpe_text *text, const char *name, int64_t value) {
    char digits[24];
    char *first = digits + sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do {
        *--first = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (value < 0) *--first = '-';
    append(text, name);
    harpe_text_append(text, first, (size_t)(digits + sizeof digits - first));
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

/* At most `limit` bytes of it, and whether there was more. */
static void append_beginning(harpe_text *text, const char *name, const char *value, size_t limit) {
    char beginning[256];
    if (!value || strlen(value) <= limit) {
        append_string(text, name, value);
        return;
    }
    while (limit > 0 && ((unsigned char)value[limit] & 0xC0) == 0x80)
        limit--; /* not within a character */
    (void)snprintf(beginning, sizeof beginning, "%.*s...", (int)limit, value);
    append_string(text, name, beginning);
}

/* What the list says of a job, without the closing brace. */
static void append_summary(harpe_text *text, const harpe_job *job, size_t metadata_limit) {
    const harpe_job_info *info = &job->info;
    append_string(text, "{\"job_id\":", job->id);
    append_string(text, ",\"state\":", harpe_job_state_name(harpe_job_state_of(job)));
    append_int(text, ",\"world_size\":", info->world_size);
    append_int(text, ",\"pp_degree\":", info->pp_degree);
    append_int(text, ",\"dp_degree\":", info->dp_degree);
    append_int(text, ",\"tp_degree\":", info->tp_degree);
    append_beginning(text, ",\"job_metadata\":", info->job_metadata, metadata_limit);
    append_int(text, ",\"ranks_registered\":", job->registered);
    append_int(text, ",\"ranks_waiting\":", job->asking);
    append_int(text, ",\"ranks_reported\":", job->reported);
    append_int(text, ",\"round\":", job->round);
    append_int(text, ",\"registered_at\":", harpe_job_registered_s(job));
    append_int(text, ",\"last_seen\":", harpe_job_seen_s(job));
    append(text, ",\"figures\":");
    harpe_job_append_figures(text, job);
}

static void append_rank(harpe_text *text, const harpe_job *job, int rank) {
    append_int(text, rank == 0 ? "{\"rank\":" : ",{\"rank\":", rank);
    append(text, ",\"state\":\"");
    append(text, harpe_rank_state_name(job, rank));
    append(text, "\"");
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot && slot->is_registered) {
        const harpe_rank_info *info = &slot->info;
        append_int(text, ",\"dp_rank\":", info->dp_rank);
        append_int(text, ",\"pp_rank\":", info->pp_rank);
        append_int(text, ",\"tp_rank\":", info->tp_rank);
    }
    append(text, "}");
}

void harpe_show_job(const harpe_job *job, harpe_call *call) {
    harpe_text text = {0};
    append_summary(&text, job, SIZE_MAX);
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

enum { RANGES_MAX = 64, ROW_METADATA_BYTES = 200 };

static const char *const RANK_STATES[] = {"unknown", "registered", "asking",
                                          "served",  "reported",   "ended"};
enum { RANK_STATE_COUNT = sizeof RANK_STATES / sizeof *RANK_STATES };

typedef struct rank_ranges {
    harpe_text text; /* "0-3,7" */
    int count;
} rank_ranges;

static void append_range(rank_ranges *ranges, int first, int last) {
    if (++ranges->count > RANGES_MAX + 1) return;
    if (ranges->count == RANGES_MAX + 1) {
        append(&ranges->text, ",...");
        return;
    }
    append_int(&ranges->text, ranges->count > 1 ? "," : "", first);
    if (last > first) append_int(&ranges->text, "-", last);
}

/* The last of those after `first` that are in its state too. Passes over ranks of which nobody has
 * spoken: a job may announce millions. */
static int last_in_state(const harpe_job *job, int first) {
    const char *name = harpe_rank_state_name(job, first);
    int next = first + 1;
    while (next < job->info.world_size) {
        if (harpe_rank_state_name(job, next) != name) break;
        if (harpe_job_rank(job, next))
            next++;
        else
            (void)harpe_job_next_rank(job, &next);
    }
    return next - 1;
}

/* Which ranks are in which state; the first ranges of them, where there are many. */
static void append_rank_states(harpe_text *text, const harpe_job *job) {
    rank_ranges all[RANK_STATE_COUNT] = {0};
    int count = job->is_evicted ? 0 : job->info.world_size;
    for (int first = 0, last; first < count; first = last + 1) {
        const char *name = harpe_rank_state_name(job, first);
        last = last_in_state(job, first);
        for (int s = 0; s < RANK_STATE_COUNT; s++)
            if (strcmp(RANK_STATES[s], name) == 0) append_range(&all[s], first, last);
    }
    for (int s = 0; s < RANK_STATE_COUNT; s++) {
        append(text, s > 0 ? ",\"" : "\"");
        append(text, RANK_STATES[s]);
        append(text, "\":\"");
        if (all[s].text.length > 0) append(text, all[s].text.data);
        append(text, "\"");
        text->failed = text->failed || all[s].text.failed;
        harpe_text_free(&all[s].text);
    }
}

static void append_row(harpe_text *text, const harpe_job *job) {
    append_summary(text, job, ROW_METADATA_BYTES);
    append_string(text, ",\"scheduler\":", harpe_scheduler_kind_name(job->jobs->options.scheduler));
    append_string(text, ",\"failure\":", job->failure);
    append(text, ",\"rank_states\":{");
    append_rank_states(text, job);
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
    const char *comma = "";
    append(&text, since < 0 ? "{\"whole\":true,\"jobs\":[" : "{\"whole\":false,\"jobs\":[");
    for (const harpe_job *job = jobs->table.newest; job; job = job->older) {
        if (!job->is_stored || (since >= 0 && job->version <= since)) continue;
        append(&text, comma);
        append_row(&text, job);
        comma = ",";
    }
    append(&text, "],\"gone\":[");
    comma = "";
    for (const harpe_job *job = jobs->table.evicted_count > 0 ? jobs->table.last_evicted : NULL;
         job && since >= 0 && job->version > since; job = job->older) {
        append_string(&text, comma, job->id);
        comma = ",";
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
        append_summary(&text, job, SIZE_MAX);
        append(&text, "}");
    }
    append_int(&text, "],\"count\":", (int64_t)jobs->counts.jobs);
    append(&text, "}");
    return finish(&text);
}
