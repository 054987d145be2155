/* SPDX-License-Identifier: Apache-2.0 */
/* The background sampler: reads power, feeds one power curve per GPU, answers with energy at a
 * time. It stands between the source and the windows, and exists only for GPUs that have no energy
 * counter. It does not survive a fork: in the child it refuses. */
#include "monitor/sampler.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "monitor/power_curve.h"
#include "monitor/ticker.h"

static const int64_t minimum_delay_ns = 1000000;

typedef struct sampled_gpu {
    int index;
    pthread_mutex_t lock; /* the curve */
    harpe_power_curve curve;
} sampled_gpu;

struct harpe_sampler {
    harpe_energy_source source;
    int64_t period_ns;
    int64_t last_real_ns, last_source_ns; /* the thread's own: how fast the source's time runs */
    harpe_ticker *ticker;
    size_t gpu_count;
    sampled_gpu gpus[];
};

harpe_status harpe_sampler_sample(harpe_sampler *sampler, size_t place, harpe_error *error) {
    sampled_gpu *gpu = &sampler->gpus[place];
    uint32_t power_mw = 0;
    harpe_energy_source *source = &sampler->source;
    harpe_status status = source->power_mw(source->user, gpu->index, &power_mw, error);
    if (status != HARPE_OK) return status;
    /* The clock is read inside the lock: points then come in the order of their times. */
    pthread_mutex_lock(&gpu->lock);
    harpe_power_curve_add(&gpu->curve, source->clock_ns(source->user), power_mw / 1e3);
    pthread_mutex_unlock(&gpu->lock);
    return HARPE_OK;
}

harpe_status harpe_sampler_energy(harpe_sampler *sampler, size_t place, int64_t time_ns,
                                  double *energy_j, harpe_error *error) {
    sampled_gpu *gpu = &sampler->gpus[place];
    pthread_mutex_lock(&gpu->lock);
    bool is_known = harpe_power_curve_energy(&gpu->curve, time_ns, energy_j);
    pthread_mutex_unlock(&gpu->lock);
    if (is_known) return HARPE_OK;
    return harpe_fail(error, HARPE_DRIVER_ERROR,
                      "GPU %d: its power was read too late to know the energy at a window's edge; "
                      "the driver is slow, measure a longer window",
                      gpu->index);
}

harpe_status harpe_sampler_check(const harpe_sampler *sampler, harpe_error *error) {
    if (!sampler || !sampler->ticker || harpe_ticker_is_ours(sampler->ticker)) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "this monitor was made before fork() and its power sampler stayed in the "
                      "parent; make a new monitor in this process");
}

/* How long to sleep for one period of the source's time, which an emulator may run faster. */
static int64_t real_delay_ns(harpe_sampler *sampler) {
    int64_t real_ns = harpe_clock_ns();
    int64_t source_ns = sampler->source.clock_ns(sampler->source.user);
    double speed = 1;
    if (sampler->last_real_ns != 0 && real_ns > sampler->last_real_ns) {
        speed = (double)(source_ns - sampler->last_source_ns) /
                (double)(real_ns - sampler->last_real_ns);
    }
    sampler->last_real_ns = real_ns;
    sampler->last_source_ns = source_ns;
    double delay_ns = (double)sampler->period_ns / (speed > 1e-3 ? speed : 1e-3);
    return delay_ns > (double)minimum_delay_ns ? (int64_t)delay_ns : minimum_delay_ns;
}

static int64_t sample_all(void *user) {
    harpe_sampler *sampler = user;
    for (size_t i = 0; i < sampler->gpu_count; i++) {
        /* A read that fails leaves a gap; one that fails for good is told at the window's end. */
        (void)harpe_sampler_sample(sampler, i, NULL);
    }
    return real_delay_ns(sampler);
}

harpe_status harpe_sampler_new(const harpe_energy_source *source, const int *gpus, size_t gpu_count,
                               double period_s, harpe_sampler **out, harpe_error *error) {
    harpe_sampler *sampler = NULL;
    if (gpu_count < (SIZE_MAX - sizeof *sampler) / sizeof sampler->gpus[0]) {
        sampler = calloc(1, sizeof *sampler + gpu_count * sizeof sampler->gpus[0]);
    }
    if (!sampler) return harpe_fail_memory(error);
    sampler->source = *source;
    sampler->period_ns = (int64_t)(period_s * 1e9);
    sampler->gpu_count = gpu_count;
    for (size_t i = 0; i < gpu_count; i++) {
        sampler->gpus[i].index = gpus[i];
        pthread_mutex_init(&sampler->gpus[i].lock, NULL);
    }
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < gpu_count && status == HARPE_OK; i++) {
        status = harpe_sampler_sample(sampler, i, error);
    }
    if (status == HARPE_OK && sampler->period_ns > 0) {
        status = harpe_ticker_start(sample_all, sampler, &sampler->ticker, error);
    }
    if (status != HARPE_OK) {
        harpe_sampler_free(sampler);
        return status;
    }
    *out = sampler;
    return HARPE_OK;
}

void harpe_sampler_free(harpe_sampler *sampler) {
    if (!sampler) return;
    bool is_ours = !sampler->ticker || harpe_ticker_is_ours(sampler->ticker);
    harpe_ticker_stop(sampler->ticker);
    for (size_t i = 0; is_ours && i < sampler->gpu_count; i++) {
        pthread_mutex_destroy(&sampler->gpus[i].lock);
    }
    free(sampler);
}
