/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated machine: GPUs in shared memory, seen by every process of the user that names the
 * same cluster. Locking survives killed and stopped processes (lock.c). */
#ifndef HARPE_EMULATOR_CLUSTER_H
#define HARPE_EMULATOR_CLUSTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "gpu/nvml_abi.h"
#include "models.h"
#include "physics.h"

enum {
    EMULATOR_GPU_MAX = 64,
    EMULATOR_CONFIGURATION_MAX = 512,
    EMULATOR_HEARTBEAT_NS = 50000000,
};
/* Real time after which a call gives up waiting for others: they are stopped, or debugged. */
#define EMULATOR_TIMEOUT_NS INT64_C(2000000000)
/* Real time for which a clock that was wished for enqueued work may come late. */
#define EMULATOR_LATE_CLOCK_NS INT64_C(1000000000)

typedef struct emulator_gpu {
    pthread_mutex_t mutex;    /* process-shared, robust */
    _Atomic uint32_t changes; /* a futex: counts what may matter to those who wait */
    _Atomic uint32_t current; /* which of the two states holds */
    uint32_t model;
    uint32_t pci_bus;
    char uuid[48];
    emulator_state state[2];
    emulator_points points[EMULATOR_WORK_MAX];
} emulator_gpu;

typedef struct emulator_cluster {
    _Atomic uint64_t magic; /* written last */
    char configuration[EMULATOR_CONFIGURATION_MAX];
    uint32_t gpu_count;
    double time_scale;
    double noise_share;  /* standard deviation of power sensors, as a share */
    uint64_t noise_seed; /* seed of this noise */
    int64_t epoch_ns;    /* CLOCK_MONOTONIC when emulated time was the same */
    emulator_gpu gpu[EMULATOR_GPU_MAX];
} emulator_cluster;

/* Attaches to the cluster that the environment names, making it where it is not there (or nobody
 * uses it and its GPUs or time scale differ). `*fd` keeps it in use until closed. Returns 0 or an
 * nvmlReturn_t: INVALID_ARGUMENT for values that make no sense, OPERATING_SYSTEM, TIMEOUT. */
int emulator_cluster_attach(emulator_cluster **out, int *fd);
void emulator_cluster_detach(emulator_cluster *cluster, int fd);

/* What is wrong with the environment, or NULL. */
const char *emulator_cluster_problem(void);

int64_t emulator_real_ns(void);
int64_t emulator_from_real_ns(const emulator_cluster *cluster, int64_t real_ns);
static inline int64_t emulator_now_ns(const emulator_cluster *cluster) {
    return emulator_from_real_ns(cluster, emulator_real_ns());
}
/* Sleeps for emulated seconds. */
void emulator_sleep(const emulator_cluster *cluster, double emulated_s);

/* Locks a GPU and moves it to now. The state may be read and changed until unlocked; no system call
 * is to be made in between. `energy_step_s` below 0: the model's own. NVML_ERROR_TIMEOUT: another
 * process holds the lock and does not go on. */
nvmlReturn_t emulator_lock(emulator_cluster *cluster, unsigned int index, double energy_step_s,
                           emulator_state **state);
/* `wake`: something changed that those who wait for work must know. */
void emulator_unlock(emulator_cluster *cluster, unsigned int index, int wake);
/* Removes the contexts of dead processes from the GPU. */
nvmlReturn_t emulator_bury_contexts(emulator_cluster *cluster, unsigned int index,
                                    double energy_step_s);
/* Ends the works of all dead processes at once, not only after a silence as emulator_lock does. */
nvmlReturn_t emulator_bury_dead(emulator_cluster *cluster, unsigned int index,
                                double energy_step_s);

/* Waits until `changes` differs from `seen` or real time has passed; early returns are harmless. */
void emulator_wait_for_change(emulator_gpu *gpu, uint32_t seen, int64_t real_ns);

emulator_owner emulator_this_process(void);

#endif
