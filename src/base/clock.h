/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock. */
#ifndef HARPE_BASE_CLOCK_H
#define HARPE_BASE_CLOCK_H

#include <stdint.h>

int64_t harpe_clock_ns(void); /* CLOCK_MONOTONIC in ns */
double harpe_clock_s(void);   /* the same in s */

#endif
