/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares emulated GPUs for a command or a simulation: finds the emulator's library, makes a
 * cluster, sets the environment variables that name it, and removes the cluster. The library
 * (emulator/) implements the GPUs. */
#ifndef HARPE_SIM_CLUSTER_H
#define HARPE_SIM_CLUSTER_H

#include <stdbool.h>

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

/* Opens the emulator's library without a cluster. The caller calls dlclose. */
harpe_status harpe_emulated_library_open(void **library, harpe_error *error);

/* Changes the environment of this process and of the processes that it starts, and joins the
 * cluster, so that it exists until _close. Signals that would kill the process must be blocked or
 * handled. */
harpe_status harpe_emulated_cluster_open(const harpe_emulated_options *options,
                                         harpe_emulated_cluster *out, harpe_error *error);
/* Leaves the cluster, and waits at most `wait_s` seconds for other processes to leave. A cluster
 * that this process has made for itself is always removed. A shared cluster stays while other
 * processes use it. */
void harpe_emulated_cluster_close(harpe_emulated_cluster *cluster, double wait_s);

#endif
