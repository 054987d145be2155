/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a GPU busy during a measurement: with simulated work on the emulator, or with a command of
 * the user on a real GPU. */
#ifndef HARPE_CLI_PROFILE_BUSY_GPU_H
#define HARPE_CLI_PROFILE_BUSY_GPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include <harpe/gpu.h>

typedef struct harpe_busy_gpu {
    int (*work)(unsigned int gpu, double full_speed_s, double compute_share, double *elapsed_s);
    void *library;
    unsigned int gpu;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_over;
    pid_t child;         /* 0: none */
    const char *program; /* of the child */
} harpe_busy_gpu;

/* Starts the work. `command` may be NULL for an emulated GPU. */
harpe_status harpe_busy_gpu_start(harpe_busy_gpu *busy, harpe_gpus *gpus, int gpu, char **command,
                                  harpe_error *error);
/* Fails if the command has ended. */
harpe_status harpe_busy_gpu_check(harpe_busy_gpu *busy, harpe_error *error);
/* Ends the work, and all processes of the command's process group. */
void harpe_busy_gpu_stop(harpe_busy_gpu *busy);

#endif
