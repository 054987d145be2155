/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of the GPUs: clocks, power, energy, limits, temperature, and the reasons for the clocks.
 * Each GPU has a thread, which sleeps until somebody asks. One sample answers all requests that
 * wait, so a flood of requests does not become a flood of driver calls. A driver call that hangs
 * delays neither the loop nor the other GPUs. A GPU whose driver call hangs keeps its last sample.
 */
#include "agent/agent_internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "gpu/gpus.h"
#include "monitor/monitor.h"

#define NS_PER_MS INT64_C(1000000)

enum {
    LIMIT_MS = 200,   /* how long a request waits for samples */
    SHORTEST_MS = 50, /* from the start of a sample to the start of the next one */
    RETRY_MS = 60000, /* drivers say for a moment that a GPU does not have what it has */
};

/* The thread of a GPU. `mutex` guards all members below it, except those at the end, which belong
 * to the thread. */
typedef struct sampler {
    harpe_agent_samples *all;
    int gpu;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t wanted, done; /* numbers of the last request and of the last answered request */
    int64_t busy_ns;       /* when the present sample was begun; 0: no sample is being taken */
    int64_t begun_ns;      /* when the last sample was begun */
    bool is_stopping, has_ended;
    bool is_posted;
    harpe_posted posted;
    harpe_gpu_sample last;

    uint32_t lacking;     /* bit set of values that the GPU does not have, and has not had */
    int64_t lacking_ns;   /* since when; it is asked for them again after RETRY_MS */
    uint32_t had, missed; /* values that the GPU has had, and those of them that it has not now */
    uint64_t mig;         /* the MIG mode for which these are valid */
    harpe_counter counter;
} sampler;

struct harpe_agent_samples {
    harpe_loop *loop;
    harpe_gpus *gpus;
    harpe_log log;
    sampler *samplers;
    int count;
    uint64_t asked;
    harpe_sample_wait *waits;
};

/* ---- Sampling (on the thread of a GPU) ------------------------------------------------------- */

#define READER(name, type, function) \
    static harpe_status name(sampler *self, uint64_t *value, harpe_error *error) { \
        type own = 0; \
        harpe_status status = function(self->all->gpus, self->gpu, &own, error); \
        *value = own; \
        return status; \
    }

READER(read_power, uint32_t, harpe_gpu_instant_power)
READER(read_module_power, uint32_t, harpe_gpu_module_power)
READER(read_limit, uint32_t, harpe_gpu_power_limit)
READER(read_default_limit, uint32_t, harpe_gpu_default_power_limit)
READER(read_enforced_limit, uint32_t, harpe_gpu_enforced_power_limit)
READER(read_temperature, uint32_t, harpe_gpu_temperature)
READER(read_reasons, uint64_t, harpe_gpu_throttle_reasons)
READER(read_mig, bool, harpe_gpu_mig_mode)
READER(read_persistence, bool, harpe_gpu_persistence_mode)

static harpe_status read_energy(sampler *self, uint64_t *value, harpe_error *error) {
    return harpe_counter_read_energy(&self->counter, self->all->gpus, self->gpu, value, error);
}

static harpe_status read_graphics(sampler *self, uint64_t *value, harpe_error *error) {
    uint32_t mhz = 0;
    harpe_status status = harpe_gpu_current_clocks(self->all->gpus, self->gpu, &mhz, NULL, error);
    *value = mhz;
    return status;
}

static harpe_status read_memory(sampler *self, uint64_t *value, harpe_error *error) {
    uint32_t mhz = 0;
    harpe_status status = harpe_gpu_current_clocks(self->all->gpus, self->gpu, NULL, &mhz, error);
    *value = mhz;
    return status;
}

static const struct reader {
    harpe_status (*read)(sampler *self, uint64_t *value, harpe_error *error);
    const char *name; /* for the log */
} readers[HARPE_SAMPLE_VALUES] = {
    [HARPE_SAMPLE_GRAPHICS_MHZ] = {read_graphics, "graphics clock"},
    [HARPE_SAMPLE_MEMORY_MHZ] = {read_memory, "memory clock"},
    [HARPE_SAMPLE_POWER_MW] = {read_power, "power"},
    [HARPE_SAMPLE_MODULE_POWER_MW] = {read_module_power, "power of the module"},
    [HARPE_SAMPLE_ENERGY_MJ] = {read_energy, "energy"},
    [HARPE_SAMPLE_POWER_LIMIT_MW] = {read_limit, "power limit"},
    [HARPE_SAMPLE_DEFAULT_POWER_LIMIT_MW] = {read_default_limit, "default power limit"},
    [HARPE_SAMPLE_ENFORCED_POWER_LIMIT_MW] = {read_enforced_limit, "enforced power limit"},
    [HARPE_SAMPLE_CELSIUS] = {read_temperature, "temperature"},
    [HARPE_SAMPLE_REASONS] = {read_reasons, "clock event reasons"},
    [HARPE_SAMPLE_MIG] = {read_mig, "MIG mode"},
    [HARPE_SAMPLE_PERSISTENCE] = {read_persistence, "persistence mode"},
};

/* Makes the thread try all values again when the MIG mode has changed, because the GPU may then
 * have other values. */
static void note_mig_mode(sampler *self, const harpe_gpu_sample *sample) {
    uint64_t mig = 0;
    if (!harpe_gpu_sample_get(sample, HARPE_SAMPLE_MIG, &mig) || mig == self->mig) return;
    self->mig = mig;
    self->lacking = self->had = self->missed = 0;
}

/* Logs a value that the driver no longer says, or says again. */
static void tell_missed(const sampler *self, int which, bool is_missed, const harpe_error *error) {
    if (is_missed)
        harpe_log_line(&self->all->log, HARPE_LOG_WARNING,
                       "GPU %d: its %s is missing in the metrics for now: %s", self->gpu,
                       readers[which].name, error->message);
    else
        harpe_log_line(&self->all->log, HARPE_LOG_INFO, "GPU %d: its %s is known again", self->gpu,
                       readers[which].name);
}

/* Records whether the GPU has a value. Returns true if the driver has failed to say it. */
static bool note_value(sampler *self, int which, harpe_status status, const harpe_error *error) {
    uint32_t bit = UINT32_C(1) << which;
    bool is_missed = status != HARPE_OK && self->had & bit;
    bool was_missed = self->missed & bit;
    if (is_missed != was_missed) tell_missed(self, which, is_missed, error);
    self->missed = is_missed ? self->missed | bit : self->missed & ~bit;
    if (status == HARPE_OK) self->had |= bit;
    bool lacks = status == HARPE_NOT_SUPPORTED && !is_missed;
    if (lacks) self->lacking |= bit;
    return status != HARPE_OK && !lacks;
}

/* Asks the driver for all values that the GPU has. */
static harpe_gpu_sample take_sample(sampler *self) {
    harpe_gpu_sample sample = {.taken_ns = harpe_clock_ns()};
    bool has_failed = false;
    if (sample.taken_ns - self->lacking_ns > RETRY_MS * NS_PER_MS) {
        self->lacking = 0;
        self->lacking_ns = sample.taken_ns;
    }
    for (int which = 0; which < HARPE_SAMPLE_VALUES; which++) {
        uint32_t bit = UINT32_C(1) << which;
        uint64_t value = 0;
        harpe_error error = {0};
        if (self->lacking & bit) continue;
        harpe_status status = readers[which].read(self, &value, &error);
        if (status == HARPE_GPU_LOST) return (harpe_gpu_sample){.taken_ns = sample.taken_ns};
        if (note_value(self, which, status, &error)) has_failed = true;
        if (status == HARPE_OK) {
            sample.has |= bit;
            sample.values[which] = value;
        }
    }
    sample.is_answered = sample.has != 0 || !has_failed;
    if (sample.values[HARPE_SAMPLE_MIG] == 1)
        (void)harpe_gpu_mig_devices(self->all->gpus, self->gpu, &sample.mig_devices, NULL);
    note_mig_mode(self, &sample);
    return sample;
}

/* Waits until it is time for a sample. Returns false when the thread must end. */
static bool wait_for_question(sampler *self) {
    while (!self->is_stopping) {
        int64_t due_ns = self->begun_ns + SHORTEST_MS * NS_PER_MS;
        if (self->wanted == self->done)
            harpe_wait_for(&self->changed, &self->mutex);
        else if (self->begun_ns > 0 && harpe_clock_ns() < due_ns)
            (void)harpe_wait_until(&self->changed, &self->mutex, due_ns);
        else
            return true;
    }
    return false;
}

static void *sample_gpu(void *user) {
    sampler *self = user;
    harpe_lock(&self->mutex);
    while (wait_for_question(self)) {
        uint64_t number = self->wanted;
        self->begun_ns = self->busy_ns = harpe_clock_ns();
        harpe_unlock(&self->mutex);
        harpe_gpu_sample sample = take_sample(self);
        harpe_lock(&self->mutex);
        self->last = sample;
        self->done = number;
        self->busy_ns = 0;
        if (self->is_stopping || self->is_posted) continue;
        self->is_posted = true;
        harpe_loop_post(self->all->loop, &self->posted);
    }
    self->has_ended = true;
    harpe_broadcast(&self->changed);
    harpe_unlock(&self->mutex);
    return NULL;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

bool harpe_gpu_sample_get(const harpe_gpu_sample *sample, harpe_sample_value which,
                          uint64_t *value) {
    if (!(sample->has & UINT32_C(1) << which)) return false;
    *value = sample->values[which];
    return true;
}

/* Returns true if no GPU is left to wait for. */
static bool is_complete(const harpe_sample_wait *wait) {
    const harpe_agent_samples *samples = wait->samples;
    int64_t now_ns = harpe_clock_ns();
    bool is_missing = false;
    for (int i = 0; i < samples->count && !is_missing; i++) {
        sampler *self = &samples->samplers[i];
        harpe_lock(&self->mutex);
        bool hangs = self->busy_ns > 0 && now_ns - self->busy_ns > LIMIT_MS * NS_PER_MS;
        is_missing = self->done < wait->number && !hangs;
        harpe_unlock(&self->mutex);
    }
    return !is_missing;
}

void harpe_agent_samples_leave(harpe_sample_wait *wait) {
    if (!wait->samples) return;
    harpe_sample_wait **link = &wait->samples->waits;
    while (*link != wait)
        link = &(*link)->next;
    *link = wait->next;
    harpe_timer_cancel(wait->limit);
    wait->limit = NULL;
    wait->samples = NULL;
}

static void end_wait(harpe_sample_wait *wait) {
    harpe_agent_samples_leave(wait);
    wait->done(wait->user);
}

static void limit_is_over(void *user) {
    harpe_sample_wait *wait = user;
    wait->limit = NULL;
    end_wait(wait);
}

/* Calls `done` of each request whose samples are complete. Such a call can change the list, so the
 * search starts again from the beginning. */
static void sampled(void *user) {
    sampler *self = user;
    harpe_agent_samples *all = self->all;
    harpe_lock(&self->mutex);
    self->is_posted = false;
    harpe_unlock(&self->mutex);
    harpe_sample_wait *wait = all->waits;
    while (wait) {
        if (!is_complete(wait)) {
            wait = wait->next;
            continue;
        }
        end_wait(wait);
        wait = all->waits;
    }
}

void harpe_agent_samples_ask(harpe_agent_samples *samples, harpe_sample_wait *wait) {
    wait->number = ++samples->asked;
    wait->samples = samples;
    wait->next = samples->waits;
    wait->limit = NULL;
    samples->waits = wait;
    for (int i = 0; i < samples->count; i++) {
        sampler *self = &samples->samplers[i];
        harpe_lock(&self->mutex);
        self->wanted = wait->number;
        harpe_signal(&self->changed);
        harpe_unlock(&self->mutex);
    }
    if (is_complete(wait) || harpe_loop_after(samples->loop, LIMIT_MS, limit_is_over, wait,
                                              &wait->limit, NULL) != HARPE_OK)
        end_wait(wait);
}

harpe_gpu_sample harpe_agent_samples_last(harpe_agent_samples *samples, int gpu) {
    sampler *self = &samples->samplers[gpu];
    harpe_lock(&self->mutex);
    harpe_gpu_sample last = self->last;
    harpe_unlock(&self->mutex);
    return last;
}

/* ---- Start and end --------------------------------------------------------------------------- */

static void prepare(harpe_agent_samples *samples, int gpu) {
    sampler *self = &samples->samplers[gpu];
    *self = (sampler){.all = samples, .gpu = gpu};
    self->posted = (harpe_posted){.call = sampled, .user = self};
    pthread_mutex_init(&self->mutex, NULL);
    pthread_mutex_init(&self->counter.lock, NULL);
    pthread_cond_init(&self->changed, NULL);
}

harpe_status harpe_agent_samples_new(harpe_loop *loop, harpe_gpus *gpus, const harpe_log *log,
                                     harpe_agent_samples **out, harpe_error *error) {
    int count = harpe_gpus_count(gpus);
    harpe_agent_samples *samples = harpe_calloc(1, sizeof *samples);
    if (samples) samples->samplers = harpe_calloc((size_t)count, sizeof *samples->samplers);
    if (!samples || !samples->samplers) {
        free(samples);
        return harpe_fail_memory(error);
    }
    samples->loop = loop;
    samples->gpus = gpus;
    samples->log = *log;
    samples->count = count;
    for (int gpu = 0; gpu < count; gpu++)
        prepare(samples, gpu);
    for (int gpu = 0; gpu < count; gpu++) {
        sampler *self = &samples->samplers[gpu];
        int failure = harpe_thread_start(&self->thread, "harpe-sample", sample_gpu, self);
        self->has_thread = failure == 0;
        if (failure == 0) continue;
        (void)harpe_agent_samples_free(samples, LIMIT_MS);
        return harpe_fail_errno(error, failure, "starting the thread that samples GPU %d", gpu);
    }
    *out = samples;
    return HARPE_OK;
}

/* Waits until the thread has ended. Returns false if it has not ended at `until_ns`. */
static bool wait_for_thread(sampler *self, int64_t until_ns) {
    harpe_lock(&self->mutex);
    while (!self->has_ended && harpe_wait_until(&self->changed, &self->mutex, until_ns))
        continue;
    bool has_ended = self->has_ended;
    harpe_unlock(&self->mutex);
    return has_ended;
}

bool harpe_agent_samples_free(harpe_agent_samples *samples, int64_t wait_ms) {
    if (!samples) return true;
    int64_t until_ns = harpe_clock_ns() + wait_ms * NS_PER_MS;
    bool have_ended = true;
    while (samples->waits)
        harpe_agent_samples_leave(samples->waits);
    for (int i = 0; i < samples->count; i++) {
        sampler *self = &samples->samplers[i];
        harpe_lock(&self->mutex);
        self->is_stopping = true;
        harpe_broadcast(&self->changed);
        harpe_unlock(&self->mutex);
    }
    for (int i = 0; i < samples->count; i++) {
        sampler *self = &samples->samplers[i];
        if (!self->has_thread) continue;
        if (wait_for_thread(self, until_ns))
            harpe_thread_join(self->thread);
        else
            have_ended = false;
    }
    if (!have_ended) return false;
    for (int i = 0; i < samples->count; i++) {
        pthread_mutex_destroy(&samples->samplers[i].mutex);
        pthread_mutex_destroy(&samples->samplers[i].counter.lock);
        pthread_cond_destroy(&samples->samplers[i].changed);
    }
    free(samples->samplers);
    free(samples);
    return true;
}
