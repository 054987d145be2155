/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the present values for the live display of `harpe monitor`, and prints them. The output is
 * a frame on a terminal, or a line of text, CSV or JSON. monitor_live.c decides when to read. */
#ifndef HARPE_CLI_MONITOR_MONITOR_VIEW_H
#define HARPE_CLI_MONITOR_MONITOR_VIEW_H

#include "base/text.h"
#include "cli/monitor/monitor_session.h"

enum { HARPE_VIEW_HISTORY = 64 };

/* Present values of one GPU; NaN or 0 if the driver does not report them. */
typedef struct harpe_gpu_view {
    double power_w, limit_w, average_w; /* average: over the last interval */
    double energy_j;                    /* since the start */
    uint32_t graphics_mhz, memory_mhz, celsius;
    double history_w[HARPE_VIEW_HISTORY]; /* latest first */
    size_t history_count;
} harpe_gpu_view;

typedef struct harpe_cpu_view {
    double average_w, energy_j, dram_energy_j; /* DRAM: NaN if there is no DRAM counter */
} harpe_cpu_view;

typedef struct harpe_monitor_view {
    bool energy; /* true: show energy; false: show power */
    bool is_utf8, has_colours;
    double unix_time_s, time_s;
    harpe_gpu_view *gpus;
    harpe_cpu_view *cpus;
} harpe_monitor_view;

/* Makes a view. `view` must be initialised with zeros. */
harpe_status harpe_monitor_view_make(const harpe_monitor_session *session, harpe_monitor_view *view,
                                     harpe_error *error);
void harpe_monitor_view_free(harpe_monitor_view *view);
/* Takes a reading. `window` has been open since the start. */
harpe_status harpe_monitor_view_update(harpe_monitor_session *session, const char *window,
                                       harpe_monitor_view *view, harpe_error *error);

/* Append a reading to `text` in one of its forms. Every form ends in a newline. */
void harpe_monitor_view_frame(const harpe_monitor_session *session, const harpe_monitor_view *view,
                              int rows, int columns, harpe_text *text);
void harpe_monitor_view_line(const harpe_monitor_session *session, const harpe_monitor_view *view,
                             harpe_text *text);
void harpe_monitor_view_csv_header(const harpe_monitor_session *session,
                                   const harpe_monitor_view *view, harpe_text *text);
void harpe_monitor_view_csv(const harpe_monitor_session *session, const harpe_monitor_view *view,
                            harpe_text *text);
json_t *harpe_monitor_view_json(const harpe_monitor_session *session,
                                const harpe_monitor_view *view);

#endif
