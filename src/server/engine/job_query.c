/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts and searches the jobs for a page of their list. Each page is computed anew from all jobs:
 * with 10,000 jobs that takes some milliseconds. */
#include "server/engine/job_query.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "rights/tokens.h"
#include "server/engine/contact.h"
#include "server/engine/job.h"
#include "server/engine/job_figures.h"
#include "server/engine/job_group.h"
#include "server/engine/job_times.h"
#include "server/engine/job_view.h"

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

/* ---- Values ---------------------------------------------------------------------------------- */

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

/* ---- Searching ------------------------------------------------------------------------------- */

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

/* ---- The answer ------------------------------------------------------------------------------ */

static void add_sums(harpe_figure_sums *sums, const harpe_job *job) {
    const harpe_figures *figures = &job->figures;
    harpe_figure_sums_add(sums, figures->is_known ? figures->used_energy_j : 0,
                          is_over(job) || harpe_job_is_out_of_contact(job) ? 0 : figures->power_w,
                          figures->saved_energy_j,
                          figures->has_savings ? figures->saved_energy_uncertainty_j : INFINITY,
                          figures->energy_baseline_j);
}

static char *write_page(const row *rows, size_t count, size_t all, const harpe_figure_sums *sums,
                        size_t offset, size_t limit) {
    harpe_text text = {0};
    size_t first = offset < count ? offset : count;
    size_t shown = count - first < limit ? count - first : limit;
    if (shown > HARPE_QUERY_ROWS) shown = HARPE_QUERY_ROWS;
    harpe_text_printf(&text, "%zu %zu - ,\"all\":%zu", shown, count, all);
    harpe_figure_sums_append(&text, ",\"sums\":", sums);
    harpe_text_append(&text, "\n", 1);
    for (size_t i = first; i < first + shown; i++) {
        if (i > first) harpe_text_append(&text, ",", 1);
        harpe_job_append_row(&text, rows[i].job);
    }
    if (text.failed) harpe_text_free(&text);
    return text.data;
}

char *harpe_jobs_query(const harpe_jobs *jobs, const char *scope, const char *query, size_t offset,
                       size_t limit) {
    const char *line = strchrnul(query, '\n');
    int key = key_of(query, line);
    bool reverses = *query == '-';
    search found = {0};
    harpe_figure_sums sums = {0};
    size_t all = 0, count = 0;
    row *rows = harpe_calloc(jobs->table.count + 1, sizeof *rows);
    char *page = NULL;
    if (rows && begin_search(&found, *line ? line + 1 : "")) {
        for (const harpe_job *job = jobs->table.newest; job; job = job->older) {
            if (!job->is_stored || !harpe_scope_covers(jobs->groups, scope, job->group)) continue;
            all++;
            if (!matches(&found, job)) continue;
            add_sums(&sums, job);
            rows[count++] = row_of(job, key < 0 ? BY_START : (sort_key)key);
        }
        qsort_r(rows, count, sizeof *rows, compare, &reverses);
        if (!found.text.failed) page = write_page(rows, count, all, &sums, offset, limit);
    }
    harpe_text_free(&found.text);
    free(found.copy);
    free(rows);
    return page;
}
