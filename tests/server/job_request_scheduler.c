/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler with every optional function, for tests. Its single clock shows the job requests
 * (value plus kind of request) and the number of observations. It is written with the old names of
 * job requests, which must still work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/scheduler.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

_Static_assert((int)HARPE_WISH_SLOWDOWN == HARPE_JOB_REQUEST_SLOWDOWN &&
                   (int)HARPE_WISH_ITERATION_TIME == HARPE_JOB_REQUEST_ITERATION_TIME &&
                   (int)HARPE_WISH_POWER_CAP == HARPE_JOB_REQUEST_POWER_CAP &&
                   (int)HARPE_WISH_PLAN_TIME == HARPE_JOB_REQUEST_PLAN_TIME,
               "the old names have the values of the new ones");

typedef struct request_scheduler {
    int ranks, requested, observed;
} request_scheduler;

static harpe_status fail(harpe_error *error, harpe_status status, const char *message) {
    if (error) {
        error->status = status;
        snprintf(error->message, sizeof error->message, "%s", message);
    }
    return status;
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    request_scheduler *self = calloc(1, sizeof *self);
    if (!self) return fail(error, HARPE_OUT_OF_MEMORY, "out of memory");
    self->ranks = job->job->world_size;
    *state = self;
    return HARPE_OK;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const request_scheduler *self = state;
    for (int r = 0; r < self->ranks; r++) {
        harpe_status status =
            writer->add(writer, r, "forward", 1000 + self->requested + 10 * self->observed, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status observe(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error) {
    (void)results;
    (void)count;
    (void)error;
    ((request_scheduler *)state)->observed++;
    return HARPE_OK;
}

static void destroy(void *state) { free(state); }

static harpe_status save(const void *state, char **text, size_t *length, harpe_error *error) {
    const request_scheduler *self = state;
    char *made = malloc(64);
    if (!made) return fail(error, HARPE_OUT_OF_MEMORY, "out of memory");
    *length = (size_t)snprintf(made, 64, "%d %d", self->requested, self->observed);
    *text = made;
    return HARPE_OK;
}

static harpe_status load(void *state, const char *text, size_t length, harpe_error *error) {
    request_scheduler *self = state;
    char copy[64] = "";
    char *end;
    memcpy(copy, text, length < sizeof copy - 1 ? length : sizeof copy - 1);
    long requested = strtol(copy, &end, 10);
    if (end == copy) return fail(error, HARPE_INVALID_INPUT, "this is not my state");
    self->requested = (int)requested;
    self->observed = (int)strtol(end, NULL, 10);
    return HARPE_OK;
}

static harpe_status take_request(void *state, harpe_scheduler_wish which, double value,
                                 harpe_error *error) {
    if (value > 1000) return fail(error, HARPE_INFEASIBLE, "this is too much");
    ((request_scheduler *)state)->requested = (int)value + (int)which;
    return HARPE_OK;
}

static harpe_status frontier(const void *state, char **json, harpe_error *error) {
    char *made = malloc(64);
    if (!made) return fail(error, HARPE_OUT_OF_MEMORY, "out of memory");
    snprintf(made, 64, "{\"observed\":%d}", ((const request_scheduler *)state)->observed);
    *json = made;
    return HARPE_OK;
}

const harpe_scheduler_class *harpe_scheduler_entry(void);
const harpe_scheduler_class *harpe_scheduler_entry(void) {
    static const harpe_scheduler_class class = {
        .abi = HARPE_SCHEDULER_ABI,
        .name = "request_scheduler",
        .create = create,
        .next_schedule = next_schedule,
        .observe = observe,
        .destroy = destroy,
        .save = save,
        .load = load,
        .wish = take_request,
        .frontier = frontier,
    };
    return &class;
}
