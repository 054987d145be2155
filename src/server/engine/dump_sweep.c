/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the dumps after the start, every hour, after much was written, and when a job is
 * forgotten. */
#include "server/engine/dump_sweep.h"

#include <stdlib.h>

#include "base/array.h"
#include "server/engine/dump_files.h"
#include "server/engine/in_flight.h"
#include "server/engine/job_times.h"
#include "server/engine/pools.h"

enum { CHECK_AFTER_S = 3600, PARTS = 8 };

typedef struct dump_sweep {
    harpe_in_flight in_flight;
    harpe_jobs *jobs;
    harpe_work work;
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
    const harpe_settings *settings = self->jobs->options.settings;
    int64_t bytes = settings->max_dump_size_bytes / PARTS * (PARTS - 1);
    harpe_dump_order order = {.directory = settings->dump_dir,
                              .bounds = true,
                              .text = self->forgotten.data,
                              .length = self->forgotten.length,
                              .most_bytes = self->looks_at_all ? bytes : 0,
                              .most_age_s = settings->max_dump_time_s};
    harpe_dump_finding finding;
    /* A failure has no message: the next check does the work. */
    (void)harpe_dump_files_do(self->jobs->options.dump_files, &order, &finding, NULL);
}

static void free_sweep(harpe_in_flight *in_flight) {
    dump_sweep *self = (dump_sweep *)in_flight;
    harpe_text_free(&self->forgotten);
    free(self);
}

static void is_swept(void *user) {
    dump_sweep *self = user;
    self->jobs->dumps_seen.is_sweeping = false;
    harpe_in_flight_remove(self->jobs, &self->in_flight);
    free_sweep(&self->in_flight);
}

void harpe_dump_sweep_check(harpe_jobs *jobs) {
    harpe_dumps_seen *seen = &jobs->dumps_seen;
    const harpe_settings *settings = jobs->options.settings;
    int64_t now_s = harpe_jobs_uptime_s(jobs);
    bool is_due = !seen->was_swept || now_s - seen->swept_s >= CHECK_AFTER_S ||
                  seen->bytes >= settings->max_dump_size_bytes / PARTS;
    if (!settings->dump_data || seen->is_sweeping || jobs->is_stopping) return;
    if (!is_due && seen->forgotten.length == 0) return;
    dump_sweep *self = harpe_calloc(1, sizeof *self);
    if (!self) return;
    self->jobs = jobs;
    self->looks_at_all = is_due;
    self->forgotten = seen->forgotten;
    self->work =
        (harpe_work){.work = sweep, .done = is_swept, .user = self, .pool = HARPE_POOL_DUMP};
    seen->forgotten = (harpe_text){0};
    seen->is_sweeping = true;
    if (is_due) seen->was_swept = true, seen->swept_s = now_s, seen->bytes = 0;
    harpe_in_flight_add(jobs, &self->in_flight, free_sweep);
    harpe_workers_submit(jobs->options.workers, &self->work);
}
