/* SPDX-License-Identifier: Apache-2.0 */
/* The guard is a helper process (base/helper_process.h) that outlives the trainer. It restores the
 * power limits if the trainer has ended without restoring them. It claims the GPUs and holds the
 * saved settings of each (gpu/saved_settings.h); if there is no guard, the trainer holds the
 * claims. Private to src/power_limit, to the node agent and to the program. */
#ifndef HARPE_POWER_LIMIT_GUARD_H
#define HARPE_POWER_LIMIT_GUARD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

#include "gpu/saved_settings.h"
#include "lease/lease.h"

/* The argument with which `harpe power-limit` runs as a guard. For internal use. */
#define HARPE_GUARD_ARGUMENT "--guard-process"

enum {
    HARPE_GUARD_MAGIC = 0x48475244,
    HARPE_GUARD_VERSION = 6,
    HARPE_GUARD_GPU_LIMIT = 1024,
    HARPE_GUARD_RESTORED = 'R', /* byte that tells the guard that the trainer has restored all */
};

/* The saved settings of one GPU. Sent through the socket in this form. */
typedef struct harpe_guarded_gpu {
    char uuid[96];
    int32_t is_saved; /* 0: the guard reads the settings */
    uint32_t limit_mw;
    /* The limit that a frequency controller has set, which is restored while this controller has
     * the GPU. 0: no controller had changed the limit when the settings were read. */
    uint32_t controlled_mw;
    int32_t persistence; /* 0, 1, or -1: unknown, not restored */
} harpe_guarded_gpu;

/* The trainer's first message, followed by the GPUs. The answer is a harpe_error. If its status is
 * HARPE_OK, the GPUs with their saved settings follow. */
typedef struct harpe_guard_header {
    uint32_t magic, version, gpu_size, gpu_count;
    int32_t trainer;             /* process id of the trainer */
    char library_path[PATH_MAX]; /* the trainer's driver library; "": in its usual place */
    /* For a guard that the node agent starts. Such a guard sends its process id (int32_t) after the
     * saved settings. Then it carries out requests of the lease's holder (lease/lease.h). It
     * always restores the GPU itself. */
    harpe_lease_terms terms;
} harpe_guard_header;

typedef struct harpe_guard harpe_guard;

/* Starts the guard. Returns when the guard has claimed the GPUs, restored the settings that a dead
 * job had left changed, and recorded the settings on disk. A thread of this process replaces a
 * guard that dies, and logs failures to `log`. `gpus` must outlive the guard. */
harpe_status harpe_guard_start(harpe_gpus *gpus, harpe_log log, harpe_guard **out,
                               harpe_error *error);
/* Starts a guard of one GPU for the holder of a lease. `trainer` is the process id of the holder,
 * and `starter` is its pidfd. `*socket` receives the socket on which the holder sends requests to
 * the guard (lease/lease.h). The caller closes it. The guard ends when all copies of the
 * socket are closed. `*started` receives the process id of the guard. */
harpe_status harpe_guard_lend(const harpe_gpus *gpus, int gpu, pid_t trainer, int starter,
                              const harpe_lease_terms *terms, int *socket, int32_t *started,
                              harpe_error *error);
/* Stops the guard. `restored` is true if the trainer has restored all GPUs. If it is false, or if a
 * GPU does not have its saved settings, the guard restores the GPUs now. */
void harpe_guard_stop(harpe_guard *guard, bool restored);

/* ---- Claims on the GPUs whose power limits will change --------------------------------------- */

typedef struct harpe_power_claims {
    harpe_holding **each; /* NULL: released */
    size_t count;
} harpe_power_claims;

/* Returns an array with the UUID of each GPU and no settings, or NULL if there is no memory. The
 * caller frees it with free(). */
harpe_guarded_gpu *harpe_guarded_gpus_new(const harpe_gpus *gpus);

/* Claims GPUs for the trainer. First restores settings that dead jobs have left changed. Then reads
 * the settings into each of `saved` that has none yet, and records them. `gives_up` may be NULL.
 * After a failure nothing is claimed. */
harpe_status harpe_power_claims_take(harpe_gpus *gpus, harpe_guarded_gpu *saved, size_t count,
                                     pid_t trainer, bool (*gives_up)(void *user),
                                     harpe_power_claims *out, harpe_error *error);
/* Releases the remaining claims. `restored` is true if these GPUs have their saved settings
 * again. */
void harpe_power_claims_release(harpe_power_claims *claims, bool restored);

/* ---- The process ----------------------------------------------------------------------------- */

/* Runs the guard process and returns its exit code. */
int harpe_power_limit_guard_main(int argc, char **argv);

#endif
