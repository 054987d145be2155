/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

#include "base/platform.h"

static int64_t read_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now); /* it can only fail for a clock that does not exist */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t harpe_clock_ns(void) {
    return harpe_platform_in_use ? harpe_platform_in_use->now_ns() : read_ns(CLOCK_MONOTONIC);
}

double harpe_clock_s(void) { return (double)harpe_clock_ns() * 1e-9; }

int64_t harpe_clock_boot_ns(void) {
    return harpe_platform_in_use ? harpe_platform_in_use->now_ns() : read_ns(CLOCK_BOOTTIME);
}

int64_t harpe_clock_wall_ns(void) {
    return harpe_platform_in_use ? harpe_platform_in_use->wall_ns() : read_ns(CLOCK_REALTIME);
}

double harpe_clock_wall_s(void) { return (double)harpe_clock_wall_ns() * 1e-9; }

int64_t harpe_clock_wall_whole_s(void) { return harpe_clock_wall_ns() / 1000000000; }
