/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares emulated GPUs for a command or a simulation: finds the emulator's library, makes a
 * cluster, sets the environment variables that name it, and removes the cluster. The library
 * (emulator/) implements the GPUs. Also runs measured workloads on such GPUs. */
#ifndef HARPE_SIM_CLUSTER_H
#define HARPE_SIM_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include <harpe/status.h>

/* Values of the environment variables HARPE_EMULATOR_...; NULL: not set. */
typedef struct harpe_emulated_options {
    const char *gpus;
    const char *time_scale;
    const char *blocking_power;
    const char *noise;
    const char *seed;
    const char *physics; /* a file's path is made absolute */
    const char *faults;
    const char *faults_file;
    const char *profile;
    const char *workload; /* the workload of harpe_emulator_workload_step */
    const char *torch;    /* "1": PyTorch counts the GPUs as CUDA devices */
    const char *cluster;  /* NULL: a new cluster */
} harpe_emulated_options;

typedef struct harpe_emulated_cluster {
    void *library; /* handle of dlopen */
    bool is_own;
    char name[128];
} harpe_emulated_cluster;

/* A function of the emulator's library. A row without a name ends a list. */
typedef struct harpe_emulated_symbol {
    const char *name;
    void **function;
} harpe_emulated_symbol;

/* Opens the emulator's library without a cluster, and finds the functions. The caller calls dlclose
 * if `*library` is not NULL, also after a failure. */
harpe_status harpe_emulated_library_load(const char *path, const harpe_emulated_symbol *symbols,
                                         void **library, harpe_error *error);

/* Changes the environment of this process and of the processes that it starts, and joins the
 * cluster, so that it exists until _close. Signals that would kill the process must be blocked or
 * handled. */
harpe_status harpe_emulated_cluster_open(const harpe_emulated_options *options,
                                         harpe_emulated_cluster *out, harpe_error *error);
/* Leaves the cluster, and waits at most `wait_s` seconds for other processes to leave. A cluster
 * that this process has made for itself is always removed. A shared cluster stays while other
 * processes use it. */
void harpe_emulated_cluster_close(harpe_emulated_cluster *cluster, double wait_s);

/* ---- Workload -------------------------------------------------------------------------------- */

/* A workload is a program that behaves like a measured program (emulator/harpe_emulator.h). It runs
 * iterations on an emulated GPU, and marks each iteration as a step for `harpe power-limit run`. In
 * tests of the code that measures and steers programs, it stands for a user's program. */

typedef struct harpe_workload_options {
    int64_t steps;        /* 0: without end */
    double noise_share;   /* relative standard deviation of the time of a step */
    double phase_s;       /* GPU time until the next workload of a list begins */
    double drift_share_h; /* relative growth of the time of a step in an hour of GPU time */
    bool prints_steps;    /* prints a line "step N" at the end of each step */
} harpe_workload_options;

typedef struct harpe_workload_result {
    double step_s, step_j; /* means; emulated time, energy of the GPU */
} harpe_workload_result;

/* Returns true if this process runs on GPUs that another process has made. */
bool harpe_workload_has_gpus(void);

/* Runs the workloads of HARPE_EMULATOR_WORKLOAD one after the other, and begins with the first
 * again after the last. They run on the first GPU of CUDA_VISIBLE_DEVICES if that is an index,
 * otherwise on GPU 0. HARPE_EMULATOR_SEED is the seed of the noise. */
harpe_status harpe_workload_run(const harpe_workload_options *options,
                                harpe_workload_result *result, harpe_error *error);

/* Prints the names of the workloads. */
harpe_status harpe_workload_list(harpe_error *error);

#endif
