/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated machine: GPUs in shared memory. All processes of a user that name the same cluster
 * see the same GPUs. The locks survive killed and stopped processes (lock.c). */
#ifndef HARPE_EMULATOR_CLUSTER_H
#define HARPE_EMULATOR_CLUSTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "gpu/nvml_abi.h"
#include "models.h"
#include "physics.h"

enum {
    EMULATOR_GPU_MAX = 4096,
    EMULATOR_NAME_MAX = 128,
    EMULATOR_CONFIGURATION_MAX = 512,
    EMULATOR_PROBLEM_MAX = 512,
    EMULATOR_HEARTBEAT_NS = 50000000,
};
/* Real time after which a call stops waiting for other processes, which may be stopped or debugged.
 */
#define EMULATOR_TIMEOUT_NS INT64_C(2000000000)
/* A clock change for enqueued work may be late by at most this real time, because a busy machine
 * may delay the process that makes it. In a world it is not delayed. */
#define EMULATOR_LATE_CLOCK_NS INT64_C(1000000000)

typedef struct emulator_gpu {
    pthread_mutex_t mutex;    /* process-shared, robust */
    _Atomic uint32_t changes; /* a futex: counts the changes that may concern waiting processes */
    _Atomic uint32_t current; /* index of the valid state of the two */
    uint32_t model;
    uint32_t pci_domain, pci_bus;
    char uuid[48];
    emulator_effects effects; /* never change while the cluster exists */
    emulator_state state[2];
    emulator_points points[EMULATOR_WORK_MAX];
} emulator_gpu;

typedef struct emulator_cluster {
    _Atomic uint64_t magic; /* written last */
    char name[EMULATOR_NAME_MAX];
    char configuration[EMULATOR_CONFIGURATION_MAX];
    uint32_t gpu_count;
    double time_scale;
    double noise_share;  /* standard deviation of power sensors, as a share */
    uint64_t noise_seed; /* seed of this noise */
    int64_t epoch_ns;    /* time of CLOCK_MONOTONIC at which the emulated time had the same value */
    emulator_gpu gpu[EMULATOR_GPU_MAX]; /* only the first `gpu_count` have memory */
} emulator_cluster;

/* Attaches to the cluster that the environment names. Creates the cluster if it does not exist, or
 * if no process uses it and its GPUs or its time scale differ from those in the environment. `*fd`
 * keeps the cluster in use until it is closed. Returns 0 or an nvmlReturn_t: INVALID_ARGUMENT for
 * invalid values, OPERATING_SYSTEM, TIMEOUT. */
int emulator_cluster_attach(emulator_cluster **out, int *fd);
void emulator_cluster_detach(emulator_cluster *cluster, int fd);
/* Frees the cluster of a world, which stays while no process is attached to it. */
void emulator_forget_world(void);

/* Returns true, with a text of one line, if something is wrong in the environment. */
bool emulator_cluster_problem(char *problem, size_t size);

int64_t emulator_from_real_ns(const emulator_cluster *cluster, int64_t real_ns);
/* Returns the first real time whose emulated time is `emulated_ns` or later. */
int64_t emulator_to_real_ns(const emulator_cluster *cluster, int64_t emulated_ns);
static inline int64_t emulator_now_ns(const emulator_cluster *cluster) {
    return emulator_from_real_ns(cluster, harpe_clock_ns());
}
/* Sleeps for emulated seconds. */
void emulator_sleep(const emulator_cluster *cluster, double emulated_s);

/* Returns the constants of a GPU. `energy_step_s` is as for emulator_lock. */
emulator_chip emulator_chip_of(const emulator_cluster *cluster, unsigned int index,
                               double energy_step_s);
/* Locks a GPU and moves it to the present. The caller may read and change the state until it
 * unlocks the GPU, and must make no system call in between. `energy_step_s` is the interval of the
 * energy counter; below 0: that of the model. Returns NVML_ERROR_TIMEOUT if another process holds
 * the lock and does not continue. */
nvmlReturn_t emulator_lock(emulator_cluster *cluster, unsigned int index, double energy_step_s,
                           emulator_state **state);
/* Unlocks a GPU. If `wake` is not 0, wakes waiting processes, because a change may concern them. */
void emulator_unlock(emulator_cluster *cluster, unsigned int index, int wake);
/* Removes the contexts of dead processes from the GPU. */
nvmlReturn_t emulator_bury_contexts(emulator_cluster *cluster, unsigned int index,
                                    double energy_step_s);
/* Ends the works of all dead processes at once. emulator_lock also ends them, but only after a
 * period without a heartbeat. */
nvmlReturn_t emulator_bury_dead(emulator_cluster *cluster, unsigned int index,
                                double energy_step_s);

/* Waits until `changes` differs from `seen` or the real time has passed. May return early. */
void emulator_wait_for_change(emulator_gpu *gpu, uint32_t seen, int64_t real_ns);

emulator_owner emulator_this_process(void);

#endif
