/* SPDX-License-Identifier: Apache-2.0 */
/* What clients that only read get: jobs as JSON, lists that are sorted and searched, and changes
 * as they happen. A long text is written in pieces, because the loop cannot do other work while it
 * writes. This file changes no job. */
#include "server/engine/engine_internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "base/number.h"
#include "base/platform.h"
#include "base/text.h"
#include "pfo/json_tree.h"
#include "rights/tokens.h"

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
    harpe_json_int(text, ",\"world_size\":", info->world_size);
    harpe_json_int(text, ",\"pp_degree\":", info->pp_degree);
    harpe_json_int(text, ",\"dp_degree\":", info->dp_degree);
    harpe_json_int(text, ",\"tp_degree\":", info->tp_degree);
    append_metadata(text, info->job_metadata, metadata_limit);
    harpe_json_int(text, ",\"ranks_registered\":", job->registered);
    harpe_json_int(text, ",\"ranks_waiting\":", job->asking);
    harpe_json_int(text, ",\"ranks_reported\":", job->reported);
    harpe_json_int(text, ",\"round\":", job->round);
    harpe_json_int(text, ",\"registered_at\":", job->registered_s);
    harpe_json_int(text, ",\"last_seen\":", harpe_job_seen_s(job));
    if (harpe_job_is_out_of_contact(job))
        harpe_json_int(text, ",\"no_contact_since\":", job->lost_s);
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
    harpe_json_int(text, rank == 0 ? "{\"rank\":" : ",{\"rank\":", rank);
    harpe_json_raw(text, ",\"state\":\"");
    harpe_json_raw(text, harpe_rank_state_name(job, rank));
    harpe_json_raw(text, "\"");
    const harpe_rank *slot = harpe_job_rank(job, rank);
    if (slot && slot->is_registered) {
        const harpe_rank_info *info = &slot->info;
        harpe_json_int(text, ",\"dp_rank\":", info->dp_rank);
        harpe_json_int(text, ",\"pp_rank\":", info->pp_rank);
        harpe_json_int(text, ",\"tp_rank\":", info->tp_rank);
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
    harpe_reply_text(call, &text, is_last ? -1 : rank);
}

/* ---- Rows of a list -------------------------------------------------------------------------- */

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
    harpe_json_int(&ranges->text, ranges->count > 1 ? "," : "", first);
    if (last > first) harpe_json_int(&ranges->text, "-", last);
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

static void append_row_beginning(harpe_text *text, const harpe_job *job) {
    append_summary(text, job, ROW_METADATA_BYTES);
    harpe_json_string(text,
                      ",\"scheduler\":", harpe_scheduler_kind_name(job->jobs->options.scheduler));
    harpe_json_string(text, ",\"failure\":", job->failure);
}

static void append_row_members(harpe_text *text, const harpe_job *job) {
    append_row_beginning(text, job);
    harpe_json_raw(text, ",\"rank_states\":{");
    append_rank_states(text, job);
    harpe_json_raw(text, "}");
}

/* Appends the job's row of a list. */
static void job_append_row(harpe_text *text, const harpe_job *job) {
    append_row_members(text, job);
    harpe_json_raw(text, "}");
}

/* Returns true if lists that a client with this scope gets contain the job. */
static bool is_shown(const harpe_job *job, const char *scope) {
    return job->is_stored && harpe_job_is_in_scope(job, scope);
}

/* Appends the last member of a job, and returns the text. */
static char *finish_with_report(harpe_text *text, const harpe_job *job) {
    harpe_json_raw(text, ",\"report\":");
    harpe_job_append_report(text, job);
    harpe_json_raw(text, "}");
    return harpe_text_take(text);
}

/* Returns one job as JSON, with its report and with its ranks grouped by state. Returns NULL if
 * memory runs out. */
static char *job_row(const harpe_job *job) {
    harpe_text text = {0};
    append_row_members(&text, job);
    return finish_with_report(&text, job);
}

char *harpe_job_final_report(const harpe_job *job, int64_t evicted_s) {
    harpe_text text = {0};
    append_row_beginning(&text, job);
    harpe_json_int(&text, ",\"evicted_at\":", evicted_s);
    return finish_with_report(&text, job);
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
    for (const harpe_evicted_job *job = jobs->table.newest_evicted; job && job->version > since;
         job = job->older) {
        if (!harpe_scope_covers(jobs->groups, scope, job->group)) continue;
        harpe_json_string(text, comma, job->entry.id);
        comma = ",";
    }
}

/* Returns the rows of all jobs that changed after version `since`, newest job first, and the ids of
 * the jobs that were evicted since. Returns NULL if memory runs out. */
static char *jobs_rows(const harpe_jobs *jobs, const char *scope, int64_t since) {
    harpe_text text = {0};
    const char *comma = "";
    harpe_json_raw(&text, "{\"whole\":false,\"jobs\":[");
    for (const harpe_job *job = jobs->table.newest; job; job = job->older) {
        if (!is_shown(job, scope) || job->version <= since) continue;
        harpe_json_raw(&text, comma);
        job_append_row(&text, job);
        comma = ",";
    }
    harpe_json_raw(&text, "],\"gone\":[");
    append_gone(&text, jobs, scope, since);
    harpe_json_raw(&text, "]}");
    return harpe_text_take(&text);
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

void harpe_show_list(const harpe_jobs *jobs, harpe_call *call) {
    const harpe_job *job = first_after(&jobs->table, call->scope, call->job_id), *last = NULL;
    harpe_text text = {0};
    char next[48] = "";
    const char *comma = call->rank < 0 ? "," : ""; /* a later piece */
    int64_t left = call->round;
    if (call->rank >= 0) harpe_json_raw(&text, "{\"jobs\":[");
    for (; job && call->rank > 0; call->rank--)
        job = next_shown(job->older, call->scope);
    for (; job && left > 0 && text.length < PIECE_BYTES; left--) {
        harpe_json_raw(&text, comma);
        append_summary(&text, job, ROW_METADATA_BYTES);
        harpe_json_raw(&text, "}");
        comma = ",";
        last = job;
        job = next_shown(job->older, call->scope);
    }
    if (job && last)
        (void)snprintf(next, sizeof next, "%" PRId64 ".%" PRId64, last->registered_s, last->serial);
    bool is_over = !job || left == 0;
    if (is_over) {
        harpe_text_printf(&text, "],\"count\":%zu", count_shown(jobs, call->scope));
        harpe_text_printf(&text, *next ? ",\"next\":\"%s\"}" : ",\"next\":null}", next);
    } else {
        free(call->job_id);
        call->job_id = strdup(next);
        call->rank = -1;
        call->round = left;
        text.failed = text.failed || !call->job_id;
    }
    harpe_reply_text(call, &text, is_over ? -1 : left);
}

/* ---- Queries: the key ------------------------------------------------------------------------ */

/* Sorts and searches the jobs for a page of their list. Each page is computed anew from all jobs:
 * with 10,000 jobs that takes some milliseconds. */

/* The most rows of an answer. The loop writes them all at once. */
enum { QUERY_ROWS = 200 };

enum { SEARCHED_METADATA = 200, SEARCH_WORDS = 8 };

typedef enum sort_key {
    BY_START,
    BY_SEEN,
    BY_NAME,
    BY_STATE,
    BY_USER,
    BY_GROUP,
    BY_NODE,
    BY_SLURM_JOB,
    BY_GPUS,
    BY_ROUND,
    BY_POWER,
    BY_CAP,
    BY_ENERGY,
    BY_SAVED,
    BY_LOST,
} sort_key;

static const char *const KEYS[] = {
    "start", "seen",  "name",  "state",     "user",   "group", "node",      "slurm_job",
    "gpus",  "round", "power", "power_cap", "energy", "saved", "time_lost", NULL};

typedef struct row {
    const harpe_job *job;
    const char *text; /* the value of the key; NULL: it is a number, or missing */
    double number;    /* NAN: missing */
} row;

/* Returns the index of the key that begins at `text` and ends at `end`, or -1. */
static int key_of(const char *text, const char *end) {
    text += *text == '-';
    for (int k = 0; KEYS[k]; k++)
        if (strlen(KEYS[k]) == (size_t)(end - text) && strncmp(KEYS[k], text, strlen(KEYS[k])) == 0)
            return k;
    return -1;
}

bool harpe_jobs_can_sort(const char *text) { return key_of(text, text + strlen(text)) >= 0; }

/* ---- Queries: values ------------------------------------------------------------------------- */

static const char *state_of(const harpe_job *job) {
    return harpe_job_is_out_of_contact(job) ? "no contact"
                                            : harpe_job_state_name(harpe_job_state_of(job));
}

static bool is_over(const harpe_job *job) { return job->failure || harpe_job_has_ended(job); }

static row row_of(const harpe_job *job, sort_key key) {
    const harpe_figures *figures = &job->figures;
    const char *text = NULL;
    double number = NAN;
    switch (key) {
    case BY_START: number = (double)(job->serial - job->jobs->table.first_serial); break;
    case BY_SEEN: number = (double)harpe_job_seen_s(job); break;
    case BY_NAME: text = job->info.job_metadata; break;
    case BY_STATE: text = state_of(job); break;
    case BY_USER: text = job->words[HARPE_WORD_USER]; break;
    case BY_GROUP: text = job->group; break;
    case BY_NODE: text = job->words[HARPE_WORD_NODE]; break;
    case BY_SLURM_JOB: text = job->words[HARPE_WORD_SLURM_JOB]; break;
    case BY_GPUS: number = job->info.world_size; break;
    case BY_ROUND: number = (double)job->round; break;
    case BY_POWER: number = figures->power_w > 0 ? figures->power_w : NAN; break;
    case BY_CAP: number = job->power_cap_w > 0 ? job->power_cap_w : NAN; break;
    case BY_ENERGY: number = figures->used_energy_j > 0 ? figures->used_energy_j : NAN; break;
    case BY_SAVED: number = figures->has_savings ? figures->saved_energy_j : NAN; break;
    case BY_LOST: number = figures->has_savings ? figures->lost_time_s : NAN; break;
    }
    return (row){job, text, number};
}

/* Compares the values. Jobs with the same value are listed newest first. */
static int compare(const void *a, const void *b, void *reverses) {
    const row *x = a;
    const row *y = b;
    bool has_x = x->text || !isnan(x->number), has_y = y->text || !isnan(y->number);
    if (has_x != has_y) return has_x ? -1 : 1;
    int order = 0;
    if (x->text && y->text)
        order = strverscmp(x->text, y->text); /* node2 comes before node10 */
    else if (has_x)
        order = (x->number > y->number) - (x->number < y->number);
    if (*(const bool *)reverses) order = -order;
    return order ? order : (x->job->serial < y->job->serial) - (x->job->serial > y->job->serial);
}

/* ---- Queries: searching ---------------------------------------------------------------------- */

typedef struct search {
    char *copy;
    char *words[SEARCH_WORDS];
    int count;
    harpe_text text; /* of the job that is searched */
} search;

static bool begin_search(search *self, const char *words) {
    char *rest = NULL;
    self->copy = strdup(words);
    for (char *word = self->copy ? strtok_r(self->copy, " \t", &rest) : NULL;
         word && self->count < SEARCH_WORDS; word = strtok_r(NULL, " \t", &rest))
        self->words[self->count++] = word;
    return self->copy != NULL;
}

static void append_line(harpe_text *text, const char *value) {
    harpe_text_append(text, value ? value : "", value ? harpe_cut_length(value, 600) : 0);
    harpe_text_append(text, "\n", 1);
}

/* Returns true if every word occurs in the texts of the job, in any case of letters. */
static bool matches(search *self, const harpe_job *job) {
    if (self->count == 0) return true;
    harpe_text *text = &self->text;
    const char *metadata = job->info.job_metadata ? job->info.job_metadata : "";
    text->length = 0;
    append_line(text, job->id);
    harpe_text_append(text, metadata, harpe_cut_length(metadata, SEARCHED_METADATA));
    append_line(text, NULL);
    append_line(text, state_of(job));
    append_line(text, job->group);
    for (int w = 0; w < HARPE_WORDS; w++)
        append_line(text, job->words[w]);
    for (int w = 0; w < self->count && !text->failed; w++)
        if (!strcasestr(text->data, self->words[w])) return false;
    return !text->failed;
}

/* ---- Queries: the answer --------------------------------------------------------------------- */

static void add_sums(harpe_figure_sums *sums, const harpe_job *job) {
    const harpe_figures *figures = &job->figures;
    harpe_figure_sums_add(sums, figures->is_known ? figures->used_energy_j : 0,
                          is_over(job) || harpe_job_is_out_of_contact(job) ? 0 : figures->power_w,
                          figures->saved_energy_j,
                          figures->has_savings ? figures->saved_energy_uncertainty_j : INFINITY,
                          figures->energy_baseline_j);
}

static void write_page(harpe_text *text, const row *rows, size_t count, size_t offset,
                       size_t limit) {
    size_t first = offset < count ? offset : count;
    size_t shown = count - first < limit ? count - first : limit;
    if (shown > QUERY_ROWS) shown = QUERY_ROWS;
    harpe_json_raw(text, "{\"jobs\":[");
    for (size_t i = first; i < first + shown; i++) {
        if (i > first) harpe_json_raw(text, ",");
        job_append_row(text, rows[i].job);
    }
    harpe_text_printf(text, "],\"count\":%zu,\"next\":null", count);
}

void harpe_show_sorted(const harpe_jobs *jobs, harpe_call *call) {
    const char *line = strchrnul(call->body, '\n');
    int key = key_of(call->body, line);
    bool reverses = *call->body == '-';
    search found = {0};
    harpe_figure_sums sums = {0};
    harpe_text text = {0};
    size_t all = 0, count = 0;
    row *rows = harpe_calloc(jobs->counts.jobs + 1, sizeof *rows);
    text.failed = !rows || !begin_search(&found, *line ? line + 1 : "");
    for (const harpe_job *job = jobs->table.newest; job && !text.failed; job = job->older) {
        if (!is_shown(job, call->scope)) continue;
        all++;
        if (!matches(&found, job)) continue;
        add_sums(&sums, job);
        rows[count++] = row_of(job, key < 0 ? BY_START : (sort_key)key);
    }
    if (count > 0) qsort_r(rows, count, sizeof *rows, compare, &reverses);
    write_page(&text, rows, count, (size_t)call->rank, (size_t)call->round);
    harpe_text_printf(&text, " ,\"all\":%zu", all);
    harpe_figure_sums_append(&text, ",\"sums\":", &sums);
    harpe_json_raw(&text, "}");
    text.failed = text.failed || found.text.failed;
    harpe_text_free(&found.text);
    free(found.copy);
    free(rows);
    harpe_reply_text(call, &text, -1);
}

/* ---- Watchers -------------------------------------------------------------------------------- */

/* Watchers are calls that are held until one job, or any job, has changed. Each change gives its
 * job the next version. A call contains the version that its client has seen. Its answer contains
 * all newer changes. The answer is sent after a short delay, so that several changes in quick
 * succession need one answer. Each engine begins with a random version. A version of an earlier
 * engine or of another server is therefore not mistaken for a version of this engine.
 *
 * Watchers must not delay training. A text for many watchers is therefore written once. Watchers
 * that are not answered within some milliseconds wait until the loop has handled its other work. */

enum {
    TELL_AFTER_MS = 200,
    TELL_ON_AFTER_MS = 20, /* the delay for watchers that were not answered in time */
};
static const int64_t turn_ns = 5000000;

/* The text of the last answer. The next watcher may get the same text. */
typedef struct telling {
    harpe_job *job; /* NULL: all jobs */
    char *scope;    /* of the watcher of all jobs */
    int64_t since;
    char *text; /* NULL: no answer yet */
    size_t length;
} telling;

static void tell(void *user);

void harpe_changes_begin(harpe_jobs *jobs) {
    uint32_t seed = 0;
    if (!harpe_random_now(&seed, sizeof seed)) seed = (uint32_t)harpe_clock_boot_ns();
    jobs->first_version = jobs->version = (int64_t)(seed >> 2) << 32;
    jobs->table.first_serial = jobs->table.last_serial = jobs->first_version;
}

static void tell_after(harpe_jobs *jobs, int64_t delay_ms) {
    if (!jobs->watchers.first || jobs->tell_timer || jobs->is_stopping) return;
    /* If there is no memory for the timer, the next change sets it. */
    (void)harpe_loop_after(jobs->options.loop, delay_ms, tell, jobs, &jobs->tell_timer, NULL);
}

void harpe_changes_tell(harpe_jobs *jobs) { tell_after(jobs, TELL_AFTER_MS); }

/* ---- Answering watchers ---------------------------------------------------------------------- */

static bool is_known(const harpe_jobs *jobs, int64_t version) {
    return version >= jobs->first_version && version <= jobs->version;
}

/* Returns the version after which the client has seen all jobs that it may see; -1: none. */
static int64_t seen_by(const harpe_jobs *jobs, const harpe_job *job, const harpe_call *call) {
    bool has_other_jobs = !job && call->scope && call->round < jobs->regrouped;
    return is_known(jobs, call->round) && !has_other_jobs ? call->round : -1;
}

static int64_t version_of(const harpe_jobs *jobs, const harpe_job *job) {
    return job ? job->version : jobs->version;
}

/* Answers with a piece of the list of all jobs. Only clients that have just connected ask for it,
 * so the text is not kept for other watchers. */
static void reply_piece(const harpe_jobs *jobs, harpe_call *call) {
    const harpe_job_table *table = &jobs->table;
    int64_t from = call->rank;
    if (from >= 0 && (from < table->first_serial || from > table->last_serial)) {
        harpe_reply_detail(call, 503, "another server leads now: ask again");
        return;
    }
    const harpe_job *job = next_shown(table->newest, call->scope);
    while (job && from >= 0 && job->serial > from)
        job = next_shown(job->older, call->scope);
    harpe_text text = {0};
    const char *comma = from < 0 ? "" : ",";
    if (from < 0) harpe_json_raw(&text, "{\"whole\":true,\"jobs\":[");
    for (; job && text.length < PIECE_BYTES; job = next_shown(job->older, call->scope)) {
        harpe_json_raw(&text, comma);
        job_append_row(&text, job);
        comma = ",";
    }
    if (!job) harpe_json_raw(&text, "],\"gone\":[]}");
    call->rank = job ? job->serial : -1;
    harpe_reply_text(call, &text, jobs->version);
}

static void free_telling(telling *told) {
    free(told->text);
    free(told->scope);
}

/* Returns true if a watcher of this job (NULL: of all jobs) gets the same text. */
static bool is_same_text(const telling *last, const harpe_job *job, int64_t since,
                         const char *scope) {
    if (!last->text || last->job != job) return false;
    return job || (last->since == since && harpe_scope_equal(last->scope, scope));
}

static void tell_anew(harpe_jobs *jobs, harpe_job *job, int64_t since, const char *scope,
                      telling *last) {
    free_telling(last);
    *last = (telling){.job = job, .since = since};
    if (scope && !(last->scope = strdup(scope))) return;
    last->text = job ? job_row(job) : jobs_rows(jobs, scope, since);
    last->length = last->text ? strlen(last->text) : 0;
}

static void reply(harpe_jobs *jobs, harpe_job *job, harpe_call *call, telling *last) {
    int64_t since = seen_by(jobs, job, call);
    if (!job && since < 0) {
        reply_piece(jobs, call);
        return;
    }
    if (!is_same_text(last, job, since, call->scope))
        tell_anew(jobs, job, since, call->scope, last);
    char *text = last->text ? malloc(last->length + 1) : NULL;
    if (text) memcpy(text, last->text, last->length + 1);
    harpe_reply(call, text ? 200 : 503, text, last->length, jobs->version);
}

/* Answers the watcher, or holds it again. */
static void look_again(harpe_jobs *jobs, harpe_call *call, telling *last) {
    harpe_job *job = call->job_id ? harpe_job_table_find(&jobs->table, call->job_id) : NULL;
    if (call->job_id && (!job || job->is_evicted))
        harpe_reply_evicted(call, call->job_id);
    else if (job && !harpe_job_is_in_scope(job, call->scope))
        harpe_reply_out_of_scope(call, job, call->scope);
    else if (version_of(jobs, job) > call->round)
        reply(jobs, job, call, last);
    else
        harpe_calls_append(&jobs->watchers, call);
}

/* Answers do not change the list of watchers while this function runs. */
static void tell(void *user) {
    harpe_jobs *jobs = user;
    int64_t end_ns = harpe_clock_ns() + turn_ns;
    telling last = {0};
    jobs->tell_timer = NULL;
    /* Calls that are held again are put at the end of the list. The count ensures that this
     * function looks at each call once. */
    size_t left = jobs->watchers.count;
    for (; left > 0 && harpe_clock_ns() < end_ns; left--)
        look_again(jobs, harpe_calls_take_first(&jobs->watchers), &last);
    free_telling(&last);
    if (left > 0) tell_after(jobs, TELL_ON_AFTER_MS);
}

void harpe_ask_for_changes(harpe_jobs *jobs, harpe_job *job, harpe_call *call) {
    if (!is_known(jobs, call->round)) {
        telling once = {0};
        reply(jobs, job, call, &once);
        free_telling(&once);
        return;
    }
    harpe_calls_append(&jobs->watchers, call);
    if (version_of(jobs, job) > call->round) tell_after(jobs, TELL_AFTER_MS);
}

void harpe_jobs_regroup(harpe_jobs *jobs) {
    jobs->regrouped = ++jobs->version;
    harpe_changes_tell(jobs);
}

void harpe_changes_end(harpe_jobs *jobs) {
    harpe_timer_cancel(jobs->tell_timer);
    jobs->tell_timer = NULL;
    for (harpe_call *call; (call = harpe_calls_take_first(&jobs->watchers));)
        harpe_reply_stopping(call);
}
