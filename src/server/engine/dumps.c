/* SPDX-License-Identifier: Apache-2.0 */
/* Writes dumps for people: ranks.json, K.sched.json and K.prof.json under DUMP_DIR/JOB_ID/. A
 * worker formats each file after the file's data has been stored, and a file process writes it
 * (dump_files.c). The dumps of one job are written one after the other. The data of a dump stays in
 * the store until the dump is on disk. Therefore a dump that fails can be tried again. If a server
 * is killed before it has written some dumps, the next server writes them: for each round that is
 * in the store, a worker checks whether the dumps exist, and writes those that are missing. The
 * loop itself does not access files. */
#include "server/engine/dumps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/log.h"
#include "pfo/metadata.h"
#include "pfo/models.h"
#include "server/engine/dump_files.h"
#include "server/engine/in_flight.h"
#include "server/engine/job.h"
#include "server/engine/job_ranks.h"
#include "server/engine/pools.h"
#include "server/engine/round_results.h"
#include "server/engine/round_text.h"

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

struct harpe_dump {
    harpe_in_flight in_flight;
    harpe_job *job; /* its `users` counts this dump */
    harpe_dump *following;
    harpe_work work;
    dump_kind kind;
    int64_t round;
    harpe_round_text *text;       /* for DUMP_SCHEDULES */
    harpe_round_results *results; /* for DUMP_RESULTS; NULL: all are in the store */
    bool only_if_missing;         /* an earlier server may have written it */
    bool cleans;                  /* first removes the incomplete files of an earlier server */
    harpe_timer *retry;           /* set while a failed dump waits for its next attempt */
    int64_t retry_ms;
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
    const harpe_job *job = self->job;
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
    const harpe_job *job = self->job;
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
    const harpe_job *job = self->job;
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

static void free_dump(harpe_dump *self) {
    harpe_timer_cancel(self->retry);
    harpe_round_text_unref(self->text);
    harpe_round_results_unref(self->results);
    free(self->fault);
    free(self);
}

static void drop_dump(harpe_in_flight *in_flight) { free_dump((harpe_dump *)in_flight); }

static void submit_first(const harpe_job *job) {
    if (job->dumps) harpe_workers_submit(job->jobs->options.workers, &job->dumps->work);
}

/* Removes `*place` from the list of its job, and frees it. */
static void take_out(harpe_dump **place) {
    harpe_dump *self = *place;
    harpe_job *job = self->job;
    *place = self->following;
    if (job->dumps_end == &self->following) job->dumps_end = place;
    job->new_dumps -= !self->only_if_missing;
    harpe_in_flight_remove(job->jobs, &self->in_flight);
    free_dump(self);
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
    self->retry = NULL;
    submit_first(self->job);
}

/* Returns false if the dump is given up. */
static bool waits_to_retry(harpe_dump *self) {
    const harpe_job *job = self->job;
    if (!self->fault || !self->may_retry || job->is_evicted || job->jobs->is_stopping) return false;
    self->retry_ms = self->retry_ms == 0 ? RETRY_FIRST_MS : 2 * self->retry_ms;
    if (self->retry_ms > RETRY_LAST_MS) self->retry_ms = RETRY_LAST_MS;
    return harpe_loop_after(job->jobs->options.loop, self->retry_ms, try_again, self, &self->retry,
                            NULL) == HARPE_OK;
}

static void is_dumped(void *user) {
    harpe_dump *self = user;
    harpe_job *job = self->job;
    job->jobs->dumps_seen.bytes += self->bytes;
    if (self->fault)
        tell_failure(job, self);
    else
        tell_success(job);
    if (waits_to_retry(self)) return;
    take_out(&job->dumps);
    submit_first(job);
    if (job->is_evicted && !job->turn) harpe_job_release(job);
}

void harpe_dumps_give_up(harpe_job *job) {
    if (!job->dumps || !job->dumps->retry) return;
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
    bool is_waiting = job->dumps->retry != NULL;
    take_out(is_waiting ? &job->dumps : &job->dumps->following);
    if (is_waiting) submit_first(job);
}

static harpe_dump *new_dump(harpe_job *job, dump_kind kind, int64_t round) {
    harpe_dump *self = harpe_calloc(1, sizeof *self);
    if (!self) return NULL;
    self->job = job;
    self->kind = kind;
    self->round = round;
    self->only_if_missing = job->is_restoring;
    self->cleans = job->is_restoring && !job->dumps;
    self->work = (harpe_work){.work = write_dump,
                              .done = is_dumped,
                              .user = self,
                              .pool = HARPE_POOL_DUMP,
                              .subject = job->id};
    return self;
}

static void begin(harpe_job *job, dump_kind kind, int64_t round, harpe_round_text *text,
                  harpe_round_results *results) {
    if (!harpe_job_id_is_valid(job->id)) return;
    harpe_dump *self = new_dump(job, kind, round);
    if (!self) return;
    if (text) self->text = harpe_round_text_ref(text);
    if (results) self->results = harpe_round_results_ref(results);
    job->users++;
    harpe_in_flight_add(job->jobs, &self->in_flight, drop_dump);
    *job->dumps_end = self;
    job->dumps_end = &self->following;
    job->new_dumps += !self->only_if_missing;
    if (job->dumps != self) {
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
    for (const harpe_dump *dump = job->dumps; dump; dump = dump->following)
        if (dump->kind != DUMP_RANKS && dump->round < first) first = dump->round;
    return first;
}
