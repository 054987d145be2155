/* SPDX-License-Identifier: Apache-2.0 */
/* The local search of power_repair.h. A move changes the clock of one instruction. If changes of
 * clock cost something, it changes all instructions between two changes of a rank. The search
 * estimates by how much each move lowers the excess. It makes moves in batches, and begins with
 * those that add the least energy for the estimated gain. After each batch it computes the real
 * excess, and undoes the batch if the excess has not become smaller.
 *
 * The estimate: a watt at a moment has a weight, which is 1 while the power is above its limit,
 * plus a cosine for each component that is too strong. An instruction draws its power from its
 * start to its end. Its weighted energy is this power, above that of waiting, times the integral of
 * the weight. A move gains the weighted energy of the instruction before, less that after it. */
#include "plan/power_repair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "plan/switching.h"

/* Points of an instruction beside the present one that are tried. */
#define NEIGHBOURS 3
/* The number of batches is at most FEWEST_TRIALS plus MOST_WORK divided by the number of
 * instructions. */
#define MOST_WORK UINT64_C(50000)
#define FEWEST_TRIALS 60
/* The search ends if none of so many moves helps alone. */
#define MOST_SINGLES 64
/* A batch aims at a peak and a swing that are lower by this share, so it lowers the highest power
 * first. */
#define STEP 0.02
#define TWO_PI 6.28318530717958647692

typedef struct harpe_power_move {
    int32_t first, end; /* instructions */
    int to_mhz;
    double gain_j, cost_j, time_s;
    double key; /* the lowest is best */
} harpe_power_move;

/* ---- The present plan ------------------------------------------------------------------------ */

static double keep_strong(void *user, const harpe_harmonic *found, double least_w) {
    harpe_power_repair *r = user;
    r->shape.swing_w = fmax(r->shape.swing_w, found->swing_w);
    if (found->swing_w <= r->step_swing_w) return least_w;
    r->strong[r->strong_count++] = *found;
    r->excess_j += (found->swing_w - fmax(r->swing_limit_w, r->step_swing_w)) * r->plan.time_s;
    return least_w;
}

static double change_energy_j(harpe_power_repair *r) {
    if (!(r->cost->energy_j > 0)) return 0;
    harpe_power_repair_frequencies(r, r->frequency_mhz);
    return r->cost->energy_j * (double)harpe_evaluate_changes(r->problem, r->frequency_mhz);
}

void harpe_power_repair_evaluate(harpe_power_repair *r) {
    r->plan = harpe_evaluate_points(r->problem, r->points, r->start_s);
    double mean_w = r->plan.energy_j / r->plan.time_s;
    r->plan.energy_j += change_energy_j(r);
    r->swing_limit_w = fmin(r->limits.swing_w, r->limits.swing_share * mean_w);
    double peak_w = fmax(r->limits.peak_w, r->step_peak_w);
    r->strong_count = 0;
    harpe_power_steps_list(&r->steps, r->problem, r->points, r->start_s, r->plan.time_s);
    r->shape = (harpe_power_shape){
        .peak_w = harpe_power_steps_peak_w(&r->steps, peak_w, r->hot, &r->hot_count, &r->excess_j)};
    if (isfinite(r->swing_limit_w)) {
        double rounding_w = HARPE_SWING_ROUNDING * r->shape.peak_w;
        harpe_power_steps_harmonics(&r->steps, fmax(r->swing_limit_w, rounding_w), keep_strong, r);
    }
    r->tried++;
}

bool harpe_power_repair_obeys(const harpe_power_repair *r) {
    return r->plan.time_s <= r->deadline_s && r->shape.peak_w <= r->limits.peak_w &&
           r->shape.swing_w <= fmax(r->swing_limit_w, HARPE_SWING_ROUNDING * r->shape.peak_w);
}

void harpe_power_repair_frequencies(const harpe_power_repair *r, int *frequency_mhz) {
    size_t count = harpe_problem_instruction_count(r->problem);
    for (size_t i = 0; i < count; i++)
        frequency_mhz[i] = r->points[i]->frequency_mhz;
}

/* Returns whether each rank holds its clocks long enough, or as long as it did at the start. */
static bool holds(harpe_power_repair *r) {
    if (!r->has_cost) return true;
    harpe_power_repair_frequencies(r, r->frequency_mhz);
    if (harpe_switching_dwells(r->problem, r->frequency_mhz, r->dwell_s, NULL) != HARPE_OK)
        return false;
    for (int rank = 0; rank < r->problem->rank_count; rank++)
        if (r->dwell_s[rank] < r->needed_s[rank]) return false;
    return true;
}

static void find_latest(harpe_power_repair *r) {
    for (int32_t i = 0; i < r->problem->instruction_count; i++)
        r->latest_s[i] = r->deadline_s;
    harpe_evaluate_latest_starts(r->problem, r->points, r->latest_s);
}

/* ---- Gains ----------------------------------------------------------------------------------- */

/* Returns the last hot time that begins before a time, or NULL. */
static const harpe_hot_time *hot_before(const harpe_power_repair *r, double time_s) {
    size_t low = 0, high = r->hot_count; /* the number of hot times that begin before */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->hot[middle].from_s < time_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &r->hot[low - 1] : NULL;
}

/* Returns what a watt adds to the excess if it is drawn from the start of the iteration to a
 * time, up to a constant. */
static double weight_until_s(const harpe_power_repair *r, double time_s) {
    const harpe_hot_time *hot = hot_before(r, time_s);
    double sum_s = hot ? hot->before_s + fmin(time_s, hot->until_s) - hot->from_s : 0;
    for (size_t k = 0; k < r->strong_count; k++) {
        double omega = TWO_PI * r->strong[k].frequency_hz;
        sum_s += 4 / omega * sin(omega * time_s - r->strong[k].phase);
    }
    return sum_s;
}

/* Returns the weighted energy of an instruction that starts at a time, above waiting. */
static double pulse_j(const harpe_power_repair *r, int32_t i, const harpe_profile_point *point,
                      double start_s) {
    if (!(point->time_s > 0)) return 0;
    double above_w =
        point->energy_j / point->time_s - harpe_problem_choice(r->problem, i)->blocking_power_w;
    return above_w * (weight_until_s(r, start_s + point->time_s) - weight_until_s(r, start_s));
}

/* Fills in what a move does. Returns false if an instruction lacks the clock. */
static bool weigh(const harpe_power_repair *r, harpe_power_move *move) {
    for (int32_t i = move->first; i < move->end; i++) {
        const harpe_choice *choice = harpe_problem_choice(r->problem, i);
        const harpe_profile_point *from = r->points[i];
        const harpe_profile_point *to = harpe_choice_reached(choice, move->to_mhz);
        if (!to) return false;
        double added_s = to->time_s - from->time_s;
        move->time_s += added_s;
        move->cost_j += to->energy_j - from->energy_j - choice->blocking_power_w * added_s;
        move->gain_j += pulse_j(r, i, from, r->start_s[i]) - pulse_j(r, i, to, r->start_s[i]);
    }
    return true;
}

/* The same for a delay, which moves the start of many instructions. */
static void weigh_shift(const harpe_power_repair *r, const harpe_power_shift *shift,
                        harpe_power_move *move) {
    const harpe_choice *choice = harpe_problem_choice(r->problem, shift->node);
    move->time_s =
        harpe_choice_point(choice, move->to_mhz)->time_s - r->points[shift->node]->time_s;
    for (int32_t i = shift->first; i < shift->end; i++)
        move->gain_j += pulse_j(r, i, r->points[i], r->start_s[i]) -
                        pulse_j(r, i, r->points[i], r->start_s[i] + move->time_s);
}

/* ---- Moves ----------------------------------------------------------------------------------- */

/* What a search wants: to come within the limits, or to save energy within them. */
typedef enum power_aim { AIM_LIMITS, AIM_ENERGY } power_aim;

static int compare_moves(const void *a, const void *b) {
    const harpe_power_move *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->to_mhz > y->to_mhz) - (x->to_mhz < y->to_mhz);
}

/* Adds the best move of instructions, or of a delay, to a point near the present one. */
static harpe_status add_best(harpe_power_repair *r, power_aim aim, int32_t first, int32_t end,
                             const harpe_power_shift *shift, harpe_error *error) {
    const harpe_choice *choice = harpe_problem_choice(r->problem, first);
    ptrdiff_t now = r->points[first] - choice->points, most = (ptrdiff_t)choice->point_count - 1;
    double float_s = r->latest_s[end - 1] - r->start_s[end - 1];
    harpe_power_move best = {.key = INFINITY};
    ptrdiff_t reach = shift ? most : NEIGHBOURS;
    for (ptrdiff_t p = now - reach; p <= now + reach; p++) {
        if (p < 0 || p > most || p == now) continue;
        harpe_power_move move = {first, end, choice->points[p].frequency_mhz, 0, 0, 0, 0};
        if (shift)
            weigh_shift(r, shift, &move);
        else if (!weigh(r, &move))
            continue;
        if (move.time_s > float_s) continue;
        if (aim == AIM_LIMITS && !(move.gain_j > 1e-12)) continue;
        if (aim == AIM_ENERGY && !(move.cost_j < -1e-12)) continue;
        move.key = aim == AIM_ENERGY ? move.cost_j : move.cost_j / move.gain_j;
        if (move.time_s > 0 && aim == AIM_ENERGY) move.key /= move.time_s;
        if (move.key < best.key) best = move;
    }
    if (!isfinite(best.key)) return HARPE_OK;
    if (!HARPE_ARRAY_RESERVE(r->moves, r->move_capacity, r->move_count + 1))
        return harpe_fail_memory(error);
    r->moves[r->move_count++] = best;
    return HARPE_OK;
}

/* Returns the end of the instructions that change their clock together with `first`. */
static int32_t end_together(const harpe_power_repair *r, int32_t first, int32_t end) {
    int32_t i = first + 1;
    int mhz = r->points[first]->frequency_mhz;
    if (!r->has_cost) return i;
    while (i < end && (r->points[i]->frequency_mhz == mhz || r->points[i]->frequency_mhz == 0))
        i++;
    return i;
}

/* Lists the moves, the best first. */
static harpe_status list_moves(harpe_power_repair *r, power_aim aim, harpe_error *error) {
    const harpe_problem *problem = r->problem;
    harpe_status status = HARPE_OK;
    r->move_count = 0;
    find_latest(r);
    for (int rank = 0; rank < problem->rank_count; rank++) {
        int32_t end = (int32_t)problem->rank_offset[rank + 1], next;
        for (int32_t i = (int32_t)problem->rank_offset[rank]; i < end; i = next) {
            next = end_together(r, i, end);
            if (status == HARPE_OK) status = add_best(r, aim, i, next, NULL, error);
        }
    }
    for (size_t k = 0; aim == AIM_LIMITS && k < r->shift_count && status == HARPE_OK; k++) {
        const harpe_power_shift *shift = &r->shifts[k];
        status = add_best(r, aim, shift->node, shift->node + 1, shift, error);
    }
    if (r->move_count > 0) qsort(r->moves, r->move_count, sizeof *r->moves, compare_moves);
    return status;
}

/* ---- Search ---------------------------------------------------------------------------------- */

static void set_points(harpe_power_repair *r, const harpe_power_move *move) {
    for (int32_t i = move->first; i < move->end; i++)
        r->points[i] = harpe_choice_point(harpe_problem_choice(r->problem, i), move->to_mhz);
}

/* Makes up to `count` moves from `from` on, those that keep the deadline, and not more than the
 * excess needs. */
static void make_batch(harpe_power_repair *r, power_aim aim, size_t from, size_t count) {
    double gain_j = 0, needed_j = r->excess_j;
    size_t size = (size_t)r->problem->instruction_count, made = 0;
    memcpy(r->before, r->points, size * sizeof *r->before);
    for (size_t k = from; k < r->move_count && made < count; k++) {
        const harpe_power_move *move = &r->moves[k];
        if (aim == AIM_LIMITS && made > 0 && gain_j >= needed_j) break;
        set_points(r, move);
        made++;
        gain_j += move->gain_j;
        if (harpe_evaluate_points(r->problem, r->points, r->start_s).time_s <= r->deadline_s)
            continue;
        for (int32_t i = move->first; i < move->end; i++)
            r->points[i] = r->before[i];
        gain_j -= move->gain_j;
        made--;
    }
}

static void note_least(harpe_power_repair *r) {
    if (r->plan.time_s > r->deadline_s) return;
    r->least.peak_w = fmin(r->least.peak_w, r->shape.peak_w);
    double swing_w = fmax(r->shape.swing_w, r->swing_limit_w);
    r->least.swing_w = fmin(r->least.swing_w, swing_w);
}

/* Tries a batch. Returns whether it was kept. */
static bool try_batch(harpe_power_repair *r, power_aim aim, size_t from, size_t count) {
    double excess_j = r->excess_j, energy_j = r->plan.energy_j;
    size_t size = (size_t)r->problem->instruction_count;
    make_batch(r, aim, from, count);
    harpe_power_repair_evaluate(r);
    bool better = aim == AIM_ENERGY
                      ? harpe_power_repair_obeys(r) && r->plan.energy_j < energy_j * (1 - 1e-12)
                      : harpe_power_repair_obeys(r) || r->excess_j < excess_j * (1 - 1e-9);
    if (better && r->plan.time_s <= r->deadline_s && holds(r)) {
        note_least(r);
        return true;
    }
    memcpy(r->points, r->before, size * sizeof *r->before);
    return false;
}

/* Brings the limits that the next batch keeps closer to those that are wanted. */
static void take_step(harpe_power_repair *r) {
    r->step_peak_w = (1 - STEP) * r->shape.peak_w;
    r->step_swing_w = (1 - STEP) * r->shape.swing_w;
    harpe_power_repair_evaluate(r);
}

/* Makes the best moves until the aim is reached or no move helps. */
static harpe_status search(harpe_power_repair *r, power_aim aim, harpe_error *error) {
    size_t most = FEWEST_TRIALS + (size_t)(MOST_WORK / (uint64_t)r->problem->instruction_count);
    size_t batch = 0;
    for (r->tried = 0; r->tried < most;) {
        r->step_peak_w = r->step_swing_w = 0;
        harpe_power_repair_evaluate(r);
        if (aim == AIM_LIMITS && harpe_power_repair_obeys(r)) break;
        if (aim == AIM_LIMITS) take_step(r);
        harpe_status status = list_moves(r, aim, error);
        if (status != HARPE_OK) return status;
        if (batch == 0) batch = 1 + r->move_count / 4;
        size_t from = 0;
        bool kept = false;
        while (!kept && from < r->move_count && from < MOST_SINGLES && r->tried < most) {
            kept = try_batch(r, aim, from, batch);
            if (!kept && batch == 1) from++;
            if (kept)
                batch = 1 + 2 * batch;
            else
                batch = 1 + (batch - 1) / 4;
            if (!kept) harpe_power_repair_evaluate(r); /* of the plan before */
        }
        if (!kept) break;
    }
    return HARPE_OK;
}

harpe_status harpe_power_repair_run(harpe_power_repair *r, bool *obeys, harpe_error *error) {
    harpe_status status = search(r, AIM_LIMITS, error);
    r->step_peak_w = r->step_swing_w = 0;
    harpe_power_repair_evaluate(r);
    *obeys = harpe_power_repair_obeys(r);
    return status == HARPE_OK && *obeys ? search(r, AIM_ENERGY, error) : status;
}

/* ---- Making ---------------------------------------------------------------------------------- */

harpe_status harpe_power_repair_init(harpe_power_repair *r, const harpe_problem *problem,
                                     const harpe_clock_switch *cost,
                                     const harpe_power_limits *limits, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count, ranks = (size_t)problem->rank_count;
    size_t most = 4 * count + 2 * ranks + 1;
    *r = (harpe_power_repair){.problem = problem, .cost = cost, .limits = *limits};
    r->has_cost = harpe_clock_switch_has_cost(problem, cost);
    r->least = (harpe_power_shape){.peak_w = INFINITY, .swing_w = INFINITY};
    r->points = harpe_arena_alloc(&r->arena, 2 * count, sizeof *r->points);
    r->start_s = harpe_arena_alloc(&r->arena, 2 * (count + ranks), sizeof *r->start_s);
    r->frequency_mhz = harpe_arena_alloc(&r->arena, count, sizeof *r->frequency_mhz);
    r->hot = harpe_arena_alloc(&r->arena, most, sizeof *r->hot);
    r->strong = harpe_arena_alloc(&r->arena, HARPE_HARMONICS_MAX, sizeof *r->strong);
    bool complete = r->points && r->start_s && r->frequency_mhz && r->hot && r->strong;
    harpe_status status = harpe_power_steps_init(&r->steps, problem, error);
    if (status != HARPE_OK || !complete)
        return status == HARPE_OK ? harpe_fail_memory(error) : status;
    r->before = r->points + count;
    r->latest_s = r->start_s + count;
    r->dwell_s = r->latest_s + count;
    r->needed_s = r->dwell_s + ranks;
    return HARPE_OK;
}

void harpe_power_repair_clear(harpe_power_repair *r) {
    harpe_power_steps_clear(&r->steps);
    harpe_arena_free(&r->arena);
    free(r->moves);
}

harpe_status harpe_power_repair_begin(harpe_power_repair *r, const int *frequency_mhz,
                                      double deadline_s, harpe_error *error) {
    harpe_status status = harpe_evaluate_find_points(r->problem, frequency_mhz, r->points, error);
    if (status != HARPE_OK) return status;
    r->deadline_s = deadline_s;
    harpe_power_repair_evaluate(r);
    note_least(r);
    if (!r->has_cost) return HARPE_OK;
    status = harpe_switching_dwells(r->problem, frequency_mhz, r->needed_s, error);
    double hold_s =
        fmax(r->cost->minimum_dwell_s, harpe_clock_switch_longest_s(r->problem, r->cost));
    for (int rank = 0; rank < r->problem->rank_count; rank++)
        r->needed_s[rank] = fmin(r->needed_s[rank], hold_s);
    return status;
}
