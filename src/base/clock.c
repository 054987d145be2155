/* SPDX-License-Identifier: Apache-2.0 */
/* CLOCK_MONOTONIC measures durations without the time for which the machine is suspended.
 * CLOCK_BOOTTIME measures durations with that time. CLOCK_REALTIME is the time of day. */
#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t clock) {
    struct timespec now;
    /* This cannot fail: all three clocks exist on every Linux, and the pointer is valid. */
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t harpe_clock_ns(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t harpe_clock_boot_ns(void) { return read_clock(CLOCK_BOOTTIME); }

int64_t harpe_clock_wall_ns(void) { return read_clock(CLOCK_REALTIME); }

double harpe_clock_wall_s(void) { return (double)harpe_clock_wall_ns() * 1e-9; }

int64_t harpe_clock_wall_whole_s(void) { return harpe_clock_wall_ns() / 1000000000; }

double harpe_clock_s(void) { return (double)harpe_clock_ns() * 1e-9; }
