/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the profile that an online scheduler has measured to a file. A worker writes it, as it
 * writes the dumps. The file is not in the queue of the dumps. It may be in another directory, and
 * a path that cannot be written must not delay the dumps. A failed write is tried again. If the
 * server is killed before it has written the file, the next server replays the rounds, and the
 * scheduler then makes the file again. The loop itself does not access files. */
#include "server/engine/profile_dump.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/log.h"
#include "server/engine/dump_files.h"
#include "server/engine/in_flight.h"
#include "server/engine/job.h"
#include "server/engine/pools.h"

enum { RETRY_FIRST_MS = 1000, RETRY_LAST_MS = 16000 };

struct harpe_profile_dump {
    harpe_in_flight in_flight;
    harpe_job *job; /* its `users` counts this */
    harpe_work work;
    harpe_scheduler_file file, newer; /* `newer` was made while `file` was being written */
    harpe_timer *retry;               /* set while a failed write waits for its next attempt */
    int64_t retry_ms;
    bool was_told; /* the failure was logged */
    harpe_status status;
    harpe_error error;
};

/* ---- On a worker ----------------------------------------------------------------------------- */

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
    self->status =
        harpe_dump_files_do(self->job->jobs->options.dump_files, &order, &finding, &self->error);
}

/* ---- On the loop ----------------------------------------------------------------------------- */

static void free_profile_dump(harpe_profile_dump *self) {
    harpe_timer_cancel(self->retry);
    harpe_scheduler_file_free(&self->file);
    harpe_scheduler_file_free(&self->newer);
    free(self);
}

static void drop_profile_dump(harpe_in_flight *in_flight) {
    free_profile_dump((harpe_profile_dump *)in_flight);
}

static void end(harpe_profile_dump *self) {
    harpe_job *job = self->job;
    harpe_in_flight_remove(job->jobs, &self->in_flight);
    free_profile_dump(self);
    job->profile_dump = NULL;
    job->users--;
    if (job->is_evicted && !job->turn) harpe_job_release(job);
}

static void submit(harpe_profile_dump *self) {
    if (self->newer.path) {
        harpe_scheduler_file_free(&self->file);
        self->file = self->newer;
        self->newer = (harpe_scheduler_file){0};
    }
    harpe_workers_submit(self->job->jobs->options.workers, &self->work);
}

static void try_again(void *user) {
    harpe_profile_dump *self = user;
    self->retry = NULL;
    submit(self);
}

/* Sets the time of the next attempt. Returns false if the write is given up. */
static bool waits_to_retry(harpe_profile_dump *self) {
    const harpe_job *job = self->job;
    if (job->is_evicted || job->jobs->is_stopping) return false;
    self->retry_ms = self->retry_ms == 0 ? RETRY_FIRST_MS : 2 * self->retry_ms;
    if (self->retry_ms > RETRY_LAST_MS) self->retry_ms = RETRY_LAST_MS;
    return harpe_loop_after(job->jobs->options.loop, self->retry_ms, try_again, self, &self->retry,
                            NULL) == HARPE_OK;
}

static void is_written(void *user) {
    harpe_profile_dump *self = user;
    const harpe_job *job = self->job;
    if (self->status != HARPE_OK && !self->was_told)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING,
                       "%s: the profile is not written yet, and is tried again: %s", job->id,
                       self->error.message);
    if (self->status == HARPE_OK && self->was_told)
        harpe_log_line(&job->jobs->options.log, HARPE_LOG_WARNING, "%s: the profile is written now",
                       job->id);
    self->was_told = self->status != HARPE_OK;
    if (self->status != HARPE_OK && waits_to_retry(self)) return;
    if (self->newer.path && !job->is_evicted && !job->jobs->is_stopping)
        submit(self);
    else
        end(self);
}

static harpe_profile_dump *new_profile_dump(harpe_job *job) {
    harpe_profile_dump *self = harpe_calloc(1, sizeof *self);
    if (!self) return NULL;
    self->job = job;
    self->work = (harpe_work){.work = write_profile,
                              .done = is_written,
                              .user = self,
                              .pool = HARPE_POOL_DUMP,
                              .subject = job->id};
    job->users++;
    job->profile_dump = self;
    harpe_in_flight_add(job->jobs, &self->in_flight, drop_profile_dump);
    return self;
}

void harpe_dump_profile(harpe_job *job, harpe_scheduler_file *file) {
    harpe_profile_dump *self = job->profile_dump;
    if (!file->path) return;
    bool is_new = !self;
    if (is_new && !job->jobs->is_stopping) self = new_profile_dump(job);
    if (!self) { /* the scheduler makes the file again for the next server */
        harpe_scheduler_file_free(file);
        return;
    }
    harpe_scheduler_file_free(&self->newer);
    self->newer = *file;
    *file = (harpe_scheduler_file){0};
    if (is_new) submit(self);
}

void harpe_profile_dump_give_up(const harpe_job *job) {
    if (job->profile_dump && job->profile_dump->retry) end(job->profile_dump);
}
