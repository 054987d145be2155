/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a monitor with any source, and names its CPUs. Private to this project. */
#ifndef HARPE_MONITOR_MONITOR_H
#define HARPE_MONITOR_MONITOR_H

#include <stdbool.h>
#include <stddef.h>

#include <harpe/monitor.h>

#include "monitor/source.h"

/* Works like harpe_monitor_new with any source. Ignores `options->gpus`. */
harpe_status harpe_monitor_new_on(const harpe_monitor_options *options,
                                  const harpe_energy_source *source, harpe_monitor **out,
                                  harpe_error *error);

size_t harpe_monitor_cpu_count(const harpe_monitor *monitor);
const char *harpe_monitor_cpu_name(const harpe_monitor *monitor, size_t cpu); /* "package-0" */
bool harpe_monitor_is_sampled(const harpe_monitor *monitor); /* true if a GPU has no counter */

#endif
