/* SPDX-License-Identifier: Apache-2.0 */
/* A program that behaves like a measured workload (emulator/harpe_emulator.h): it runs iterations
 * on an emulated GPU, and marks them as steps for `harpe power-limit run`. It stands for a user's
 * program in tests of what measures and steers programs. */
#ifndef HARPE_SIM_WORKLOAD_H
#define HARPE_SIM_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>

typedef struct harpe_workload_options {
    int64_t steps;        /* 0: without end */
    double noise_share;   /* standard deviation of the time of a step, relative */
    double phase_s;       /* the GPU's time until the next workload of a list begins */
    double drift_share_h; /* relative growth of this time in an hour of the GPU's time */
    bool prints_steps;    /* prints a line "step N" at the end of each step */
} harpe_workload_options;

typedef struct harpe_workload_result {
    double step_s, step_j; /* means; emulated time, energy of the GPU */
} harpe_workload_result;

/* Returns true if this process runs on GPUs that another process has made. */
bool harpe_workload_has_gpus(void);

/* Runs the workloads of HARPE_EMULATOR_WORKLOAD, one after the other and again from the first, on
 * the GPUs of the environment: on the first of CUDA_VISIBLE_DEVICES if this is an index, otherwise
 * on GPU 0. The noise has the seed of HARPE_EMULATOR_SEED. */
harpe_status harpe_workload_run(const harpe_workload_options *options,
                                harpe_workload_result *result, harpe_error *error);

/* Prints the names of the workloads. */
harpe_status harpe_workload_list(harpe_error *error);

#endif
