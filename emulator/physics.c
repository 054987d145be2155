/* SPDX-License-Identifier: Apache-2.0 */
/* The model of an emulated GPU. Clock and power are constant between two events, such as a call
 * that changes a setting or the end of a work. Energy, work and temperature are therefore computed
 * with closed formulas, without small time steps. docs/emulator.md explains the formulas and their
 * constants. */
#include "physics.h"

#include <math.h>
#include <string.h>

#define AMBIENT_C 28.0
#define TEMPERATURE_AT_LIMIT_C 68.0 /* steady temperature at the highest power limit */
#define THERMAL_TIME_S 18.0
#define AVERAGE_NS INT64_C(1000000000)
/* Power that the memory saves at its lowest clock, as a share of static power. */
#define MEMORY_SHARE_OF_STATIC 0.2

void emulator_state_start(emulator_state *state, const emulator_model *model, int64_t now_ns) {
    memset(state, 0, sizeof *state);
    state->now_ns = now_ns;
    state->floor_ns = now_ns;
    state->power_limit_mw = model->limit_default_mw;
    state->blocking_w = model->blocking_w;
    state->temperature_c = AMBIENT_C + (TEMPERATURE_AT_LIMIT_C - AMBIENT_C) * model->idle_w *
                                           1000.0 / model->limit_maximum_mw;
}

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

static bool is_running(const emulator_work *work) { return work->id != 0 && !work->is_done; }

/* Returns the power of a busy GPU. Works share the GPU evenly, so it is the mean of the powers of
 * the works. */
static double busy_power_w(const emulator_state *state, const emulator_model *model,
                           const emulator_points *points, double clock_mhz, double memory) {
    double sum_w = 0;
    unsigned int count = 0;
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++) {
        if (is_running(&state->work[i])) {
            double time_s, power_w;
            work_at(&state->work[i], model, &points[i], clock_mhz, memory, &time_s, &power_w);
            sum_w += power_w;
            count++;
        }
    }
    return sum_w / count;
}

/* ---- Present activity ------------------------------------------------------------------------ */

static unsigned int running_count(const emulator_state *state) {
    unsigned int count = 0;
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++)
        count += is_running(&state->work[i]);
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

static uint32_t idle_clock(const emulator_state *state, const emulator_model *model) {
    uint32_t lowest = model->base_half_mhz / 2;
    uint32_t minimum = state->graphics_lock_minimum_mhz;
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
        is_measured = !is_running(&state->work[i]) || state->work[i].is_enqueued;
    return is_measured ? INFINITY : limit_mw / 1000.0;
}

emulator_operation emulator_operate(const emulator_state *state, const emulator_model *model,
                                    const emulator_points *points) {
    emulator_operation operation = {.work_count = running_count(state)};
    operation.is_busy = operation.work_count > 0;
    operation.is_waiting = !operation.is_busy && state->is_waiting;
    bool is_idle = !operation.is_busy && !operation.is_waiting;
    operation.memory_mhz = memory_clock(state, model, is_idle);
    if (is_idle) {
        operation.graphics_mhz = idle_clock(state, model);
        operation.power_w = model->idle_w;
        return operation;
    }
    unsigned int index = 0;
    if (state->graphics_lock_maximum_mhz != 0) {
        index = emulator_clock_index(model, state->graphics_lock_maximum_mhz);
        operation.is_user_capped = index > 0;
    }
    double memory = memory_ratio(model, operation.memory_mhz);
    operation.power_w = state->blocking_w;
    if (operation.is_busy) {
        double limit_w = limit_in_force_w(state, model);
        unsigned int lowest = emulator_clock_count(model) - 1;
        double power_w;
        while ((power_w = busy_power_w(state, model, points, emulator_clock_mhz(model, index),
                                       memory)) > limit_w &&
               index < lowest) {
            operation.is_power_capped = true;
            index++;
        }
        operation.power_w = power_w;
    }
    operation.graphics_mhz = emulator_clock_mhz(model, index);
    return operation;
}

static double time_left_at_s(const emulator_state *state, const emulator_model *model,
                             const emulator_points *points, unsigned int slot,
                             const emulator_operation *operation) {
    double time_s, power_w;
    work_at(&state->work[slot], model, &points[slot], operation->graphics_mhz,
            memory_ratio(model, operation->memory_mhz), &time_s, &power_w);
    return state->work[slot].remaining * time_s * operation->work_count;
}

double emulator_time_left_s(const emulator_state *state, const emulator_model *model,
                            const emulator_points *points, unsigned int slot) {
    emulator_operation operation = emulator_operate(state, model, points);
    return time_left_at_s(state, model, points, slot, &operation);
}

/* ---- Moving on ------------------------------------------------------------------------------- */

static void remember(emulator_state *state, double power_w) {
    if (state->history_count > 0 && power_w == state->last_power_w) return;
    uint32_t place = state->history_count % EMULATOR_HISTORY_MAX;
    state->history[place].at_ns = state->now_ns;
    state->history[place].energy_mj = state->energy_mj;
    state->history[place].busy_s = state->busy_s;
    state->history_count++;
    state->last_power_w = power_w;
}

/* Shows an energy in the counter. After a rewind, the energy may be less than a value that was
 * already shown; the counter then keeps that value. */
static void show(emulator_state *state, double energy_mj) {
    state->counter_mj = fmax(state->counter_mj, energy_mj);
}

/* Updates the counter, which shows the energy at the end of the last whole step. */
static void step_counter(emulator_state *state, double power_w, double step_s, int64_t to_ns) {
    if (step_s <= 0) {
        show(state, state->energy_mj + power_w * 1e-6 * (double)(to_ns - state->now_ns));
        return;
    }
    int64_t step_ns = (int64_t)(step_s * 1e9);
    if (step_ns < 1) step_ns = 1;
    int64_t boundary_ns = to_ns - to_ns % step_ns;
    if (boundary_ns > state->now_ns)
        show(state, state->energy_mj + power_w * 1e-6 * (double)(boundary_ns - state->now_ns));
}

/* Advances over a period of constant clock and power. 1 mW times 1 s is 1 mJ, and 1 W times 1 ns is
 * 1e-6 mJ. */
static void integrate(emulator_state *state, const emulator_model *model, double step_s,
                      const emulator_operation *operation, int64_t to_ns) {
    double power_w = operation->power_w;
    double counted_w = power_w + model->module_rest_w;
    double span_s = 1e-9 * (double)(to_ns - state->now_ns);
    remember(state, power_w);
    step_counter(state, counted_w, step_s, to_ns);
    state->energy_mj += counted_w * 1e3 * span_s;
    state->busy_s += operation->is_busy ? span_s : 0.0;
    double final_c = AMBIENT_C + (TEMPERATURE_AT_LIMIT_C - AMBIENT_C) * power_w * 1000.0 /
                                     model->limit_maximum_mw;
    state->temperature_c =
        final_c + (state->temperature_c - final_c) * exp(-span_s / THERMAL_TIME_S);
    state->now_ns = to_ns;
}

/* Advances every running work by `span_s`. A work that reaches its end is done. */
static void progress(emulator_state *state, const emulator_model *model,
                     const emulator_points *points, const emulator_operation *operation,
                     double span_s) {
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++) {
        emulator_work *work = &state->work[i];
        if (!is_running(work)) continue;
        double left_s = time_left_at_s(state, model, points, i, operation);
        work->remaining *= left_s > span_s ? 1.0 - span_s / left_s : 0.0;
        if (left_s - span_s < 1e-9) {
            work->remaining = 0;
            work->is_done = true;
            work->finished_ns = state->now_ns;
            state->floor_ns = state->now_ns;
        }
    }
}

void emulator_advance(emulator_state *state, const emulator_model *model,
                      const emulator_points *points, double energy_step_s, int64_t to_ns) {
    while (state->now_ns < to_ns) {
        emulator_operation operation = emulator_operate(state, model, points);
        double span_s = 1e-9 * (double)(to_ns - state->now_ns);
        int64_t end_ns = to_ns;
        for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++) {
            if (!is_running(&state->work[i])) continue;
            double left_s = time_left_at_s(state, model, points, i, &operation);
            if (left_s < span_s) {
                span_s = left_s;
                int64_t left_ns = llround(left_s * 1e9);
                end_ns = state->now_ns + (left_ns > 0 ? left_ns : 1);
            }
        }
        if (end_ns > to_ns) end_ns = to_ns;
        integrate(state, model, energy_step_s, &operation, end_ns);
        progress(state, model, points, &operation, span_s);
    }
}

/* ---- The last second ------------------------------------------------------------------------- */

/* Computes energy and busy time at a moment from the stored changes. Both are linear between two
 * changes. */
static void recall(const emulator_state *state, int64_t *at_ns, double *energy_mj, double *busy_s) {
    uint32_t kept =
        state->history_count < EMULATOR_HISTORY_MAX ? state->history_count : EMULATOR_HISTORY_MAX;
    int64_t after_ns = state->now_ns;
    double after_mj = state->energy_mj, after_s = state->busy_s;
    for (uint32_t back = 1; back <= kept; back++) {
        uint32_t place = (state->history_count - back) % EMULATOR_HISTORY_MAX;
        int64_t before_ns = state->history[place].at_ns;
        if (before_ns <= *at_ns) {
            double t = after_ns > before_ns
                           ? (double)(*at_ns - before_ns) / (double)(after_ns - before_ns)
                           : 0.0;
            *energy_mj =
                state->history[place].energy_mj + t * (after_mj - state->history[place].energy_mj);
            *busy_s = state->history[place].busy_s + t * (after_s - state->history[place].busy_s);
            return;
        }
        after_ns = before_ns;
        after_mj = state->history[place].energy_mj;
        after_s = state->history[place].busy_s;
    }
    *at_ns = after_ns;
    *energy_mj = after_mj;
    *busy_s = after_s;
}

double emulator_average_power_w(const emulator_state *state, const emulator_model *model,
                                double instant_power_w) {
    int64_t at_ns = state->now_ns - AVERAGE_NS;
    double energy_mj, busy_s;
    recall(state, &at_ns, &energy_mj, &busy_s);
    if (at_ns >= state->now_ns) return instant_power_w;
    double counted_w = (state->energy_mj - energy_mj) * 1e6 / (double)(state->now_ns - at_ns);
    return counted_w - model->module_rest_w;
}

double emulator_busy_share(const emulator_state *state, bool is_busy) {
    int64_t at_ns = state->now_ns - AVERAGE_NS;
    double energy_mj, busy_s;
    recall(state, &at_ns, &energy_mj, &busy_s);
    if (at_ns >= state->now_ns) return is_busy ? 1.0 : 0.0;
    return fmin((state->busy_s - busy_s) * 1e9 / (double)(state->now_ns - at_ns), 1.0);
}

/* ---- Back in time ---------------------------------------------------------------------------- */

double emulator_energy_at_mj(const emulator_state *state, int64_t at_ns) {
    double energy_mj, busy_s;
    if (at_ns >= state->now_ns) return state->energy_mj;
    recall(state, &at_ns, &energy_mj, &busy_s);
    return energy_mj;
}

void emulator_rewind(emulator_state *state, int64_t to_ns) {
    if (to_ns < state->floor_ns) to_ns = state->floor_ns;
    if (to_ns >= state->now_ns) return;
    recall(state, &to_ns, &state->energy_mj, &state->busy_s);
    state->now_ns = to_ns;
    for (unsigned int i = 0; i < EMULATOR_HISTORY_MAX; i++) {
        if (state->history[i].at_ns <= to_ns) continue;
        state->history[i].at_ns = to_ns;
        state->history[i].energy_mj = state->energy_mj;
        state->history[i].busy_s = state->busy_s;
    }
    state->last_power_w = -1; /* the next period is stored even if its power is the same */
}

void emulator_start_enqueued(emulator_state *state, int64_t ready_ns) {
    if (running_count(state) == 0) emulator_rewind(state, ready_ns);
}

void emulator_start_again(emulator_state *state, const emulator_model *model,
                          const emulator_points *points, double energy_step_s, double delay_s,
                          int64_t since_real_ns) {
    emulator_work *only = NULL;
    for (unsigned int i = 0; i < EMULATOR_WORK_MAX; i++) {
        if (state->work[i].id == 0) continue;
        if (only || !state->work[i].is_enqueued) return;
        only = &state->work[i];
    }
    if (!only || only->enqueued_ns < since_real_ns) return;
    int64_t start_ns = only->started_ns, wished_ns = start_ns + (int64_t)(delay_s * 1e9);
    double energy_mj, busy_s;
    recall(state, &start_ns, &energy_mj, &busy_s);
    bool is_remembered = start_ns == only->started_ns;
    if (!is_remembered || wished_ns >= state->now_ns) return;
    state->floor_ns = start_ns;
    emulator_rewind(state, start_ns);
    only->remaining = 1;
    only->is_done = false;
    emulator_advance(state, model, points, energy_step_s, wished_ns);
}
