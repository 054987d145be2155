/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a monitor: its power sampler, GPUs, source, log, and the values read at a window's
 * beginning or end. monitor_life.c (making, log) and windows.c (windows) share it.
 *
 * The log file is CSV with one line for each ended window, written to the file (not synced to the
 * disk) when the window ends. Columns: start_time (Unix seconds), window_name, elapsed_time (s),
 * gpu<index>_energy (J) ..., and if CPUs are measured, cpu<n>_energy and dram<n>_energy. */
#ifndef HARPE_MONITOR_MONITOR_STATE_H
#define HARPE_MONITOR_MONITOR_STATE_H

#include <pthread.h>
#include <stddef.h>

#include "monitor/monitor.h"

/* ---- Power sampler --------------------------------------------------------------------------- */

/* Measures the energy of GPUs without an energy counter: a background thread reads their power and
 * integrates it. It starts only if there is such a GPU. Between two samples up to 5 periods apart,
 * power is interpolated. Samples further apart are sparse, and the windows warn about them. If a
 * read has failed between two samples, or if the samples are more than 50 periods apart, the energy
 * between them is unknown. A window gets no value if its energy is unknown for more than 1 % of its
 * time.
 *
 * The energy of a GPU is a curve over time, integrated from power samples by trapezoids. A ring
 * keeps the latest points, and the curve interpolates between them. The curve also counts the time
 * without samples. The curve uses no clock and no lock. */

enum { HARPE_POWER_CURVE_POINTS = 512 };

typedef struct harpe_power_point {
    int64_t time_ns;
    double power_w;
    /* Totals since the first point: */
    double energy_j;
    double sparse_s;  /* time between samples that came late */
    double unknown_s; /* the part of sparse_s in which the power is unknown */
} harpe_power_point;

/* Initialise with zeros. */
typedef struct harpe_power_curve {
    harpe_power_point points[HARPE_POWER_CURVE_POINTS];
    size_t count; /* number of valid points */
    size_t next;  /* place of the next point */
} harpe_power_curve;

/* Adds a sample. A period without samples longer than `sparse_ns` counts as sparse; if it is
 * longer than `unknown_ns`, it also counts as unknown. A point that is not later than the last one
 * is dropped, because two threads may have raced. */
void harpe_power_curve_add(harpe_power_curve *curve, int64_t time_ns, double power_w,
                           int64_t sparse_ns, int64_t unknown_ns);

/* Writes the point of the curve at a time. Between two points, the point is interpolated; after the
 * last point, the power is that of the last point. Returns false and writes nothing for an empty
 * curve and for a time that the ring no longer has. */
bool harpe_power_curve_at(const harpe_power_curve *curve, int64_t time_ns, harpe_power_point *out);

typedef struct harpe_sampler harpe_sampler;

/* Reads every GPU once, then starts the thread. `period_s` is in the source's time, which may be
 * scaled; there is at most one sample per real millisecond. With `period_s` 0 there is no thread,
 * and only harpe_sampler_sample takes samples (for tests). */
harpe_status harpe_sampler_new(const harpe_energy_source *source, const int *gpus, size_t gpu_count,
                               double period_s, harpe_sampler **out, harpe_error *error);
void harpe_sampler_free(harpe_sampler *sampler);

/* Fails with HARPE_NOT_SUPPORTED in a forked child, which has no sampling thread. Call it before
 * the two functions below. */
harpe_status harpe_sampler_check(const harpe_sampler *sampler, harpe_error *error);

/* Reads the power of a GPU now. `place` is the GPU's place in `gpus`. A window calls this function
 * when it takes a reading, so every reading has a sample close to it. */
harpe_status harpe_sampler_sample(harpe_sampler *sampler, size_t place, harpe_error *error);

/* Returns the point of a GPU's curve at `time_ns`, which is close to now. */
harpe_status harpe_sampler_at(harpe_sampler *sampler, size_t place, int64_t time_ns,
                              harpe_power_point *out, harpe_error *error);

/* Computes the energy between two points of a curve. Fails with HARPE_DRIVER_ERROR if the energy is
 * unknown. */
harpe_status harpe_sampler_energy(harpe_sampler *sampler, size_t place,
                                  const harpe_power_point *start, const harpe_power_point *end,
                                  double *energy_j, harpe_error *error);

/* ---- Windows --------------------------------------------------------------------------------- */

typedef struct harpe_window_log harpe_window_log;

/* Creates or empties the file, and writes the header. `rapl` may be NULL. */
harpe_status harpe_window_log_open(const char *path, const int *gpus, size_t gpu_count,
                                   const harpe_rapl *rapl, harpe_window_log **out,
                                   harpe_error *error);
void harpe_window_log_close(harpe_window_log *log);

/* Writes a line. DRAM energies that are NaN have no column. Any thread may call this function. */
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
