/* SPDX-License-Identifier: Apache-2.0 */
/* The model of an emulated GPU. Clock and power are constant between two events, such as a call
 * that changes a setting or the end of a work. Energy, work and temperature are therefore computed
 * with closed formulas, without small time steps. docs/emulator.md explains the formulas and their
 * constants. */
#include "physics.h"

#include <math.h>
#include <string.h>

#include "heat.h"

#define AVERAGE_NS INT64_C(1000000000)

void emulator_state_start(emulator_state *state, const emulator_chip *chip, int64_t now_ns) {
    memset(state, 0, sizeof *state);
    state->began_ns = now_ns;
    state->now_ns = now_ns;
    state->floor_ns = now_ns;
    state->slot_count = 1;
    state->power_limit_mw = chip->model->limit_maximum_mw;
    state->outside_limit_mw = (uint32_t)(chip->effects->power_cap_w * 1000.0);
    state->blocking_w = chip->model->blocking_w;
    state->temperature_c = emulator_final_c(chip, chip->model->idle_w);
    emulator_set_degrees(state, chip, (int32_t)floor(state->temperature_c));
}

void emulator_state_reset(emulator_state *state, const emulator_chip *chip) {
    state->is_lost = state->is_waiting = false;
    state->counter_origin_mj = state->counter_mj;
    state->power_limit_mw = chip->model->limit_maximum_mw;
    state->persistence = state->compute_mode = 0;
    state->graphics_lock = (emulator_clock_range){0};
    state->memory_lock_minimum_mhz = state->memory_lock_maximum_mhz = 0;
    state->change_count = 0;
    state->floor_ns = state->now_ns;
    memset(state->work, 0, sizeof state->work);
    memset(state->context, 0, sizeof state->context);
}

/* ---- Moving on ------------------------------------------------------------------------------- */

static void remember(emulator_state *state, double power_w) {
    if (state->history_count > 0 && power_w == state->last_power_w &&
        state->degrees_c == state->last_degrees_c)
        return;
    uint32_t place = state->history_count % EMULATOR_HISTORY_MAX;
    state->history[place].at_ns = state->now_ns;
    state->history[place].energy_mj = state->energy_mj;
    state->history[place].busy_s = state->busy_s;
    state->history[place].temperature_c = state->temperature_c;
    state->history[place].degrees_c = state->degrees_c;
    state->history_count++;
    state->last_power_w = power_w;
    state->last_degrees_c = state->degrees_c;
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
static void integrate(emulator_state *state, const emulator_chip *chip,
                      const emulator_operation *operation, int64_t to_ns) {
    double power_w = operation->power_w;
    double counted_w = power_w + emulator_counted_rest_w(chip);
    double span_s = 1e-9 * (double)(to_ns - state->now_ns);
    remember(state, power_w);
    step_counter(state, counted_w, chip->energy_step_s, to_ns);
    state->energy_mj += counted_w * 1e3 * span_s;
    state->busy_s += operation->is_busy ? operation->activity * span_s : 0.0;
    state->temperature_c = emulator_temperature_c(chip, state->temperature_c, power_w, span_s);
    state->now_ns = to_ns;
}

/* Advances every running work by `span_s`. A work that reaches its end is done. */
static void progress(emulator_state *state, const emulator_chip *chip,
                     const emulator_operation *operation, double span_s) {
    for (unsigned int i = 0; i < state->slot_count; i++) {
        emulator_work *work = &state->work[i];
        if (!emulator_is_running(work)) continue;
        double left_s = emulator_time_left_at_s(state, chip, i, operation);
        work->remaining *= left_s > span_s ? 1.0 - span_s / left_s : 0.0;
        if (left_s - span_s < 1e-9) {
            work->remaining = 0;
            work->is_done = true;
            work->finished_ns = state->now_ns;
            state->floor_ns = state->now_ns;
        }
    }
}

/* Returns the time of the next change of clock or temperature, or `to_ns` if that is earlier. */
static int64_t next_event_ns(const emulator_state *state, const emulator_chip *chip,
                             const emulator_operation *operation, int64_t to_ns) {
    double power_w = operation->power_w;
    int64_t change_ns = emulator_next_change_ns(state);
    int64_t wander_ns = emulator_next_wander_ns(state, chip, operation);
    if (change_ns > wander_ns) change_ns = wander_ns;
    if (change_ns > to_ns) change_ns = to_ns;
    double span_s = 1e-9 * (double)(change_ns - state->now_ns);
    if (!emulator_degree_is_near(state, chip, power_w, span_s)) return change_ns;
    double degree_s = emulator_next_degree_s(state, chip, power_w);
    if (!(degree_s < 1e-9 * (double)(INT64_MAX / 4))) return change_ns;
    int64_t degree_ns = state->now_ns + (int64_t)ceil(degree_s * 1e9);
    if (degree_ns <= state->now_ns) degree_ns = state->now_ns + 1;
    return degree_ns < change_ns ? degree_ns : change_ns;
}

void emulator_advance(emulator_state *state, const emulator_chip *chip, int64_t to_ns) {
    while (state->now_ns < to_ns) {
        emulator_operation operation = emulator_operate(state, chip);
        int64_t until_ns = next_event_ns(state, chip, &operation, to_ns);
        double span_s = 1e-9 * (double)(until_ns - state->now_ns);
        int64_t end_ns = until_ns;
        for (unsigned int i = 0; i < state->slot_count; i++) {
            if (!emulator_is_running(&state->work[i])) continue;
            double left_s = emulator_time_left_at_s(state, chip, i, &operation);
            if (left_s < span_s) {
                span_s = left_s;
                int64_t left_ns = llround(left_s * 1e9);
                end_ns = state->now_ns + (left_ns > 0 ? left_ns : 1);
            }
        }
        if (end_ns > until_ns) end_ns = until_ns;
        integrate(state, chip, &operation, end_ns);
        progress(state, chip, &operation, span_s);
        if (emulator_heat_matters(chip->effects)) emulator_count_degrees(state, chip);
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

double emulator_average_power_w(const emulator_state *state, const emulator_chip *chip,
                                double instant_power_w) {
    double average_s = chip->effects->average_s;
    int64_t at_ns = state->now_ns - (average_s > 0 ? (int64_t)(average_s * 1e9) : AVERAGE_NS);
    double energy_mj, busy_s;
    recall(state, &at_ns, &energy_mj, &busy_s);
    if (at_ns >= state->now_ns) return instant_power_w;
    double counted_w = (state->energy_mj - energy_mj) * 1e6 / (double)(state->now_ns - at_ns);
    return counted_w - emulator_counted_rest_w(chip);
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

/* Restores the temperature of a moment from the stored changes. The power between two of them is
 * constant, and follows from the energy. */
static void recall_heat(const emulator_state *state, const emulator_chip *chip, int64_t at_ns,
                        double *temperature_c, int32_t *degrees_c) {
    uint32_t kept =
        state->history_count < EMULATOR_HISTORY_MAX ? state->history_count : EMULATOR_HISTORY_MAX;
    int64_t after_ns = state->now_ns;
    double after_mj = state->energy_mj;
    for (uint32_t back = 1; back <= kept; back++) {
        uint32_t place = (state->history_count - back) % EMULATOR_HISTORY_MAX;
        int64_t before_ns = state->history[place].at_ns;
        if (before_ns <= at_ns) {
            double counted_w = after_ns > before_ns ? (after_mj - state->history[place].energy_mj) *
                                                          1e6 / (double)(after_ns - before_ns)
                                                    : 0;
            *temperature_c = emulator_temperature_c(chip, state->history[place].temperature_c,
                                                    counted_w - emulator_counted_rest_w(chip),
                                                    1e-9 * (double)(at_ns - before_ns));
            *degrees_c = state->history[place].degrees_c;
            return;
        }
        after_ns = before_ns;
        after_mj = state->history[place].energy_mj;
    }
}

void emulator_rewind(emulator_state *state, const emulator_chip *chip, int64_t to_ns) {
    if (to_ns < state->floor_ns) to_ns = state->floor_ns;
    if (to_ns >= state->now_ns) return;
    double temperature_c = state->temperature_c, energy_mj = state->energy_mj;
    int32_t degrees_c = state->degrees_c;
    double busy_s = state->busy_s;
    recall(state, &to_ns, &energy_mj, &busy_s);
    if (emulator_heat_matters(chip->effects)) {
        recall_heat(state, chip, to_ns, &temperature_c, &degrees_c);
        state->temperature_c = temperature_c;
        emulator_set_degrees(state, chip, degrees_c);
    }
    state->energy_mj = energy_mj;
    state->busy_s = busy_s;
    state->now_ns = to_ns;
    for (unsigned int i = 0; i < EMULATOR_HISTORY_MAX; i++) {
        if (state->history[i].at_ns <= to_ns) continue;
        state->history[i].at_ns = to_ns;
        state->history[i].energy_mj = state->energy_mj;
        state->history[i].busy_s = state->busy_s;
        state->history[i].temperature_c = state->temperature_c;
        state->history[i].degrees_c = state->degrees_c;
    }
    state->last_power_w = -1; /* the next period is stored even if its power is the same */
}

void emulator_start_enqueued(emulator_state *state, const emulator_chip *chip, int64_t ready_ns) {
    if (emulator_running_count(state) == 0) emulator_rewind(state, chip, ready_ns);
}

void emulator_start_again(emulator_state *state, const emulator_chip *chip, double delay_s,
                          int64_t since_real_ns) {
    emulator_work *only = NULL;
    for (unsigned int i = 0; i < state->slot_count; i++) {
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
    emulator_rewind(state, chip, start_ns);
    only->remaining = 1;
    only->is_done = false;
    emulator_advance(state, chip, wished_ns);
}
