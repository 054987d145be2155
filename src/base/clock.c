/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock, for measuring how long something took. It says nothing of the time of day
 * and does not count while the machine sleeps. */
#include "base/clock.h"

#include <time.h>

int64_t harpe_clock_ns(void) {
    struct timespec now;
    /* Cannot fail: the clock exists on every Linux and the pointer is valid. */
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double harpe_clock_s(void) { return (double)harpe_clock_ns() * 1e-9; }
