/* SPDX-License-Identifier: Apache-2.0 */
/* Writes jobs as JSON for clients that only read: the list of all jobs, and everything about one
 * job. A long text is written in pieces, because the loop cannot do other work while it writes.
 * This file changes no job. */
#include "server/engine/job_view.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/number.h"
#include "base/text.h"
#include "rights/tokens.h"
#include "server/engine/contact.h"
#include "server/engine/job.h"
#include "server/engine/job_figures.h"
#include "server/engine/job_group.h"
#include "server/engine/job_ranks.h"
#include "server/engine/job_report.h"
#include "server/engine/job_times.h"
#include "server/engine/replies.h"

/* Does not use snprintf, because snprintf would take most of the time: a job of 32,768 ranks has
 * 130,000 numbers. */
static void append_int(harpe_text *text, const char *name, int64_t value) {
    char digits[24];
    char *first = digits + sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do {
        *--first = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (value < 0) *--first = '-';
    harpe_json_raw(text, name);
    harpe_text_append(text, first, (size_t)(digits + sizeof digits - first));
}

/* Writes at most `limit` bytes of the metadata, and a member that is true if the metadata is
 * longer. */
static void append_metadata(harpe_text *text, const char *value, size_t limit) {
    static const char name[] = ",\"job_metadata\":";
    char beginning[256];
    if (!value || strlen(value) <= limit) {
        harpe_json_string(text, name, value);
        return;
    }
    (void)snprintf(beginning, sizeof beginning, "%.*s...", (int)harpe_cut_length(value, limit),
                   value);
    harpe_json_string(text, name, beginning);
    harpe_json_raw(text, ",\"job_metadata_is_shortened\":true");
}

/* Writes a job's row of the list, without the closing brace. */
static void append_summary(harpe_text *text, const harpe_job *job, size_t metadata_limit) {
    const harpe_job_info *info = &job->info;
    harpe_json_string(text, "{\"job_id\":", job->id);
    harpe_json_string(text, ",\"state\":", harpe_job_state_name(harpe_job_state_of(job)));
    append_int(text, ",\"world_size\":", info->world_size);
    append_int(text, ",\"pp_degree\":", info->pp_degree);
    append_int(text, ",\"dp_degree\":", info->dp_degree);
    append_int(text, ",\"tp_degree\":", info->tp_degree);
    append_metadata(text, info->job_metadata, metadata_limit);
    append_int(text, ",\"ranks_registered\":", job->registered);
    append_int(text, ",\"ranks_waiting\":", job->asking);
    append_int(text, ",\"ranks_reported\":", job->reported);
    append_int(text, ",\"round\":", job->round);
    append_int(text, ",\"registered_at\":", job->registered_s);
    append_int(text, ",\"last_seen\":", harpe_job_seen_s(job));
    if (harpe_job_is_out_of_contact(job))
        append_int(text, ",\"no_contact_since\":", job->lost_s);
    else
        harpe_json_raw(text, ",\"no_contact_since\":null");
    harpe_json_string(text, ",\"group\":", job->group);
    for (int w = 0; w < HARPE_WORDS; w++) {
        harpe_json_raw(text, ",\"");
        harpe_json_raw(text, harpe_word_names[w]);
        harpe_json_string(text, "\":", job->words[w]);
    }
    harpe_json_number(text, ",\"power_cap\":", job->power_cap_w > 0 ? job->power_cap_w : NAN);
    harpe_json_raw(text, ",\"figures\":");
    harpe_job_append_figures(text, job);
}

/* A piece ends after the row that makes it longer than this. */
enum { PIECE_BYTES = 65536 };

static void append_rank(harpe_text *text, const harpe_job *job, int rank) {
    append_int(text, rank == 0 ? "{\"rank\":" : ",{\"rank\":", rank);
    harpe_json_raw(text, ",\"state\":\"");
    harpe_json_raw(text, harpe_rank_state_name(job, rank));
    harpe_json_raw(text, "\"");
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot && slot->is_registered) {
        const harpe_rank_info *info = &slot->info;
        append_int(text, ",\"dp_rank\":", info->dp_rank);
        append_int(text, ",\"pp_rank\":", info->pp_rank);
        append_int(text, ",\"tp_rank\":", info->tp_rank);
    }
    harpe_json_raw(text, "}");
}

void harpe_show_job(const harpe_job *job, harpe_call *call) {
    harpe_text text = {0};
    int rank = call->rank > 0 ? (int)call->rank : 0;
    if (rank == 0) {
        append_summary(&text, job, SIZE_MAX);
        harpe_json_string(
            &text, ",\"scheduler\":", harpe_scheduler_kind_name(job->jobs->options.scheduler));
        harpe_json_raw(&text, job->is_finished ? ",\"scheduler_is_finished\":true"
                                               : ",\"scheduler_is_finished\":false");
        harpe_json_string(&text, ",\"failure\":", job->failure);
        harpe_json_raw(&text, ",\"report\":");
        harpe_job_append_report(&text, job);
        harpe_json_raw(&text, ",\"ranks\":[");
    }
    size_t start = text.length; /* the metadata may be longer than a piece */
    for (; rank < job->info.world_size && text.length - start < PIECE_BYTES; rank++)
        append_rank(&text, job, rank);
    bool is_last = rank >= job->info.world_size;
    if (is_last) harpe_json_raw(&text, "]}");
    if (text.failed) {
        harpe_text_free(&text);
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_reply(call, 200, text.data, text.length, is_last ? -1 : rank);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

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
        harpe_json_raw(&ranges->text, ",...");
        return;
    }
    append_int(&ranges->text, ranges->count > 1 ? "," : "", first);
    if (last > first) append_int(&ranges->text, "-", last);
}

/* Returns the last rank of the range that begins with `first` and in which all ranks have the same
 * state. Skips the ranks that no request has named, because a job may announce millions of them. */
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

/* Writes the ranges of ranks for each state. If there are many ranges, writes only the first of
 * them. */
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
        harpe_json_raw(text, s > 0 ? ",\"" : "\"");
        harpe_json_raw(text, RANK_STATES[s]);
        harpe_json_raw(text, "\":\"");
        if (all[s].text.length > 0) harpe_json_raw(text, all[s].text.data);
        harpe_json_raw(text, "\"");
        text->failed = text->failed || all[s].text.failed;
        harpe_text_free(&all[s].text);
    }
}

static void append_row_members(harpe_text *text, const harpe_job *job) {
    append_summary(text, job, ROW_METADATA_BYTES);
    harpe_json_string(text,
                      ",\"scheduler\":", harpe_scheduler_kind_name(job->jobs->options.scheduler));
    harpe_json_string(text, ",\"failure\":", job->failure);
    harpe_json_raw(text, ",\"rank_states\":{");
    append_rank_states(text, job);
    harpe_json_raw(text, "}");
}

void harpe_job_append_row(harpe_text *text, const harpe_job *job) {
    append_row_members(text, job);
    harpe_json_raw(text, "}");
}

static char *finish(harpe_text *text) {
    if (!text->failed) return text->data;
    harpe_text_free(text);
    return NULL;
}

/* Returns true if lists that a client with this scope gets contain the job. */
static bool is_shown(const harpe_job *job, const char *scope) {
    return job->is_stored && harpe_job_is_in_scope(job, scope);
}

char *harpe_job_row(const harpe_job *job) {
    harpe_text text = {0};
    append_row_members(&text, job);
    harpe_json_raw(&text, ",\"report\":");
    harpe_job_append_report(&text, job);
    harpe_json_raw(&text, "}");
    return finish(&text);
}

char *harpe_job_final_report(const harpe_job *job, int64_t evicted_s) {
    harpe_text text = {0};
    append_summary(&text, job, ROW_METADATA_BYTES);
    harpe_json_string(&text,
                      ",\"scheduler\":", harpe_scheduler_kind_name(job->jobs->options.scheduler));
    harpe_json_string(&text, ",\"failure\":", job->failure);
    append_int(&text, ",\"evicted_at\":", evicted_s);
    harpe_json_raw(&text, ",\"report\":");
    harpe_job_append_report(&text, job);
    harpe_json_raw(&text, "}");
    return finish(&text);
}

/* Writes the ids of the jobs that were evicted after version `since`. */
static void append_gone(harpe_text *text, const harpe_jobs *jobs, const char *scope,
                        int64_t since) {
    const char *comma = "";
    for (const harpe_job *job = jobs->table.leaving; job; job = job->older) {
        if (job->version <= since || !harpe_job_is_in_scope(job, scope)) continue;
        harpe_json_string(text, comma, job->id);
        comma = ",";
    }
    for (const harpe_evicted_job *job = jobs->table.evicted.newest; job && job->version > since;
         job = job->older) {
        if (!harpe_scope_covers(jobs->groups, scope, job->group)) continue;
        harpe_json_string(text, comma, job->id);
        comma = ",";
    }
}

char *harpe_jobs_rows(const harpe_jobs *jobs, const char *scope, int64_t since) {
    harpe_text text = {0};
    const char *comma = "";
    harpe_json_raw(&text, "{\"whole\":false,\"jobs\":[");
    for (const harpe_job *job = jobs->table.newest; job; job = job->older) {
        if (!is_shown(job, scope) || job->version <= since) continue;
        harpe_json_raw(&text, comma);
        harpe_job_append_row(&text, job);
        comma = ",";
    }
    harpe_json_raw(&text, "],\"gone\":[");
    append_gone(&text, jobs, scope, since);
    harpe_json_raw(&text, "]}");
    return finish(&text);
}

/* ---- The list -------------------------------------------------------------------------------- */

/* A place in the list. A serial number is valid only in the engine that gave it. */
typedef struct place {
    int64_t registered_s, serial;
} place;

static bool read_place(const char *text, place *out) {
    const char *dot = strchr(text, '.');
    return dot && harpe_parse_int(text, (size_t)(dot - text), &out->registered_s) &&
           harpe_parse_int(dot + 1, strlen(dot + 1), &out->serial);
}

bool harpe_jobs_is_place(const char *text) {
    place ignored;
    return read_place(text, &ignored);
}

/* Returns true if the job comes after the place in the list. If another engine gave the place,
 * compares only the times of registration. Then the list leaves out no job, but it may contain jobs
 * again that were registered in the same second. */
static bool is_after(const harpe_job_table *table, const harpe_job *job, const place *after) {
    bool is_known = after->serial >= table->first_serial && after->serial <= table->last_serial;
    return is_known ? job->serial < after->serial : job->registered_s <= after->registered_s;
}

static const harpe_job *next_shown(const harpe_job *job, const char *scope) {
    while (job && !is_shown(job, scope))
        job = job->older;
    return job;
}

static const harpe_job *first_after(const harpe_job_table *table, const char *scope,
                                    const char *after) {
    place from;
    const harpe_job *job = next_shown(table->newest, scope);
    if (!after || !read_place(after, &from)) return job;
    while (job && !is_after(table, job, &from))
        job = next_shown(job->older, scope);
    return job;
}

/* Returns the number of all jobs that a client with this scope sees. */
static size_t count_shown(const harpe_jobs *jobs, const char *scope) {
    size_t count = 0;
    if (!scope) return jobs->counts.jobs;
    for (const harpe_job *job = jobs->table.newest; job; job = job->older)
        count += is_shown(job, scope);
    return count;
}

char *harpe_jobs_piece(const harpe_jobs *jobs, const char *scope, int64_t from) {
    const harpe_job_table *table = &jobs->table;
    if (from >= 0 && (from < table->first_serial || from > table->last_serial)) return strdup("");
    const harpe_job *job = next_shown(table->newest, scope);
    while (job && from >= 0 && job->serial > from)
        job = next_shown(job->older, scope);
    harpe_text rows = {0};
    const char *comma = "";
    for (; job && rows.length < PIECE_BYTES; job = next_shown(job->older, scope)) {
        harpe_json_raw(&rows, comma);
        harpe_job_append_row(&rows, job);
        comma = ",";
    }
    harpe_text text = {0};
    harpe_text_printf(&text, "%" PRId64 "\n", job ? job->serial : -1);
    if (rows.length > 0) harpe_text_append(&text, rows.data, rows.length);
    text.failed = text.failed || rows.failed;
    harpe_text_free(&rows);
    return finish(&text);
}

char *harpe_jobs_list(const harpe_jobs *jobs, const char *scope, const char *after, size_t offset,
                      size_t limit) {
    const harpe_job *job = first_after(&jobs->table, scope, after);
    for (; job && offset > 0; offset--)
        job = next_shown(job->older, scope);
    harpe_text rows = {0};
    const harpe_job *last = NULL;
    size_t count = 0;
    for (; job && count < limit && rows.length < PIECE_BYTES; job = next_shown(job->older, scope)) {
        if (count++ > 0) harpe_json_raw(&rows, ",");
        append_summary(&rows, job, ROW_METADATA_BYTES);
        harpe_json_raw(&rows, "}");
        last = job;
    }
    harpe_text text = {0};
    bool is_last = !job || count >= limit; /* only the last piece needs the number of all jobs */
    harpe_text_printf(&text, "%zu %zu ", count, is_last ? count_shown(jobs, scope) : 0);
    if (job && last)
        harpe_text_printf(&text, "%" PRId64 ".%" PRId64 "\n", last->registered_s, last->serial);
    else
        harpe_json_raw(&text, "-\n");
    if (rows.length > 0) harpe_text_append(&text, rows.data, rows.length);
    text.failed = text.failed || rows.failed;
    harpe_text_free(&rows);
    return finish(&text);
}
