/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a harpe_gpus: what its reading half (gpus.c) and its writing half (settings.c) share, and
 * what the program's doctor asks beyond the public header. */
#ifndef HARPE_GPU_GPUS_H
#define HARPE_GPU_GPUS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/gpu.h>

#include "gpu/backend.h"

/* A clock lock, which the driver cannot be asked for: what Harpe did last. */
typedef enum harpe_lock_state {
    HARPE_LOCK_UNKNOWN = 0, /* never touched, or the last call failed */
    HARPE_LOCK_RESET,
    HARPE_LOCK_SET,
} harpe_lock_state;

typedef struct harpe_clock_lock {
    harpe_lock_state state;
    uint32_t minimum_mhz, maximum_mhz; /* when set */
    bool must_reset;                   /* a lock of ours may hold: restore resets it */
} harpe_clock_lock;

/* One GPU. Everything below `mutex` is guarded by it and belongs to settings.c. */
typedef struct harpe_gpu {
    harpe_gpu_info info;
    void *handle;
    bool is_mig_enabled;
    bool is_module;

    pthread_mutex_t mutex;
    bool power_limit_changed; /* then the limit found before is: */
    uint32_t found_power_limit_mw;
    bool persistence_changed;
    bool found_persistence;
    uint32_t asked_power_limit_mw; /* the last one set, and what the driver made of it; 0: none */
    uint32_t made_power_limit_mw;
    harpe_clock_lock graphics, memory;
    harpe_gpu_writes writes;
} harpe_gpu;

struct harpe_gpus {
    const harpe_backend *backend;
    void *state;
    harpe_log log;
    char *library_path; /* NULL: not known */
    int driver_count;
    int count;
    harpe_gpu *gpus;
};

/* The GPU of an index, or HARPE_INVALID_ARGUMENT. */
harpe_status harpe_gpus_find(const harpe_gpus *gpus, int gpu, harpe_gpu **out, harpe_error *error);

/* "GPU 3 (NVIDIA A40): <what>: NVML_ERROR_GPU_IS_LOST (15): <advice>"; the code's status. */
harpe_status harpe_gpus_fail(const harpe_gpus *gpus, const harpe_gpu *gpu, int code,
                             const char *what, harpe_error *error);

/* "<what>: NVML_ERROR_GPU_IS_LOST (15): <advice>"; the code's status. */
harpe_status harpe_backend_fail(const harpe_backend *backend, int code, const char *what,
                                harpe_error *error);

/* The GPUs that this process sees, in its order; also sets driver_count. To be freed. (find.c) */
harpe_status harpe_gpus_list_visible(harpe_gpus *gpus, const harpe_gpus_options *options,
                                     harpe_backend_device **out, size_t *out_count,
                                     harpe_error *error);

/* The highest memory clock, and the graphics clocks that it allows: at least one, highest first, to
 * be freed with free(). */
harpe_status harpe_gpus_full_speed_clocks(harpe_gpus *gpus, int gpu, uint32_t *memory_mhz,
                                          uint32_t **graphics_mhz, size_t *count,
                                          harpe_error *error);

/* True when settings need the user root; otherwise CAP_SYS_ADMIN suffices. */
bool harpe_gpus_need_root(const harpe_gpus *gpus);

/* True when the GPU is divided into MIG instances. */
bool harpe_gpu_mig_is_enabled(const harpe_gpus *gpus, int gpu);

/* The file of the driver library that was opened, whoever named it, so that another process can
 * open the same; "" when it is not known. */
const char *harpe_gpus_library_path(const harpe_gpus *gpus);

/* "<name>@<when it was made>" of a cluster of emulated GPUs; false when it is not known. */
bool harpe_gpus_emulated_identity(const harpe_gpus *gpus, char *text, size_t size);

/* How many GPUs the driver knows, visible or not. */
int harpe_gpus_driver_count(const harpe_gpus *gpus);

#endif
