/* SPDX-License-Identifier: Apache-2.0 */
/* Writes dumps for people: ranks.json, K.sched.json and K.prof.json under DUMP_DIR/JOB_ID/. A
 * worker formats each file after the file's data has been stored, and a file process writes it
 * (dump_files.c). The dumps of one job are written one after the other. The data of a dump stays in
 * the store until the dump is on disk. Therefore a dump that fails can be tried again. If a server
 * is killed before it has written some dumps, the next server writes them: for each round that is
 * in the store, a worker checks whether the dumps exist, and writes those that are missing. The
 * loop itself does not access files. */
#include "server/engine/engine_internal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
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
} dump_kind;

/* The next attempt to write a file. */
typedef struct attempt {
    harpe_timer *timer; /* set while the attempt waits */
    int64_t delay_ms;
} attempt;

/* The `users` of the job count each dump. */
struct harpe_dump {
    harpe_operation operation;
    harpe_dump *behind; /* the next dump of the job */
    dump_kind kind;
    int64_t round;
    harpe_round_text *text;       /* for DUMP_SCHEDULES */
    harpe_round_results *results; /* for DUMP_RESULTS; NULL: all are in the store */
    bool only_if_missing;         /* an earlier server may have written it */
    bool cleans;                  /* first removes the incomplete files of an earlier server */
    attempt next;                 /* of a dump that has failed */
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

/* A dump that the system could not write is tried again, because the cause may be temporary. A dump
 * whose data is missing in the store is not tried again. */
static void write_dump(void *user) {
    harpe_dump *self = user;
    harpe_error error;
    free(self->fault);
    self->fault = NULL;
    harpe_status status = write_file(self, &error);
    if (status == HARPE_OK) return;
    self->may_retry =
        error.vendor_code != 0 || status == HARPE_OUT_OF_MEMORY || status == HARPE_IO_ERROR;
    self->fault = strdup(error.message);
    if (!self->fault) self->fault = strdup("");
}

/* ---- On the loop ----------------------------------------------------------------------------- */

/* Makes the loop call `again` later. Returns false if the file is given up. */
static bool waits_to_retry(harpe_operation *operation, attempt *next, void (*again)(void *user)) {
    const harpe_job *job = operation->job;
    if (job->is_evicted || job->jobs->is_stopping) return false;
    next->delay_ms = next->delay_ms == 0 ? RETRY_FIRST_MS : 2 * next->delay_ms;
    if (next->delay_ms > RETRY_LAST_MS) next->delay_ms = RETRY_LAST_MS;
    return harpe_loop_after(job->jobs->options.loop, next->delay_ms, again, operation, &next->timer,
                            NULL) == HARPE_OK;
}

static void free_dump(harpe_operation *operation) {
    harpe_dump *self = (harpe_dump *)operation;
    harpe_timer_cancel(self->next.timer);
    harpe_round_text_unref(self->text);
    harpe_round_results_unref(self->results);
    free(self->fault);
}

static void is_dumped(void *user);

static void submit_first(const harpe_job *job) {
    if (job->dumps)
        harpe_operation_run(&job->dumps->operation, HARPE_POOL_DUMP, write_dump, is_dumped);
}

/* Removes `*place` from the list of its job, and frees it. */
static void take_out(harpe_dump **place) {
    harpe_dump *self = *place;
    harpe_job *job = self->operation.job;
    *place = self->behind;
    if (job->dumps_end == &self->behind) job->dumps_end = place;
    job->new_dumps -= !self->only_if_missing;
    harpe_operation_end(&self->operation);
    job->users--;
}

static void tell_failure(harpe_job *job, const harpe_dump *self) {
    if (job->dump_has_failed) return;
    job->dump_has_failed = true;
    harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING, "%s: the dump is not complete%s: %s",
                   job->id, self->may_retry ? " yet, and is tried again" : "", self->fault);
}

static void tell_success(harpe_job *job) {
    if (!job->dump_has_failed || job->dumps_were_given_up) return;
    job->dump_has_failed = false;
    harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING, "%s: dumps can be written again",
                   job->id);
}

static void try_again(void *user) {
    harpe_dump *self = user;
    self->next.timer = NULL;
    submit_first(self->operation.job);
}

static void is_dumped(void *user) {
    harpe_dump *self = user;
    harpe_job *job = self->operation.job;
    job->jobs->dumps_seen.bytes += self->bytes;
    if (self->fault)
        tell_failure(job, self);
    else
        tell_success(job);
    if (self->fault && self->may_retry && waits_to_retry(&self->operation, &self->next, try_again))
        return;
    take_out(&job->dumps);
    submit_first(job);
    if (job->is_evicted && !job->turn) harpe_job_release(job);
}

void harpe_dumps_give_up(harpe_job *job) {
    if (!job->dumps || !job->dumps->next.timer) return;
    while (job->dumps)
        take_out(&job->dumps);
    if (job->is_evicted && !job->turn) harpe_job_release(job);
}

/* Limits the number of waiting dumps, so that the store does not grow without limit when dumps
 * cannot be written. */
static void bound_waiting(harpe_job *job) {
    int limit = RANKS_WAITING / (job->info.world_size > 0 ? job->info.world_size : 1);
    if (limit > DUMPS_WAITING) limit = DUMPS_WAITING;
    if (limit < DUMPS_WAITING_AT_LEAST) limit = DUMPS_WAITING_AT_LEAST;
    if (job->new_dumps <= limit) return;
    if (!job->dumps_were_given_up)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: more than %d dumps wait to be written, so the oldest are given up",
                       job->id, limit);
    job->dumps_were_given_up = true;
    /* The first dump cannot be removed while a worker writes it. */
    bool is_waiting = job->dumps->next.timer != NULL;
    take_out(is_waiting ? &job->dumps : &job->dumps->behind);
    if (is_waiting) submit_first(job);
}

static void begin(harpe_job *job, dump_kind kind, int64_t round, harpe_round_text *text,
                  harpe_round_results *results) {
    if (!harpe_job_id_is_valid(job->id)) return;
    harpe_dump *self = harpe_operation_new_kind(job->jobs, job, NULL, sizeof *self, free_dump);
    if (!self) return;
    self->kind = kind;
    self->round = round;
    self->only_if_missing = job->is_restoring;
    bool is_first = !job->dumps;
    self->cleans = job->is_restoring && is_first;
    if (text) self->text = harpe_round_text_ref(text);
    if (results) self->results = harpe_round_results_ref(results);
    job->users++;
    *job->dumps_end = self;
    job->dumps_end = &self->behind;
    job->new_dumps += !self->only_if_missing;
    if (!is_first) {
        bound_waiting(job);
    } else if (job->jobs->is_ending) {
        write_dump(self);
        is_dumped(self);
    } else if (!job->is_restoring) {
        submit_first(job);
    }
}

void harpe_dumps_begin(const harpe_job *job) { submit_first(job); }

void harpe_dump_ranks(harpe_job *job) {
    if (job->jobs->options.settings->dump_data) begin(job, DUMP_RANKS, -1, NULL, NULL);
}

void harpe_dump_schedules(harpe_job *job, int64_t round, harpe_round_text *text) {
    if (job->jobs->options.settings->dump_data) begin(job, DUMP_SCHEDULES, round, text, NULL);
}

void harpe_dump_results(harpe_job *job, int64_t round, harpe_round_results *results) {
    if (!job->jobs->options.settings->dump_data) return;
    bool are_kept = job->new_dumps < DUMPS_WITH_RESULTS;
    begin(job, DUMP_RESULTS, round, NULL, are_kept ? results : NULL);
}

int64_t harpe_dumps_first_round(const harpe_job *job, int64_t otherwise) {
    int64_t first = otherwise;
    for (const harpe_dump *dump = job->dumps; dump; dump = dump->behind)
        if (dump->kind != DUMP_RANKS && dump->round < first) first = dump->round;
    return first;
}

/* ---- The profile ----------------------------------------------------------------------------- */

/* Writes the profile that an online scheduler has measured to a file. A worker writes it, as it
 * writes the dumps. The file is not in the queue of the dumps. It may be in another directory, and
 * a path that cannot be written must not delay the dumps. A failed write is tried again. If the
 * server is killed before it has written the file, the next server replays the rounds, and the
 * scheduler then makes the file again. The loop itself does not access files. */

/* The `users` of the job count it. */
struct harpe_profile_dump {
    harpe_operation operation;
    harpe_scheduler_file file, newer; /* `newer` was made while `file` was being written */
    attempt next;                     /* of a write that has failed */
    bool was_told;                    /* the failure was logged */
    harpe_status status;
    harpe_error error;
};

/* ---- Writing the profile --------------------------------------------------------------------- */

/* A file that was written before a restart is not written again. In the job's own directory it must
 * have the same content. In other places it is enough that it exists. */
static void write_profile(void *user) {
    harpe_profile_dump *self = user;
    const harpe_scheduler_file *file = &self->file;
    harpe_dump_finding finding;
    harpe_dump_order order = {.directory = file->directory,
                              .path = file->path,
                              .text = file->text,
                              .length = file->length,
                              .unless_there = file->is_repeated && !file->directory,
                              .unless_same = file->is_repeated && file->directory,
                              .sweeps = true};
    self->status = harpe_dump_files_do(self->operation.job->jobs->options.dump_files, &order,
                                       &finding, &self->error);
}

/* ---- The work on the profile ----------------------------------------------------------------- */

static void free_profile_dump(harpe_operation *operation) {
    harpe_profile_dump *self = (harpe_profile_dump *)operation;
    harpe_timer_cancel(self->next.timer);
    harpe_scheduler_file_free(&self->file);
    harpe_scheduler_file_free(&self->newer);
}

static void end_profile(harpe_profile_dump *self) {
    harpe_job *job = self->operation.job;
    harpe_operation_end(&self->operation);
    job->profile_dump = NULL;
    job->users--;
    if (job->is_evicted && !job->turn) harpe_job_release(job);
}

static void profile_is_written(void *user);

static void submit_profile(harpe_profile_dump *self) {
    if (self->newer.path) {
        harpe_scheduler_file_free(&self->file);
        self->file = self->newer;
        self->newer = (harpe_scheduler_file){0};
    }
    harpe_operation_run(&self->operation, HARPE_POOL_DUMP, write_profile, profile_is_written);
}

static void try_profile_again(void *user) {
    harpe_profile_dump *self = user;
    self->next.timer = NULL;
    submit_profile(self);
}

static void profile_is_written(void *user) {
    harpe_profile_dump *self = user;
    const harpe_job *job = self->operation.job;
    bool has_failed = self->status != HARPE_OK;
    if (has_failed && !self->was_told)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: the profile is not written yet, and is tried again: %s", job->id,
                       self->error.message);
    if (!has_failed && self->was_told)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING, "%s: the profile is written now",
                       job->id);
    self->was_told = has_failed;
    if (has_failed && waits_to_retry(&self->operation, &self->next, try_profile_again)) return;
    if (self->newer.path && !job->is_evicted && !job->jobs->is_stopping)
        submit_profile(self);
    else
        end_profile(self);
}

void harpe_dump_profile(harpe_job *job, harpe_scheduler_file *file) {
    harpe_profile_dump *self = job->profile_dump;
    if (!file->path) return;
    bool is_new = !self;
    if (is_new && !job->jobs->is_stopping)
        self = harpe_operation_new_kind(job->jobs, job, NULL, sizeof *self, free_profile_dump);
    if (!self) { /* the scheduler makes the file again for the next server */
        harpe_scheduler_file_free(file);
        return;
    }
    harpe_scheduler_file_free(&self->newer);
    self->newer = *file;
    *file = (harpe_scheduler_file){0};
    if (!is_new) return;
    job->users++;
    job->profile_dump = self;
    submit_profile(self);
}

void harpe_profile_dump_give_up(const harpe_job *job) {
    if (job->profile_dump && job->profile_dump->next.timer) end_profile(job->profile_dump);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* Looks at the dumps after the start, every hour, after much was written, and when a job is
 * forgotten. */

enum { CHECK_AFTER_S = 3600, PARTS = 8 };

typedef struct dump_sweep {
    harpe_operation operation;
    harpe_text forgotten;
    bool looks_at_all;
} dump_sweep;

void harpe_dump_sweep_forget(harpe_jobs *jobs, const char *job_id) {
    if (jobs->options.settings->dump_data)
        harpe_text_printf(&jobs->dumps_seen.forgotten, "%s\n", job_id);
}

/* After a check, the files may grow by an eighth of the bound until the next check. */
static void sweep(void *user) {
    const dump_sweep *self = user;
    const harpe_settings *settings = self->operation.jobs->options.settings;
    int64_t bytes = settings->max_dump_size_bytes / PARTS * (PARTS - 1);
    harpe_dump_order order = {.directory = settings->dump_dir,
                              .bounds = true,
                              .text = self->forgotten.data,
                              .length = self->forgotten.length,
                              .most_bytes = self->looks_at_all ? bytes : 0,
                              .most_age_s = settings->max_dump_time_s};
    harpe_dump_finding finding;
    /* A failure has no message: the next check does the work. */
    (void)harpe_dump_files_do(self->operation.jobs->options.dump_files, &order, &finding, NULL);
}

static void free_sweep(harpe_operation *operation) {
    harpe_text_free(&((dump_sweep *)operation)->forgotten);
}

static void is_swept(void *user) {
    harpe_operation *operation = user;
    operation->jobs->dumps_seen.is_sweeping = false;
    harpe_operation_end(operation);
}

void harpe_dump_sweep_check(harpe_jobs *jobs) {
    harpe_dumps_seen *seen = &jobs->dumps_seen;
    const harpe_settings *settings = jobs->options.settings;
    int64_t now_s = harpe_jobs_uptime_s(jobs);
    bool is_due = !seen->was_swept || now_s - seen->swept_s >= CHECK_AFTER_S ||
                  seen->bytes >= settings->max_dump_size_bytes / PARTS;
    if (!settings->dump_data || seen->is_sweeping || jobs->is_stopping) return;
    if (!is_due && seen->forgotten.length == 0) return;
    dump_sweep *self = harpe_operation_new_kind(jobs, NULL, NULL, sizeof *self, free_sweep);
    if (!self) return;
    self->looks_at_all = is_due;
    self->forgotten = seen->forgotten;
    seen->forgotten = (harpe_text){0};
    seen->is_sweeping = true;
    if (is_due) seen->was_swept = true, seen->swept_s = now_s, seen->bytes = 0;
    harpe_operation_run(&self->operation, HARPE_POOL_DUMP, sweep, is_swept);
}
