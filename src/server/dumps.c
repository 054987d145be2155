/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps for people: ranks.json, K.sched.json and K.prof.json under DUMP_DIR/JOB_ID/, written whole,
 * beside the loop, after what they show is already stored; those of one job one after the other.
 * What they show stays in the store until they are on disk, so that a killed server makes up for
 * them when it is back (restore.c). One that fails is logged once per job and harms nobody. */
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

/* Of a job. Results of those that wait behind are read from the store again, not kept. */
enum { DUMPS_WITH_RESULTS = 8 };

struct harpe_dump {
    harpe_under_way under_way;
    harpe_job *job; /* its `users` counts this dump */
    harpe_dump *following;
    harpe_work work;
    harpe_dump_kind kind;
    int64_t round;
    harpe_round_text *text;       /* of schedules */
    harpe_round_results *results; /* of results */
    harpe_status status;
    harpe_error error;
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

bool harpe_dump_is_missing(const harpe_job *job, harpe_dump_kind kind, int64_t round) {
    if (!job->jobs->options.settings->dump_data || !harpe_job_id_is_valid(job->id)) return false;
    char *path = path_of(job, kind, round);
    bool is_missing = path && access(path, F_OK) != 0;
    free(path);
    return is_missing;
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

void harpe_dumps_clean(const harpe_job *job) {
    if (!job->jobs->options.settings->dump_data || !harpe_job_id_is_valid(job->id)) return;
    char *path;
    if (asprintf(&path, "%s/%s", job->jobs->options.settings->dump_dir, job->id) < 0) return;
    DIR *directory = opendir(path);
    free(path);
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

static void write_dump(void *user) {
    harpe_dump *self = user;
    char *directory = NULL;
    self->status =
        harpe_dump_directory(self->job->jobs, self->job->id, true, &directory, &self->error);
    free(directory);
    if (self->status) return;
    char *path = path_of(self->job, self->kind, self->round);
    self->status = path ? write_to(self, path, &self->error) : harpe_fail_memory(&self->error);
    free(path);
}

/* ---- On the loop -------------------------------------------------------------------------- */

static void free_dump(harpe_dump *self) {
    harpe_round_text_unref(self->text);
    harpe_round_results_unref(self->results);
    free(self);
}

static void drop_dump(harpe_under_way *under_way) { free_dump((harpe_dump *)under_way); }

static void submit_first(const harpe_job *job) {
    if (job->dumps) harpe_workers_submit(job->jobs->options.workers, &job->dumps->work);
}

static void is_dumped(void *user) {
    harpe_dump *self = user;
    harpe_job *job = self->job;
    if (self->status && !job->dump_has_failed) {
        job->dump_has_failed = true;
        harpe_jobs_log(job->jobs, HARPE_LOG_WARNING, "%s: what is dumped is not complete: %s",
                       job->id, self->error.message);
    }
    job->dumps = self->following;
    harpe_under_way_remove(job->jobs, &self->under_way);
    free_dump(self);
    submit_first(job);
    job->users--;
    if (job->is_evicted && !job->turn) harpe_job_bury(job);
}

static void begin(harpe_job *job, harpe_dump_kind kind, int64_t round, harpe_round_text *text,
                  harpe_round_results *results) {
    harpe_dump *self = harpe_calloc(1, sizeof *self);
    if (!self) return;
    self->job = job;
    self->kind = kind;
    self->round = round;
    if (text) self->text = harpe_round_text_ref(text);
    if (results) self->results = harpe_round_results_ref(results);
    self->work = (harpe_work){.work = write_dump,
                              .done = is_dumped,
                              .user = self,
                              .pool = HARPE_POOL_DUMP,
                              .subject = job->id};
    job->users++;
    harpe_under_way_add(job->jobs, &self->under_way, drop_dump);
    harpe_dump **end = &job->dumps;
    while (*end) {
        end = &(*end)->following;
    }
    *end = self;
    if (job->dumps != self || job->jobs->is_loading) return;
    if (job->jobs->is_ending) {
        write_dump(self);
        is_dumped(self);
    } else {
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
