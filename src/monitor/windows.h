/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the program harpe needs beyond the public API: the value of a window that is
 * still open, and the names of the CPUs. Private to this project. */
#ifndef HARPE_MONITOR_WINDOWS_H
#define HARPE_MONITOR_WINDOWS_H

#include <harpe/monitor.h>

/* Returns the measurement of the window so far. The window stays open. */
harpe_status harpe_monitor_peek(harpe_monitor *monitor, const char *name,
                                harpe_window_measurement *out, harpe_error *error);

size_t harpe_monitor_cpu_count(const harpe_monitor *monitor);
const char *harpe_monitor_cpu_name(const harpe_monitor *monitor, size_t cpu); /* "package-0" */
bool harpe_monitor_is_sampled(const harpe_monitor *monitor); /* true if a GPU has no counter */

#endif
