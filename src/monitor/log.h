/* SPDX-License-Identifier: Apache-2.0 */
/* The log file of a monitor: CSV with one line for each ended window, written to the file (not
 * synced to the disk) when the window ends. Columns: start_time (Unix seconds), window_name,
 * elapsed_time (s), gpu<index>_energy (J) ..., and if CPUs are measured, cpu<n>_energy and
 * dram<n>_energy. */
#ifndef HARPE_MONITOR_LOG_H
#define HARPE_MONITOR_LOG_H

#include <harpe/monitor.h>

#include "monitor/rapl.h"

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

#endif
