/* SPDX-License-Identifier: Apache-2.0 */
/* A custom scheduler in one page: one clock for all instructions. It tries each available clock for
 * one round on all instructions, measures, and then keeps the clock with the least energy.
 * It links no library. Build and serve it with
 *
 *     cc -shared -fPIC scheduler_uniform.c -o scheduler_uniform.so $(pkg-config --cflags harpe)
 *     harpe serve --scheduler ./scheduler_uniform.so --scheduler-args '{"num_microbatches": 8}'
 *
 * It has no save and load. After a restart, the server therefore passes it the results of every
 * round again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <harpe/scheduler.h>

typedef struct uniform {
    const harpe_scheduler_job *job;
    int microbatches;
    size_t clock_count;  /* number of clocks of the rank that offers most */
    size_t tried;        /* number of clocks measured so far, in the order of the ranks' lists */
    size_t best;         /* the measured clock with the least energy */
    double least_energy; /* J per iteration, all ranks together */
} uniform;

static harpe_status fail(harpe_error *error, harpe_status status, const char *message) {
    if (error) {
        error->status = status;
        snprintf(error->message, sizeof error->message, "%s", message);
    }
    return status;
}

/* Finds one whole number in the arguments. This needs no JSON library. */
static int read_microbatches(const char *args_json) {
    const char *name = strstr(args_json, "\"num_microbatches\"");
    const char *colon = name ? strchr(name, ':') : NULL;
    long number = colon ? strtol(colon + 1, NULL, 10) : 0;
    return number >= 1 && number <= 1000000 ? (int)number : 0;
}

static harpe_status check_args(const char *args_json, harpe_error *error) {
    if (read_microbatches(args_json) > 0) return HARPE_OK;
    return fail(error, HARPE_INVALID_ARGUMENT,
                "scheduler_args: uniform needs {\"num_microbatches\": N}, N from 1 to 1000000");
}

static harpe_status create(const harpe_scheduler_job *job, void **state, harpe_error *error) {
    uniform *self = calloc(1, sizeof *self);
    if (!self) return fail(error, HARPE_OUT_OF_MEMORY, "out of memory");
    self->job = job;
    self->microbatches = read_microbatches(job->args_json);
    for (int r = 0; r < job->job->world_size; r++) {
        size_t count = job->ranks[r].available_frequency_count;
        if (count > self->clock_count) self->clock_count = count;
    }
    *state = self;
    return HARPE_OK;
}

static bool is_finished(const void *state) {
    const uniform *self = state;
    return self->tried >= self->clock_count;
}

/* A rank that offers fewer clocks than others stays at its last clock. If a rank offers no clocks,
 * its clock is not changed (0 MHz). */
static int clock_of(const harpe_rank_info *rank, size_t index) {
    size_t count = rank->available_frequency_count;
    if (count == 0) return 0;
    return rank->available_frequencies_mhz[index < count ? index : count - 1];
}

/* 1F1B: enough forwards to fill the pipeline behind this stage, then one forward and one backward
 * in turn, then the remaining backwards. */
static harpe_status add_rank(const uniform *self, const harpe_rank_info *rank, int frequency_mhz,
                             harpe_schedule_writer *writer, harpe_error *error) {
    int lead = self->job->job->pp_degree - rank->pp_rank;
    int forwards = 0;
    for (int backwards = 0; backwards < self->microbatches;) {
        bool is_forward = forwards < self->microbatches && forwards - backwards < lead;
        const char *instruction = is_forward ? "forward" : "backward";
        harpe_status status = writer->add(writer, rank->rank, instruction, frequency_mhz, error);
        if (status != HARPE_OK) return status;
        if (is_forward)
            forwards++;
        else
            backwards++;
    }
    return HARPE_OK;
}

static harpe_status next_schedule(void *state, harpe_schedule_writer *writer, harpe_error *error) {
    const uniform *self = state;
    size_t index = is_finished(self) ? self->best : self->tried;
    for (int r = 0; r < self->job->job->world_size; r++) {
        const harpe_rank_info *rank = &self->job->ranks[r];
        harpe_status status = add_rank(self, rank, clock_of(rank, index), writer, error);
        if (status != HARPE_OK) return status;
    }
    return HARPE_OK;
}

static harpe_status observe(void *state, const harpe_profiling_result *results, size_t count,
                            harpe_error *error) {
    uniform *self = state;
    double energy = 0;
    for (size_t r = 0; r < count; r++) {
        size_t iterations = results[r].iteration_energy_count;
        if (iterations == 0)
            return fail(error, HARPE_INVALID_INPUT,
                        "uniform: a rank reported no iter_energy, which is what is compared");
        for (size_t i = 0; i < iterations; i++)
            energy += results[r].iteration_energy_j[i] / (double)iterations;
    }
    if (self->tried == 0 || energy < self->least_energy) {
        self->best = self->tried;
        self->least_energy = energy;
    }
    self->tried++;
    return HARPE_OK;
}

static void destroy(void *state) { free(state); }

static const harpe_scheduler_class uniform_class = {
    .abi = HARPE_SCHEDULER_ABI,
    .name = "uniform",
    .check_args = check_args,
    .create = create,
    .next_schedule = next_schedule,
    .observe = observe,
    .destroy = destroy,
    .is_finished = is_finished,
};

/* The only symbol that the server looks up. */
const harpe_scheduler_class *harpe_scheduler_entry(void);

const harpe_scheduler_class *harpe_scheduler_entry(void) { return &uniform_class; }
