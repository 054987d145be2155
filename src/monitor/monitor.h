/* SPDX-License-Identifier: Apache-2.0 */
/* What other parts of this project need of a monitor beyond the public API. monitor_life.c makes
 * monitors, and windows.c measures. */
#ifndef HARPE_MONITOR_MONITOR_H
#define HARPE_MONITOR_MONITOR_H

#include <stddef.h>

#include "monitor/counter.h"

/* Works like harpe_monitor_new with any source. Ignores `options->gpus`. */
harpe_status harpe_monitor_new_on(const harpe_monitor_options *options,
                                  const harpe_energy_source *source, harpe_monitor **out,
                                  harpe_error *error);

size_t harpe_monitor_cpu_count(const harpe_monitor *monitor);
const char *harpe_monitor_cpu_name(const harpe_monitor *monitor, size_t cpu); /* "package-0" */
bool harpe_monitor_is_sampled(const harpe_monitor *monitor); /* true if a GPU has no counter */

/* Returns the measurement of the window so far. The window stays open. */
harpe_status harpe_monitor_peek(harpe_monitor *monitor, const char *name,
                                harpe_window_measurement *out, harpe_error *error);

#endif
