/* SPDX-License-Identifier: Apache-2.0 */
/* The request of `harpe monitor`, and the objects with which it measures: GPUs and a monitor. */
#ifndef HARPE_CLI_MONITOR_MONITOR_INTERNAL_H
#define HARPE_CLI_MONITOR_MONITOR_INTERNAL_H

#include <harpe/monitor.h>

#include "cli/cli.h"

typedef struct harpe_monitor_request {
    bool energy;      /* else power */
    const char *gpus; /* "0,2"; NULL: all */
    double interval_s;
    double duration_s;    /* 0: until stopped */
    const char *csv_path; /* "-": stdout; NULL: none */
    bool json, no_cpu;
    bool has_mode, has_live_flag; /* the words and flags that were given */
    const char *rapl_path;        /* NULL: the kernel's */
    char **command;               /* NULL: live */
} harpe_monitor_request;

typedef struct harpe_monitor_session {
    harpe_gpus *gpus; /* NULL: no GPU on this machine */
    int *gpu_indices;
    size_t gpu_count;
    harpe_monitor *monitor;
    size_t cpu_count;
} harpe_monitor_session;

/* Opens a session that was initialised with zeros. Close it also after a failure. Without a GPU,
 * prints a note on stderr and continues if CPUs can be measured. If `log_path` is NULL, writes no
 * log of windows. */
harpe_status harpe_monitor_session_open(const harpe_monitor_request *request, const char *log_path,
                                        harpe_monitor_session *session, harpe_error *error);
void harpe_monitor_session_close(harpe_monitor_session *session);

/* Prints time, energy and average power as a small table. */
void harpe_monitor_summary_print(FILE *stream, const harpe_monitor_session *session,
                                 const harpe_window_measurement *measurement);

/* Shows live values until the end of the request's time, or until a signal arrives
 * (monitor_live.c). Returns the program's exit code. */
int harpe_monitor_live(const harpe_monitor_request *request);

#endif
