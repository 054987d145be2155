/* SPDX-License-Identifier: Apache-2.0 */
/* Divides energy by time. Energy counters move every 10 to 100 ms, so a short time gives no power.
 * A sample of the present power would not do instead of a counter: a fleet counts a member with the
 * highest power that it has reported, so single samples would make it count with its peaks. */
#include "powerlimit/power_meter.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"
#include "monitor/counter.h"

#define SHORTEST_NS INT64_C(1000000000)

struct harpe_power_meter {
    harpe_energy_source source;
    int count;
    bool has_reading;
    int64_t read_ns; /* time of the last reading, on the clock of the GPUs */
    struct gpu_meter {
        harpe_counter counter;
        harpe_counter_reading last;
    } * gpu; /* of each GPU */
};

harpe_status harpe_power_meter_new(harpe_gpus *gpus, harpe_power_meter **out, harpe_error *error) {
    harpe_power_meter *meter = harpe_calloc(1, sizeof *meter);
    if (!meter) return harpe_fail_memory(error);
    meter->source = harpe_energy_source_of_gpus(gpus);
    meter->gpu = harpe_calloc((size_t)harpe_gpus_count(gpus), sizeof *meter->gpu);
    if (!meter->gpu) {
        harpe_power_meter_free(meter);
        return harpe_fail_memory(error);
    }
    meter->count = harpe_gpus_count(gpus);
    for (int gpu = 0; gpu < meter->count; gpu++)
        pthread_mutex_init(&meter->gpu[gpu].counter.lock, NULL);
    *out = meter;
    return HARPE_OK;
}

void harpe_power_meter_free(harpe_power_meter *meter) {
    if (!meter) return;
    for (int gpu = 0; meter->gpu && gpu < meter->count; gpu++)
        pthread_mutex_destroy(&meter->gpu[gpu].counter.lock);
    free(meter->gpu);
    free(meter);
}

harpe_status harpe_power_meter_read(harpe_power_meter *meter, double *power_w, harpe_error *error) {
    const harpe_energy_source *source = &meter->source;
    int64_t now_ns = source->clock_ns(source->user);
    int64_t passed_ns = now_ns - meter->read_ns;
    bool is_known = meter->has_reading && passed_ns >= SHORTEST_NS;
    double energy_j = 0;
    meter->has_reading = false; /* a reading of only some counters is of no use */
    *power_w = 0;
    for (int gpu = 0; gpu < meter->count; gpu++) {
        struct gpu_meter *one = &meter->gpu[gpu];
        harpe_counter_reading last = one->last;
        harpe_status status =
            harpe_counter_read(&one->counter, source, gpu, now_ns, &one->last, error);
        if (status == HARPE_NOT_SUPPORTED) return HARPE_OK;
        if (status != HARPE_OK) return status;
        is_known = is_known && one->last.breaks == last.breaks;
        energy_j += (double)(one->last.energy_mj - last.energy_mj) * 1e-3;
    }
    meter->has_reading = true;
    meter->read_ns = now_ns;
    if (is_known) *power_w = energy_j / ((double)passed_ns * 1e-9);
    return HARPE_OK;
}
