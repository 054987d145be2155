/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs whose time, energy counter and power the test sets: a harpe_energy_source without a driver
 * and without waiting. Time moves only when the test moves it. */
#ifndef HARPE_TESTS_SCRIPTED_SOURCE_H
#define HARPE_TESTS_SCRIPTED_SOURCE_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "monitor/monitor.h"

OWNER(harpe_monitor)
#define owned_monitor OWNED(harpe_monitor)
#define owned_measurement AT_END(harpe_window_measurement_clear) harpe_window_measurement

#define assert_close(value, expected, tolerance) \
    do { \
        double got_value = (value); \
        double wanted = (expected); \
        if (!(fabs(got_value - wanted) <= (tolerance))) \
            fail_msg("%s is %.17g, expected %.17g", #value, got_value, wanted); \
    } while (0)

enum { SCRIPTED_GPUS_MAX = 4 };

typedef struct scripted {
    int count;
    int64_t now_ns;
    int64_t read_ns; /* duration of each read */
    bool no_counter[SCRIPTED_GPUS_MAX];
    uint64_t energy_mj[SCRIPTED_GPUS_MAX];
    uint32_t power_mw[SCRIPTED_GPUS_MAX];
    harpe_status fails[SCRIPTED_GPUS_MAX];
    /* the reads: C clock, E energy, P power, S synchronize, and the GPU's number */
    char order[256];
} scripted;

static inline void scripted_note(scripted *script, char what, int gpu) {
    size_t length = strlen(script->order);
    if (length + 3 > sizeof script->order) return;
    script->order[length] = what;
    script->order[length + 1] = gpu >= 0 ? (char)('0' + gpu) : '\0';
    script->order[length + 2] = '\0';
}

static int scripted_count(void *user) { return ((scripted *)user)->count; }

static int64_t scripted_clock(void *user) {
    scripted_note(user, 'C', -1);
    return ((scripted *)user)->now_ns;
}

static harpe_status scripted_energy(void *user, int gpu, uint64_t *energy_mj, harpe_error *error) {
    scripted *script = user;
    scripted_note(script, 'E', gpu);
    script->now_ns += script->read_ns;
    if (script->no_counter[gpu])
        return harpe_fail(error, HARPE_NOT_SUPPORTED, "GPU %d: no counter", gpu);
    if (script->fails[gpu] != HARPE_OK) {
        harpe_status status = harpe_fail(error, script->fails[gpu], "GPU %d is lost", gpu);
        if (error) error->vendor_code = 15;
        return status;
    }
    *energy_mj = script->energy_mj[gpu];
    return HARPE_OK;
}

static harpe_status scripted_power(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    scripted *script = user;
    scripted_note(script, 'P', gpu);
    script->now_ns += script->read_ns;
    if (script->fails[gpu] != HARPE_OK)
        return harpe_fail(error, script->fails[gpu], "GPU %d is lost", gpu);
    *power_mw = script->power_mw[gpu];
    return HARPE_OK;
}

static inline harpe_energy_source scripted_source(scripted *script) {
    return (harpe_energy_source){script,          scripted_count, scripted_clock,
                                 scripted_energy, scripted_power, NULL};
}

#endif
