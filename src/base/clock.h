/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock, and the one that also counts sleep. */
#ifndef HARPE_BASE_CLOCK_H
#define HARPE_BASE_CLOCK_H

#include <stdint.h>

int64_t harpe_clock_ns(void); /* CLOCK_MONOTONIC in ns */
double harpe_clock_s(void);   /* the same in s */

/* CLOCK_BOOTTIME in ns: goes on while the machine is suspended. For promises made to other
 * machines, whose clocks do not stop. */
int64_t harpe_clock_boot_ns(void);

#endif
