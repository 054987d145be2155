/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of the GPUs: clocks, power, energy, limits, temperature, and the reasons for the clocks.
 * Each GPU has a thread. The thread asks the driver only when somebody asks for samples; otherwise
 * it sleeps. A driver call that hangs delays neither the loop nor the other GPUs. A GPU whose
 * driver call hangs keeps its last sample.
 *
 * Call all functions on the loop's thread. */
#ifndef HARPE_AGENT_SAMPLES_H
#define HARPE_AGENT_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/backend.h"
#include "http/loop.h"

typedef struct harpe_agent_samples harpe_agent_samples;

/* The values of a sample, in the units of <harpe/gpu.h>. */
typedef enum harpe_sample_value {
    HARPE_SAMPLE_GRAPHICS_MHZ,
    HARPE_SAMPLE_MEMORY_MHZ,
    HARPE_SAMPLE_POWER_MW,
    HARPE_SAMPLE_MODULE_POWER_MW,
    HARPE_SAMPLE_ENERGY_MJ,
    HARPE_SAMPLE_POWER_LIMIT_MW,
    HARPE_SAMPLE_DEFAULT_POWER_LIMIT_MW,
    HARPE_SAMPLE_ENFORCED_POWER_LIMIT_MW,
    HARPE_SAMPLE_CELSIUS,
    HARPE_SAMPLE_REASONS, /* the driver's bit set of clock event reasons */
    HARPE_SAMPLE_MIG,     /* 1: MIG is enabled */
    HARPE_SAMPLE_PERSISTENCE,
    HARPE_SAMPLE_VALUES,
} harpe_sample_value;

typedef struct harpe_gpu_sample {
    int64_t taken_ns; /* harpe_clock_ns before the first value was read; 0: there is no sample */
    bool is_answered; /* false: the GPU is lost, or the driver answers no question */
    uint32_t has;     /* bit set of 1 << harpe_sample_value: the values that are known */
    uint64_t values[HARPE_SAMPLE_VALUES];
    harpe_mig_devices mig_devices; /* none, unless MIG is enabled */
} harpe_gpu_sample;

/* Returns true and writes the value if it is known. */
bool harpe_gpu_sample_get(const harpe_gpu_sample *sample, harpe_sample_value which,
                          uint64_t *value);

/* A request that waits for samples. The caller owns it, and keeps it until `done` or
 * harpe_agent_samples_leave was called. */
typedef struct harpe_sample_wait {
    void (*done)(void *user);
    void *user;
    struct harpe_sample_wait *next;      /* these members belong to samples.c */
    struct harpe_agent_samples *samples; /* NULL: does not wait */
    harpe_timer *limit;
    uint64_t number;
} harpe_sample_wait;

/* Starts a thread for each GPU. `loop` and `gpus` must outlive the samples. The threads log values
 * that a driver no longer says, or says again. */
harpe_status harpe_agent_samples_new(harpe_loop *loop, harpe_gpus *gpus, const harpe_log *log,
                                     harpe_agent_samples **out, harpe_error *error);
/* Ends the threads and frees the samples. NULL is allowed. Waits at most `wait_ms`. Returns false
 * if a driver call still hangs after this time. Then the caller must not free anything that the
 * threads use. */
bool harpe_agent_samples_free(harpe_agent_samples *samples, int64_t wait_ms);

/* Asks for new samples. Calls `wait->done` once: when all GPUs have new samples, or after 200 ms. A
 * GPU that has no new sample after this time keeps its last sample. Does not wait for a GPU whose
 * driver call has already taken longer than 200 ms. `done` may be called before this function
 * returns. */
void harpe_agent_samples_ask(harpe_agent_samples *samples, harpe_sample_wait *wait);
/* Stops waiting: `done` is not called any more. Does nothing if `wait` does not wait. */
void harpe_agent_samples_leave(harpe_sample_wait *wait);

/* Returns the last sample of a GPU. */
harpe_gpu_sample harpe_agent_samples_last(harpe_agent_samples *samples, int gpu);

#endif
