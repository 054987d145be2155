/* SPDX-License-Identifier: Apache-2.0 */
/* Noise of the power sensors; see sensor.h. */
#include "sensor.h"

#include <math.h>

/* An average over 1 s covers ten or more values of the sensor. */
#define AVERAGE_NOISE 0.3

uint64_t emulator_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Returns a number with mean 0 and standard deviation 1, between -3.5 and 3.5: the sum of four
 * uniform distributions. */
static double deviation(uint64_t seed, uint64_t gpu, uint64_t sensor, uint64_t period) {
    uint64_t state = seed;
    state = emulator_random(&state) ^ (gpu << 8 | sensor);
    state = emulator_random(&state) ^ period;
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)(emulator_random(&state) >> 11) * 0x1p-53 - 0.5;
    return sum * sqrt(3.0);
}

unsigned int emulator_sensor_mw(const emulator_cluster *cluster, unsigned int gpu,
                                emulator_sensor sensor, double power_w, int64_t now_ns) {
    const emulator_model *model = emulator_model_at(cluster->gpu[gpu].model);
    double share = cluster->noise_share;
    if (share > 0) {
        if (sensor == EMULATOR_SENSOR_AVERAGE) share *= AVERAGE_NOISE;
        int64_t period_ns = llround(model->sensor_period_s * 1e9);
        uint64_t period = (uint64_t)((now_ns - cluster->epoch_ns) / period_ns);
        power_w *= 1 + share * deviation(cluster->noise_seed, gpu, sensor, period);
    }
    return (unsigned int)lround(power_w * 1000.0);
}
