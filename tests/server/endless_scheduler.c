/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler in a shared object that never returns for a job whose metadata is "hang". */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <harpe/scheduler.h>

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    (void)error;
    const char *metadata = job->job->job_metadata;
    while (metadata && strcmp(metadata, "hang") == 0)
        pause();
    *state = (void *)job;
    return HARPE_OK;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const harpe_scheduler_job *job = state;
    for (int r = 0; r < job->job->world_size; r++) {
        harpe_status status = writer->add(writer, r, "forward", 1200, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static void destroy(void *state) { (void)state; }

static const harpe_scheduler_class endless = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "Endless",
    .create = create,
    .next_schedule = next_schedule,
    .destroy = destroy,
};

const harpe_scheduler_class *harpe_scheduler_entry(void);
const harpe_scheduler_class *harpe_scheduler_entry(void) { return &endless; }
