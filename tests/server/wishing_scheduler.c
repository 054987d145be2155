/* SPDX-License-Identifier: Apache-2.0 */
/* A scheduler that has every optional function, for tests: its one clock shows what it was wished
 * (the value plus the kind of wish) and how often it observed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/scheduler.h>

typedef struct wishing {
    int ranks, wished, observed;
} wishing;

static harpe_status fail(harpe_error *error, harpe_status status, const char *message) {
    if (error) {
        error->status = status;
        snprintf(error->message, sizeof error->message, "%s", message);
    }
    return status;
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    wishing *self = calloc(1, sizeof *self);
    if (!self) return fail(error, HARPE_OUT_OF_MEMORY, "out of memory");
    self->ranks = job->job->world_size;
    *state = self;
    return HARPE_OK;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const wishing *self = state;
    for (int r = 0; r < self->ranks; r++) {
        harpe_status status =
            writer->add(writer, r, "forward", 1000 + self->wished + 10 * self->observed, error);
        if (status) return status;
    }
    return HARPE_OK;
}

static harpe_status observe(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error) {
    (void)results;
    (void)count;
    (void)error;
    ((wishing *)state)->observed++;
    return HARPE_OK;
}

static void destroy(void *state) { free(state); }

static harpe_status save(const void *state, char **text, size_t *length, harpe_error *error) {
    const wishing *self = state;
    char *made = malloc(64);
    if (!made) return fail(error, HARPE_OUT_OF_MEMORY, "out of memory");
    *length = (size_t)snprintf(made, 64, "%d %d", self->wished, self->observed);
    *text = made;
    return HARPE_OK;
}

static harpe_status load(void *state, const char *text, size_t length, harpe_error *error) {
    wishing *self = state;
    char copy[64] = "";
    char *end;
    memcpy(copy, text, length < sizeof copy - 1 ? length : sizeof copy - 1);
    long wished = strtol(copy, &end, 10);
    if (end == copy) return fail(error, HARPE_INVALID_INPUT, "this is not my state");
    self->wished = (int)wished;
    self->observed = (int)strtol(end, NULL, 10);
    return HARPE_OK;
}

static harpe_status wish(void *state, harpe_scheduler_wish which, double value,
                         harpe_error *error) {
    if (value > 1000) return fail(error, HARPE_INFEASIBLE, "this is too much to wish for");
    ((wishing *)state)->wished = (int)value + (int)which;
    return HARPE_OK;
}

static harpe_status frontier(const void *state, char **json, harpe_error *error) {
    char *made = malloc(64);
    if (!made) return fail(error, HARPE_OUT_OF_MEMORY, "out of memory");
    snprintf(made, 64, "{\"observed\":%d}", ((const wishing *)state)->observed);
    *json = made;
    return HARPE_OK;
}

const harpe_scheduler_class *harpe_scheduler_entry(void);
const harpe_scheduler_class *harpe_scheduler_entry(void) {
    static const harpe_scheduler_class class = {
        .abi = HARPE_SCHEDULER_ABI,
        .name = "wishing",
        .create = create,
        .next_schedule = next_schedule,
        .observe = observe,
        .destroy = destroy,
        .save = save,
        .load = load,
        .wish = wish,
        .frontier = frontier,
    };
    return &class;
}
