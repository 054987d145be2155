/* SPDX-License-Identifier: Apache-2.0 */
/* The background sampler reads power, fills one power curve per GPU, and returns the energy at a
 * time. It exists only for GPUs without an energy counter. It does not survive a fork: in the
 * child its functions fail. */
#include "monitor/monitor_state.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "monitor/monitor.h"

/* ---- The curve ------------------------------------------------------------------------------- */

/* Returns a point; `age` 0 is the latest. */
static const harpe_power_point *point_at(const harpe_power_curve *curve, size_t age) {
    size_t capacity = HARPE_POWER_CURVE_POINTS;
    return &curve->points[(curve->next + 2 * capacity - 1 - age) % capacity];
}

static double seconds(int64_t from_ns, int64_t to_ns) { return (double)(to_ns - from_ns) * 1e-9; }

void harpe_power_curve_add(harpe_power_curve *curve, int64_t time_ns, double power_w,
                           int64_t sparse_ns, int64_t unknown_ns) {
    harpe_power_point point = {.time_ns = time_ns, .power_w = power_w};
    if (curve->count > 0) {
        const harpe_power_point *last = point_at(curve, 0);
        if (time_ns <= last->time_ns) return;
        int64_t length_ns = time_ns - last->time_ns;
        double length_s = seconds(last->time_ns, time_ns);
        point.energy_j = last->energy_j + 0.5 * (last->power_w + power_w) * length_s;
        point.sparse_s = last->sparse_s + (length_ns > sparse_ns ? length_s : 0);
        point.unknown_s = last->unknown_s + (length_ns > unknown_ns ? length_s : 0);
    }
    curve->points[curve->next] = point;
    curve->next = (curve->next + 1) % HARPE_POWER_CURVE_POINTS;
    if (curve->count < HARPE_POWER_CURVE_POINTS) curve->count++;
}

static harpe_power_point between(const harpe_power_point *before, const harpe_power_point *after,
                                 int64_t time_ns) {
    double into_s = seconds(before->time_ns, time_ns);
    double share = into_s / seconds(before->time_ns, after->time_ns);
    double power_w = before->power_w + share * (after->power_w - before->power_w);
    return (harpe_power_point){
        .time_ns = time_ns,
        .power_w = power_w,
        .energy_j = before->energy_j + 0.5 * (before->power_w + power_w) * into_s,
        .sparse_s = before->sparse_s + share * (after->sparse_s - before->sparse_s),
        .unknown_s = before->unknown_s + share * (after->unknown_s - before->unknown_s),
    };
}

bool harpe_power_curve_at(const harpe_power_curve *curve, int64_t time_ns, harpe_power_point *out) {
    if (curve->count == 0) return false;
    const harpe_power_point *after = point_at(curve, 0);
    if (time_ns >= after->time_ns) {
        *out = *after;
        out->time_ns = time_ns;
        out->energy_j += after->power_w * seconds(after->time_ns, time_ns);
        return true;
    }
    /* Windows ask for a reading at once, so the point is among the latest. */
    for (size_t age = 1; age < curve->count; age++) {
        const harpe_power_point *before = point_at(curve, age);
        if (before->time_ns <= time_ns) {
            *out = between(before, after, time_ns);
            return true;
        }
        after = before;
    }
    return false;
}

/* ---- The sampler ----------------------------------------------------------------------------- */

static const int64_t minimum_delay_ns = 1000000;

/* The usual delay of a sample on a machine under load, in real time. */
static const double usual_period_ns = 20e6;

enum { SPARSE_PERIODS = 5, UNKNOWN_PERIODS = 50 };

/* The share of a window in which the power may be unknown. Sampling itself has an error of this
 * size. */
static const double bearable_unknown_share = 0.01;

typedef struct sampled_gpu {
    int index;
    pthread_mutex_t lock; /* guards all members below */
    harpe_power_curve curve;
    bool has_failed;     /* true if a read has failed since the last sample */
    harpe_error failure; /* the last failure; its status is HARPE_OK before the first failure */
} sampled_gpu;

struct harpe_sampler {
    harpe_energy_source source;
    int64_t period_ns;
    int64_t origin_real_ns, origin_source_ns; /* origin for the speed of the source's time */
    uint64_t rounds;                          /* used only by the thread */
    harpe_ticker *ticker;
    size_t gpu_count;
    sampled_gpu gpus[];
};

/* ---- Time ------------------------------------------------------------------------------------ */

/* Returns how many times faster the source's time runs than real time, because an emulator may
 * scale it. Never below 1, because sampling a slow emulator more often does no harm. */
static double speed_of_time(const harpe_sampler *sampler) {
    int64_t real_ns = harpe_clock_ns() - sampler->origin_real_ns;
    int64_t source_ns = sampler->source.clock_ns(sampler->source.user) - sampler->origin_source_ns;
    if (sampler->period_ns == 0 || real_ns <= 0 || source_ns <= real_ns) return 1;
    return (double)source_ns / (double)real_ns;
}

static int64_t sparse_limit_ns(const harpe_sampler *sampler) {
    double usual_ns = usual_period_ns * speed_of_time(sampler);
    double period_ns = (double)sampler->period_ns;
    return (int64_t)(SPARSE_PERIODS * (period_ns > usual_ns ? period_ns : usual_ns));
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void remember_failure(sampled_gpu *gpu, const harpe_error *failure) {
    harpe_lock(&gpu->lock);
    gpu->has_failed = true;
    gpu->failure = *failure;
    harpe_unlock(&gpu->lock);
}

harpe_status harpe_sampler_sample(harpe_sampler *sampler, size_t place, harpe_error *error) {
    sampled_gpu *gpu = &sampler->gpus[place];
    uint32_t power_mw = 0;
    harpe_error failure = {.status = HARPE_OK};
    harpe_energy_source *source = &sampler->source;
    harpe_status status = source->power_mw(source->user, gpu->index, &power_mw, &failure);
    if (status != HARPE_OK) {
        remember_failure(gpu, &failure);
        if (error) *error = failure;
        return status;
    }
    int64_t sparse_ns = sparse_limit_ns(sampler);
    int64_t unknown_ns = sparse_ns * (UNKNOWN_PERIODS / SPARSE_PERIODS);
    /* The clock is read with the lock held, so points are added in the order of their times. */
    harpe_lock(&gpu->lock);
    harpe_power_curve_add(&gpu->curve, source->clock_ns(source->user), power_mw / 1e3, sparse_ns,
                          gpu->has_failed ? sparse_ns : unknown_ns);
    gpu->has_failed = false;
    harpe_unlock(&gpu->lock);
    return HARPE_OK;
}

harpe_status harpe_sampler_at(harpe_sampler *sampler, size_t place, int64_t time_ns,
                              harpe_power_point *out, harpe_error *error) {
    sampled_gpu *gpu = &sampler->gpus[place];
    harpe_lock(&gpu->lock);
    bool is_known = harpe_power_curve_at(&gpu->curve, time_ns, out);
    harpe_unlock(&gpu->lock);
    if (is_known) return HARPE_OK;
    return harpe_fail(error, HARPE_DRIVER_ERROR,
                      "GPU %d: its power was read too late to know the energy at a window's edge; "
                      "the driver is slow, measure a longer window",
                      gpu->index);
}

harpe_status harpe_sampler_energy(harpe_sampler *sampler, size_t place,
                                  const harpe_power_point *start, const harpe_power_point *end,
                                  double *energy_j, harpe_error *error) {
    sampled_gpu *gpu = &sampler->gpus[place];
    double unknown_s = end->unknown_s - start->unknown_s;
    double time_s = (double)(end->time_ns - start->time_ns) * 1e-9;
    /* A window may begin exactly at the end of a gap, while its own first sample is being read. */
    if (unknown_s <= (double)sparse_limit_ns(sampler) * 1e-9 ||
        unknown_s <= bearable_unknown_share * time_s) {
        *energy_j = end->energy_j - start->energy_j;
        return HARPE_OK;
    }
    harpe_lock(&gpu->lock);
    harpe_error failure = gpu->failure;
    harpe_unlock(&gpu->lock);
    bool has_reason = failure.status != HARPE_OK;
    return harpe_fail(error, HARPE_DRIVER_ERROR,
                      "GPU %d: its power could not be read for %.3f s of %.3f s, so the energy is "
                      "not known, measure again%s%.600s",
                      gpu->index, unknown_s, time_s, has_reason ? "; the last failure: " : "",
                      has_reason ? failure.message : "");
}

harpe_status harpe_sampler_check(const harpe_sampler *sampler, harpe_error *error) {
    if (!sampler || !sampler->ticker || harpe_ticker_is_ours(sampler->ticker)) return HARPE_OK;
    return harpe_fail(error, HARPE_NOT_SUPPORTED,
                      "this monitor was made before fork() and its power sampler stayed in the "
                      "parent; make a new monitor in this process");
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* Reads all GPUs, and returns the time until the next reading. */
static int64_t sample_all(void *user) {
    harpe_sampler *sampler = user;
    for (size_t i = 0; i < sampler->gpu_count; i++) {
        /* A failed read leaves a gap. Windows that overlap the gap report the failure. */
        (void)harpe_sampler_sample(sampler, i, NULL);
    }
    double periods = harpe_sample_periods(++sampler->rounds);
    int64_t delay_ns = (int64_t)(periods * (double)sampler->period_ns / speed_of_time(sampler));
    return delay_ns > minimum_delay_ns ? delay_ns : minimum_delay_ns;
}

harpe_status harpe_sampler_new(const harpe_energy_source *source, const int *gpus, size_t gpu_count,
                               double period_s, harpe_sampler **out, harpe_error *error) {
    harpe_sampler *sampler = NULL;
    if (gpu_count < (SIZE_MAX - sizeof *sampler) / sizeof sampler->gpus[0])
        sampler = calloc(1, sizeof *sampler + gpu_count * sizeof sampler->gpus[0]);
    if (!sampler) return harpe_fail_memory(error);
    sampler->source = *source;
    sampler->period_ns = (int64_t)(period_s * 1e9);
    sampler->origin_real_ns = harpe_clock_ns();
    sampler->origin_source_ns = source->clock_ns(source->user);
    sampler->gpu_count = gpu_count;
    for (size_t i = 0; i < gpu_count; i++) {
        sampler->gpus[i].index = gpus[i];
        pthread_mutex_init(&sampler->gpus[i].lock, NULL);
    }
    harpe_status status = HARPE_OK;
    for (size_t i = 0; i < gpu_count && status == HARPE_OK; i++)
        status = harpe_sampler_sample(sampler, i, error);
    if (status == HARPE_OK && sampler->period_ns > 0)
        status = harpe_ticker_start(sample_all, sampler, &sampler->ticker, error);
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
    for (size_t i = 0; is_ours && i < sampler->gpu_count; i++)
        pthread_mutex_destroy(&sampler->gpus[i].lock);
    free(sampler);
}
