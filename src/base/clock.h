/* SPDX-License-Identifier: Apache-2.0 */
/* Reads three clocks of the system: one that stops while the machine is suspended, one that does
 * not stop, and the time of day. */
#ifndef HARPE_BASE_CLOCK_H
#define HARPE_BASE_CLOCK_H

#include <stdint.h>

int64_t harpe_clock_ns(void); /* CLOCK_MONOTONIC in ns */
double harpe_clock_s(void);   /* CLOCK_MONOTONIC in s */

/* Returns CLOCK_BOOTTIME in ns. This clock continues while the machine is suspended. Use it for
 * deadlines promised to other machines, whose clocks do not stop. */
int64_t harpe_clock_boot_ns(void);

/* Return the time of day, since 1970. It jumps if somebody sets the clock. Use it only
 * for times that people see or that programs record. */
int64_t harpe_clock_wall_ns(void);
double harpe_clock_wall_s(void);
int64_t harpe_clock_wall_whole_s(void);

#endif
