/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps for people: ranks.json, K.sched.json and K.prof.json under DUMP_DIR/JOB_ID/, written whole,
 * beside the loop, after what they show is already stored. One that fails is logged once per job
 * and harms nobody. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "server/job.h"

typedef struct dump {
    harpe_under_way under_way;
    harpe_job *job; /* its `users` counts this dump */
    harpe_work work;
    int64_t round;
    harpe_round_text *text;          /* K.sched.json, or */
    harpe_profiling_result *results; /* K.prof.json, or ranks.json */
    harpe_status status;
    harpe_error error;
} dump;

/* ---- On a worker -------------------------------------------------------------------------- */

/* Makes `path` and what is missing above it. */
static harpe_status make_directories(char *path, harpe_error *error) {
    for (char *slash = path + 1;; slash++) {
        slash += strcspn(slash, "/");
        char kept = *slash;
        *slash = '\0';
        int failure = mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : errno;
        if (failure) return harpe_fail_errno(error, failure, "cannot make directory %s", path);
        *slash = kept;
        if (kept == '\0') return HARPE_OK;
    }
}

harpe_status harpe_dump_directory(const harpe_jobs *jobs, const char *job_id, char **directory,
                                  harpe_error *error) {
    char *path;
    if (!harpe_job_id_is_valid(job_id)) {
        return harpe_fail(error, HARPE_INVALID_ARGUMENT, "%.100s is no job id", job_id);
    }
    if (asprintf(&path, "%s/%s", jobs->options.settings->dump_dir, job_id) < 0) {
        return harpe_fail_memory(error);
    }
    harpe_status status = make_directories(path, error);
    if (status)
        free(path);
    else
        *directory = path;
    return status;
}

static harpe_status write_to(dump *self, const char *directory, harpe_error *error) {
    const harpe_job *job = self->job;
    int count = job->info.world_size;
    char *path;
    int length =
        self->text      ? asprintf(&path, "%s/%lld.sched.json", directory, (long long)self->round)
        : self->results ? asprintf(&path, "%s/%lld.prof.json", directory, (long long)self->round)
                        : asprintf(&path, "%s/ranks.json", directory);
    if (length < 0) return harpe_fail_memory(error);
    harpe_status status = HARPE_OK;
    if (self->text) {
        status = harpe_file_write(path, self->text->text, self->text->length, error);
    } else if (self->results) {
        status = harpe_results_fill(job->jobs->options.store, job->id, self->round, self->results,
                                    count, error);
        if (!status) {
            status = harpe_profiling_results_save(path, self->results, (size_t)count, error);
        }
    } else {
        status = harpe_ranks_save(path, job->rank_infos, (size_t)count, error);
    }
    free(path);
    return status;
}

static void write_dump(void *user) {
    dump *self = user;
    char *directory = NULL;
    self->status = harpe_dump_directory(self->job->jobs, self->job->id, &directory, &self->error);
    if (!self->status) self->status = write_to(self, directory, &self->error);
    free(directory);
}

/* ---- On the loop -------------------------------------------------------------------------- */

static void free_dump(dump *self) {
    harpe_round_text_unref(self->text);
    harpe_results_free(self->results, self->job->info.world_size);
    free(self);
}

static void drop_dump(harpe_under_way *under_way) { free_dump((dump *)under_way); }

static void is_dumped(void *user) {
    dump *self = user;
    harpe_job *job = self->job;
    if (self->status && !job->dump_has_failed) {
        job->dump_has_failed = true;
        harpe_jobs_log(job->jobs, HARPE_LOG_WARNING, "%s: what is dumped is not complete: %s",
                       job->id, self->error.message);
    }
    harpe_under_way_remove(job->jobs, &self->under_way);
    free_dump(self);
    job->users--;
    if (job->is_evicted && !job->turn) harpe_job_bury(job);
}

static bool begin(harpe_job *job, int64_t round, harpe_round_text *text,
                  harpe_profiling_result *results) {
    const harpe_jobs *jobs = job->jobs;
    if (!jobs->options.settings->dump_data || jobs->is_stopping) return false;
    dump *self = harpe_calloc(1, sizeof *self);
    if (!self) return false;
    self->job = job;
    self->round = round;
    self->text = text;
    self->results = results;
    self->work = (harpe_work){.work = write_dump, .done = is_dumped, .user = self};
    job->users++;
    harpe_under_way_add(job->jobs, &self->under_way, drop_dump);
    harpe_workers_submit(jobs->options.workers, &self->work);
    return true;
}

void harpe_dump_ranks(harpe_job *job) { (void)begin(job, -1, NULL, NULL); }

void harpe_dump_schedules(harpe_job *job) {
    harpe_round_text *text = harpe_round_text_ref(job->current);
    if (!begin(job, job->round, text, NULL)) harpe_round_text_unref(text);
}

void harpe_dump_results(harpe_job *job, int64_t round, harpe_profiling_result *results) {
    if (!begin(job, round, NULL, results)) harpe_results_free(results, job->info.world_size);
}
