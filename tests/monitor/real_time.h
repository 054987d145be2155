/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a harpe_energy_source in real time, for tests of the sampler's thread: one GPU without
 * an energy counter, whose power the test sets. */
#ifndef HARPE_TESTS_REAL_TIME_H
#define HARPE_TESTS_REAL_TIME_H

#include <string.h>
#include <time.h>

#include "base/error.h"

enum { MEASURE_TIMES = 20 };

static inline int64_t real_clock(void *user) {
    (void)user;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int one_gpu(void *user) {
    (void)user;
    return 1;
}

static inline harpe_status no_counter(void *user, int gpu, uint64_t *energy_mj,
                                      harpe_error *error) {
    (void)user, (void)gpu, (void)energy_mj;
    return harpe_fail(error, HARPE_NOT_SUPPORTED, "no counter");
}

/* Returns true if a window gave no number because a busy machine held up the sampler's thread for
 * more than a second. A test then measures again, at most MEASURE_TIMES times. */
static inline bool was_held_up(harpe_status status, const harpe_error *error) {
    return status == HARPE_DRIVER_ERROR && strstr(error->message, "could not be read for");
}

#endif
