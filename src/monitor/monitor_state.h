/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a monitor: its GPUs, its source, its log, and the values read at a window's
 * beginning or end. monitor_life.c (making, log) and windows.c (windows) share it.
 *
 * The log file is CSV with one line for each ended window, written to the file (not synced to the
 * disk) when the window ends. Columns: start_time (Unix seconds), window_name, elapsed_time (s),
 * gpu<index>_energy (J) ..., and if CPUs are measured, cpu<n>_energy and dram<n>_energy. */
#ifndef HARPE_MONITOR_MONITOR_STATE_H
#define HARPE_MONITOR_MONITOR_STATE_H

#include <pthread.h>

#include "monitor/monitor.h"
#include "monitor/rapl.h"
#include "monitor/sampler.h"

typedef struct harpe_window_log harpe_window_log;

/* Creates or empties the file, and writes the header. `rapl` may be NULL. */
harpe_status harpe_window_log_open(const char *path, const int *gpus, size_t gpu_count,
                                   const harpe_rapl *rapl, harpe_window_log **out,
                                   harpe_error *error);
void harpe_window_log_close(harpe_window_log *log);

/* Writes a line. DRAM energies that are NaN have no column. Any thread may call it. */
harpe_status harpe_window_log_write(harpe_window_log *log, double start_time_s, const char *name,
                                    const harpe_window_measurement *measurement,
                                    harpe_error *error);

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

void harpe_window_free(harpe_window *window);

#endif
