/* SPDX-License-Identifier: Apache-2.0 */
/* Energy counters of GPUs, and the source that they are read from: a small table of functions over
 * harpe_gpus, so that tests can replace GPUs and time by scripts. Indices of GPUs are those of the
 * training process. A source keeps no state and converts no units.
 *
 * Each value of a counter is judged. A value is impossible if it is lower than the last one, or if
 * the GPU cannot use so much energy in the time since then. An impossible value is read again. If
 * the next values are impossible too, the counter has restarted or jumped. This is a break: the
 * energy that was used around it is not known. */
#ifndef HARPE_MONITOR_COUNTER_H
#define HARPE_MONITOR_COUNTER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <harpe/gpu.h>
#include <harpe/monitor.h>

#include "base/possible.h"

/* All functions may be called from several threads at once. */
typedef struct harpe_energy_source {
    void *user;
    int (*count)(void *user);
    int64_t (*clock_ns)(void *user); /* monotonic, in the time of the GPUs */
    harpe_status (*energy_mj)(void *user, int gpu, uint64_t *energy_mj, harpe_error *error);
    harpe_status (*power_mw)(void *user, int gpu, uint32_t *power_mw, harpe_error *error);
    double (*highest_w)(void *user, int gpu); /* NULL: HARPE_GPU_HIGHEST_W */
} harpe_energy_source;

/* Returns a power that the GPU never draws for as long as a counter shows. */
double harpe_energy_source_highest_w(const harpe_energy_source *source, int gpu);

/* Returns the source of real GPUs. `gpus` NULL: no GPUs and CLOCK_MONOTONIC. */
harpe_energy_source harpe_energy_source_of_gpus(harpe_gpus *gpus);

/* What is known of a counter. Initialise with zeros, except the lock. */
typedef struct harpe_counter {
    pthread_mutex_t lock; /* guards all members below; not held while the driver is asked */
    struct harpe_counter_past {
        bool is_known;
        uint64_t latest_mj;   /* the highest value since the last break */
        int64_t moved_ns;     /* when this value was first read */
        uint64_t anchor_mj;   /* a value of some seconds ago. It bounds the mean power if the */
        int64_t anchor_ns;    /* counter is read so often that each time is too short to judge */
        uint64_t left_out_mj; /* what is added to a value, modulo 2^64, to leave breaks out */
        unsigned breaks;
        uint64_t from_mj, to_mj; /* the values before and after the last break */
    } past;
} harpe_counter;

typedef struct harpe_counter_reading {
    uint64_t energy_mj; /* never becomes less; without the energy of breaks */
    unsigned breaks;    /* the number of breaks before this value */
} harpe_counter_reading;

/* Reads the counter of a GPU of the source. `now_ns` is the source's time, read before the call.
 * Any thread may call it, several at once. */
harpe_status harpe_counter_read(harpe_counter *counter, const harpe_energy_source *source, int gpu,
                                int64_t now_ns, harpe_counter_reading *out, harpe_error *error);

/* Does the same for a GPU of `gpus`, and writes only the energy. */
harpe_status harpe_counter_read_energy(harpe_counter *counter, harpe_gpus *gpus, int gpu,
                                       uint64_t *energy_mj, harpe_error *error);

/* Fails with HARPE_DRIVER_ERROR, and says what the counter did at its last break. */
harpe_status harpe_counter_fail(harpe_counter *counter, int gpu, harpe_error *error);

#endif
