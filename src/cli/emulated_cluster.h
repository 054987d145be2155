/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated GPUs for a command or a simulation: finds the emulator's library, makes a cluster, says
 * so in the environment, and takes the cluster away. What an emulated GPU does is the library's
 * business (emulator/). */
#ifndef HARPE_CLI_EMULATED_CLUSTER_H
#define HARPE_CLI_EMULATED_CLUSTER_H

#include <stdbool.h>

#include <harpe/status.h>

/* Values of the environment, HARPE_EMULATOR_...; NULL: unset. */
typedef struct harpe_emulated_options {
    const char *gpus;
    const char *time_scale;
    const char *blocking_power;
    const char *noise;
    const char *seed;
    const char *faults;
    const char *faults_file;
    const char *profile;
    const char *cluster; /* NULL: a fresh one */
} harpe_emulated_options;

typedef struct harpe_emulated_cluster {
    void *library; /* dlopen's */
    bool is_own;
    char name[128];
} harpe_emulated_cluster;

/* Changes the environment of this process, for itself and for what it starts, and stays in the
 * cluster, so that it holds until _close. Keep signals that would kill blocked or handled. */
harpe_status harpe_emulated_cluster_open(const harpe_emulated_options *options,
                                         harpe_emulated_cluster *out, harpe_error *error);
/* Leaves it; waits for others to do so too, `wait_s` at most. A cluster of its own goes in any
 * case, a shared one unless others still use it. */
void harpe_emulated_cluster_close(harpe_emulated_cluster *cluster, double wait_s);

#endif
