/* SPDX-License-Identifier: Apache-2.0 */
/* This file has two parts. The first part makes the energy source of real GPUs, whose functions
 * call harpe_gpus. A source without GPUs has only the time of the monotonic clock. The second part
 * reads a counter and decides whether each value is possible. Several threads may read the same
 * counter at the same time, so a value is compared with what was known before its own reading
 * began. */
#include "monitor/monitor.h"

#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "gpu/gpus.h"

/* ---- Sources --------------------------------------------------------------------------------- */

static int gpus_count(void *user) { return harpe_gpus_count(user); }

static int64_t gpus_clock_ns(void *user) { return harpe_gpus_clock_ns(user); }

static harpe_status gpus_energy_mj(void *user, int gpu, uint64_t *energy_mj, harpe_error *error) {
    return harpe_gpu_total_energy(user, gpu, energy_mj, error);
}

/* Integrated power takes the place of a missing energy counter, so this function reads the power of
 * the same parts (GPU or module) that the counter would cover. */
static harpe_status gpus_power_mw(void *user, int gpu, uint32_t *power_mw, harpe_error *error) {
    if (harpe_gpu_energy_scope(user, gpu) == HARPE_ENERGY_OF_MODULE)
        return harpe_gpu_module_power(user, gpu, power_mw, error);
    return harpe_gpu_instant_power(user, gpu, power_mw, error);
}

static double gpus_highest_w(void *user, int gpu) { return harpe_gpu_highest_w(user, gpu); }

static int no_gpus(void *user) {
    (void)user;
    return 0;
}

static int64_t system_clock_ns(void *user) {
    (void)user;
    return harpe_clock_ns();
}

harpe_energy_source harpe_energy_source_of_gpus(harpe_gpus *gpus) {
    return (harpe_energy_source){
        .user = gpus,
        .count = gpus ? gpus_count : no_gpus,
        .clock_ns = gpus ? gpus_clock_ns : system_clock_ns,
        .energy_mj = gpus_energy_mj,
        .power_mw = gpus_power_mw,
        .highest_w = gpus_highest_w,
    };
}

double harpe_energy_source_highest_w(const harpe_energy_source *source, int gpu) {
    return source->highest_w ? source->highest_w(source->user, gpu) : HARPE_GPU_HIGHEST_W;
}

/* The fractional parts of the multiples of this number are spread evenly from 0 to 1 (Weyl). */
static const double golden_ratio = 0.6180339887498949;

double harpe_sample_periods(uint64_t count) { return 0.5 + fmod((double)count * golden_ratio, 1); }

/* ---- Counters -------------------------------------------------------------------------------- */

enum { TRIES = 3 }; /* a driver may give a wrong value once, so an impossible value is read again */

#define ANCHOR_NS INT64_C(10000000000) /* the age at which a new anchor replaces the old one */

typedef struct harpe_counter_past past;

static double joules(uint64_t from_mj, uint64_t to_mj) { return (double)(to_mj - from_mj) * 1e-3; }

/* Returns true if the counter can have reached the value by `now_ns`. The mean power since the
 * latest value and the mean power since the anchor must both be possible. */
static bool is_possible(const past *known, uint64_t value_mj, int64_t now_ns, double highest_w) {
    if (!known->is_known) return true;
    return value_mj >= known->latest_mj &&
           harpe_energy_is_possible(joules(known->latest_mj, value_mj),
                                    (double)(now_ns - known->moved_ns) * 1e-9, highest_w) &&
           harpe_energy_is_possible(joules(known->anchor_mj, value_mj),
                                    (double)(now_ns - known->anchor_ns) * 1e-9, highest_w);
}

static past begun_with(uint64_t value_mj, int64_t now_ns) {
    return (past){.is_known = true,
                  .latest_mj = value_mj,
                  .moved_ns = now_ns,
                  .anchor_mj = value_mj,
                  .anchor_ns = now_ns};
}

/* Takes over a possible value. A value that is not above the latest one changes nothing. */
static void move(past *now, uint64_t value_mj, int64_t now_ns) {
    if (value_mj <= now->latest_mj) return;
    if (now_ns - now->anchor_ns > ANCHOR_NS) {
        now->anchor_mj = now->latest_mj;
        now->anchor_ns = now->moved_ns;
    }
    now->latest_mj = value_mj;
    now->moved_ns = now_ns;
}

/* Counts a break. From now on, the energy between the latest value and this value is left out. */
static void break_off(past *now, uint64_t value_mj, int64_t now_ns) {
    past after = begun_with(value_mj, now_ns);
    after.left_out_mj = now->left_out_mj + now->latest_mj - value_mj;
    after.breaks = now->breaks + 1;
    after.from_mj = now->latest_mj;
    after.to_mj = value_mj;
    *now = after;
}

/* Records a value. `before` is what was known when the reading of the value began, and `can_be`
 * says whether the value is possible after it. If another thread has counted a break since then, an
 * impossible value was read after the same break, so no second break is counted. A possible value
 * may have been read before or after that break. It is returned with the breaks of `before`. */
static harpe_counter_reading note(past *now, const past *before, uint64_t value_mj, int64_t now_ns,
                                  bool can_be) {
    bool is_unchanged = now->breaks == before->breaks;
    if (!now->is_known)
        *now = begun_with(value_mj, now_ns);
    else if (!can_be && is_unchanged)
        break_off(now, value_mj, now_ns);
    else if (!can_be || is_unchanged)
        move(now, value_mj, now_ns);
    const past *own = can_be ? before : now;
    return (harpe_counter_reading){value_mj + own->left_out_mj, own->breaks};
}

harpe_status harpe_counter_read(harpe_counter *counter, const harpe_energy_source *source, int gpu,
                                int64_t now_ns, harpe_counter_reading *out, harpe_error *error) {
    double highest_w = harpe_energy_source_highest_w(source, gpu);
    uint64_t value_mj = 0;
    bool can_be = false;
    harpe_lock(&counter->lock);
    past before = counter->past;
    harpe_unlock(&counter->lock);
    for (int i = 0; i < TRIES && !can_be; i++) {
        harpe_status status = source->energy_mj(source->user, gpu, &value_mj, error);
        if (status != HARPE_OK) return status;
        can_be = is_possible(&before, value_mj, now_ns, highest_w) ||
                 is_possible(&before, value_mj, source->clock_ns(source->user), highest_w);
    }
    harpe_lock(&counter->lock);
    *out = note(&counter->past, &before, value_mj, now_ns, can_be);
    harpe_unlock(&counter->lock);
    return HARPE_OK;
}

harpe_status harpe_counter_read_energy(harpe_counter *counter, harpe_gpus *gpus, int gpu,
                                       uint64_t *energy_mj, harpe_error *error) {
    harpe_energy_source source = harpe_energy_source_of_gpus(gpus);
    harpe_counter_reading reading = {0};
    int64_t now_ns = source.clock_ns(source.user);
    harpe_status status = harpe_counter_read(counter, &source, gpu, now_ns, &reading, error);
    if (status == HARPE_OK) *energy_mj = reading.energy_mj;
    return status;
}

harpe_status harpe_counter_fail(harpe_counter *counter, int gpu, harpe_error *error) {
    harpe_lock(&counter->lock);
    past known = counter->past;
    harpe_unlock(&counter->lock);
    if (known.to_mj < known.from_mj) {
        return harpe_fail(error, HARPE_DRIVER_ERROR,
                          "GPU %d: its energy counter ran backwards, from %" PRIu64 " to %" PRIu64
                          " mJ (the driver was reloaded or the GPU reset); the "
                          "energy is not known, measure again",
                          gpu, known.from_mj, known.to_mj);
    }
    return harpe_fail(error, HARPE_DRIVER_ERROR,
                      "GPU %d: its energy counter jumped from %" PRIu64 " to %" PRIu64
                      " mJ, more than the GPU can use in the time (an error of the driver); the "
                      "energy is not known, measure again",
                      gpu, known.from_mj, known.to_mj);
}
