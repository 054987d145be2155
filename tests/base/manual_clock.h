/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that stands still until the test moves it. It replaces base/clock.c: a test program that
 * includes this header is linked without that file, so that the tested code also reads this clock.
 * Tests of threads may switch to the real clock. No other file may define the functions of clock.h.
 */
#ifndef HARPE_TESTS_MANUAL_CLOCK_H
#define HARPE_TESTS_MANUAL_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"

static _Atomic int64_t manual_clock_ns = INT64_C(1000000000000);
static atomic_bool manual_clock_is_real;

int64_t harpe_clock_ns(void) {
    struct timespec now;
    if (!atomic_load(&manual_clock_is_real)) return atomic_load(&manual_clock_ns);
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t harpe_clock_boot_ns(void) { return harpe_clock_ns(); }

double harpe_clock_s(void) { return (double)harpe_clock_ns() * 1e-9; }

int64_t harpe_clock_wall_ns(void) { return harpe_clock_ns(); }

double harpe_clock_wall_s(void) { return harpe_clock_s(); }

int64_t harpe_clock_wall_whole_s(void) { return harpe_clock_ns() / 1000000000; }

/* Lets this time pass: at once, or in real time if the clock is the real one. */
static inline void manual_clock_pass(int64_t ns) {
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    if (atomic_load(&manual_clock_is_real))
        (void)nanosleep(&time, NULL);
    else
        atomic_fetch_add(&manual_clock_ns, ns);
}

#endif
