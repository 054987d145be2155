/* SPDX-License-Identifier: Apache-2.0 */
/* The values of an emulated power sensor: the power of the physical model with noise. The sensor
 * makes a new value in each period; until then a reading returns the same value. The noise depends
 * only on the cluster's seed, the GPU, the sensor and the number of the period, so the same seed
 * gives the same noise. The energy counter has no noise. */
#ifndef HARPE_EMULATOR_SENSOR_H
#define HARPE_EMULATOR_SENSOR_H

#include <stdint.h>

#include "cluster.h"

typedef enum emulator_sensor {
    EMULATOR_SENSOR_INSTANT,
    EMULATOR_SENSOR_AVERAGE,
    EMULATOR_SENSOR_MEMORY,
} emulator_sensor;

/* Returns the power in mW that the sensor of a GPU shows at a time when the true power is
 * `power_w`. */
unsigned int emulator_sensor_mw(const emulator_cluster *cluster, unsigned int gpu,
                                emulator_sensor sensor, double power_w, int64_t now_ns);

#endif
