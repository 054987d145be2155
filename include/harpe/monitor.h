/* SPDX-License-Identifier: Apache-2.0 */
/* Energy windows: time and energy of any stretch of code, on GPUs and CPUs. A window costs a few
 * counter reads and nothing in between. Above the GPU layer units are s, J, W. */
#ifndef HARPE_MONITOR_H
#define HARPE_MONITOR_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/api.h>
#include <harpe/callback.h>
#include <harpe/gpu.h>
#include <harpe/status.h>

HARPE_BEGIN_DECLS

typedef struct harpe_monitor harpe_monitor;

/* Zero-initialise, then set what matters. */
typedef struct harpe_monitor_options {
    harpe_gpus *gpus;       /* NULL: CPUs only; must outlive the monitor */
    const int *gpu_indices; /* which of them; NULL: all */
    size_t gpu_count;
    bool with_cpu;                   /* also RAPL packages and DRAM, where readable */
    const char *rapl_path;           /* NULL: /sys/class/powercap */
    bool approximate_instant_energy; /* a window of zero counter energy becomes power * time */
    /* NULL: none. CSV, a line per ended window, flushed; an existing file is emptied. A line that
     * cannot be written is told once through `log`; the measurement is returned all the same. */
    const char *log_path;
    double sample_period_s; /* of the sampler for GPUs without an energy counter; 0: 0.02 */
    /* Waits until the GPUs have done what was asked of them (the caller knows its framework);
     * called first at begin and at end. NULL: nothing. */
    void (*synchronize)(void *user, const int *gpu_indices, size_t gpu_count);
    void *synchronize_user;
    harpe_log log;
} harpe_monitor_options;

/* What a window took. Arrays belong to the measurement; free with harpe_measurement_clear. */
typedef struct harpe_window_measurement {
    double time_s;
    size_t gpu_count;
    int *gpu_index;
    double *gpu_energy_j;
    size_t cpu_count;
    double *cpu_energy_j;  /* per package */
    double *dram_energy_j; /* per package; NaN where there is none */
    double total_gpu_energy_j;
} harpe_window_measurement;

HARPE_API harpe_status harpe_monitor_new(const harpe_monitor_options *options, harpe_monitor **out,
                                         harpe_error *error);
/* Open windows are discarded. A monitor with a sampler or CPUs does not survive fork(): in the
 * child its windows are HARPE_NOT_SUPPORTED, and it can be freed. */
HARPE_API void harpe_monitor_free(harpe_monitor *monitor);

/* Opens a window; a name is open once (HARPE_ALREADY_EXISTS) unless `restart`, which discards the
 * first. Windows may overlap and nest. Any thread. */
HARPE_API harpe_status harpe_monitor_begin(harpe_monitor *monitor, const char *name, bool restart,
                                           harpe_error *error);
/* Closes a window. `cancel` discards it (`out` may then be NULL and nothing is logged). What is not
 * known is an error and never a number: HARPE_GPU_LOST; HARPE_DRIVER_ERROR for a counter that ran
 * backwards (driver reload) and for a GPU without a counter whose power could not be read for more
 * than 1 % of the window. Numbers that are less than they seem (a counter that did not move, a
 * driver so slow that it fills the window) are told through `log`. */
HARPE_API harpe_status harpe_monitor_end(harpe_monitor *monitor, const char *name, bool cancel,
                                         harpe_window_measurement *out, harpe_error *error);
HARPE_API void harpe_window_measurement_clear(harpe_window_measurement *measurement);

HARPE_END_DECLS

#endif
