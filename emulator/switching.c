/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the graphics clock that take time; see switching.h. */
#include "switching.h"

#include <math.h>
#include <string.h>

#include "draws.h"
#include "exact.h"
#include "variety.h"

/* ---- The clocks in force --------------------------------------------------------------------- */

emulator_clock_range emulator_lock_in_force(const emulator_state *state, int64_t at_ns) {
    for (uint32_t i = state->change_count; i > 0; i--)
        if (state->change[i - 1].at_ns <= at_ns) return state->change[i - 1].range;
    return state->graphics_lock;
}

int64_t emulator_next_change_ns(const emulator_state *state) {
    for (uint32_t i = 0; i < state->change_count; i++)
        if (state->change[i].at_ns > state->now_ns) return state->change[i].at_ns;
    return INT64_MAX;
}

/* ---- Random times ---------------------------------------------------------------------------- */

/* Interpolates the latency between the clocks of the table. */
static double median_latency_s(const emulator_effects *effects, double clock_mhz) {
    uint32_t count = effects->latency_count, above = 0;
    if (count == 0) return 0;
    while (above < count && effects->latency[above].clock_mhz < clock_mhz)
        above++;
    if (above == 0) return effects->latency[0].latency_s;
    if (above == count) return effects->latency[count - 1].latency_s;
    double low_mhz = effects->latency[above - 1].clock_mhz;
    double high_mhz = effects->latency[above].clock_mhz;
    double t = (clock_mhz - low_mhz) / (high_mhz - low_mhz);
    double low_s = effects->latency[above - 1].latency_s;
    return low_s + t * (effects->latency[above].latency_s - low_s);
}

static unsigned int target_mhz(const emulator_model *model, const emulator_clock_range *range) {
    if (range->maximum_mhz == 0) return model->highest_mhz;
    return emulator_clock_mhz(model, emulator_clock_index(model, range->maximum_mhz));
}

static double draw_latency_s(const emulator_chip *chip, const emulator_clock_range *wanted,
                             uint64_t number) {
    const emulator_effects *effects = chip->effects;
    double latency_s = median_latency_s(effects, target_mhz(chip->model, wanted));
    if (latency_s <= 0) return 0;
    double deviation =
        emulator_draw_deviation(effects->seed, effects->gpu, EMULATOR_DRAW_LATENCY, number);
    return latency_s * emulator_exp(effects->switch_spread * deviation) *
           emulator_draw_tail(effects, &effects->switch_tail, EMULATOR_DRAW_LATENCY, number);
}

static double draw_call_s(const emulator_effects *effects, uint64_t number) {
    return effects->switch_call_s *
           emulator_draw_tail(effects, &effects->switch_call_tail, EMULATOR_DRAW_CALL, number);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static bool is_same(const emulator_clock_range *a, const emulator_clock_range *b) {
    return a->minimum_mhz == b->minimum_mhz && a->maximum_mhz == b->maximum_mhz;
}

static void append(emulator_state *state, int64_t at_ns, const emulator_clock_range *range) {
    if (state->change_count == EMULATOR_CHANGE_MAX) {
        state->graphics_lock = state->change[0].range;
        state->change_count--;
        memmove(&state->change[0], &state->change[1],
                state->change_count * sizeof state->change[0]);
    }
    state->change[state->change_count].at_ns = at_ns;
    state->change[state->change_count].range = *range;
    state->change_count++;
}

/* Computes the present again after a change in the past. Work in flight starts again if it is the
 * GPU's only work and was enqueued. Otherwise the change takes effect now. */
static void replay(emulator_state *state, const emulator_chip *chip, int64_t from_ns) {
    int64_t now_ns = state->now_ns;
    if (from_ns >= now_ns) return;
    if (emulator_has_work(state))
        emulator_start_again(state, chip, 0, INT64_MIN);
    else
        emulator_rewind(state, chip, from_ns);
    emulator_advance(state, chip, now_ns);
}

bool emulator_switches_late(const emulator_chip *chip) {
    return chip->effects->switch_call_s > 0 || chip->effects->latency_count > 0;
}

double emulator_request_clocks(emulator_state *state, const emulator_chip *chip,
                               emulator_clock_range wanted, int64_t called_ns) {
    uint64_t number = state->clock_requests++;
    double call_s = draw_call_s(chip->effects, number);
    if (emulator_ignores_lock(chip->effects, number)) return call_s;
    int64_t asked_ns = called_ns + llround(call_s * 1e9);
    uint32_t pending = 0; /* transitions that are not over when the call returns */
    while (pending < state->change_count &&
           state->change[state->change_count - 1 - pending].at_ns > asked_ns)
        pending++;
    /* Of two, the first is in progress and the second waits: this request replaces it. */
    if (pending > 1) state->change_count -= pending - 1;
    emulator_clock_range last = emulator_lock_in_force(state, INT64_MAX);
    if (is_same(&last, &wanted)) return call_s;
    int64_t start_ns = pending > 0 ? state->change[state->change_count - 1].at_ns : asked_ns;
    int64_t at_ns = start_ns + llround(draw_latency_s(chip, &wanted, number) * 1e9);
    append(state, at_ns, &wanted);
    replay(state, chip, at_ns);
    return call_s;
}
