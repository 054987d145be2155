/* SPDX-License-Identifier: Apache-2.0 */
/* Divides energy by time. Energy counters move every 10 to 100 ms, so a short time gives no power.
 * A sample of the present power would not do instead of a counter: a fleet counts a member with the
 * highest power that it has reported, so single samples would make it count with its peaks. */
#include "powerlimit/power_meter.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

#define SHORTEST_NS INT64_C(1000000000)

struct harpe_power_meter {
    harpe_gpus *gpus;
    int count;
    bool has_reading;
    int64_t read_ns;      /* time of the last reading, on the clock of the GPUs */
    uint64_t *counter_mj; /* of each GPU, at the last reading */
};

harpe_status harpe_power_meter_new(harpe_gpus *gpus, harpe_power_meter **out, harpe_error *error) {
    harpe_power_meter *meter = harpe_calloc(1, sizeof *meter);
    if (!meter) return harpe_fail_memory(error);
    meter->gpus = gpus;
    meter->count = harpe_gpus_count(gpus);
    meter->counter_mj = harpe_calloc((size_t)meter->count, sizeof *meter->counter_mj);
    if (!meter->counter_mj) {
        harpe_power_meter_free(meter);
        return harpe_fail_memory(error);
    }
    *out = meter;
    return HARPE_OK;
}

void harpe_power_meter_free(harpe_power_meter *meter) {
    if (!meter) return;
    free(meter->counter_mj);
    free(meter);
}

harpe_status harpe_power_meter_read(harpe_power_meter *meter, double *power_w, harpe_error *error) {
    int64_t now_ns = harpe_gpus_clock_ns(meter->gpus);
    int64_t passed_ns = now_ns - meter->read_ns;
    bool is_known = meter->has_reading && passed_ns >= SHORTEST_NS;
    double energy_j = 0;
    meter->has_reading = false; /* a reading of only some counters is of no use */
    *power_w = 0;
    for (int gpu = 0; gpu < meter->count; gpu++) {
        uint64_t now_mj = 0;
        harpe_status status = harpe_gpu_total_energy(meter->gpus, gpu, &now_mj, error);
        if (status == HARPE_NOT_SUPPORTED) return HARPE_OK;
        if (status != HARPE_OK) return status;
        if (now_mj < meter->counter_mj[gpu]) is_known = false;
        energy_j += ((double)now_mj - (double)meter->counter_mj[gpu]) * 1e-3;
        meter->counter_mj[gpu] = now_mj;
    }
    meter->has_reading = true;
    meter->read_ns = now_ns;
    if (is_known) *power_w = energy_j / ((double)passed_ns * 1e-9);
    return HARPE_OK;
}
