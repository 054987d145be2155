/* SPDX-License-Identifier: Apache-2.0 */
/* Noise of the power sensors; see sensor.h. */
#include "sensor.h"

#include <math.h>

#include "draws.h"

/* An average over 1 s covers ten or more values of the sensor. */
#define AVERAGE_NOISE 0.3

unsigned int emulator_sensor_mw(const emulator_cluster *cluster, unsigned int gpu,
                                emulator_sensor sensor, double power_w, int64_t now_ns) {
    const emulator_model *model = emulator_model_at(cluster->gpu[gpu].model);
    double share = cluster->noise_share;
    if (share > 0) {
        if (sensor == EMULATOR_SENSOR_AVERAGE) share *= AVERAGE_NOISE;
        int64_t period_ns = llround(model->sensor_period_s * 1e9);
        uint64_t period = (uint64_t)((now_ns - cluster->epoch_ns) / period_ns);
        power_w *= 1 + share * emulator_draw_deviation(cluster->noise_seed, gpu, sensor, period);
    }
    return (unsigned int)lround(power_w * 1000.0);
}
