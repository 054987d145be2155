/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a monitor: its GPUs, its source, and the values read at a window's beginning or
 * end. Shared by monitor.c (making), window_reading.c (reading counters), windows.c (windows) and
 * plausibility.c (plausibility checks). */
#ifndef HARPE_MONITOR_MONITOR_STATE_H
#define HARPE_MONITOR_MONITOR_STATE_H

#include <pthread.h>

#include "monitor/counter.h"
#include "monitor/log.h"
#include "monitor/rapl.h"
#include "monitor/sampler.h"
#include "monitor/source.h"

/* One GPU's energy at a reading: a counter, or the sampler's curve for a GPU without a counter. */
typedef struct harpe_gpu_reading {
    harpe_counter_reading counter;
    harpe_power_point sampled;
} harpe_gpu_reading;

/* All values read at the beginning or the end of a window. */
typedef struct harpe_window_reading {
    int64_t time_ns;
    int64_t reading_ns; /* time that the reading took, which lies inside the window */
    harpe_gpu_reading *gpus;
    harpe_rapl_reading *cpus; /* NULL without RAPL */
} harpe_window_reading;

typedef enum harpe_window_state {
    HARPE_WINDOW_CLOSED = 0,
    HARPE_WINDOW_OPEN,
    HARPE_WINDOW_BUSY, /* a thread is reading the counters without the lock */
} harpe_window_state;

/* The window of a name. It is kept after it has closed, so opening the same name again allocates
 * nothing. */
typedef struct harpe_window {
    char *name;
    uint64_t hash;
    harpe_window_state state;
    bool zero_energy_told;
    double start_time_s; /* Unix time, for the log */
    harpe_window_reading start, end;
} harpe_window;

typedef struct harpe_monitor_gpu {
    int index; /* the GPU's index in the training process */
    bool is_sampled;
    size_t place; /* the GPU's place in the sampler */
    /* Shared by all windows. If a counter restarts and then passes the value at which a long window
     * began, that window alone cannot detect the restart, but shorter windows within it can. */
    harpe_counter counter;
} harpe_monitor_gpu;

struct harpe_monitor {
    harpe_energy_source source;
    harpe_log log;
    void (*synchronize)(void *user, const int *gpu_indices, size_t gpu_count);
    void *synchronize_user;
    bool approximate_instant_energy;
    size_t gpu_count;
    harpe_monitor_gpu *gpus;
    int *gpu_indices;
    harpe_sampler *sampler; /* NULL: every GPU has a counter */
    harpe_rapl *rapl;       /* NULL: not requested or not readable */
    harpe_window_log *window_log;

    pthread_mutex_t lock; /* guards all members below */
    harpe_window **windows;
    size_t window_count, window_capacity;
    size_t recycle_next;     /* start of the search for a closed window to reuse */
    size_t zero_energy_told; /* number of warnings so far */
    bool log_failure_told, sparse_samples_told, slow_reading_told;
};

/* Takes a reading. The start reads the clock, the GPUs and the CPUs, in this order. The end reads
 * them in reverse order. So the window's time includes both readings. */
harpe_status harpe_window_read_start(harpe_monitor *monitor, harpe_window_reading *reading,
                                     harpe_error *error);
harpe_status harpe_window_read_end(harpe_monitor *monitor, harpe_window_reading *reading,
                                   harpe_error *error);

/* Computes the energy between two readings. */
harpe_status harpe_window_reading_difference(harpe_monitor *monitor,
                                             const harpe_window_reading *start,
                                             const harpe_window_reading *end,
                                             harpe_window_measurement *measurement,
                                             harpe_error *error);
/* Makes a measurement with one allocation for all arrays. */
harpe_status harpe_measurement_new(const harpe_monitor *monitor,
                                   harpe_window_measurement *measurement, harpe_error *error);

/* Replaces a zero energy by power times time if the caller has asked for this. Warns about a
 * counter that did not move, sparse samples and a slow driver. */
void harpe_window_check_plausibility(harpe_monitor *monitor, harpe_window *window,
                                     harpe_window_measurement *measurement);

void harpe_window_free(harpe_window *window);

#endif
