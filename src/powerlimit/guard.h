/* SPDX-License-Identifier: Apache-2.0 */
/* The guard: a small process that outlives the trainer and puts power limits back when the trainer
 * ends in any way without having done so. guard.c is the trainer's side, guard_process.c the
 * guard's own. It is a side process (base/side_process.h). Private to src/powerlimit and the
 * program. */
#ifndef HARPE_POWERLIMIT_GUARD_H
#define HARPE_POWERLIMIT_GUARD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

/* `harpe power-limit <this>`: not for people. */
#define HARPE_GUARD_ARGUMENT "--guard-process"

enum {
    HARPE_GUARD_MAGIC = 0x48475244,
    HARPE_GUARD_VERSION = 4,
    HARPE_GUARD_GPU_LIMIT = 1024,
    HARPE_GUARD_RESTORED = 'R', /* the byte that tells the guard that nothing is left to do */
};

/* What was found on one GPU. Goes through the socket as it is. */
typedef struct harpe_guarded_gpu {
    char uuid[96];
    int32_t is_found; /* 0: the guard finds it out */
    uint32_t limit_mw;
    int32_t persistence; /* 0, 1, or -1: unknown, to be left alone */
} harpe_guarded_gpu;

/* The trainer's first message, followed by the GPUs. The answer is a harpe_error, followed by the
 * GPUs with what was found if its status is HARPE_OK. */
typedef struct harpe_guard_header {
    uint32_t magic, version, gpu_size, gpu_count;
    int32_t trainer;             /* process */
    char library_path[PATH_MAX]; /* the trainer's driver library; "": where it is usually found */
} harpe_guard_header;

typedef struct harpe_guard harpe_guard;

/* Returns once the guard has claimed the GPUs, put back what a dead job had left on them, noted on
 * disk what it found, and stands ready. A thread of this process replaces a guard that dies at
 * once; failures go to `log`. `gpus` outlives the guard. */
harpe_status harpe_guard_start(harpe_gpus *gpus, harpe_log log, harpe_guard **out,
                               harpe_error *error);
/* `restored`: everything is put back; otherwise the guard does it now. */
void harpe_guard_stop(harpe_guard *guard, bool restored);

/* The guard process: returns its exit code. */
int harpe_power_limit_guard_main(int argc, char **argv);

#endif
