/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the final reports of evicted jobs in a ring, and answers requests for them. The age of a
 * report is measured in running time of the server, as idle time is, so that a wrong wall clock
 * deletes no report. */
#include "server/engine/finished.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "rights/tokens.h"
#include "server/engine/dump_sweep.h"
#include "server/engine/job_figures.h"
#include "server/engine/job_group.h"
#include "server/engine/job_times.h"
#include "server/engine/job_view.h"
#include "server/engine/replies.h"

enum {
    REPORT_BYTES = 16384, /* a longer report is not kept; a usual one has 2000 */
    LISTED = 100,         /* reports in a list, if the client names no number */
};

static harpe_finished_job *at(const harpe_finished *finished, size_t index) {
    return &finished->jobs[(finished->first + index) % finished->capacity];
}

static void free_job(harpe_finished_job *job) {
    free(job->id);
    free(job->text);
    free(job->group);
}

static void drop_oldest(harpe_jobs *jobs) {
    harpe_finished *finished = &jobs->finished;
    harpe_dump_sweep_forget(jobs, at(finished, 0)->id);
    free_job(at(finished, 0));
    finished->first = (finished->first + 1) % finished->capacity;
    finished->count--;
}

void harpe_finished_free(harpe_finished *finished) {
    for (size_t i = 0; i < finished->count; i++)
        free_job(at(finished, i));
    free(finished->jobs);
    *finished = (harpe_finished){0};
}

/* ---- Keeping --------------------------------------------------------------------------------- */

void harpe_finished_prepare(const harpe_job *job, harpe_operation *operation) {
    const harpe_jobs *jobs = job->jobs;
    int64_t kept = jobs->options.settings->max_finished_jobs;
    if (kept == 0 || (job->round < 0 && !job->failure)) return;
    char *text = harpe_job_final_report(job, operation->change.number);
    size_t length = text ? strlen(text) : 0;
    if (length == 0 || length > REPORT_BYTES) {
        free(text);
        return;
    }
    free(operation->body);
    operation->body = text;
    operation->change.text = text;
    operation->change.length = length;
    operation->change.round = harpe_jobs_uptime_s(jobs);
    operation->change.rank = (int)kept;
}

/* Returns true if the ring has a free place. */
static bool make_room(harpe_jobs *jobs) {
    harpe_finished *finished = &jobs->finished;
    size_t capacity = (size_t)jobs->options.settings->max_finished_jobs;
    if (!finished->jobs) {
        finished->jobs = harpe_calloc(capacity, sizeof *finished->jobs);
        if (!finished->jobs) return false;
        finished->capacity = capacity;
    }
    if (finished->count == finished->capacity) drop_oldest(jobs);
    return true;
}

static double number_of(const json_t *object, const char *name, double missing) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : missing;
}

static void read_sums(const json_t *figures, harpe_figure_sums *sums) {
    const json_t *saved = json_object_get(figures, "saved");
    harpe_figure_sums_add(sums, number_of(figures, "energy", 0), 0, number_of(saved, "energy", 0),
                          number_of(saved, "energy_uncertainty", INFINITY),
                          number_of(saved, "energy_baseline", 0));
}

/* Reads the figures and the group in a report. A report of an older version has only the metadata,
 * which may be shortened: then it has no group, and only tokens for the whole fleet see it. Returns
 * false if memory runs out. */
static bool read_report(const harpe_change *change, harpe_finished_job *job) {
    char **group = &job->group;
    json_t *report = json_loadb(change->text, change->length, 0, NULL);
    const json_t *own = json_object_get(report, "group");
    bool is_older = !own && !json_object_get(report, "job_metadata_is_shortened");
    bool is_read = true;
    read_sums(json_object_get(report, "figures"), &job->sums);
    if (is_older)
        is_read =
            harpe_metadata_group(json_string_value(json_object_get(report, "job_metadata")), group);
    if (json_is_string(own)) is_read = (*group = strdup(json_string_value(own))) != NULL;
    json_decref(report);
    return is_read;
}

/* If memory runs out, the report stays in the store, and the next server shows it. */
void harpe_finished_add(harpe_jobs *jobs, const harpe_change *change) {
    harpe_finished *finished = &jobs->finished;
    if (change->length == 0 || jobs->options.settings->max_finished_jobs == 0) {
        harpe_dump_sweep_forget(jobs, change->job_id);
        return;
    }
    harpe_finished_job job = {.id = strdup(change->job_id),
                              .text = strndup(change->text, change->length),
                              .uptime_s = change->round};
    if (!job.id || !job.text || !read_report(change, &job) || !make_room(jobs)) {
        free_job(&job);
        return;
    }
    *at(finished, finished->count) = job;
    finished->count++;
}

int64_t harpe_finished_forget_old(harpe_jobs *jobs) {
    harpe_finished *finished = &jobs->finished;
    int64_t first_s = harpe_jobs_uptime_s(jobs) - jobs->options.settings->max_finished_job_time_s;
    while (finished->count > 0 && at(finished, 0)->uptime_s < first_s)
        drop_oldest(jobs);
    return first_s > 0 ? first_s : 0;
}

/* ---- Answering ------------------------------------------------------------------------------- */

/* To a client with this scope, a report of another group does not exist. */
static bool is_shown(const harpe_jobs *jobs, const harpe_finished_job *job, const char *scope) {
    return harpe_scope_covers(jobs->groups, scope, job->group);
}

static void answer_list(const harpe_jobs *jobs, harpe_call *call) {
    const harpe_finished *finished = &jobs->finished;
    size_t skipped = call->rank > 0 ? (size_t)call->rank : 0;
    size_t limit = call->round < 0 ? LISTED : (size_t)call->round;
    size_t shown = 0;
    harpe_figure_sums sums = {0};
    harpe_text text = {0};
    harpe_text_printf(&text, "{\"jobs\":[");
    for (size_t i = finished->count; i-- > 0;) {
        const harpe_finished_job *job = at(finished, i);
        if (!is_shown(jobs, job, call->scope)) continue;
        shown++;
        harpe_figure_sums_add(&sums, job->sums.used_j, 0, job->sums.saved_j,
                              job->sums.compared ? sqrt(job->sums.variance) : INFINITY,
                              job->sums.baseline_j);
        if (shown <= skipped || shown - skipped > limit) continue;
        if (shown > skipped + 1) harpe_text_append(&text, ",", 1);
        harpe_text_append(&text, job->text, strlen(job->text));
    }
    harpe_text_printf(&text, "],\"count\":%zu", shown);
    harpe_figure_sums_append(&text, ",\"sums\":", &sums);
    harpe_text_append(&text, "}", 1);
    if (text.failed) {
        harpe_text_free(&text);
        harpe_reply_out_of_memory(call);
        return;
    }
    harpe_reply(call, 200, text.data, text.length, -1);
}

void harpe_finished_answer(const harpe_jobs *jobs, harpe_call *call) {
    const harpe_finished *finished = &jobs->finished;
    if (!call->job_id) {
        answer_list(jobs, call);
        return;
    }
    for (size_t i = finished->count; i-- > 0;) {
        const harpe_finished_job *job = at(finished, i);
        if (strcmp(job->id, call->job_id) != 0 || !is_shown(jobs, job, call->scope)) continue;
        char *text = strdup(job->text);
        harpe_reply(call, text ? 200 : 503, text, text ? strlen(text) : 0, -1);
        return;
    }
    harpe_reply_detail(call, 404,
                       "there is no final report of job %.512s: the server keeps %lld reports, and "
                       "each for %lld s (max_finished_jobs, max_finished_job_time)",
                       call->job_id, (long long)jobs->options.settings->max_finished_jobs,
                       (long long)jobs->options.settings->max_finished_job_time_s);
}
