/* SPDX-License-Identifier: Apache-2.0 */
/* Writes dumps for people: ranks.json, K.sched.json and K.prof.json under DUMP_DIR/JOB_ID/. A
 * worker formats each file after the file's data has been stored, and a file process writes it
 * (dump_files.c). The dumps of one job are written one after the other. The data of a dump stays in
 * the store until the dump is on disk. Therefore a dump that fails can be tried again. If a server
 * is killed before it has written some dumps, the next server writes them: for each round that is
 * in the store, a worker checks whether the dumps exist, and writes those that are missing. The
 * loop itself does not access files.
 *
 * The profile that an online scheduler has measured has a queue of its own. It may be in another
 * directory, and a path that cannot be written must not delay the dumps. Of the profiles that wait,
 * only the newest is written. If the server is killed before, the next server replays the rounds,
 * and the scheduler then makes the file again. */
#include "server/engine/engine_internal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "pfo/metadata.h"
#include "pfo/models.h"
#include "server/scheduler/scheduler_host.h"

enum {
    /* The number of dumps of a job whose results are kept in memory. The results of later dumps are
     * read from the store again. */
    DUMPS_WITH_RESULTS = 8,
    /* The largest number of dumps of a job that may wait. The number is limited because the store
     * keeps their data. Dumps that were queued at the start do not count, because the store already
     * has their data. */
    DUMPS_WAITING = 1000,
    DUMPS_WAITING_AT_LEAST = 8,
    DISK_BLOCK = 4096,       /* bytes; a file takes whole blocks */
    RANKS_WAITING = 1 << 18, /* the largest sum of the ranks in all waiting dumps of a job */
    /* The time after which a failed dump is tried again. It doubles with each attempt, up to
     * RETRY_LAST_MS. */
    RETRY_FIRST_MS = 1000,
    RETRY_LAST_MS = 16000,
};

typedef enum dump_kind {
    DUMP_RANKS,
    DUMP_SCHEDULES,
    DUMP_RESULTS,
    DUMP_PROFILE,
} dump_kind;

struct harpe_dump {
    harpe_operation operation;
    harpe_dump_queue *queue;
    harpe_dump *behind; /* the next one in the queue */
    dump_kind kind;
    harpe_scheduler_file file; /* for DUMP_PROFILE */
    int64_t round;
    harpe_round_text *text;       /* for DUMP_SCHEDULES */
    harpe_round_results *results; /* for DUMP_RESULTS; NULL: all are in the store */
    bool only_if_missing;         /* an earlier server may have written it */
    bool cleans;                  /* first removes the incomplete files of an earlier server */
    harpe_timer *timer;           /* set while a dump that has failed waits to be tried again */
    int64_t delay_ms;
    bool may_retry;
    int64_t bytes; /* of the file that was written */
    char *fault;   /* the reason for the failure; NULL: none */
};

/* ---- Files ----------------------------------------------------------------------------------- */

char *harpe_dump_directory(const harpe_jobs *jobs, const char *job_id) {
    char *path;
    if (!harpe_job_id_is_valid(job_id)) return NULL;
    return asprintf(&path, "%s/%s", jobs->options.settings->dump_dir, job_id) < 0 ? NULL : path;
}

/* Returns NULL if memory runs out. */
static char *path_of(const harpe_job *job, dump_kind kind, int64_t round) {
    const char *directory = job->jobs->options.settings->dump_dir;
    char *path;
    int length = kind == DUMP_RANKS
                     ? asprintf(&path, "%s/%s/ranks.json", directory, job->id)
                     : asprintf(&path, "%s/%s/%lld.%s.json", directory, job->id, (long long)round,
                                kind == DUMP_SCHEDULES ? "sched" : "prof");
    return length < 0 ? NULL : path;
}

/* ---- On a worker ----------------------------------------------------------------------------- */

static harpe_status format_results(const harpe_dump *self, harpe_text *text, harpe_error *error) {
    const harpe_job *job = self->operation.job;
    harpe_stored_round from = {job->jobs->options.store, job->id, self->round};
    harpe_round_results *stored =
        self->results ? NULL : harpe_round_results_new(job->info.world_size);
    const harpe_round_results *results = self->results ? self->results : stored;
    if (!results) return harpe_fail_memory(error);
    harpe_status status = harpe_round_results_format(&from, results, text, error);
    harpe_round_results_unref(stored);
    return status;
}

static harpe_status format_ranks(const harpe_job *job, harpe_text *text, harpe_error *error) {
    harpe_rank_info *infos = harpe_job_rank_infos(job);
    if (!infos) return harpe_fail_memory(error);
    harpe_ranks_format(infos, (size_t)job->info.world_size, text);
    free(infos);
    return text->failed ? harpe_fail_memory(error) : HARPE_OK;
}

static harpe_status order_with(harpe_dump *self, harpe_dump_order *order, harpe_error *error) {
    const harpe_job *job = self->operation.job;
    harpe_dump_finding finding;
    harpe_text text = {0};
    harpe_status status = HARPE_OK;
    order->text = self->text ? self->text->text : NULL;
    order->length = self->text ? self->text->length : 0;
    order->sweeps = self->kind == DUMP_RANKS;
    order->leaves_cache = self->kind == DUMP_RESULTS;
    if (self->kind == DUMP_RANKS) status = format_ranks(job, &text, error);
    if (self->kind == DUMP_RESULTS) status = format_results(self, &text, error);
    if (!order->text) {
        order->text = text.data;
        order->length = text.length;
    }
    if (status == HARPE_OK)
        status = harpe_dump_files_do(job->jobs->options.dump_files, order, &finding, error);
    self->bytes = (int64_t)(order->length / DISK_BLOCK + 1) * DISK_BLOCK;
    harpe_text_free(&text);
    return status;
}

static harpe_status write_file(harpe_dump *self, harpe_error *error) {
    const harpe_job *job = self->operation.job;
    harpe_dump_finding finding = {0};
    harpe_status status = HARPE_OK;
    char *directory = harpe_dump_directory(job->jobs, job->id);
    char *path = path_of(job, self->kind, self->round);
    harpe_dump_order order = {.directory = directory, .path = path, .cleans = self->cleans};
    if (!directory || !path) status = harpe_fail_memory(error);
    /* The text of a dump that exists is not read from the store. */
    if (status == HARPE_OK && self->only_if_missing)
        status = harpe_dump_files_do(job->jobs->options.dump_files, &order, &finding, error);
    if (status == HARPE_OK) self->cleans = order.cleans = false;
    if (status == HARPE_OK && !(self->only_if_missing && finding.is_there))
        status = order_with(self, &order, error);
    free(directory);
    free(path);
    return status;
}

/* A file that was written before a restart is not written again. In the job's own directory it must
 * have the same content. In other places it is enough that it exists. */
static harpe_status write_profile(const harpe_dump *self, harpe_error *error) {
    const harpe_scheduler_file *file = &self->file;
    harpe_dump_finding finding;
    harpe_dump_order order = {.directory = file->directory,
                              .path = file->path,
                              .text = file->text,
                              .length = file->length,
                              .unless_there = file->is_repeated && !file->directory,
                              .unless_same = file->is_repeated && file->directory,
                              .sweeps = true};
    return harpe_dump_files_do(self->operation.jobs->options.dump_files, &order, &finding, error);
}

/* A file that the system could not write is tried again, because the cause may be temporary. A dump
 * whose data is missing in the store is not tried again. */
static void write_dump(harpe_operation *operation) {
    harpe_dump *self = (harpe_dump *)operation;
    bool is_profile = self->kind == DUMP_PROFILE;
    harpe_error error;
    free(self->fault);
    self->fault = NULL;
    harpe_status status = is_profile ? write_profile(self, &error) : write_file(self, &error);
    if (status == HARPE_OK) return;
    self->may_retry = is_profile || error.vendor_code != 0 || status == HARPE_OUT_OF_MEMORY ||
                      status == HARPE_IO_ERROR;
    self->fault = strdup(error.message);
    if (!self->fault) self->fault = strdup("");
}

/* ---- On the loop ----------------------------------------------------------------------------- */

static void free_dump(harpe_operation *operation) {
    harpe_dump *self = (harpe_dump *)operation;
    harpe_timer_cancel(self->timer);
    harpe_round_text_unref(self->text);
    harpe_round_results_unref(self->results);
    harpe_scheduler_file_free(&self->file);
    free(self->fault);
}

static void is_dumped(harpe_operation *operation);

static void submit_first(const harpe_dump_queue *queue) {
    if (queue->first)
        harpe_operation_run(&queue->first->operation, HARPE_POOL_DUMP, write_dump, is_dumped);
}

/* Removes `*place` from its queue, and frees it. */
static void take_out(harpe_dump **place) {
    harpe_dump *self = *place;
    harpe_dump_queue *queue = self->queue;
    *place = self->behind;
    if (queue->end == &self->behind) queue->end = place;
    queue->new_count -= !self->only_if_missing;
    (void)harpe_operation_end(&self->operation);
}

static void tell_failure(const harpe_dump *self) {
    const harpe_job *job = self->operation.job;
    if (self->queue->has_failed) return;
    self->queue->has_failed = true;
    harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING, "%s: the %s%s: %s", job->id,
                   self->kind == DUMP_PROFILE ? "profile is not written" : "dump is not complete",
                   self->may_retry ? " yet, and is tried again" : "", self->fault);
}

static void tell_success(const harpe_dump *self) {
    const harpe_job *job = self->operation.job;
    if (!self->queue->has_failed || self->queue->was_given_up) return;
    self->queue->has_failed = false;
    harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING, "%s: %s", job->id,
                   self->kind == DUMP_PROFILE ? "the profile is written now"
                                              : "dumps can be written again");
}

static void try_again(void *user) {
    harpe_dump *self = user;
    self->timer = NULL;
    submit_first(self->queue);
}

/* Makes the loop try again later. Returns false if the file is given up. */
static bool waits_to_retry(harpe_dump *self) {
    const harpe_job *job = self->operation.job;
    if (!self->fault || !self->may_retry || job->is_evicted || job->jobs->is_stopping) return false;
    self->delay_ms = self->delay_ms == 0 ? RETRY_FIRST_MS : 2 * self->delay_ms;
    if (self->delay_ms > RETRY_LAST_MS) self->delay_ms = RETRY_LAST_MS;
    return harpe_loop_after(job->jobs->options.loop, self->delay_ms, try_again, self, &self->timer,
                            NULL) == HARPE_OK;
}

static void is_dumped(harpe_operation *operation) {
    harpe_dump *self = (harpe_dump *)operation;
    harpe_dump_queue *queue = self->queue;
    operation->jobs->dumps_seen.bytes += self->bytes;
    if (self->fault)
        tell_failure(self);
    else
        tell_success(self);
    if (waits_to_retry(self)) return;
    take_out(&queue->first);
    submit_first(queue);
}

static void give_up(harpe_dump_queue *queue) {
    if (!queue->first || !queue->first->timer) return;
    while (queue->first)
        take_out(&queue->first);
}

void harpe_dumps_give_up(harpe_job *job) {
    give_up(&job->dumps);
    give_up(&job->profiles);
}

/* Removes the oldest file of a queue that may wait. The first one cannot be removed while a worker
 * writes it. */
static void take_out_oldest(harpe_dump_queue *queue) {
    bool is_waiting = queue->first->timer != NULL;
    take_out(is_waiting ? &queue->first : &queue->first->behind);
    if (is_waiting) submit_first(queue);
}

/* Limits the number of waiting dumps, so that the store does not grow without limit when dumps
 * cannot be written. */
static void bound_waiting(harpe_job *job) {
    int limit = RANKS_WAITING / (job->info.world_size > 0 ? job->info.world_size : 1);
    if (limit > DUMPS_WAITING) limit = DUMPS_WAITING;
    if (limit < DUMPS_WAITING_AT_LEAST) limit = DUMPS_WAITING_AT_LEAST;
    if (job->dumps.new_count <= limit) return;
    if (!job->dumps.was_given_up)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: more than %d dumps wait to be written, so the oldest are given up",
                       job->id, limit);
    job->dumps.was_given_up = true;
    take_out_oldest(&job->dumps);
}

/* Makes a dump at the end of the queue. Returns NULL if memory runs out. */
static harpe_dump *append(harpe_job *job, harpe_dump_queue *queue, dump_kind kind) {
    harpe_dump *self = harpe_operation_new_kind(job->jobs, job, NULL, sizeof *self, free_dump);
    if (!self) return NULL;
    self->queue = queue;
    self->kind = kind;
    self->only_if_missing = job->is_restoring;
    self->cleans = job->is_restoring && !queue->first;
    *queue->end = self;
    queue->end = &self->behind;
    queue->new_count += !self->only_if_missing;
    return self;
}

static void begin(harpe_job *job, dump_kind kind, int64_t round, harpe_round_text *text,
                  harpe_round_results *results) {
    harpe_dump *self = harpe_job_id_is_valid(job->id) ? append(job, &job->dumps, kind) : NULL;
    if (!self) return;
    self->round = round;
    if (text) self->text = harpe_round_text_ref(text);
    if (results) self->results = harpe_round_results_ref(results);
    if (job->dumps.first != self) {
        bound_waiting(job);
    } else if (job->jobs->is_ending) {
        write_dump(&self->operation);
        is_dumped(&self->operation);
    } else if (!job->is_restoring) {
        submit_first(&job->dumps);
    }
}

void harpe_dumps_begin(harpe_job *job) { submit_first(&job->dumps); }

void harpe_dump_ranks(harpe_job *job) {
    if (job->jobs->options.settings->dump_data) begin(job, DUMP_RANKS, -1, NULL, NULL);
}

void harpe_dump_schedules(harpe_job *job, int64_t round, harpe_round_text *text) {
    if (job->jobs->options.settings->dump_data) begin(job, DUMP_SCHEDULES, round, text, NULL);
}

void harpe_dump_results(harpe_job *job, int64_t round, harpe_round_results *results) {
    if (!job->jobs->options.settings->dump_data) return;
    bool are_kept = job->dumps.new_count < DUMPS_WITH_RESULTS;
    begin(job, DUMP_RESULTS, round, NULL, are_kept ? results : NULL);
}

int64_t harpe_dumps_first_round(const harpe_job *job, int64_t otherwise) {
    int64_t first = otherwise;
    for (const harpe_dump *dump = job->dumps.first; dump; dump = dump->behind)
        if (dump->kind != DUMP_RANKS && dump->round < first) first = dump->round;
    return first;
}

void harpe_dump_profile(harpe_job *job, harpe_scheduler_file *file) {
    harpe_dump_queue *queue = &job->profiles;
    if (!file->path) return;
    harpe_dump *self = job->jobs->is_stopping ? NULL : append(job, queue, DUMP_PROFILE);
    if (!self) { /* the scheduler makes the file again for the next server */
        harpe_scheduler_file_free(file);
        return;
    }
    self->file = *file;
    *file = (harpe_scheduler_file){0};
    if (queue->first == self)
        submit_first(queue);
    else if (queue->first->timer || queue->first->behind != self)
        take_out_oldest(queue);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* Looks at the dumps after the start, every hour, after much was written, and when a job is
 * forgotten. */

enum { CHECK_AFTER_S = 3600, PARTS = 8 };

void harpe_dump_sweep_forget(harpe_jobs *jobs, const char *job_id) {
    if (jobs->options.settings->dump_data)
        harpe_text_printf(&jobs->dumps_seen.forgotten, "%s\n", job_id);
}

/* After a check, the files may grow by an eighth of the bound until the next check. The body of the
 * operation has the ids of forgotten jobs. */
static void sweep(harpe_operation *operation) {
    const harpe_settings *settings = operation->jobs->options.settings;
    int64_t bytes = settings->max_dump_size_bytes / PARTS * (PARTS - 1);
    harpe_dump_order order = {.directory = settings->dump_dir,
                              .bounds = true,
                              .text = operation->body,
                              .length = operation->length,
                              .most_bytes = operation->looks_at_all ? bytes : 0,
                              .most_age_s = settings->max_dump_time_s};
    harpe_dump_finding finding;
    /* A failure has no message: the next check does the work. */
    (void)harpe_dump_files_do(operation->jobs->options.dump_files, &order, &finding, NULL);
}

static void is_swept(harpe_operation *operation) {
    operation->jobs->dumps_seen.is_sweeping = false;
    (void)harpe_operation_end(operation);
}

void harpe_dump_sweep_check(harpe_jobs *jobs) {
    harpe_dumps_seen *seen = &jobs->dumps_seen;
    const harpe_settings *settings = jobs->options.settings;
    int64_t now_s = harpe_jobs_uptime_s(jobs);
    bool is_due = !seen->was_swept || now_s - seen->swept_s >= CHECK_AFTER_S ||
                  seen->bytes >= settings->max_dump_size_bytes / PARTS;
    if (!settings->dump_data || seen->is_sweeping || jobs->is_stopping) return;
    if (!is_due && seen->forgotten.length == 0) return;
    harpe_operation *operation = harpe_operation_new(jobs, NULL, NULL);
    if (!operation) return;
    operation->looks_at_all = is_due;
    operation->body = seen->forgotten.data;
    operation->length = seen->forgotten.length;
    seen->forgotten = (harpe_text){0};
    seen->is_sweeping = true;
    if (is_due) seen->was_swept = true, seen->swept_s = now_s, seen->bytes = 0;
    harpe_operation_run(operation, HARPE_POOL_DUMP, sweep, is_swept);
}
