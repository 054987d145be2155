/* SPDX-License-Identifier: Apache-2.0 */
/* The power of a whole pipeline over an iteration: its peak, and its strongest oscillation in the
 * band that power grids object to. An instruction draws its measured energy divided by its time,
 * and a rank that waits draws its blocking power, so the power is a step function of time. Both
 * results are exact for this function. Power that changes inside of an instruction is not known. */
#include "plan/power_shape.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/error.h"

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

/* Joins steps at the same moment. The times of different ranks are sums of different numbers, and
 * may differ in their last digits. Steps at the end of the iteration become one step at its start,
 * which is at the end of the list. */
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

harpe_status harpe_power_steps_init(harpe_power_steps *steps, const harpe_problem *problem,
                                    harpe_error *error) {
    size_t count = (size_t)problem->instruction_count, ranks = (size_t)problem->rank_count;
    size_t most = 4 * count + 2 * ranks + 1; /* instructions, waits, the end */
    *steps = (harpe_power_steps){0};
    steps->items = harpe_calloc(most, sizeof *steps->items);
    steps->turn = harpe_calloc(2 * most, sizeof *steps->turn);
    return steps->items && steps->turn ? HARPE_OK : harpe_fail_memory(error);
}

void harpe_power_steps_clear(harpe_power_steps *steps) {
    free(steps->items);
    free(steps->turn);
}

/* An instruction without duration has no power. */
void harpe_power_steps_list(harpe_power_steps *steps, const harpe_problem *problem,
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

double harpe_power_steps_peak_w(const harpe_power_steps *steps, double limit_w, harpe_hot_time *hot,
                                size_t *hot_count, double *excess_j) {
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
        hot[(*hot_count)++] =
            (harpe_hot_time){from_s, until_s, power_w - limit_w, hot_s, *excess_j};
        hot_s += until_s - from_s;
        *excess_j += (power_w - limit_w) * (until_s - from_s);
    }
    return highest_w;
}

/* The k-th harmonic of a periodic step function with the steps d_j at the times t_j has the
 * amplitude |sum of d_j exp(2 pi i k t_j / T)| / (pi k), and from peak to peak twice that. */
void harpe_power_steps_harmonics(harpe_power_steps *steps, double least_w,
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

static harpe_status find_shape(const harpe_problem *problem, const int *frequency_mhz,
                               harpe_power_steps *steps, const harpe_profile_point **points,
                               double *start_s, harpe_power_shape *shape, harpe_error *error) {
    harpe_status status = harpe_evaluate_find_points(problem, frequency_mhz, points, error);
    if (status != HARPE_OK) return status;
    double iteration_s = harpe_evaluate_points(problem, points, start_s).time_s;
    harpe_power_steps_list(steps, problem, points, start_s, iteration_s);
    shape->peak_w = harpe_power_steps_peak_w(steps, INFINITY, NULL, NULL, NULL);
    double least_w = HARPE_SWING_ROUNDING * shape->peak_w;
    harpe_power_steps_harmonics(steps, least_w, keep_strongest, shape);
    return HARPE_OK;
}

harpe_status harpe_plan_power_shape(const harpe_problem *problem, const int *frequency_mhz,
                                    harpe_power_shape *out, harpe_error *error) {
    size_t count = (size_t)problem->instruction_count;
    harpe_power_steps steps;
    harpe_power_shape shape = {0};
    const harpe_profile_point **points = harpe_calloc(count, sizeof *points);
    double *start_s = harpe_calloc(count, sizeof *start_s);
    harpe_status status = harpe_power_steps_init(&steps, problem, error);
    if (status == HARPE_OK && (!points || !start_s)) status = harpe_fail_memory(error);
    if (status == HARPE_OK)
        status = find_shape(problem, frequency_mhz, &steps, points, start_s, &shape, error);
    harpe_power_steps_clear(&steps);
    free(points);
    free(start_s);
    if (status == HARPE_OK) *out = shape;
    return status;
}
