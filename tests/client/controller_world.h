/* SPDX-License-Identifier: Apache-2.0 */
/* A world with emulated GPUs and a frequency controller, which ends before them. */
#ifndef HARPE_TESTS_CLIENT_CONTROLLER_WORLD_H
#define HARPE_TESTS_CLIENT_CONTROLLER_WORLD_H

#include "world/in_world.h"

#include <harpe/frequency_controller.h>

static harpe_gpus *gpus;
static harpe_frequency_controller *controller;

static inline void begin(void) { assert_works(harpe_gpus_open(NULL, &gpus, &failure)); }

static inline void end(void) {
    harpe_frequency_controller_stop(controller);
    controller = NULL;
    harpe_gpus_close(gpus);
}

static inline void start(harpe_frequency_controller_options options) {
    options.gpus = gpus;
    assert_works(harpe_frequency_controller_start(&options, &controller, &failure));
}

/* An idle GPU runs at its lowest clock, or at the clock of its lock. */
static inline int clock_mhz(int gpu) {
    uint32_t mhz = 0;
    assert_works(harpe_gpu_current_clocks(gpus, gpu, &mhz, NULL, &failure));
    return (int)mhz;
}

#endif
