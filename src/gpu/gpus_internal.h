/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a harpe_gpus, which gpus.c (finding, reading) and settings.c (writing) share. */
#ifndef HARPE_GPU_GPUS_INTERNAL_H
#define HARPE_GPU_GPUS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/gpu.h>

#include "gpu/backend.h"

/* The state of a clock lock as Harpe last set it, because the driver does not report it. */
typedef enum harpe_lock_state {
    HARPE_LOCK_UNKNOWN = 0, /* never set, or the last call failed */
    HARPE_LOCK_RESET,
    HARPE_LOCK_SET,
} harpe_lock_state;

typedef struct harpe_clock_lock {
    harpe_lock_state state;
    harpe_setting_value value; /* when set */
} harpe_clock_lock;

/* One GPU. `mutex` guards all members below it. These members belong to settings.c. */
typedef struct harpe_gpu {
    harpe_gpu_info info;
    void *handle;
    bool is_mig_enabled;
    bool is_module;
    double highest_w;     /* harpe_gpu_highest_w */
    atomic_bool is_lost;  /* harpe_gpu_is_lost */
    atomic_bool was_lost; /* harpe_gpu_was_lost */

    pthread_mutex_t mutex;
    /* Of each setting: whether it may differ from `found`, its value before the first change. The
     * value of a clock is no lock. */
    bool is_changed[HARPE_SETTINGS];
    harpe_setting_value found[HARPE_SETTINGS];
    uint32_t asked_power_limit_mw; /* the limit last requested, and the limit that the driver then
                                    * set; 0: none */
    uint32_t made_power_limit_mw;
    bool power_limit_is_unsure; /* the driver has not carried out the last change, and may do so
                                 * later */
    harpe_clock_lock locks[2];  /* of the graphics clock and of the memory clock */
    harpe_gpu_writes writes;
} harpe_gpu;

struct harpe_gpus {
    const harpe_backend *backend;
    void *state;
    harpe_log log;
    char *library_path; /* NULL: not known */
    int driver_count;
    int first_left_out; /* harpe_gpus_first_lost */
    int count;
    harpe_gpu *gpus;
};

/* Finds the GPU of an index, or fails with HARPE_INVALID_ARGUMENT. */
harpe_status harpe_gpus_find(const harpe_gpus *gpus, int gpu, harpe_gpu **out, harpe_error *error);

/* Fails with "GPU 3 (NVIDIA A40): <what>: NVML_ERROR_GPU_IS_LOST (15): <advice>" and the status of
 * the code. Notes a GPU that is lost. */
harpe_status harpe_gpus_fail(const harpe_gpus *gpus, harpe_gpu *gpu, int code, const char *what,
                             harpe_error *error);

#endif
