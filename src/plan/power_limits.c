/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans within limits of power; see plans.h. Every time for which a plan is wanted has
 * several starts, which a local search changes: the plan of this time, faster plans, the best plan
 * with one clock for all GPUs that keeps the limits, and the result for the time before. A faster
 * plan has time to spare: it is made slower where the power is too high, and stays fast elsewhere.
 */
#include "plan/plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/format.h"

/* ---- Power over time ------------------------------------------------------------------------- */

/* The power of a whole pipeline over an iteration: its peak, and its strongest oscillation in the
 * band that power grids object to. An instruction draws its measured energy divided by its time,
 * and a rank that waits draws its blocking power, so the power is a step function of time. Both
 * results are exact for this function. Power that changes inside of an instruction is not known. */

/* A band that contains the modes between areas of a grid and the slower modes of turbine shafts.
 * Components of a load close to such a mode do damage: Choukse et al., Power Stabilization for AI
 * Training Datacenters, 2025, arXiv 2508.14318. */
#define BAND_LOW_HZ 0.1
#define BAND_HIGH_HZ 20.0
#define TWO_PI 6.28318530717958647692

static int compare_times(const void *a, const void *b) {
    const harpe_power_step *x = a, *y = b;
    return (x->time_s > y->time_s) - (x->time_s < y->time_s);
}

/* Makes one step of all steps at one moment. The times of different ranks are sums of different
 * numbers, and may differ in their last digits. Steps at the end of the iteration become one step
 * at its start, which is at the end of the list. */
static void join_steps(harpe_power_steps *steps) {
    double slack_s = HARPE_POWER_SLACK * steps->iteration_s;
    size_t kept = 0;
    harpe_power_step at_end = {0};
    for (size_t i = 0; i < steps->count; i++) {
        harpe_power_step *step = &steps->items[i];
        if (step->time_s >= steps->iteration_s - slack_s)
            at_end.change_w += step->change_w;
        else if (kept > 0 && step->time_s <= steps->items[kept - 1].time_s + slack_s)
            steps->items[kept - 1].change_w += step->change_w;
        else
            steps->items[kept++] = *step;
    }
    steps->items[kept++] = at_end; /* list_steps has left room for it */
    steps->count = kept;
}

static void add_wait(harpe_power_steps *steps, double from_s, double until_s, double saving_w) {
    if (saving_w <= 0 || until_s <= from_s) return;
    steps->items[steps->count++] = (harpe_power_step){from_s, -saving_w};
    steps->items[steps->count++] = (harpe_power_step){until_s, saving_w};
}

/* Lowers the power during waits of cheaper kinds. */
static void add_waits(const harpe_problem *problem, const harpe_profile_point *const *points,
                      const double *start_s, harpe_power_steps *steps) {
    for (int rank = 0; rank < problem->rank_count; rank++) {
        double end_s = 0;
        for (size_t i = problem->rank_offset[rank]; i < problem->rank_offset[rank + 1]; i++) {
            add_wait(steps, end_s, start_s[i], problem->wait_saving_w[i]);
            end_s = start_s[i] + points[i]->time_s;
        }
        add_wait(steps, end_s, steps->iteration_s, problem->end_saving_w[rank]);
    }
}

static harpe_status power_steps_init(harpe_power_steps *steps, const harpe_problem *problem,
                                     harpe_error *error) {
    size_t count = (size_t)problem->instruction_count, ranks = (size_t)problem->rank_count;
    size_t most = 4 * count + 2 * ranks + 1; /* instructions, waits, the end */
    *steps = (harpe_power_steps){0};
    steps->items = harpe_calloc(most, sizeof *steps->items);
    steps->turn = harpe_calloc(2 * most, sizeof *steps->turn);
    return steps->items && steps->turn ? HARPE_OK : harpe_fail_memory(error);
}

static void power_steps_clear(harpe_power_steps *steps) {
    free(steps->items);
    free(steps->turn);
}

/* An instruction without duration has no power. */
static void power_steps_list(harpe_power_steps *steps, const harpe_problem *problem,
                             const harpe_profile_point *const *points, const double *start_s,
                             double iteration_s) {
    size_t count = (size_t)problem->instruction_count;
    steps->iteration_s = iteration_s;
    steps->waiting_w = harpe_problem_iteration_power_w(problem);
    steps->count = 2 * count;
    for (size_t i = 0; i < count; i++) {
        double waiting_w = harpe_problem_choice(problem, (int32_t)i)->blocking_power_w;
        double time_s = points[i]->time_s;
        double change_w = time_s > 0 ? points[i]->energy_j / time_s - waiting_w : 0;
        steps->items[2 * i] = (harpe_power_step){start_s[i], change_w};
        steps->items[2 * i + 1] = (harpe_power_step){start_s[i] + time_s, -change_w};
    }
    if (harpe_problem_has_any_wait_kinds(problem)) add_waits(problem, points, start_s, steps);
    qsort(steps->items, steps->count, sizeof *steps->items, compare_times);
}

/* Returns the highest power. If `hot` is not NULL, writes the times above `limit_w`, for which it
 * has room for as many as there are steps, and the energy above the limit in `*excess_j`. To be
 * called before power_steps_harmonics. */
static double power_steps_peak_w(const harpe_power_steps *steps, double limit_w,
                                 harpe_hot_time *hot, size_t *hot_count, double *excess_j) {
    double slack_s = HARPE_POWER_SLACK * steps->iteration_s;
    double power_w = steps->waiting_w, highest_w = 0, hot_s = 0;
    if (hot) *excess_j = 0;
    if (hot) *hot_count = 0;
    for (size_t i = 0; i + 1 < steps->count; i++) {
        double from_s = steps->items[i].time_s, until_s = steps->items[i + 1].time_s;
        power_w += steps->items[i].change_w;
        if (until_s <= from_s + slack_s) continue;
        highest_w = fmax(highest_w, power_w);
        if (!hot || power_w <= limit_w) continue;
        hot[(*hot_count)++] = (harpe_hot_time){from_s, until_s, hot_s, *excess_j};
        hot_s += until_s - from_s;
        *excess_j += (power_w - limit_w) * (until_s - from_s);
    }
    return highest_w;
}

/* The k-th harmonic of a periodic step function with the steps d_j at the times t_j has the
 * amplitude |sum of d_j exp(2 pi i k t_j / T)| / (pi k), and from peak to peak twice that. */
static void power_steps_harmonics(harpe_power_steps *steps, double least_w,
                                  harpe_harmonic_visit *visit, void *user) {
    double first = fmax(1, ceil(BAND_LOW_HZ * steps->iteration_s * (1 - 1e-9)));
    double last = floor(BAND_HIGH_HZ * steps->iteration_s * (1 + 1e-9));
    last = fmin(last, HARPE_HARMONICS_MAX);
    join_steps(steps);
    double(*turn)[2] = steps->turn, (*vector)[2] = turn + steps->count;
    double total_w = 0; /* no harmonic is stronger than 2 / (pi k) times this sum */
    for (size_t j = 0; j < steps->count; j++) {
        double share = steps->items[j].time_s / steps->iteration_s;
        double before = TWO_PI * fmod(first * share, 1);
        turn[j][0] = cos(TWO_PI * share);
        turn[j][1] = sin(TWO_PI * share);
        vector[j][0] = steps->items[j].change_w * cos(before);
        vector[j][1] = steps->items[j].change_w * sin(before);
        total_w += fabs(steps->items[j].change_w);
    }
    for (int64_t k = (int64_t)first; (double)k <= last; k++) {
        double factor = 4 / TWO_PI / (double)k;
        if (factor * total_w <= least_w) break;
        double real = 0, imaginary = 0;
        for (size_t j = 0; j < steps->count; j++) {
            double x = vector[j][0], y = vector[j][1];
            real += x;
            imaginary += y;
            vector[j][0] = x * turn[j][0] - y * turn[j][1];
            vector[j][1] = x * turn[j][1] + y * turn[j][0];
        }
        harpe_harmonic found = {(double)k / steps->iteration_s, factor * hypot(real, imaginary),
                                atan2(real, -imaginary)};
        if (found.swing_w > least_w) least_w = visit(user, &found, least_w);
    }
}

static double keep_strongest(void *user, const harpe_harmonic *found, double least_w) {
    harpe_power_shape *shape = user;
    (void)least_w;
    shape->swing_w = found->swing_w;
    shape->swing_hz = found->frequency_hz;
    return found->swing_w;
}

harpe_status harpe_plan_power_shape(const harpe_problem *problem, const int *frequency_mhz,
                                    harpe_power_shape *out, harpe_error *error) {
    harpe_power_steps steps;
    harpe_iteration run = {0};
    harpe_status status = power_steps_init(&steps, problem, error);
    if (status == HARPE_OK) status = harpe_iteration_run(&run, problem, frequency_mhz, error);
    if (status == HARPE_OK) {
        power_steps_list(&steps, problem, run.points, run.start_s, run.plan.time_s);
        *out =
            (harpe_power_shape){.peak_w = power_steps_peak_w(&steps, INFINITY, NULL, NULL, NULL)};
        power_steps_harmonics(&steps, HARPE_SWING_ROUNDING * out->peak_w, keep_strongest, out);
    }
    harpe_iteration_clear(&run);
    power_steps_clear(&steps);
    return status;
}

/* ---- Changing a plan ------------------------------------------------------------------------- */

/* The local search. A move changes the clock of one instruction. If changes of
 * clock cost something, it changes all instructions between two changes of a rank. The search
 * estimates by how much each move lowers the excess. It makes moves in batches, and begins with
 * those that add the least energy for the estimated gain. After each batch it computes the real
 * excess, and undoes the batch if the excess has not become smaller.
 *
 * The estimate: a watt at a moment has a weight, which is 1 while the power is above its limit,
 * plus a cosine for each component that is too strong. An instruction draws its power from its
 * start to its end. Its weighted energy is this power, above that of waiting, times the integral of
 * the weight. A move gains the weighted energy of the instruction before, less that after it. */

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
    power_steps_list(&r->steps, r->problem, r->points, r->start_s, r->plan.time_s);
    r->shape = (harpe_power_shape){
        .peak_w = power_steps_peak_w(&r->steps, peak_w, r->hot, &r->hot_count, &r->excess_j)};
    if (isfinite(r->swing_limit_w)) {
        double rounding_w = HARPE_SWING_ROUNDING * r->shape.peak_w;
        power_steps_harmonics(&r->steps, fmax(r->swing_limit_w, rounding_w), keep_strong, r);
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
    harpe_status status = power_steps_init(&r->steps, problem, error);
    if (r->arena.has_failed) status = harpe_fail_memory(error);
    if (status != HARPE_OK) return status;
    r->before = r->points + count;
    r->latest_s = r->start_s + count;
    r->dwell_s = r->latest_s + count;
    r->needed_s = r->dwell_s + ranks;
    return HARPE_OK;
}

void harpe_power_repair_clear(harpe_power_repair *r) {
    power_steps_clear(&r->steps);
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

/* ---- The plans of a set ---------------------------------------------------------------------- */

/* Starts are the plans that are faster by about these shares. */
static const double shares[] = {0, 0.005, 0.015, 0.04, 0.1};
/* Times beyond the slowest plan, as factors. */
static const double factors[] = {1.005, 1.01, 1.02, 1.04, 1.07, 1.1, 1.15, 1.2,
                                 1.3,   1.4,  1.6,  2,    3,    5,   10,   1e9};
/* Slower plans are made until so many of them in turn save nothing. */
#define FUTILE_TIMES 3
#define ROUNDING 1e-9
#define BISECTIONS 4

typedef struct limiter {
    harpe_power_repair repair;
    const harpe_problem *problem;
    harpe_plan_set *given, *simple; /* plans of the set; those with one clock */
    harpe_plan_set made;            /* plans that keep the limits */
    int *best_mhz, *lowest_mhz;     /* of the present time; every instruction at its lowest clock */
    bool is_asked;                  /* plans are made for times that were asked for */
    double best_j;                  /* INFINITY: none keeps the limits */
} limiter;

/* ---- Limits ---------------------------------------------------------------------------------- */

harpe_status harpe_power_limits_check(double peak_w, double swing_w, double swing_share,
                                      harpe_error *error) {
    if (!(peak_w >= 0 && swing_w >= 0 && swing_share >= 0))
        return harpe_fail(error, HARPE_INVALID_ARGUMENT,
                          "limits on power must be 0 (no limit) or more");
    return HARPE_OK;
}

harpe_power_limits harpe_power_limits_of(double peak_w, double swing_w, double swing_share) {
    return (harpe_power_limits){.peak_w = peak_w > 0 ? peak_w : INFINITY,
                                .swing_w = swing_w > 0 ? swing_w : INFINITY,
                                .swing_share = swing_share > 0 ? swing_share : INFINITY};
}

bool harpe_power_limits_any(const harpe_power_limits *limits) {
    return isfinite(limits->peak_w) || isfinite(limits->swing_w) || isfinite(limits->swing_share);
}

bool harpe_power_limits_are_wanted(const harpe_plan_request *request) {
    const harpe_power_limits limits = harpe_power_limits_of(
        request->max_peak_power_w, request->max_swing_w, request->max_swing_share);
    return harpe_power_limits_any(&limits);
}

harpe_status harpe_power_limits_fail(const harpe_power_repair *repair, double time_s,
                                     harpe_error *error) {
    bool has_peak = isfinite(repair->limits.peak_w), has_swing = isfinite(repair->swing_limit_w);
    return harpe_fail(
        error, HARPE_INFEASIBLE, "no plan%s%s%s keeps the limits on power; %s%s%s%s%s%s",
        time_s > 0 ? " of at most " : "", time_s > 0 ? HARPE_DIGITS(time_s, 9) : "",
        time_s > 0 ? " s" : "", has_peak ? "the lowest peak found is " : "",
        has_peak ? HARPE_DIGITS(repair->least.peak_w, 9) : "",
        has_peak && has_swing ? " W, and " : "", has_swing ? "the smallest swing found is " : "",
        has_swing ? HARPE_DIGITS(repair->least.swing_w, 9) : "", " W");
}

/* ---- One time -------------------------------------------------------------------------------- */

static harpe_status try_start(limiter *l, const int *frequency_mhz, double time_s,
                              harpe_error *error) {
    bool obeys = false;
    harpe_status status = harpe_power_repair_begin(&l->repair, frequency_mhz, time_s, error);
    if (status != HARPE_OK || l->repair.plan.time_s > time_s) return status;
    status = harpe_power_repair_run(&l->repair, &obeys, error);
    if (status != HARPE_OK || !obeys || l->repair.plan.energy_j >= l->best_j) return status;
    l->best_j = l->repair.plan.energy_j;
    harpe_power_repair_frequencies(&l->repair, l->best_mhz);
    return HARPE_OK;
}

/* Begins with the slowest given plans that are faster than the time by some shares. */
static harpe_status try_given(limiter *l, double time_s, harpe_error *error) {
    const harpe_plan *last = NULL;
    harpe_status status = HARPE_OK;
    for (size_t k = 0; k < sizeof shares / sizeof shares[0] && status == HARPE_OK; k++) {
        const harpe_plan *start = NULL;
        for (size_t i = 0; i < l->given->count; i++) {
            const harpe_plan *plan = &l->given->plans[i];
            if (plan->time_s > (1 - shares[k]) * time_s) continue;
            if (!start || plan->time_s > start->time_s) start = plan;
        }
        if (start && start != last) status = try_start(l, start->frequency_mhz, time_s, error);
        last = start;
    }
    return status;
}

/* Begins with the plan of one clock that needs the least energy of those that keep the limits. */
static harpe_status try_simple(limiter *l, double time_s, harpe_error *error) {
    const harpe_plan *best = NULL;
    for (size_t i = 0; l->simple && i < l->simple->count; i++) {
        const harpe_plan *plan = &l->simple->plans[i];
        if (plan->time_s > time_s || (best && best->energy_j <= plan->energy_j)) continue;
        harpe_status status =
            harpe_power_repair_begin(&l->repair, plan->frequency_mhz, time_s, error);
        if (status != HARPE_OK) return status;
        if (harpe_power_repair_obeys(&l->repair)) best = plan;
    }
    return best ? try_start(l, best->frequency_mhz, time_s, error) : HARPE_OK;
}

/* Begins with all plans of a set that are in time, until one leads to a plan within the limits. */
static harpe_status try_all(limiter *l, const harpe_plan_set *set, double time_s,
                            harpe_error *error) {
    harpe_status status = HARPE_OK;
    for (size_t i = 0; set && i < set->count && status == HARPE_OK && !isfinite(l->best_j); i++)
        status = try_start(l, set->plans[i].frequency_mhz, time_s, error);
    return status;
}

/* Makes a plan that takes at most this time, if one is found. */
static harpe_status make_plan(limiter *l, double time_s, harpe_error *error) {
    bool has_last = isfinite(l->best_j);
    l->best_j = INFINITY;
    harpe_status status = has_last ? try_start(l, l->best_mhz, time_s, error) : HARPE_OK;
    if (status == HARPE_OK) status = try_given(l, time_s, error);
    if (status == HARPE_OK) status = try_simple(l, time_s, error);
    if (status == HARPE_OK) status = try_start(l, l->lowest_mhz, time_s, error);
    if (l->is_asked && status == HARPE_OK) status = try_all(l, l->simple, time_s, error);
    if (l->is_asked && status == HARPE_OK) status = try_all(l, l->given, time_s, error);
    if (status != HARPE_OK || !isfinite(l->best_j)) return status;
    return harpe_plan_set_add(&l->made, l->problem, l->best_mhz, error);
}

/* ---- All times ------------------------------------------------------------------------------- */

/* Makes plans that are slower than all of the set, until these save no energy. */
static harpe_status make_slower(limiter *l, double slowest_s, harpe_error *error) {
    harpe_plan lowest;
    int futile = 0;
    harpe_status status = harpe_plan_evaluate(l->problem, l->lowest_mhz, &lowest, NULL, error);
    for (size_t k = 0; k < sizeof factors / sizeof factors[0] && status == HARPE_OK; k++) {
        double before_j = l->best_j, time_s = slowest_s * factors[k];
        status = make_plan(l, fmin(time_s, lowest.time_s), error);
        bool is_futile = isfinite(l->best_j) && !(l->best_j < before_j * (1 - ROUNDING));
        futile = is_futile ? futile + 1 : 0;
        if (futile == FUTILE_TIMES || time_s >= lowest.time_s) break;
    }
    return status;
}

/* Makes the plan of a time, which is that of the set if it keeps the limits. */
static harpe_status make_at(limiter *l, double time_s, bool *broken, harpe_error *error) {
    const harpe_plan *plan = harpe_plan_set_within(l->given, time_s);
    harpe_status status = HARPE_OK;
    *broken = true;
    if (plan) status = harpe_power_repair_begin(&l->repair, plan->frequency_mhz, INFINITY, error);
    if (status != HARPE_OK) return status;
    if (!plan || !harpe_power_repair_obeys(&l->repair))
        return make_plan(l, time_s * (1 + ROUNDING), error);
    *broken = false;
    l->best_j = l->repair.plan.energy_j;
    harpe_power_repair_frequencies(&l->repair, l->best_mhz);
    return harpe_plan_set_add(&l->made, l->problem, l->best_mhz, error);
}

/* Makes plans between two times, of which only the later one has a plan within the limits, to come
 * closer to the fastest one. */
static harpe_status make_between(limiter *l, double before_s, double after_s, harpe_error *error) {
    int *after_mhz = harpe_calloc(harpe_problem_instruction_count(l->problem), sizeof(int));
    size_t size = harpe_problem_instruction_count(l->problem) * sizeof *after_mhz;
    double after_j = l->best_j;
    harpe_status status = after_mhz ? HARPE_OK : harpe_fail_memory(error);
    if (after_mhz) memcpy(after_mhz, l->best_mhz, size);
    for (int k = 0; k < BISECTIONS && status == HARPE_OK; k++) {
        double time_s = (before_s + after_s) / 2;
        l->best_j = INFINITY;
        status = make_plan(l, time_s, error);
        if (isfinite(l->best_j))
            after_s = time_s;
        else
            before_s = time_s;
    }
    l->best_j = after_j;
    if (after_mhz) memcpy(l->best_mhz, after_mhz, size);
    free(after_mhz);
    return status;
}

/* Makes the plans of all times. */
static harpe_status make_all(limiter *l, const harpe_plan_request *request,
                             bool (*report)(void *user, double done), void *user,
                             harpe_error *error) {
    bool is_asked = request->choice == HARPE_PLANS_AT, broken = false;
    size_t count = is_asked ? request->time_count : l->given->count;
    harpe_status status = HARPE_OK;
    double time_s = 0;
    for (size_t k = 0; k < count && status == HARPE_OK; k++) {
        if (!report(user, (double)k / (double)count))
            return harpe_fail(error, HARPE_INTERRUPTED, "interrupted while making plans");
        time_s = is_asked ? request->times_s[k] : l->given->plans[k].time_s;
        if (is_asked && time_s == 0) time_s = l->given->plans[0].time_s;
        if (is_asked) l->best_j = INFINITY; /* the times are in any order */
        bool is_first = !is_asked && k > 0 && l->made.count == 0;
        status = make_at(l, time_s, &broken, error);
        if (status == HARPE_OK && is_first && isfinite(l->best_j))
            status = make_between(l, l->given->plans[k - 1].time_s, time_s, error);
        if (status == HARPE_OK && is_asked && !isfinite(l->best_j))
            status = harpe_power_limits_fail(&l->repair, time_s, error);
    }
    if (status == HARPE_OK && broken && !is_asked) status = make_slower(l, time_s, error);
    if (status == HARPE_OK && l->made.count == 0)
        status = harpe_power_limits_fail(&l->repair, 0, error);
    return status;
}

/* Returns whether all plans of the set keep the limits. */
static harpe_status find_broken(limiter *l, bool *found, harpe_error *error) {
    harpe_status status = HARPE_OK;
    *found = false;
    for (size_t i = 0; i < l->given->count && status == HARPE_OK && !*found; i++) {
        const int *frequency_mhz = l->given->plans[i].frequency_mhz;
        status = harpe_power_repair_begin(&l->repair, frequency_mhz, INFINITY, error);
        *found = status == HARPE_OK && !harpe_power_repair_obeys(&l->repair);
    }
    l->repair.least = (harpe_power_shape){.peak_w = INFINITY, .swing_w = INFINITY};
    return status;
}

static harpe_status limiter_init(limiter *l, const harpe_plan_request *request,
                                 harpe_error *error) {
    size_t count = harpe_problem_instruction_count(l->problem);
    harpe_power_limits limits = harpe_power_limits_of(
        request->max_peak_power_w, request->max_swing_w, request->max_swing_share);
    harpe_status status =
        harpe_power_repair_init(&l->repair, l->problem, &request->clock_switch, &limits, error);
    l->best_j = INFINITY;
    l->best_mhz = harpe_calloc(count, sizeof *l->best_mhz);
    l->lowest_mhz = harpe_calloc(count, sizeof *l->lowest_mhz);
    if (status == HARPE_OK && (!l->best_mhz || !l->lowest_mhz)) status = harpe_fail_memory(error);
    for (size_t i = 0; status == HARPE_OK && i < count; i++) {
        const harpe_choice *choice = harpe_problem_choice(l->problem, (int32_t)i);
        l->lowest_mhz[i] = choice->points[choice->point_count - 1].frequency_mhz;
    }
    if (status == HARPE_OK && !l->problem->graph)
        status = harpe_plan_set_one_clock(l->problem, &l->simple, error);
    return status;
}

static void limiter_clear(limiter *l) {
    harpe_power_repair_clear(&l->repair);
    harpe_plan_set_free(l->simple);
    harpe_plan_set_clear(&l->made);
    free(l->best_mhz);
    free(l->lowest_mhz);
}

harpe_status harpe_power_limits_keep(const harpe_problem *problem,
                                     const harpe_plan_request *request,
                                     bool (*report)(void *user, double done), void *user,
                                     harpe_plan_set *set, harpe_error *error) {
    limiter l = {.problem = problem, .given = set, .is_asked = request->choice == HARPE_PLANS_AT};
    bool has_broken = false;
    harpe_status status = limiter_init(&l, request, error);
    if (status == HARPE_OK) status = find_broken(&l, &has_broken, error);
    if (status == HARPE_OK && has_broken) status = make_all(&l, request, report, user, error);
    if (status == HARPE_OK && has_broken) {
        harpe_plan_set made = l.made;
        l.made = *set; /* to be freed */
        *set = made;
    }
    limiter_clear(&l);
    return status;
}
