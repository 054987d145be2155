/* SPDX-License-Identifier: Apache-2.0 */
/* What an emulated GPU does at one moment: its clock, its power and the speed of its works. The
 * state does not change here. physics.c moves it on. docs/emulator.md explains the formulas. */
#include "physics.h"

#include <math.h>
#include <string.h>

#include "draws.h"
#include "heat.h"
#include "workloads.h"

enum { WANDER_PERIODS = 4 }; /* periods after which the wander has forgotten its past */

/* ---- Power and speed ------------------------------------------------------------------------- */

static double memory_ratio(const emulator_model *model, uint32_t memory_mhz) {
    return (double)memory_mhz / model->memory_mhz[0];
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
    *power_w = points->point[nearest].power_w * emulator_model_power_w(model, clock_mhz, 1) /
               emulator_model_power_w(model, nearest_mhz, 1);
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

/* Returns the duration of a whole work that has the GPU to itself, and the power that it draws, as
 * the model, the profile or the workload says. */
static emulator_iteration work_at(const emulator_work *work, const emulator_model *model,
                                  const emulator_points *points, double clock_mhz, double memory) {
    emulator_iteration at = {.activity = 1};
    if (work->has_points) {
        follow_points(points, model, clock_mhz, &at.time_s, &at.power_w);
    } else if (work->workload > 0) {
        at = emulator_workload_iterate(emulator_workload_at(work->workload - 1), model, clock_mhz,
                                       memory);
        at.time_s *= work->stretch;
    } else {
        double share = work->compute_share;
        at.time_s =
            work->full_speed_s * (share * model->highest_mhz / clock_mhz + (1.0 - share) / memory);
        at.power_w = emulator_model_power_w(model, clock_mhz, memory);
    }
    return at;
}

/* Returns power and activity of a busy GPU, as the model, the profile or the workload says. Works
 * share the GPU evenly, so the result is the mean over the works. */
static emulator_iteration usual_at(const emulator_state *state, const emulator_chip *chip,
                                   double clock_mhz, double memory) {
    emulator_iteration mean = {0};
    unsigned int count = 0;
    for (unsigned int i = 0; i < state->slot_count; i++) {
        if (!emulator_is_running(&state->work[i])) continue;
        emulator_iteration at =
            work_at(&state->work[i], chip->model, &chip->points[i], clock_mhz, memory);
        mean.power_w += at.power_w;
        mean.activity += at.activity;
        count++;
    }
    mean.power_w /= count;
    mean.activity /= count;
    return mean;
}

/* Returns the power of this GPU at its present temperature. */
static double own_power_w(const emulator_state *state, const emulator_chip *chip, double usual_w,
                          double static_w) {
    return usual_w * chip->effects->power_factor + emulator_leakage_w(state, chip, static_w);
}

/* ---- Present activity ------------------------------------------------------------------------ */

bool emulator_has_work(const emulator_state *state) {
    for (unsigned int i = 0; i < state->slot_count; i++)
        if (state->work[i].id != 0) return true;
    return false;
}

unsigned int emulator_running_count(const emulator_state *state) {
    unsigned int count = 0;
    for (unsigned int i = 0; i < state->slot_count; i++)
        count += emulator_is_running(&state->work[i]);
    return count;
}

static bool has_context(const emulator_state *state) {
    for (unsigned int i = 0; i < EMULATOR_CONTEXT_MAX; i++)
        if (state->context[i].owner.pid != 0) return true;
    return false;
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

static bool differs_from_model(const emulator_effects *effects) {
    return effects->variability > 0 || effects->leakage_spread > 0 || effects->leakage_per_k > 0;
}

/* Returns the power limit that slows the present work, or INFINITY if none does. A profile was
 * measured under the default limit of a GPU. So a limit that is not lower slows enqueued work,
 * which follows a profile, only on a GPU that needs more power than the measured one. */
static double limit_in_force_w(const emulator_state *state, const emulator_chip *chip,
                               double memory) {
    const emulator_model *model = chip->model;
    uint32_t limit_mw = emulator_enforced_limit_mw(state);
    bool is_measured = limit_mw >= model->limit_maximum_mw;
    for (unsigned int i = 0; i < state->slot_count && is_measured; i++)
        is_measured = !emulator_is_running(&state->work[i]) || state->work[i].is_enqueued;
    if (!is_measured) return limit_mw / 1000.0;
    if (!differs_from_model(chip->effects)) return INFINITY;
    return fmax(limit_mw / 1000.0, usual_at(state, chip, model->highest_mhz, memory).power_w);
}

/* ---- The clock ------------------------------------------------------------------------------- */

static void lower_to(unsigned int *index, unsigned int wanted, bool *is_capped) {
    if (wanted <= *index) return;
    *index = wanted;
    *is_capped = true;
}

/* Returns the index of the highest clock that the settings, the board and the temperature allow. */
static unsigned int allowed_index(const emulator_state *state, const emulator_chip *chip,
                                  const emulator_clock_range *lock, emulator_operation *operation) {
    const emulator_model *model = chip->model;
    const emulator_effects *effects = chip->effects;
    unsigned int index = 0, lowest = emulator_clock_count(model) - 1;
    if (lock->maximum_mhz != 0)
        lower_to(&index, emulator_clock_index(model, lock->maximum_mhz),
                 &operation->is_user_capped);
    if (effects->administrator_lock_mhz > 0)
        lower_to(&index, emulator_clock_index(model, (unsigned)effects->administrator_lock_mhz),
                 &operation->is_user_capped);
    if (effects->ceiling < 1)
        lower_to(&index,
                 emulator_clock_index(model, (unsigned)(effects->ceiling * model->highest_mhz)),
                 &operation->is_board_capped);
    unsigned int steps = emulator_thermal_steps(state, chip, &operation->is_slowed_down);
    lower_to(&index, steps < lowest ? steps : lowest, &operation->is_thermally_capped);
    if (operation->is_slowed_down) {
        bool unused;
        lower_to(&index, emulator_clock_index(model, model->highest_mhz / 2), &unused);
    }
    return index;
}

/* Sets clocks and power of an idle GPU. If a process has a context, the clock is the highest
 * allowed one. */
static void be_idle(const emulator_state *state, const emulator_chip *chip,
                    const emulator_clock_range *lock, emulator_operation *operation) {
    const emulator_model *model = chip->model;
    bool is_loaded = has_context(state);
    operation->memory_mhz = memory_clock(state, model, !is_loaded);
    operation->graphics_mhz =
        is_loaded ? emulator_clock_mhz(model, allowed_index(state, chip, lock, operation))
                  : idle_clock(model, lock);
    double idle_w = emulator_model_idle_w(model, operation->graphics_mhz);
    operation->power_w = own_power_w(state, chip, idle_w, fmin(idle_w, model->static_w));
}

static int64_t throttle_period_ns(const emulator_chip *chip) {
    return llround(chip->effects->throttle_period_s * 1e9);
}

/* Returns a number with mean 0 and standard deviation 1 for the present period. It is the scaled
 * sum of independent numbers of the last periods, so neighbouring periods are alike. */
static double wander(const emulator_state *state, const emulator_chip *chip) {
    const emulator_effects *effects = chip->effects;
    uint64_t period = (uint64_t)((state->now_ns - state->began_ns) / throttle_period_ns(chip));
    double sum = 0;
    for (uint64_t back = 0; back < WANDER_PERIODS; back++)
        sum += emulator_draw_deviation(effects->seed, effects->gpu, EMULATOR_DRAW_WANDER,
                                       period + WANDER_PERIODS - back);
    return sum / sqrt((double)WANDER_PERIODS);
}

int64_t emulator_next_wander_ns(const emulator_state *state, const emulator_chip *chip,
                                const emulator_operation *operation) {
    if (!operation->is_power_capped || !(chip->effects->throttle_wander > 0)) return INT64_MAX;
    int64_t period_ns = throttle_period_ns(chip), since_ns = state->now_ns - state->began_ns;
    return state->now_ns + period_ns - since_ns % period_ns;
}

/* Lowers the clock of a busy GPU whose power exceeds the limit to the highest clock that fits, and
 * lets it wander around this clock, but not above the clock that is set. */
static void fit_power(const emulator_state *state, const emulator_chip *chip, double memory,
                      unsigned int *index, emulator_operation *operation) {
    const emulator_model *model = chip->model;
    const emulator_effects *effects = chip->effects;
    double limit_w = model->limit_share * limit_in_force_w(state, chip, memory);
    unsigned int set = *index, lowest = emulator_clock_count(model) - 1;
    double waste = 1;
    emulator_iteration usual;
    while (true) {
        usual = usual_at(state, chip, emulator_clock_mhz(model, *index), memory);
        operation->power_w = waste * own_power_w(state, chip, usual.power_w, model->static_w);
        operation->activity = usual.activity;
        if (!(operation->power_w > limit_w) || *index >= lowest) break;
        operation->is_power_capped = true;
        waste = 1 + effects->throttle_waste;
        (*index)++;
    }
    if (!operation->is_power_capped || !(effects->throttle_wander > 0)) return;
    double fit_mhz = emulator_clock_mhz(model, *index);
    double mhz = fmax(fit_mhz * (1 + effects->throttle_wander * wander(state, chip)), 1);
    *index = emulator_clock_index(model, (unsigned)llround(mhz));
    if (*index < set) *index = set;
    usual = usual_at(state, chip, emulator_clock_mhz(model, *index), memory);
    operation->power_w = waste * own_power_w(state, chip, usual.power_w, model->static_w);
    operation->activity = usual.activity;
}

static bool ignores_lock(const emulator_state *state) {
    for (unsigned int i = 0; i < state->slot_count; i++)
        if (emulator_is_running(&state->work[i]) && state->work[i].ignores_lock) return true;
    return false;
}

emulator_operation emulator_operate(const emulator_state *state, const emulator_chip *chip) {
    const emulator_model *model = chip->model;
    emulator_clock_range lock = emulator_lock_in_force(state, state->now_ns);
    emulator_operation operation = {.work_count = emulator_running_count(state)};
    operation.is_busy = operation.work_count > 0;
    operation.is_waiting = !operation.is_busy && state->is_waiting;
    if (!operation.is_busy && !operation.is_waiting) {
        be_idle(state, chip, &lock, &operation);
        return operation;
    }
    operation.memory_mhz = memory_clock(state, model, false);
    unsigned int index = allowed_index(state, chip, &lock, &operation), locked = index;
    bool is_free = ignores_lock(state);
    if (is_free) index = allowed_index(state, chip, &(emulator_clock_range){0}, &operation);
    operation.power_w =
        own_power_w(state, chip, state->blocking_w, fmin(state->blocking_w, model->static_w));
    if (operation.is_busy)
        fit_power(state, chip, memory_ratio(model, operation.memory_mhz), &index, &operation);
    operation.work_mhz = emulator_clock_mhz(model, index);
    operation.graphics_mhz = emulator_clock_mhz(model, is_free ? locked : index);
    return operation;
}

double emulator_time_left_at_s(const emulator_state *state, const emulator_chip *chip,
                               unsigned int slot, const emulator_operation *operation) {
    double time_s = work_at(&state->work[slot], chip->model, &chip->points[slot],
                            operation->work_mhz, memory_ratio(chip->model, operation->memory_mhz))
                        .time_s;
    if (state->work[slot].pace > 0) time_s *= state->work[slot].pace;
    return state->work[slot].remaining * time_s * emulator_drift(state, chip) *
           operation->work_count;
}

double emulator_time_left_s(const emulator_state *state, const emulator_chip *chip,
                            unsigned int slot) {
    emulator_operation operation = emulator_operate(state, chip);
    double left_s = emulator_time_left_at_s(state, chip, slot, &operation);
    left_s = fmin(left_s, emulator_next_degree_s(state, chip, operation.power_w));
    int64_t change_ns = emulator_next_change_ns(state);
    int64_t wander_ns = emulator_next_wander_ns(state, chip, &operation);
    if (change_ns > wander_ns) change_ns = wander_ns;
    if (change_ns == INT64_MAX) return left_s;
    return fmin(left_s, 1e-9 * (double)(change_ns - state->now_ns));
}
