/* SPDX-License-Identifier: Apache-2.0 */
/* What an emulated GPU does at one moment: its clock, its power and the speed of its works. The
 * state does not change here. physics.c moves it on. docs/emulator.md explains the formulas. */
#include "physics.h"

#include <math.h>
#include <string.h>

/* Power that the memory saves at its lowest clock, as a share of static power. */
#define MEMORY_SHARE_OF_STATIC 0.2

/* ---- Power and speed ------------------------------------------------------------------------- */

static double memory_ratio(const emulator_model *model, uint32_t memory_mhz) {
    return (double)memory_mhz / model->memory_mhz[0];
}

static double model_power_w(const emulator_model *model, double clock_mhz, double memory) {
    double x = clock_mhz / model->highest_mhz;
    double rise = x <= model->knee ? 0.0 : (x - model->knee) / (1.0 - model->knee);
    double voltage = model->knee_voltage + (1.0 - model->knee_voltage) * rise;
    double static_w = model->static_w * (1.0 - MEMORY_SHARE_OF_STATIC * (1.0 - memory));
    return static_w + model->dynamic_w * x * voltage * voltage;
}

/* Interpolates time and power between two measured points. */
static void interpolate(const emulator_points *points, uint32_t low, uint32_t high,
                        double clock_mhz, double *time_s, double *power_w) {
    double span = points->point[high].clock_mhz - points->point[low].clock_mhz;
    double t = span > 0 ? (clock_mhz - points->point[low].clock_mhz) / span : 0.0;
    *time_s =
        points->point[low].time_s + t * (points->point[high].time_s - points->point[low].time_s);
    *power_w =
        points->point[low].power_w + t * (points->point[high].power_w - points->point[low].power_w);
}

/* Returns the share of the time at point `at` that is proportional to 1 / clock. The rest is time
 * of the memory. Computes it from the lowest and the highest point. Returns 1 if there is only one
 * point. */
static double clock_share(const emulator_points *points, uint32_t lowest, uint32_t at) {
    uint32_t last = points->count - 1;
    double low_mhz = points->point[lowest].clock_mhz, high_mhz = points->point[last].clock_mhz;
    if (last == lowest) return 1;
    double per_clock_s =
        (points->point[lowest].time_s - points->point[last].time_s) / (1 / low_mhz - 1 / high_mhz);
    return fmin(fmax(per_clock_s / points->point[at].clock_mhz / points->point[at].time_s, 0), 1);
}

/* Computes time and power at a clock outside of the measured clocks. The time of the nearest point
 * is scaled according to clock_share. The power of this point is scaled in proportion to the power
 * of the model. */
static void extrapolate(const emulator_points *points, const emulator_model *model, uint32_t lowest,
                        uint32_t nearest, double clock_mhz, double *time_s, double *power_w) {
    double nearest_mhz = points->point[nearest].clock_mhz;
    double share = clock_share(points, lowest, nearest);
    *time_s = points->point[nearest].time_s * (share * nearest_mhz / clock_mhz + 1 - share);
    *power_w = points->point[nearest].power_w * model_power_w(model, clock_mhz, 1) /
               model_power_w(model, nearest_mhz, 1);
    if (*time_s < points->least_s) {
        *time_s = points->least_s;
        *power_w = points->point[nearest].power_w;
    }
}

/* Computes time and power of a profile row at a clock. A point at 0 MHz was measured without a set
 * clock; it is used only if there is no other point. */
static void follow_points(const emulator_points *points, const emulator_model *model,
                          double clock_mhz, double *time_s, double *power_w) {
    uint32_t last = points->count - 1;
    uint32_t lowest = points->point[0].clock_mhz > 0 || last == 0 ? 0 : 1;
    uint32_t above = lowest;
    while (above < points->count && points->point[above].clock_mhz < clock_mhz)
        above++;
    bool is_measured = above < points->count && points->point[above].clock_mhz == clock_mhz;
    if (points->point[last].clock_mhz <= 0 || is_measured) {
        uint32_t at = is_measured ? above : last;
        *time_s = points->point[at].time_s;
        *power_w = points->point[at].power_w;
    } else if (above == lowest || above == points->count) {
        uint32_t nearest = above == lowest ? lowest : last;
        extrapolate(points, model, lowest, nearest, clock_mhz, time_s, power_w);
    } else {
        interpolate(points, above - 1, above, clock_mhz, time_s, power_w);
    }
}

/* Returns the duration of a whole work that has the GPU to itself, and the power that it draws. */
static void work_at(const emulator_work *work, const emulator_model *model,
                    const emulator_points *points, double clock_mhz, double memory, double *time_s,
                    double *power_w) {
    if (work->has_points) {
        follow_points(points, model, clock_mhz, time_s, power_w);
        return;
    }
    double share = work->compute_share;
    *time_s =
        work->full_speed_s * (share * model->highest_mhz / clock_mhz + (1.0 - share) / memory);
    *power_w = model_power_w(model, clock_mhz, memory);
}

/* Returns the power of a busy GPU. Works share the GPU evenly, so it is the mean of the powers of
 * the works. */
static double busy_power_w(const emulator_state *state, const emulator_chip *chip, double clock_mhz,
                           double memory) {
    double sum_w = 0;
    unsigned int count = 0;
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++) {
        if (emulator_is_running(&state->work[i])) {
            double time_s, power_w;
            work_at(&state->work[i], chip->model, &chip->points[i], clock_mhz, memory, &time_s,
                    &power_w);
            sum_w += power_w;
            count++;
        }
    }
    return sum_w / count;
}

/* ---- Present activity ------------------------------------------------------------------------ */

bool emulator_has_work(const emulator_state *state) {
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++)
        if (state->work[i].id != 0) return true;
    return false;
}

unsigned int emulator_running_count(const emulator_state *state) {
    unsigned int count = 0;
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++)
        count += emulator_is_running(&state->work[i]);
    return count;
}

static uint32_t memory_clock(const emulator_state *state, const emulator_model *model,
                             bool is_idle) {
    uint32_t wanted = is_idle ? model->idle_memory_mhz : model->memory_mhz[0];
    if (state->memory_lock_maximum_mhz == 0) return wanted;
    uint32_t maximum = state->memory_lock_maximum_mhz;
    for (unsigned int i = 0; i < model->memory_clock_count; i++)
        if (model->memory_mhz[i] <= maximum) return model->memory_mhz[i];
    return model->memory_mhz[model->memory_clock_count - 1];
}

static uint32_t idle_clock(const emulator_model *model, const emulator_clock_range *lock) {
    uint32_t lowest = model->base_half_mhz / 2;
    uint32_t minimum = lock->minimum_mhz;
    return minimum > lowest ? emulator_clock_mhz(model, emulator_clock_index(model, minimum))
                            : lowest;
}

uint32_t emulator_enforced_limit_mw(const emulator_state *state) {
    uint32_t outside_mw = state->outside_limit_mw;
    return outside_mw != 0 && outside_mw < state->power_limit_mw ? outside_mw
                                                                 : state->power_limit_mw;
}

/* Returns the power limit that slows the present work, or INFINITY if none does. A profile was
 * measured under the default limit of a GPU, so only a lower limit slows enqueued work, which
 * follows a profile. */
static double limit_in_force_w(const emulator_state *state, const emulator_model *model) {
    uint32_t limit_mw = emulator_enforced_limit_mw(state);
    bool is_measured = limit_mw >= model->limit_default_mw;
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX && is_measured; i++)
        is_measured = !emulator_is_running(&state->work[i]) || state->work[i].is_enqueued;
    return is_measured ? INFINITY : limit_mw / 1000.0;
}

emulator_operation emulator_operate(const emulator_state *state, const emulator_chip *chip) {
    const emulator_model *model = chip->model;
    emulator_clock_range lock = emulator_lock_in_force(state, state->now_ns);
    emulator_operation operation = {.work_count = emulator_running_count(state)};
    operation.is_busy = operation.work_count > 0;
    operation.is_waiting = !operation.is_busy && state->is_waiting;
    bool is_idle = !operation.is_busy && !operation.is_waiting;
    operation.memory_mhz = memory_clock(state, model, is_idle);
    if (is_idle) {
        operation.graphics_mhz = idle_clock(model, &lock);
        operation.power_w = model->idle_w;
        return operation;
    }
    unsigned int index = 0;
    if (lock.maximum_mhz != 0) {
        index = emulator_clock_index(model, lock.maximum_mhz);
        operation.is_user_capped = index > 0;
    }
    double memory = memory_ratio(model, operation.memory_mhz);
    operation.power_w = state->blocking_w;
    if (operation.is_busy) {
        double limit_w = limit_in_force_w(state, model);
        unsigned int lowest = emulator_clock_count(model) - 1;
        double power_w;
        while ((power_w = busy_power_w(state, chip, emulator_clock_mhz(model, index), memory)) >
                   limit_w &&
               index < lowest) {
            operation.is_power_capped = true;
            index++;
        }
        operation.power_w = power_w;
    }
    operation.graphics_mhz = emulator_clock_mhz(model, index);
    return operation;
}

double emulator_time_left_at_s(const emulator_state *state, const emulator_chip *chip,
                               unsigned int slot, const emulator_operation *operation) {
    double time_s, power_w;
    work_at(&state->work[slot], chip->model, &chip->points[slot], operation->graphics_mhz,
            memory_ratio(chip->model, operation->memory_mhz), &time_s, &power_w);
    return state->work[slot].remaining * time_s * operation->work_count;
}

double emulator_time_left_s(const emulator_state *state, const emulator_chip *chip,
                            unsigned int slot) {
    emulator_operation operation = emulator_operate(state, chip);
    double left_s = emulator_time_left_at_s(state, chip, slot, &operation);
    int64_t change_ns = emulator_next_change_ns(state);
    if (change_ns == INT64_MAX) return left_s;
    return fmin(left_s, 1e-9 * (double)(change_ns - state->now_ns));
}
