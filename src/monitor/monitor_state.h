/* SPDX-License-Identifier: Apache-2.0 */
/* A monitor from inside: which GPUs, from which source, what is read at a window's edge. Shared by
 * monitor.c (making one), edge.c (reading the counters), windows.c (the windows) and doubts.c (what
 * a measurement is worth). */
#ifndef HARPE_MONITOR_MONITOR_STATE_H
#define HARPE_MONITOR_MONITOR_STATE_H

#include <pthread.h>

#include "monitor/log.h"
#include "monitor/rapl.h"
#include "monitor/sampler.h"
#include "monitor/source.h"

/* One GPU's energy at an edge: a counter, or the sampler's curve where there is none. */
typedef struct harpe_gpu_reading {
    uint64_t counter_mj;
    unsigned restarts; /* of the counter, as far as known, before this value */
    harpe_power_point sampled;
} harpe_gpu_reading;

/* All that is read at one edge of a window. */
typedef struct harpe_edge {
    int64_t time_ns;
    int64_t reading_ns; /* how long reading took; all of it lies inside the window */
    harpe_gpu_reading *gpus;
    harpe_rapl_reading *cpus; /* NULL without RAPL */
} harpe_edge;

typedef enum harpe_window_state {
    HARPE_WINDOW_CLOSED = 0,
    HARPE_WINDOW_OPEN,
    HARPE_WINDOW_BUSY, /* some thread is reading its counters, without holding the lock */
} harpe_window_state;

/* A name that is or was in use. Kept after the window has closed, so that opening it again
 * allocates nothing. */
typedef struct harpe_window {
    char *name;
    uint64_t hash;
    harpe_window_state state;
    bool zero_energy_told;
    double start_time_s; /* Unix time, for the log */
    harpe_edge start, end;
} harpe_window;

typedef struct harpe_monitor_gpu {
    int index; /* as the training process counts */
    bool is_sampled;
    size_t place; /* in the sampler */
    /* The last reading of the counter by any window; guarded by the monitor's counter_lock. If a
     * counter restarts and then passes the value at which a long window began, that window alone
     * cannot detect the restart, but shorter windows within it can. */
    uint64_t latest_mj;
    unsigned restarts;
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
    harpe_rapl *rapl;       /* NULL: not asked for, or not readable */
    harpe_window_log *window_log;

    pthread_mutex_t counter_lock; /* what is known of the GPUs' counters; never held for long */

    pthread_mutex_t lock; /* all below */
    harpe_window **windows;
    size_t window_count, window_capacity;
    size_t recycle_next;     /* where the search for a closed window to give up begins */
    size_t zero_energy_told; /* warnings so far */
    bool log_failure_told, sparse_samples_told, slow_reading_told;
};

/* begin: clock, GPUs, CPUs. end: the same reversed, so that the clock is nearest to the work. */
harpe_status harpe_edge_read_start(harpe_monitor *monitor, harpe_edge *edge, harpe_error *error);
harpe_status harpe_edge_read_end(harpe_monitor *monitor, harpe_edge *edge, harpe_error *error);

/* Energy between two edges. */
harpe_status harpe_edge_difference(harpe_monitor *monitor, const harpe_edge *start,
                                   const harpe_edge *end, harpe_window_measurement *measurement,
                                   harpe_error *error);
/* One allocation for all arrays of a measurement. */
harpe_status harpe_measurement_new(const harpe_monitor *monitor,
                                   harpe_window_measurement *measurement, harpe_error *error);

void harpe_monitor_tell(const harpe_monitor *monitor, harpe_log_level level, const char *format,
                        ...) HARPE_PRINTF(3, 4);

/* Mends a window of zero energy where power is to stand in, and warns of what its numbers are not
 * good for: a counter that did not move, sparse samples, a slow driver. */
void harpe_window_doubts(harpe_monitor *monitor, harpe_window *window,
                         harpe_window_measurement *measurement);

void harpe_window_free(harpe_window *window);

#endif
