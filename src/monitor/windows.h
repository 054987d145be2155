/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for windows that the program harpe needs beyond the public API. Private to this
 * project. */
#ifndef HARPE_MONITOR_WINDOWS_H
#define HARPE_MONITOR_WINDOWS_H

#include <harpe/monitor.h>

/* Returns the measurement of the window so far. The window stays open. */
harpe_status harpe_monitor_peek(harpe_monitor *monitor, const char *name,
                                harpe_window_measurement *out, harpe_error *error);

#endif
