/* SPDX-License-Identifier: Apache-2.0 */
/* Frees schedulers on a worker, because this may wait for the end of a scheduler's program. */
#include "server/engine/scheduler_end.h"

#include "base/array.h"
#include "http/workers.h"
#include "server/engine/in_flight.h"
#include "server/engine/pools.h"

typedef struct scheduler_end {
    harpe_in_flight in_flight;
    harpe_jobs *jobs;
    harpe_scheduler *scheduler;
    harpe_work work;
} scheduler_end;

static void drop_end(harpe_in_flight *in_flight) {
    scheduler_end *self = (scheduler_end *)in_flight;
    harpe_scheduler_free(self->scheduler);
    free(self);
}

static void end_scheduler(void *user) {
    scheduler_end *self = user;
    harpe_scheduler_free(self->scheduler);
    self->scheduler = NULL;
}

static void has_ended(void *user) {
    scheduler_end *self = user;
    harpe_in_flight_remove(self->jobs, &self->in_flight);
    free(self);
}

void harpe_job_end_scheduler(const harpe_job *job) {
    harpe_jobs *jobs = job->jobs;
    scheduler_end *self = NULL;
    if (job->scheduler && !jobs->is_ending) self = harpe_calloc(1, sizeof *self);
    if (!self) {
        harpe_scheduler_free(job->scheduler);
        return;
    }
    self->jobs = jobs;
    self->scheduler = job->scheduler;
    self->work = (harpe_work){
        .work = end_scheduler, .done = has_ended, .user = self, .pool = HARPE_POOL_SCHEDULE};
    harpe_in_flight_add(jobs, &self->in_flight, drop_end);
    harpe_workers_submit(jobs->options.workers, &self->work);
}
