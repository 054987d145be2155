/* SPDX-License-Identifier: Apache-2.0 */
/* Energy windows measure the time and energy of a piece of a program, on GPUs and CPUs. A window
 * costs a few counter reads at each end and nothing in between. Above the GPU layer, units are
 * s, J and W. */
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

/* Initialise with zeros, then set the members that you need. */
typedef struct harpe_monitor_options {
    harpe_gpus *gpus;       /* NULL: CPUs only; must outlive the monitor */
    const int *gpu_indices; /* indices of the GPUs to measure; NULL: all */
    size_t gpu_count;
    bool with_cpu;                   /* also measure RAPL packages and DRAM that are readable */
    const char *rapl_path;           /* NULL: /sys/class/powercap */
    bool approximate_instant_energy; /* report power * time if a window's counter energy is zero */
    /* CSV file with one line for each window, flushed when the window ends; NULL: none. An existing
     * file is emptied. If a line cannot be written, `log` reports the failure once, and windows
     * still return measurements. */
    const char *log_path;
    double sample_period_s; /* of the sampler for GPUs without an energy counter; 0: 0.02 */
    /* Waits, through the caller's framework, until the GPUs have finished all submitted work.
     * harpe_monitor_begin and harpe_monitor_end call it first. NULL: no wait. */
    void (*synchronize)(void *user, const int *gpu_indices, size_t gpu_count);
    void *synchronize_user;
    harpe_log log;
} harpe_monitor_options;

/* The result of a window. The measurement owns its arrays; free them with
 * harpe_window_measurement_clear. */
typedef struct harpe_window_measurement {
    double time_s;
    size_t gpu_count;
    int *gpu_index;
    double *gpu_energy_j;
    size_t cpu_count;
    double *cpu_energy_j;  /* per package */
    double *dram_energy_j; /* per package; NaN for a package without DRAM counter */
    double total_gpu_energy_j;
} harpe_window_measurement;

HARPE_API harpe_status harpe_monitor_new(const harpe_monitor_options *options, harpe_monitor **out,
                                         harpe_error *error);
/* Frees the monitor and discards open windows. A monitor with a sampler or CPUs does not work in a
 * child of fork(): there its windows fail with HARPE_NOT_SUPPORTED. The child may free it. */
HARPE_API void harpe_monitor_free(harpe_monitor *monitor);

/* Opens a window. If a window of this name is open, `restart` decides: true discards the open
 * window, and false makes this call fail with HARPE_ALREADY_EXISTS. Windows may overlap and nest.
 * Any thread may call it. */
HARPE_API harpe_status harpe_monitor_begin(harpe_monitor *monitor, const char *name, bool restart,
                                           harpe_error *error);
/* Closes a window. If `cancel` is true, discards it: `out` may then be NULL, and no line is logged.
 * Fails if a value is not known. HARPE_GPU_LOST: a GPU is lost. HARPE_DRIVER_ERROR: a counter ran
 * backwards, because the GPU's driver was reloaded or a CPU's counter restarted; or the power of a
 * GPU without a counter is missing for more than 1 % of the window. `log` reports values that are
 * less reliable than they look, for example if a counter did not move, or if the driver is so slow
 * that its calls fill the window. */
HARPE_API harpe_status harpe_monitor_end(harpe_monitor *monitor, const char *name, bool cancel,
                                         harpe_window_measurement *out, harpe_error *error);
HARPE_API void harpe_window_measurement_clear(harpe_window_measurement *measurement);

HARPE_END_DECLS

#endif
