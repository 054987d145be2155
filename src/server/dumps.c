/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps for people: ranks.json, K.sched.json and K.prof.json under DUMP_DIR/JOB_ID/, written
 * whole, on a worker, after their data has been stored. The dumps of one job are written one after
 * the other. Their data stays in the store until they are on disk. So a dump that fails is tried
 * again, and dumps that a killed server did not write are written by the next one: after a restart
 * a worker looks for each dump of the rounds in the store. The loop touches no file here. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "server/job.h"

enum {
    /* Dumps of a job whose results are kept in memory. The results of later ones are read from the
     * store again. */
    DUMPS_WITH_RESULTS = 8,
    /* The largest number of dumps of a job that wait, because the store keeps their data. */
    DUMPS_WAITING = 1000,
    DUMPS_WAITING_AT_LEAST = 8,
    RANKS_WAITING = 1 << 18, /* of all waiting dumps of a job */
    /* The time until a dump that failed is tried again. It doubles each time, up to the last. */
    RETRY_FIRST_MS = 1000,
    RETRY_LAST_MS = 16000,
};

struct harpe_dump {
    harpe_under_way under_way;
    harpe_job *job; /* its `users` counts this dump */
    harpe_dump *following;
    harpe_work work;
    harpe_dump_kind kind;
    int64_t round;
    harpe_round_text *text;       /* of schedules */
    harpe_round_results *results; /* of results */
    bool only_if_missing;         /* a server before this one may have written it */
    bool cleans;                  /* first removes what that server left half written */
    harpe_timer *retry;           /* it has failed and waits */
    int64_t retry_ms;
    bool may_retry;
    char *fault; /* why it has failed; NULL: it has not */
};

/* ---- Files -------------------------------------------------------------------------------- */

/* Makes `path` and the missing directories above it, for the server's user alone. */
static harpe_status make_directories(char *path, harpe_error *error) {
    for (char *slash = path + 1;; slash++) {
        slash += strcspn(slash, "/");
        char kept = *slash;
        *slash = '\0';
        int failure = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
        if (failure) return harpe_fail_errno(error, failure, "cannot make directory %s", path);
        *slash = kept;
        if (kept == '\0') return HARPE_OK;
    }
}

harpe_status harpe_dump_directory(const harpe_jobs *jobs, const char *job_id, bool makes_it,
                                  char **directory, harpe_error *error) {
    char *path;
    if (!harpe_job_id_is_valid(job_id)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%.100s is no job id", job_id);
    }
    if (asprintf(&path, "%s/%s", jobs->options.settings->dump_dir, job_id) < 0) {
        return harpe_fail_memory(error);
    }
    harpe_status status = makes_it ? make_directories(path, error) : HARPE_OK;
    if (status)
        free(path);
    else
        *directory = path;
    return status;
}

/* NULL when out of memory. */
static char *path_of(const harpe_job *job, harpe_dump_kind kind, int64_t round) {
    const char *directory = job->jobs->options.settings->dump_dir;
    char *path;
    int length = kind == HARPE_DUMP_RANKS
                     ? asprintf(&path, "%s/%s/ranks.json", directory, job->id)
                     : asprintf(&path, "%s/%s/%lld.%s.json", directory, job->id, (long long)round,
                                kind == HARPE_DUMP_SCHEDULES ? "sched" : "prof");
    return length < 0 ? NULL : path;
}

/* As harpe_file_write names them: .NAME.json.0123456789abcdef.tmp */
static bool is_left_over(const char *name) {
    size_t length = strlen(name);
    const size_t tail = strlen(".json.0123456789abcdef.tmp");
    if (name[0] != '.' || length <= tail || strcmp(name + length - 4, ".tmp") != 0) return false;
    if (strncmp(name + length - tail, ".json.", 6) != 0) return false;
    for (const char *tag = name + length - 20; tag < name + length - 4; tag++) {
        if (!isxdigit((unsigned char)*tag)) return false;
    }
    return true;
}

static void clean_directory(const char *path) {
    DIR *directory = opendir(path);
    if (!directory) return;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (is_left_over(entry->d_name)) (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    (void)closedir(directory);
}

/* ---- On a worker -------------------------------------------------------------------------- */

/* Nobody is likely to read it soon: its place in the page cache is for others. */
static void leave_cache(const char *path) {
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* perhaps a pipe */
    if (file < 0) return;
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(file);
}

static harpe_status write_results(const harpe_dump *self, const char *path, harpe_error *error) {
    const harpe_job *job = self->job;
    harpe_stored_round from = {job->jobs->options.store, job->id, self->round};
    harpe_text text = {0};
    harpe_status status = harpe_round_results_format(&from, self->results, &text, error);
    if (!status) status = harpe_file_write_one_of_many(path, text.data, text.length, error);
    if (!status) leave_cache(path);
    harpe_text_free(&text);
    return status;
}

static harpe_status write_ranks(const harpe_job *job, const char *path, harpe_error *error) {
    harpe_rank_info *infos = harpe_job_rank_infos(job);
    if (!infos) return harpe_fail_memory(error);
    harpe_status status = harpe_ranks_save(path, infos, (size_t)job->info.world_size, error);
    free(infos);
    return status;
}

static harpe_status write_to(const harpe_dump *self, const char *path, harpe_error *error) {
    const harpe_job *job = self->job;
    switch (self->kind) {
    case HARPE_DUMP_SCHEDULES:
        return harpe_file_write_one_of_many(path, self->text->text, self->text->length, error);
    case HARPE_DUMP_RESULTS: return write_results(self, path, error);
    default: return write_ranks(job, path, error);
    }
}

static harpe_status write_file(harpe_dump *self, harpe_error *error) {
    const harpe_job *job = self->job;
    char *directory = NULL;
    char *path = path_of(job, self->kind, self->round);
    harpe_status status = path ? HARPE_OK : harpe_fail_memory(error);
    if (!status) status = harpe_dump_directory(job->jobs, job->id, true, &directory, error);
    if (!status && self->cleans) clean_directory(directory);
    self->cleans = false;
    if (!status && !(self->only_if_missing && access(path, F_OK) == 0))
        status = write_to(self, path, error);
    free(directory);
    free(path);
    return status;
}

/* A failure of the system may pass. Data that is not in the store never comes back. */
static void write_dump(void *user) {
    harpe_dump *self = user;
    harpe_error error;
    free(self->fault);
    self->fault = NULL;
    harpe_status status = write_file(self, &error);
    if (!status) return;
    self->may_retry =
        error.vendor_code != 0 || status == HARPE_OUT_OF_MEMORY || status == HARPE_IO_ERROR;
    self->fault = strdup(error.message);
    if (!self->fault) self->fault = strdup("");
}

/* ---- On the loop -------------------------------------------------------------------------- */

static void free_dump(harpe_dump *self) {
    harpe_timer_cancel(self->retry);
    harpe_round_text_unref(self->text);
    harpe_round_results_unref(self->results);
    free(self->fault);
    free(self);
}

static void drop_dump(harpe_under_way *under_way) { free_dump((harpe_dump *)under_way); }

static void submit_first(const harpe_job *job) {
    if (job->dumps) harpe_workers_submit(job->jobs->options.workers, &job->dumps->work);
}

/* Takes `*place` out of its job's list. */
static void take_out(harpe_dump **place) {
    harpe_dump *self = *place;
    harpe_job *job = self->job;
    *place = self->following;
    harpe_under_way_remove(job->jobs, &self->under_way);
    free_dump(self);
    job->users--;
}

static void tell_failure(harpe_job *job, const harpe_dump *self) {
    if (job->dump_has_failed) return;
    job->dump_has_failed = true;
    harpe_jobs_log(job->jobs, HARPE_LOG_WARNING, "%s: the dump is not complete%s: %s", job->id,
                   self->may_retry ? " yet, and is tried again" : "", self->fault);
}

static void tell_success(harpe_job *job) {
    if (!job->dump_has_failed || job->dumps_were_given_up) return;
    job->dump_has_failed = false;
    harpe_jobs_log(job->jobs, HARPE_LOG_WARNING, "%s: dumps can be written again", job->id);
}

static void try_again(void *user) {
    harpe_dump *self = user;
    self->retry = NULL;
    submit_first(self->job);
}

/* False: it is given up. */
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
    if (self->fault)
        tell_failure(job, self);
    else
        tell_success(job);
    if (waits_to_retry(self)) return;
    take_out(&job->dumps);
    submit_first(job);
    if (job->is_evicted && !job->turn) harpe_job_bury(job);
}

void harpe_dumps_give_up(harpe_job *job) {
    if (!job->dumps || !job->dumps->retry) return;
    while (job->dumps) {
        take_out(&job->dumps);
    }
    if (job->is_evicted && !job->turn) harpe_job_bury(job);
}

/* Keeps the store from filling up when dumps cannot be written. */
static void bound_waiting(harpe_job *job) {
    int limit = RANKS_WAITING / (job->info.world_size > 0 ? job->info.world_size : 1);
    if (limit > DUMPS_WAITING) limit = DUMPS_WAITING;
    if (limit < DUMPS_WAITING_AT_LEAST) limit = DUMPS_WAITING_AT_LEAST;
    int waiting = 0;
    for (const harpe_dump *dump = job->dumps; dump; dump = dump->following) {
        waiting++;
    }
    if (waiting <= limit) return;
    if (!job->dumps_were_given_up)
        harpe_jobs_log(job->jobs, HARPE_LOG_WARNING,
                       "%s: more than %d dumps wait to be written, so the oldest are given up",
                       job->id, limit);
    job->dumps_were_given_up = true;
    /* A worker may be writing the first one. */
    bool is_waiting = job->dumps->retry != NULL;
    take_out(is_waiting ? &job->dumps : &job->dumps->following);
    if (is_waiting) submit_first(job);
}

static harpe_dump *new_dump(harpe_job *job, harpe_dump_kind kind, int64_t round) {
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

static void begin(harpe_job *job, harpe_dump_kind kind, int64_t round, harpe_round_text *text,
                  harpe_round_results *results) {
    if (!harpe_job_id_is_valid(job->id)) return;
    harpe_dump *self = new_dump(job, kind, round);
    if (!self) return;
    if (text) self->text = harpe_round_text_ref(text);
    if (results) self->results = harpe_round_results_ref(results);
    job->users++;
    harpe_under_way_add(job->jobs, &self->under_way, drop_dump);
    harpe_dump **end = &job->dumps;
    while (*end) {
        end = &(*end)->following;
    }
    *end = self;
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
    if (job->jobs->options.settings->dump_data) begin(job, HARPE_DUMP_RANKS, -1, NULL, NULL);
}

void harpe_dump_schedules(harpe_job *job, int64_t round, harpe_round_text *text) {
    if (job->jobs->options.settings->dump_data) begin(job, HARPE_DUMP_SCHEDULES, round, text, NULL);
}

void harpe_dump_results(harpe_job *job, int64_t round, harpe_round_results *results) {
    if (!job->jobs->options.settings->dump_data) return;
    int waiting = 0;
    for (const harpe_dump *dump = job->dumps; dump; dump = dump->following) {
        waiting++;
    }
    if (waiting < DUMPS_WITH_RESULTS) {
        begin(job, HARPE_DUMP_RESULTS, round, NULL, results);
        return;
    }
    harpe_round_results *none = harpe_round_results_new(job->info.world_size);
    if (none) begin(job, HARPE_DUMP_RESULTS, round, NULL, none);
    harpe_round_results_unref(none);
}

int64_t harpe_dumps_first_round(const harpe_job *job, int64_t otherwise) {
    int64_t first = otherwise;
    for (const harpe_dump *dump = job->dumps; dump; dump = dump->following) {
        if (dump->kind != HARPE_DUMP_RANKS && dump->round < first) first = dump->round;
    }
    return first;
}
